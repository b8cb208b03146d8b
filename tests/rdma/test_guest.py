"""The tests from `inside`, a boot for files that belong together; skipped with the reason where no guest can be had."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.rdma import replayed
from tests.rdma.guest import boot, group
from tests.rdma.guest.packages import GuestUnavailableError

pytestmark = pytest.mark.rdma

TIMED = ["test_failover.py", "test_steer.py"]
"""Their figures are milliseconds of one emulated processor: `make test-rdma` runs them with nothing beside them."""
LONG = ["test_agent.py", "test_faults.py"]
"""Agents over minutes, whose recordings are replayed here."""
OTHERS = sorted({path.name for path in (group.ROOT / group.INSIDE).glob("test_*.py")} - {group.LOOP, *TIMED, *LONG})


@pytest.mark.timeout(600)
def test_what_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _in_the_guest(TIMED, tmp_path, capsys)


@pytest.mark.timeout(1500)
def test_what_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _in_the_guest(LONG, tmp_path, capsys)
    figures = [
        replayed.check(tmp_path / "agents", tmp_path / "replayed"),
        replayed.check_faults(tmp_path / "faults", tmp_path / "replayed-faults"),
    ]
    with capsys.disabled():
        print(*figures, sep="\n  ")


@pytest.mark.timeout(900)
def test_all_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _in_the_guest(OTHERS, tmp_path, capsys)


def _in_the_guest(files: list[str], out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run `files`, print their figures, and fail where one failed."""
    began_s = time.monotonic()
    try:
        done = group.run_group(files, out)
    except GuestUnavailableError as error:
        pytest.skip(f"no RDMA guest on this machine: {error}")
    log = done.result.log
    with capsys.disabled():
        figures = [line for line in log.splitlines() if line.startswith("figure ")]
        print(
            f"\n{', '.join(files)}: {len(done.outcomes)} tests, {time.monotonic() - began_s:.1f} s",
            *figures,
            sep="\n  ",
        )
    assert done.result.status == 0, log[-6000:]
    assert done.outcomes, log[-3000:]
    assert set(done.outcomes.values()) == {"passed"}, log[-6000:]


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
