"""What is wrong with a process now: a disk that takes nothing, a helper thread that ended or does not get on.

A counter says how often something happened; a trouble says what has not ended. Whoever meets one says so here, and that
it is over; `status`, ``/health`` and a finding of class telemetry report it (``runtime/own_troubles.py``). Without a
clock: `current` is given the time, and whoever asks it regularly knows since when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

STARVED_S: Final = 30.0
"""A helper with work and without progress for so long is starved, or hangs in a disk or a driver."""


@dataclass(slots=True)
class Helper:
    """A thread that works for the loop: what it does is noted here, by itself or by who hands it work.

    Examples
    --------
    >>> helper = Helper("archive")
    >>> helper.begin(100.0)
    >>> helper.trouble(129.0), helper.trouble(140.0)
    (None, 'the thread archive has made no progress for over 30 s')
    >>> helper.rest()
    >>> helper.trouble(500.0)
    """

    name: str
    limit_s: float = STARVED_S
    working_since_s: float | None = None
    """Since when it has had work without progress, monotonic clock; None: it waits for work."""
    ended: str = ""
    """Why it ended without being asked to; empty: it has not."""

    def begin(self, now_s: float) -> None:
        """It has work, or has made progress and goes on."""
        self.working_since_s = now_s

    def rest(self) -> None:
        """It has nothing to do."""
        self.working_since_s = None

    def end(self, error: BaseException) -> None:
        """It ended by a defect."""
        self.ended = f"{type(error).__name__}: {error}"

    def trouble(self, now_s: float) -> str | None:
        """What is wrong with it; None: nothing is."""
        if self.ended:
            return f"the thread {self.name} ended by a defect: {self.ended}"
        since_s = self.working_since_s  # another thread may rest now
        if since_s is None or now_s - since_s <= self.limit_s:
            return None
        return f"the thread {self.name} has made no progress for over {self.limit_s:.0f} s"


@dataclass(slots=True)
class Troubles:
    """The troubles of one part of a process. Any thread may begin and end them."""

    open: dict[str, str] = field(default_factory=dict)
    """What is affected → a sentence, the same for as long as the reason is: each change is told again."""
    helpers: dict[str, Helper] = field(default_factory=dict)

    def begin(self, what: str, sentence: str) -> None:
        """`what` is in trouble from now on, or still, for this reason."""
        self.open[what] = sentence

    def end(self, what: str) -> None:
        """`what` is well again, if it was not."""
        self.open.pop(what, None)

    def helper(self, name: str, limit_s: float = STARVED_S) -> Helper:
        """The helper thread `name`, to be watched."""
        return self.helpers.setdefault(name, Helper(name, limit_s))

    def current(self, now_s: float) -> dict[str, str]:
        """All troubles at `now_s` of the monotonic clock."""
        found = self.open.copy()
        for name, helper in self.helpers.copy().items():
            if (sentence := helper.trouble(now_s)) is not None:
                found[f"thread {name}"] = sentence
        return found
