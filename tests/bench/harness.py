"""What every measurement shares: its result, CPU time of processes, hogs, and ending what was started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class SkippedError(Exception):
    """This machine cannot make the measurement; the text says why."""


@dataclass
class Result:
    """What one measurement found."""

    name: str
    lines: list[str] = field(default_factory=list)
    """For people, figure by figure."""
    figures: dict[str, Any] = field(default_factory=dict)
    skipped: str | None = None
    load: list[float] = field(default_factory=list)
    """Load averages of the machine when it ended."""

    def say(self, line: str, **figures: Any) -> None:
        self.lines.append(line)
        self.figures |= figures


def main(name: str, measure: Callable[[Result, bool], None]) -> None:
    """Run one measurement as a process of its own; the result is the last line, as JSON."""
    result = Result(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` blocks end what they began
    try:
        measure(result, "--quick" in sys.argv)
    except SkippedError as why:
        result.skipped = str(why)
    result.load = [round(x, 1) for x in os.getloadavg()]
    print(json.dumps(asdict(result)))


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, smallest, largest."""
    return float(np.median(values)), min(values), max(values)


def against(goal: str, met: bool) -> str:
    return f"goal {goal}: {'met' if met else 'NOT met'}"


@dataclass
class Usage:
    """What a process has used: CPU seconds, resident bytes (now and at most), voluntary switches."""

    cpu_s: float
    rss_bytes: int
    peak_bytes: int
    switches: int


def usage(pid: int) -> Usage:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    kib = {key: int(status[key].split()[0]) * 1024 if key in status else 0 for key in ("VmRSS", "VmHWM")}
    return Usage(
        (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S,
        kib["VmRSS"],
        kib["VmHWM"] or kib["VmRSS"],
        int(status.get("voluntary_ctxt_switches", "0")),
    )


@contextlib.contextmanager
def process(command: Sequence[str], log: Path, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`command` while the block runs; ended afterwards, killed when it does not obey."""
    with log.open("wb") as out:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **more)
    try:
        time.sleep(0.3)
        if started.poll() is not None:
            raise SkippedError(f"{command[0]} ended at once: {log.read_text()[-300:].strip()}")
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.terminate()
        try:
            started.wait(5)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """`count` processes that do nothing but spin; each ends by itself after two minutes, come what may."""
    spin = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
    started = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()
