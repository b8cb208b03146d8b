"""The troubles of this process, since when each has been there, and what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.stats import Counters, HasCounters
from sdfstream.troubles import Troubles

POLL_S: Final = 1.0
"""How often `OwnTroubles.look` is called."""
_HOLD_S: Final = 5.0
"""A trouble is over when it has been gone for so long: a disk on the brink takes one write and not the next."""


@dataclass(slots=True)
class OngoingTrouble:
    """One trouble of the process."""

    what: str
    """Part of the process and what of it, such as ``archive.disk``."""
    why: str
    since_at_ns: int
    seen_s: float
    """When it was last there, monotonic clock."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, for status and findings."""
        return {"what": self.what, "why": self.why, "since_at_ns": self.since_at_ns}


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters alone, as a part of a process."""

    counters: Counters


class OwnTroubles:
    """What of `counted` is in trouble; looked at by one task, read from any thread.

    Parameters
    ----------
    counted : sequence of HasCounters
        Parts of the process. Each names its troubles in its counters.
    """

    def __init__(self, counted: Sequence[HasCounters]) -> None:
        self._counted = counted
        self._ongoing: dict[str, OngoingTrouble] = {}
        self.own = Troubles()
        """Of the process itself."""

    def look(self, now_s: float, now_ns: int) -> None:
        """Take up what is new, and end what has been gone for some seconds."""
        for what, why in self._current(now_s).items():
            known = self._ongoing.get(what)
            since_ns = now_ns if known is None else known.since_at_ns
            self._ongoing = {**self._ongoing, what: OngoingTrouble(what, why, since_ns, now_s)}
        self._ongoing = {w: t for w, t in self._ongoing.items() if now_s - t.seen_s <= _HOLD_S}

    @property
    def ongoing(self) -> Mapping[str, OngoingTrouble]:
        """By what is affected."""
        return self._ongoing

    def sentences(self) -> list[str]:
        """What is wrong, for ``/health``."""
        return [f"{t.what}: {t.why}" for _, t in sorted(self._ongoing.items())]

    def as_data(self) -> list[dict[str, Any]]:
        """All, oldest first."""
        return [t.as_data() for t in sorted(self._ongoing.values(), key=lambda t: (t.since_at_ns, t.what))]

    def _current(self, now_s: float) -> dict[str, str]:
        found = self.own.current(now_s)
        for one in self._counted:
            counters = one.counters
            for what, why in counters.troubles.current(now_s).items():
                found[f"{counters.stage}.{what}"] = why
        return found
