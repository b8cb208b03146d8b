"""The tests from `inside` in one boot; skipped with the reason where no guest can be had."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.rdma import replayed
from tests.rdma.guest import boot, group
from tests.rdma.guest.packages import GuestUnavailableError

pytestmark = pytest.mark.rdma

FILES = sorted(path.name for path in (group.ROOT / group.INSIDE).glob("test_*.py") if path.name != group.LOOP)


@pytest.mark.timeout(1500)
def test_in_the_guest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All files in one boot: to start it, its fabric and pytest takes as long as the tests of a file."""
    began_s = time.monotonic()
    try:
        done = group.run_group(FILES, tmp_path)
    except GuestUnavailableError as error:
        pytest.skip(f"no RDMA guest on this machine: {error}")
    log = done.result.log
    with capsys.disabled():
        figures = [line for line in log.splitlines() if line.startswith("figure ")]
        print(
            f"\n{', '.join(FILES)}: {len(done.outcomes)} tests, {time.monotonic() - began_s:.1f} s",
            *figures,
            sep="\n  ",
        )
    assert done.result.status == 0, log[-6000:]
    assert done.outcomes, log[-3000:]
    assert set(done.outcomes.values()) == {"passed"}, log[-6000:]
    figures = [
        replayed.check(tmp_path / "agents", tmp_path / "replayed"),
        replayed.check_faults(tmp_path / "faults", tmp_path / "replayed-faults"),
    ]
    with capsys.disabled():
        print(*figures, sep="\n  ")


@pytest.mark.timeout(600)
def test_a_command_that_hangs_is_ended_and_tried_once_more(tmp_path: Path) -> None:
    try:
        with pytest.raises(boot.GuestFailedError, match="twice"):
            boot.run(["sleep", "1000"], tmp_path, folder=group.ROOT, limit_s=2)
    except GuestUnavailableError as error:
        pytest.skip(f"no RDMA guest on this machine: {error}")


@pytest.mark.timeout(600)
def test_status_and_files_come_back(tmp_path: Path) -> None:
    try:
        done = boot.run(["sh", "-c", "echo hello; echo x >/out/found; exit 7"], tmp_path, folder=group.ROOT)
    except GuestUnavailableError as error:
        pytest.skip(f"no RDMA guest on this machine: {error}")
    assert (done.status, done.log, (tmp_path / "found").read_text(), done.boots) == (7, "hello\n", "x\n", 1)
