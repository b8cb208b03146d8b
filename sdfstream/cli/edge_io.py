"""The edge of the command line: the only place of a verb that looks at a clock, waits, or reads the environment."""

from __future__ import annotations

import os
import time


def now_ns() -> int:
    """System clock, ns since the Unix epoch."""
    return time.time_ns()


def steady_s() -> float:
    """Seconds of a clock that nobody steps."""
    return time.monotonic()


def wait(seconds: float) -> None:
    """Do nothing for so long."""
    time.sleep(seconds)


def default_environment(name: str, value: str) -> None:
    """Set a variable of this process's environment, for its children, where nothing is set."""
    os.environ.setdefault(name, value)
