"""Slots for the sessions that come and go: room in the sender's arrays, and which session has it.

A *slot* has a shape: how many ports, at what rate, and whether its paths are watched. A slot whose session has ended
keeps that session until its last rows are written; then another session of the same shape may have the slot. A session
that is requested again finds its old slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sdfstream.probes.config import SessionConfig
from sdfstream.records.units import NS_PER_S

DRAIN_NS: Final = 3 * NS_PER_S
"""The last probes of an ended session have timed out and their rows are written by then."""


@dataclass(frozen=True, slots=True)
class SessionChange:
    """Sessions to begin, by slot, and slots whose sessions end."""

    begin: Mapping[int, SessionConfig] = field(default_factory=dict)
    end: Sequence[int] = ()
    lacking: int = 0
    """Wanted sessions that have no slot now."""

    def __bool__(self) -> bool:
        return bool(self.begin or self.end)


@dataclass(slots=True)
class SessionSlot:
    """Room for one session."""

    session: SessionConfig
    owner: str
    """``watch``, ``candidate`` or ``plan``."""
    active: bool = True
    ended_at_ns: int = 0
    """Steady clock."""

    @property
    def shape(self) -> tuple[str, int, float]:
        """What another session must have to take this slot."""
        return self.owner, len(self.session.source_ports), self.session.rate_hz


class SessionSlots:
    """The slots of one host's sender, in order."""

    def __init__(self) -> None:
        self._all: list[SessionSlot] = []
        self._slots_of: Counter[str] = Counter()
        """By owner."""
        self._free: dict[tuple[str, int, float], list[int]] = {}
        self._last: dict[tuple[str, SessionConfig], int] = {}

    def running(self, owner: str) -> dict[SessionConfig, int]:
        """The sessions of `owner` that run, and their slots."""
        return {p.session: i for i, p in enumerate(self._all) if p.active and p.owner == owner}

    def change_to(self, wanted: Collection[SessionConfig], owner: str, most: int, now_ns: int) -> SessionChange:
        """End the sessions of `owner` that are not `wanted`; give the others a slot each, of at most `most`."""
        running = self.running(owner)
        end = [slot for session, slot in running.items() if session not in wanted]
        for slot in end:
            self.end(slot, now_ns)
        begin: dict[int, SessionConfig] = {}
        lacking = 0
        for session in wanted:
            if session in running:
                continue
            slot = self.take(session, owner, most, now_ns)
            if slot < 0:
                lacking += 1
            else:
                begin[slot] = session
        return SessionChange(begin, end, lacking)

    def owner(self, slot: int) -> str:
        """Who has, or had, the session in `slot`."""
        return self._all[slot].owner

    def end(self, slot: int, now_ns: int) -> None:
        """The session in `slot` has ended."""
        found = self._all[slot]
        found.active, found.ended_at_ns = False, now_ns
        self._free.setdefault(found.shape, []).append(slot)

    def take(self, session: SessionConfig, owner: str, most: int, now_ns: int) -> int:
        """A slot for `session`: its own old one, a drained one of the same shape, or a new one; −1: none now."""
        wanted = SessionSlot(session, owner)
        slot = self._last.get((owner, session), -1)
        if slot < 0 or self._all[slot].active or self._all[slot].session != session:
            slot = next(self._drained(wanted, now_ns), -1)
        if slot < 0:
            if self._slots_of[owner] >= most:
                return -1
            slot = len(self._all)
            self._all.append(wanted)
            self._slots_of[owner] += 1
        else:
            self._free[wanted.shape].remove(slot)
            self._last.pop((owner, self._all[slot].session), None)
            self._all[slot] = wanted
        self._last[owner, session] = slot
        return slot

    def _drained(self, wanted: SessionSlot, now_ns: int) -> Iterator[int]:
        """Free slots of the shape of `wanted` with no exchange in transit, lowest first."""
        free = sorted(self._free.get(wanted.shape, ()))
        return (slot for slot in free if now_ns - self._all[slot].ended_at_ns >= DRAIN_NS)
