"""Tracing: which routers packets pass, found by packets whose TTL runs out on the way.

A traced packet is like those it stands for (five-tuple, class) but for its TTL, so an ECMP hash sends it the same way;
the router at which the TTL runs out reports itself (ICMP time exceeded). How far the far host is, must be known before:
TTLs 1…distance are asked for, and no traced packet reaches the far host.

Routers answer such packets at a limited rate (Linux: one a second to each asker, after a burst of six). So packets
are few and spread, an unanswered hop is asked again, and a trace with gaps is made again after a growing pause. What
has no answer is ``None``; nothing is filled in from earlier traces.

The `Tracer` takes turns between *subjects* of any kind: probe paths (`paths`), flows and ways back
(`flows`). Those who know when a subject is to be traced ask for it, with a rank: among those due the lowest rank
goes first, then who has waited longest.

Sans-IO: `trace_io` sends the packets and brings the answers. All times are the steady clock's.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from sdfstream.records.units import NS_PER_S

LONGEST: Final = 64
"""More routers than this, and the TTL was not 255 when the probe left."""
NOW, SOON, USUAL = 0, 1, 2
"""Ranks: flows somebody waits for; what is new or has changed; repeats."""
_WAIT_NS: Final = NS_PER_S
_TRIES: Final = 3
_GAP_PAUSE_NS: Final = 10 * NS_PER_S
_BURST: Final = 4.0
"""Packets that may go at once, at least."""
_BURST_S: Final = 0.05
"""A higher rate lets as many go at once as it gives in this time."""

Subject = Hashable
Key = Hashable
"""What an ICMP error tells of the packet that caused it, apart from the token."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a packet for this subject that lives for `ttl` hops."""

    subject: Subject
    ttl: int
    token: int
    """32 bits that stand in the packet, as far as it has room, so that a quoted packet is recognised."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A finished trace: one entry per router on the way, None where none answered."""

    subject: Subject
    hops: tuple[bytes | None, ...]

    @property
    def complete(self) -> bool:
        """Whether every router answered."""
        return None not in self.hops


@dataclass(slots=True)
class _Job:
    """A trace under way."""

    number: int
    hops: list[bytes | None]
    ttl: int = 1
    tries: int = 0
    sent_at: int | None = None
    """When the packet was sent that has no answer yet; None: one is to be sent."""

    @property
    def token(self) -> int:
        return (self.number & 0xFFFFFF) << 8 | self.ttl

    @property
    def done(self) -> bool:
        return self.ttl > len(self.hops)

    def next_hop(self) -> None:
        self.ttl += 1
        self.tries = 0
        self.sent_at = None


@dataclass(slots=True)
class _Entry:
    key: Key
    distance: int = 0
    gaps: int = 0
    turn: int = -1
    """Number of its place in the queue that counts; −1: none."""
    due_at: int = 0
    rank: int = USUAL


