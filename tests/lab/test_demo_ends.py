"""However a demo ends, only its data folder stays, which the next takes, and the engine compiled for its user."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.fixtures.lab import SMALL, up_or_skip

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
AS_ROOT_OF_A_USER_NAMESPACE = ("unshare", "--user", "--map-root-user", "--")
AS_AN_ORDINARY_USER = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")


@pytest.fixture(autouse=True, scope="module")
def lab_is_possible() -> None:
    with up_or_skip(SMALL):
        pass


PACKAGES = {"PYTHONPATH": os.pathsep.join([str(ROOT), *(p for p in sys.path if "site-packages" in p)])}


def allowed(before: tuple[str, ...], *command: str) -> bool:
    try:
        ended = subprocess.run(
            [*before, *command], capture_output=True, timeout=60, cwd=ROOT, env={**os.environ, **PACKAGES}
        )
    except OSError:
        return False
    return ended.returncode == 0


def python_for(before: tuple[str, ...]) -> str:
    """A Python that may be run: ours may lie in a folder that is root's alone."""
    for python in (sys.executable, "/usr/bin/python3"):
        if allowed((*before, *AS_ROOT_OF_A_USER_NAMESPACE), python, "-c", "import sdfstream.pipeline, chdb"):
            return python
    pytest.skip("an ordinary user may not run a Python with the packages here")


@contextmanager
def demo(
    home: Path, until: str, before: tuple[str, ...] = (), python: str = sys.executable
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A small demo with all its files below `home`, once it has said `until`; killed at the end of the block."""
    environment = {**os.environ, "TMPDIR": str(home / "tmp"), "XDG_RUNTIME_DIR": str(home / "tmp"), "HOME": str(home)}
    environment |= {**PACKAGES, "PYTHONDONTWRITEBYTECODE": "1"}
    (home / "tmp").mkdir(exist_ok=True)
    (home / "tmp").chmod(0o777)
    log = home / "said"
    command = [*before, python, "-m", "sdfstream", "demo", "--small", "--data", str(home / "data")]
    with log.open("wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=environment, start_new_session=True)
    try:
        end = time.monotonic() + 90
        while until not in log.read_text() and running.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        said = log.read_text()
        assert until in said, said
        yield running, said
    finally:
        running.kill()
        running.wait()


def children(running: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found = psutil.Process(running.pid).children(recursive=True)
    assert found, "a demo in full run has an agent"
    return found


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert not alive, "what held the lab's namespaces outlived the demo"


def assert_nothing_stays(home: Path) -> None:
    assert list((home / "tmp").iterdir()) == []
    assert sorted(p.name for p in home.iterdir() if p.name != ".cache") == ["data", "said", "tmp"]
    kept = [p.relative_to(home / ".cache") for p in (home / ".cache").rglob("*") if p.is_file()]
    assert all(p.parts[:2] == ("sdfstream", "engine") for p in kept), kept


@pytest.mark.parametrize("before", [(), AS_ROOT_OF_A_USER_NAMESPACE], ids=["root", "user namespace"])
def test_killed_amid_a_fault_nothing_stays_and_the_next_demo_takes_the_data_folder(
    tmp_path: Path, before: tuple[str, ...]
) -> None:
    """Nor does anything stay of the next demo, which is interrupted."""
    if before and not allowed(before, "true"):
        pytest.skip("no user namespace to be had")
    with demo(tmp_path, "1/4", before) as (running, _):
        processes = children(running)
        running.kill()
        assert running.wait(20) == -signal.SIGKILL
    assert_gone(processes)
    assert_nothing_stays(tmp_path)
    if not before:
        with demo(tmp_path, "ready after") as (running, said):
            processes = children(running)
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 130
        assert "nic-down" not in said
        assert_gone(processes)
        assert_nothing_stays(tmp_path)


def test_an_ordinary_user_gets_a_live_lab(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        folder = Path("/tmp") / f"sdfstream-test-{os.getpid()}"
        folder.mkdir(mode=0o777)
        before = AS_AN_ORDINARY_USER
    else:
        folder, before = tmp_path, ()
    try:
        if not allowed(before, *AS_ROOT_OF_A_USER_NAMESPACE, "true"):
            pytest.skip("no user namespace to be had")
        python = python_for(before)
        folder.chmod(0o777)
        with demo(folder, "ready after", before, python) as (running, said):
            processes = children(running)
            running.terminate()
            assert running.wait(20) == 130
        assert "working in a user namespace" in said
        assert_gone(processes)
        assert_nothing_stays(folder)
    finally:
        if before:
            subprocess.run(["rm", "-rf", str(folder)], check=True)
