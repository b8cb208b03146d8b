"""Whether a process is well, by the progress of its readers. Plain values in, sentences out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

STALL_S: Final = 30.0
"""A reader without progress for so long has stopped. Shorter, and a broker's restart (4–12 s) looks like a stop."""
PORT: Final = 9464
"""Where processes serve their metrics by convention (the number that Prometheus exporters of OpenTelemetry use)."""
STANDBY_S: Final = 15.0
"""A process that joined a stage's group so long ago and has no unit stands by; joining takes a few seconds."""


class ReaderProgress(Protocol):
    """Progress of a process's readers, by their names: `control_io.RunControl`."""

    @property
    def lag(self) -> dict[str, int]:
        """Messages not read."""

    @property
    def progress_at_s(self) -> dict[str, float]:
        """When each last read a message, or found none left; seconds of a monotonic clock."""

    @property
    def reached_at_ns(self) -> dict[str, int]:
        """Bus time that each has been stepped to."""

    @property
    def oldest_at_ns(self) -> dict[str, int]:
        """Bus time of the oldest message that each has taken and not committed."""

    @property
    def joined_at_s(self) -> dict[str, float]:
        """When the process joined each stage's group; same clock."""


def problems(
    readers: ReaderProgress, expected: Collection[str], now_s: float, *, stall_s: float = STALL_S
) -> list[str]:
    """Why a process is not well, in sentences; none when it is.

    Parameters
    ----------
    readers : ReaderProgress
    expected : collection of str
        Readers that must be there, stages by their name, whichever units run here; one that has not begun is a
        problem.
    now_s : float
        Same clock as in `readers`.
    stall_s : float
        A reader without progress for longer than this has stopped.
    """
    progress_at_s = readers.progress_at_s.copy()  # another thread's mappings
    lag = readers.lag.copy()
    begun = {name.partition("/")[0] for name in progress_at_s}
    begun |= {name for name, at_s in readers.joined_at_s.copy().items() if now_s - at_s > STANDBY_S}
    found = [f"{name} has not begun yet" for name in sorted(set(expected) - begun)]
    for name, at_s in sorted(progress_at_s.items()):
        if now_s - at_s > stall_s:
            found.append(_stopped(name, lag.get(name, 0), now_s - at_s))
    return found


def _stopped(name: str, lag: int, for_s: float) -> str:
    if lag:
        return f"{name} has not moved for {for_s:.0f} s and is {lag} messages behind"
    return f"{name} has not come round for {for_s:.0f} s"
