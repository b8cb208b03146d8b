"""Whose CPU time is whose."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sdfstream.demo.cpu_io import CpuShares
from sdfstream.demo.report import shares

TICKS = os.sysconf("SC_CLK_TCK")


def show(proc: Path, pid: int, parent: int, user_s: float, system_s: float) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    ticks = f"{int(user_s * TICKS)} {int(system_s * TICKS)}"
    (proc / str(pid) / "stat").write_text(f"{pid} (a b) c) S {parent} 0 0 0 0 0 0 0 0 0 {ticks} 0 0 0 0 1 0 1")


def show_machine(proc: Path, busy_s: float) -> None:
    (proc / "stat").write_text(f"cpu {int(busy_s * TICKS)} 0 0 99999 7 0 0 500 0 0\ncpu0 1 1 1\n")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clock = iter([0.0, 100.0])
    monkeypatch.setattr("sdfstream.demo.cpu_io.time.monotonic", lambda: next(clock))
    (tmp_path / "self").mkdir()
    show_machine(tmp_path, 1000)
    return tmp_path


def test_a_group_has_its_processes_time_since_the_beginning_and_that_of_their_descendants(proc: Path) -> None:
    show(proc, 1, 0, 5, 5)
    show(proc, 10, 1, 50, 50)  # the pipeline's, which began long ago
    cpu = CpuShares(proc)
    assert cpu.as_dict() == {}
    cpu.add("pipeline", [10])
    cpu.add("agent", [20])
    cpu.add("jobs", [30, None, 31])
    show(proc, 1, 0, 90, 90)  # nobody's
    show(proc, 10, 1, 70, 60)
    show(proc, 11, 10, 8, 2)  # a helper of the pipeline
    show(proc, 20, 10, 15, 5)  # a child of the pipeline, and a group of its own
    show(proc, 21, 20, 1, 0)
    show(proc, 30, 10, 3, 2)
    show(proc, 31, 10, 1, 1)
    show_machine(proc, 1125)
    cpu.end()
    figures = cpu.as_dict()
    assert figures["of_a_core"] == {"pipeline": 0.4, "agent": 0.21, "jobs": 0.07}
    assert (figures["machine"], figures["seconds"]) == (1.25, 100.0)
    figures["cores"] = 2
    text = "CPU time over 100 s: pipeline 40 % of a core, agent 21 %, jobs 7 %; 1.2 of 2 cores busy in all"
    assert shares(figures) == text


def test_of_real_processes() -> None:
    cpu = CpuShares()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        cpu.add("busy", [busy.pid])
        time.sleep(0.6)
        cpu.end()
    finally:
        busy.kill()
        busy.wait()
    assert 0 < cpu.as_dict()["of_a_core"]["busy"] <= 1.2
    assert cpu.as_dict()["machine"] > 0
