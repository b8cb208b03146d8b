"""The edge of the command line: the only place of a verb that looks at a clock, waits, or reads the environment."""

from __future__ import annotations

import os
import time


def now_ns() -> int:
    """System clock, ns since the Unix epoch."""
    return time.time_ns()


def steady_s() -> float:
    """Monotonic clock, s."""
    return time.monotonic()


def cpu_s() -> float:
    """Seconds of CPU that this process has used."""
    return time.process_time()


def wait(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


def default_environment(name: str, value: str) -> None:
    """Set an environment variable for the child processes, unless it is set."""
    os.environ.setdefault(name, value)