class Tracer:
    """When to ask which hop of what.

    Parameters
    ----------
    interval_ns : int
        Something is traced anew this long after its last trace.
    rate_hz : float
        Packets per second over all subjects.
    """

    def __init__(self, interval_ns: int, rate_hz: float) -> None:
        self._interval_ns = interval_ns
        self._rate_hz = rate_hz
        self._burst = self._allowance = max(_BURST, rate_hz * _BURST_S)
        self._filled_at = 0
        self._entries: dict[Subject, _Entry] = {}
        self._jobs: dict[Subject, _Job] = {}
        self._busy: dict[Key, Subject] = {}
        self._later: list[tuple[int, int, Subject]] = []
        """Heap of (due at, turn, subject)."""
        self._ready: list[tuple[int, int, int, Subject]] = []
        """Heap of (rank, due at, turn, subject)."""
        self._turns = itertools.count()
        self._count = 0

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._entries

    def add(self, subject: Subject, key: Key) -> None:
        """Get to know a subject; of those with one key only one is traced at a time. It is not traced until `ask`."""
        self._entries[subject] = _Entry(key)

    def drop(self, subject: Subject) -> None:
        """Forget a subject."""
        self._end(subject)
        self._entries.pop(subject, None)

    def ask(self, subject: Subject, distance: int, due_at_ns: int, rank: int = SOON) -> None:
        """Trace this subject from `due_at_ns` on, over so many routers; what is under way is given up."""
        entry = self._entries[subject]
        self._end(subject)
        entry.gaps = 0
        entry.distance = distance
        self._queue(subject, entry, due_at_ns, rank)

    def hold(self, subject: Subject) -> None:
        """Do not trace this subject until it is asked for again."""
        self._end(subject)
        self._entries[subject].turn = -1

    def asked(self, subject: Subject) -> bool:
        """Whether a trace is under way or due some day."""
        return subject in self._jobs or self._entries[subject].turn >= 0

    def busy(self) -> list[Subject]:
        """Subjects whose trace is under way."""
        return list(self._jobs)

    def due(self, now_ns: int) -> list[Ask]:
        """Packets to send now."""
        self._allowance = min(self._burst, self._allowance + (now_ns - self._filled_at) * self._rate_hz / NS_PER_S)
        self._filled_at = now_ns
        asks: list[Ask] = []
        for subject, job in self._waiting(now_ns):
            if self._allowance < 1:
                break
            self._allowance -= 1
            job.tries += 1
            job.sent_at = now_ns
            asks.append(Ask(subject, job.ttl, job.token))
        return asks

    def exceeded(self, key: Key, token: int | None, offender: bytes, bits: int = 32) -> bool:
        """A router reports that the TTL ran out; whether that was expected.

        `token`: the lowest `bits` of it, from the quoted packet; None when it quotes too little.
        """
        subject = self._busy.get(key)
        if subject is None:
            return False
        job = self._jobs[subject]
        expected = job.token & ((1 << bits) - 1)
        if job.done or not job.tries or (token is not None and token != expected):
            return False
        job.hops[job.ttl - 1] = offender
        job.next_hop()
        return True

    def finished(self, now_ns: int) -> list[Trace]:
        """Traces that are done since the last call; gives up on hops that do not answer."""
        traces = []
        for subject, job in list(self._jobs.items()):
            if job.sent_at is not None and now_ns - job.sent_at >= _WAIT_NS:
                job.sent_at = None
                if job.tries >= _TRIES:
                    job.next_hop()
            if job.done:
                traces.append(Trace(subject, tuple(job.hops)))
                self._end(subject)
                entry = self._entries[subject]
                entry.gaps = entry.gaps + 1 if None in job.hops else 0
                self._queue(subject, entry, now_ns + self._pause_ns(entry.gaps), USUAL)
        return traces

    def _waiting(self, now_ns: int) -> list[tuple[Subject, _Job]]:
        """Jobs that are to send: those under way first, then as many new ones as may send."""
        jobs = [(subject, job) for subject, job in self._jobs.items() if job.sent_at is None and not job.done]
        room = int(self._allowance) - len(jobs)
        while self._later and self._later[0][0] <= now_ns:
            due_at, turn, subject = heapq.heappop(self._later)
            if self._counts(subject, turn):
                heapq.heappush(self._ready, (self._entries[subject].rank, due_at, turn, subject))
        put_off = []
        while self._ready and room > 0:
            place = heapq.heappop(self._ready)
            subject = place[3]
            if not self._counts(subject, place[2]):
                continue
            if self._entries[subject].key in self._busy:
                put_off.append(place)
                continue
            job = self._start(subject)
            if not job.done:  # without a router on the way there is nothing to ask
                jobs.append((subject, job))
                room -= 1
        for place in put_off:
            heapq.heappush(self._ready, place)
        return jobs

    def _queue(self, subject: Subject, entry: _Entry, due_at_ns: int, rank: int) -> None:
        entry.turn, entry.due_at, entry.rank = next(self._turns), due_at_ns, rank
        heapq.heappush(self._later, (due_at_ns, entry.turn, subject))
        if len(self._later) > 64 + 4 * len(self._entries):  # mostly places that do not count any more
            self._later = [place for place in self._later if self._counts(place[2], place[1])]
            heapq.heapify(self._later)

    def _counts(self, subject: Subject, turn: int) -> bool:
        entry = self._entries.get(subject)
        return entry is not None and entry.turn == turn

    def _start(self, subject: Subject) -> _Job:
        self._count += 1
        entry = self._entries[subject]
        job = self._jobs[subject] = _Job(self._count, [None] * entry.distance)
        self._busy[entry.key] = subject
        entry.turn = -1
        return job

    def _end(self, subject: Subject) -> None:
        if self._jobs.pop(subject, None) is not None:
            del self._busy[self._entries[subject].key]

    def _pause_ns(self, gaps: int) -> int:
        """The usual interval, or after a trace with gaps a shorter one that grows back to it."""
        return min(self._interval_ns, _GAP_PAUSE_NS << min(gaps - 1, 20)) if gaps else self._interval_ns
