"""Whether a process is well, judged by the signs of life of its readers. Plain values in, sentences out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

STALL_S: Final = 30.0
"""No progress for so long is a stop. Shorter, and a broker that restarts (4–12 s) looks like one."""
PORT: Final = 9464
"""Where processes serve their metrics by convention (the number that Prometheus exporters of OpenTelemetry use)."""


STANDBY_S: Final = 15.0
"""Who takes part in a stage's work for so long and was given no unit of it stands by: to join takes a few seconds."""


class Signs(Protocol):
    """Signs of life of a process's readers, by their names: `stage_io.Control`."""

    @property
    def lag(self) -> dict[str, int]:
        """Messages not read."""

    @property
    def progress_s(self) -> dict[str, float]:
        """When each last moved, or found nothing left to read; seconds of a monotonic clock."""

    @property
    def reached_ns(self) -> dict[str, int]:
        """Bus time that each has been stepped to."""

    @property
    def oldest_ns(self) -> dict[str, int]:
        """When the oldest message that each has taken and not settled entered the bus."""

    @property
    def joined_s(self) -> dict[str, float]:
        """Since when the process takes part in each stage's work; same clock."""


def problems(signs: Signs, expected: Collection[str], now_s: float, *, stall_s: float = STALL_S) -> list[str]:
    """Why a process is not well, in sentences; none when it is.

    Parameters
    ----------
    signs : Signs
    expected : collection of str
        Readers that must be there, stages by their name whatever units of them; one that has not begun is a problem,
        since nothing is known of it.
    now_s : float
        Same clock as in `signs`.
    stall_s : float
        A reader without progress for longer than this has stopped.
    """
    progress_s = signs.progress_s.copy()  # another thread's mappings
    lag = signs.lag.copy()
    begun = {name.partition("/")[0] for name in progress_s}
    begun |= {name for name, at_s in signs.joined_s.copy().items() if now_s - at_s > STANDBY_S}
    found = [f"{name} has not begun yet" for name in sorted(set(expected) - begun)]
    for name, at_s in sorted(progress_s.items()):
        if now_s - at_s > stall_s:
            found.append(_stopped(name, lag.get(name, 0), now_s - at_s))
    return found


def _stopped(name: str, lag: int, for_s: float) -> str:
    if lag:
        return f"{name} has not moved for {for_s:.0f} s and is {lag} messages behind"
    return f"{name} has not come round for {for_s:.0f} s"
