"""Jobs by the command line: started on a running lab, listed, stopped, and gone with the lab."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.lab import SMALL, up_or_skip

pytestmark = pytest.mark.lab


@pytest.fixture
def lab() -> Iterator[Callable[..., dict[str, Any]]]:
    """``sdfstream lab`` in a runtime folder of its own, with a lab that is up."""
    with up_or_skip(SMALL):
        pass
    with tempfile.TemporaryDirectory(prefix="sdf") as runtime:

        def call(*words: str) -> dict[str, Any]:
            done = subprocess.run(
                [sys.executable, "-m", "sdfstream", "lab", *words],
                env={**os.environ, "XDG_RUNTIME_DIR": runtime, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                text=True,
                timeout=90,
            )
            lines = done.stdout.splitlines()
            found = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
            return {"exit": done.returncode, "said": done.stderr, **found}

        assert call("up", "--json", "--hosts", "4", "--spines", "2")["exit"] == 0
        yield call
        call("down")


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").is_symlink() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_start_list_stop_and_the_end_of_the_lab(lab: Callable[..., dict[str, Any]]) -> None:
    first = lab("job", "start", "--json", "--name", "train-a", "--hosts", "h00,h02", "--message-mb", "0.2")
    second = lab("job", "start", "--json", "--name", "train-b", "--hosts", "h00,h02", "--collective", "all-to-all")
    assert first["exit"] == second["exit"] == 0, first["said"] + second["said"]
    again = lab("job", "start", "--name", "train-a", "--hosts", "h00,h02")
    assert (again["exit"], "is running" in again["said"]) == (2, True)
    end = time.monotonic() + 30
    while not all(job["collectives"] for job in lab("job", "list", "--json")["jobs"]):
        assert time.monotonic() < end
    listed = lab("job", "list", "--json")["jobs"]
    assert [(job["job"], job["checked_wrong"]) for job in listed] == [("train-a", 0), ("train-b", 0)]
    stopped = lab("job", "stop", "--json", "train-b")
    assert stopped["checked_wrong"] == 0
    assert [job["job"] for job in lab("job", "list", "--json")["jobs"]] == ["train-a"]
    unknown = lab("job", "stop", "train-x")
    assert (unknown["exit"], "no job named 'train-x'" in unknown["said"]) == (2, True)
    wrong = lab("job", "start", "--name", "c", "--hosts", "h00,h77")
    assert (wrong["exit"], "no such NIC in the lab: h77/r0" in wrong["said"]) == (2, True)
    lab("down")
    end = time.monotonic() + 20
    while alive(first["pid"]):
        assert time.monotonic() < end, "the job outlived its lab"
        time.sleep(0.1)
