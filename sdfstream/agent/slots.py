"""Room for sessions that come and go: places in the sender's arrays, and who may have which.

A *place* has a shape: how many ports, at what rate, and whether its paths are watched. A place whose session has ended
keeps its name until its last rows are written, then another session of the same shape may have it; a session that is
wished for again finds its old place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sdfstream.probes.config import SessionConfig
from sdfstream.records.units import NS_PER_S

DRAIN_NS: Final = 3 * NS_PER_S
"""The last probes of an ended session have timed out and their rows are written by then."""


@dataclass(frozen=True, slots=True)
class Change:
    """Sessions to begin, by place, and places whose sessions end."""

    begin: Mapping[int, SessionConfig] = field(default_factory=dict)
    end: Sequence[int] = ()

    def __bool__(self) -> bool:
        return bool(self.begin or self.end)


@dataclass(slots=True)
class Place:
    """Room for one session."""

    session: SessionConfig
    owner: str
    """``watch`` or ``plan``."""
    active: bool = True
    ended_at: int = 0
    """Steady clock."""

    @property
    def shape(self) -> tuple[str, int, float]:
        """What another session must have to take this place."""
        return self.owner, len(self.session.source_ports), self.session.rate_hz


class Places:
    """The places of one host's sender, in order."""

    def __init__(self) -> None:
        self._all: list[Place] = []
        self._free: dict[tuple[str, int, float], list[int]] = {}
        self._last: dict[tuple[str, SessionConfig], int] = {}

    def running(self, owner: str) -> dict[SessionConfig, int]:
        """The sessions of `owner` that run, and where."""
        return {p.session: i for i, p in enumerate(self._all) if p.active and p.owner == owner}

    def count(self, owner: str) -> int:
        """Places that `owner` has had."""
        return sum(p.owner == owner for p in self._all)

    def end(self, place: int, now_ns: int) -> None:
        """The session there has ended."""
        found = self._all[place]
        found.active, found.ended_at = False, now_ns
        self._free.setdefault(found.shape, []).append(place)

    def take(self, session: SessionConfig, owner: str, most: int, now_ns: int) -> int:
        """A place for `session`: its own old one, one of the same shape that has drained, a new one; −1: none now."""
        wanted = Place(session, owner)
        place = self._last.get((owner, session), -1)
        if place < 0 or self._all[place].active or self._all[place].session != session:
            place = next(self._drained(wanted, now_ns), -1)
        if place < 0:
            if self.count(owner) >= most:
                return -1
            place = len(self._all)
            self._all.append(wanted)
        else:
            self._free[wanted.shape].remove(place)
            self._last.pop((owner, self._all[place].session), None)
            self._all[place] = wanted
        self._last[owner, session] = place
        return place

    def _drained(self, wanted: Place, now_ns: int) -> Iterator[int]:
        drained: Callable[[int], bool] = lambda i: now_ns - self._all[i].ended_at >= DRAIN_NS  # noqa: E731
        return (i for i in sorted(self._free.get(wanted.shape, ())) if drained(i))
