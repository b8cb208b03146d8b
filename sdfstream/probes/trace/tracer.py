"""Traceroute: which routers a flow passes, found by probes whose TTL expires in transit.

A hop probe equals the packets of its flow (five-tuple, class) but for the TTL, so an ECMP hash gives it the same route;
the router at which the TTL expires reports itself (ICMP time exceeded). The distance to the far host must be known
before: TTLs 1…distance are probed, and no hop probe reaches the far host.

Routers answer such packets at a limited rate (Linux: one a second to each sender, after a burst of six). So probes are
few and spread, an unanswered hop is probed again, and a trace with gaps is made again after a growing pause. A hop
without an answer is ``None``; nothing is filled in from earlier traces.

The `Tracer` schedules *subjects* of any kind: probe paths (`paths`), flows and answers (`flows`). A trace is requested
for an instant and with a rank: among the due ones the lowest rank goes first, then the longest due.

What has fallen silent is traced apart (`silent`).

Sans-IO: `trace_io` sends the probes and takes the answers. All times are the steady clock's.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from sdfstream.records.units import NS_PER_S

MAX_HOPS: Final = 64
"""More routers than this, and the TTL was not 255 when the probe left."""
NOW, SOON, LATER, USUAL = range(4)
"""Ranks: flows whose queue pairs wait for the trace; new or changed subjects; further flows; repeats."""
_WAIT_NS: Final = NS_PER_S
_TRIES: Final = 3
_GAP_PAUSE_NS: Final = 10 * NS_PER_S
_BURST: Final = 4.0
"""Probes that may go at once, at least."""
_BURST_S: Final = 0.05
"""A higher rate allows as many at once as fall into this time."""

Subject = Hashable
Key = Hashable
"""What an ICMP error quotes of the packet that caused it, apart from the token."""


@dataclass(frozen=True, slots=True)
class HopProbe:
    """A packet to send for this subject that expires after `ttl` hops."""

    subject: Subject
    ttl: int
    token: int
    """32 bits in the packet, as far as it has room, by which a quoted packet is recognised."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A finished trace: one entry per router of the route, None where none answered."""

    subject: Subject
    hops: tuple[bytes | None, ...]
    silent: bool = False
    """The subject was silent before the first packet of the trace was sent."""

    @property
    def complete(self) -> bool:
        """Whether every router answered."""
        return None not in self.hops


@dataclass(slots=True)
class _Run:
    """A trace in progress: TTL 1 to the last router, each hop probed up to `_TRIES` times."""

    number: int
    hops: list[bytes | None]
    ttl: int = 1
    tries: int = 0
    sent_at_ns: int | None = None
    """Of the probe without an answer yet; None: the next one is to be sent."""

    @property
    def token(self) -> int:
        return (self.number & 0x7FFFFF) << 8 | self.ttl

    @property
    def done(self) -> bool:
        return self.ttl > len(self.hops)

    def next_hop(self) -> None:
        self.ttl += 1
        self.tries = 0
        self.sent_at_ns = None


@dataclass(slots=True)
class _SubjectState:
    key: Key
    distance: int = 0
    gaps: int = 0
    ticket: int = -1
    """Number of its heap entry in force; −1: none."""
    rank: int = USUAL


class Tracer:
    """When to probe which hop of which subject.

    Parameters
    ----------
    interval_ns : int
        A subject is traced anew this long after its last trace.
    rate_hz : float
        Probes per second over all subjects.
    """

    def __init__(self, interval_ns: int, rate_hz: float) -> None:
        self._interval_ns = interval_ns
        self._rate_hz = rate_hz
        self._burst = self._allowance = max(_BURST, rate_hz * _BURST_S)
        self._filled_at_ns = 0
        self._subjects: dict[Subject, _SubjectState] = {}
        self._runs: dict[Subject, _Run] = {}
        self._busy: dict[Key, Subject] = {}
        self._later: list[tuple[int, int, Subject]] = []
        """Heap of (due at, ticket, subject)."""
        self._ready: list[tuple[int, int, int, Subject]] = []
        """Heap of (rank, due at, ticket, subject)."""
        self._tickets = itertools.count()
        self._count = 0

    def add(self, subject: Subject, key: Key) -> None:
        """Take a subject, not traced until `request`; of subjects with one key only one is traced at a time."""
        self._subjects[subject] = _SubjectState(key)

    def drop(self, subject: Subject) -> None:
        """Forget a subject."""
        self._end(subject)
        self._subjects.pop(subject, None)

    def request(self, subject: Subject, distance: int, due_at_ns: int, rank: int = SOON) -> None:
        """Trace this subject from `due_at_ns` on, over `distance` routers; a trace in progress is abandoned."""
        state = self._subjects[subject]
        self._end(subject)
        state.gaps, state.distance = 0, distance
        self._queue(subject, state, due_at_ns, rank)

    def hold(self, subject: Subject) -> None:
        """Do not trace this subject until the next request."""
        self._end(subject)
        self._subjects[subject].ticket = -1

    def busy(self) -> list[Subject]:
        """Subjects whose trace is in progress."""
        return list(self._runs)

    @property
    def hurries(self) -> bool:
        """Whether a subject whose route is not known, or may have changed, is being traced or could be by now."""
        waits = bool(self._ready) and self._ready[0][0] < USUAL
        return waits or any(self._subjects[subject].rank < USUAL for subject in self._runs)

    def due(self, now_ns: int) -> list[HopProbe]:
        """Probes to send now."""
        self._allowance = min(self._burst, self._allowance + (now_ns - self._filled_at_ns) * self._rate_hz / NS_PER_S)
        self._filled_at_ns = now_ns
        probes: list[HopProbe] = []
        for subject, run in self._waiting(now_ns):
            if self._allowance < 1:
                break
            self._allowance -= 1
            run.tries += 1
            run.sent_at_ns = now_ns
            probes.append(HopProbe(subject, run.ttl, run.token))
        return probes

    def exceeded(self, key: Key, token: int | None, offender: bytes, bits: int = 32) -> bool:
        """Take a router's report that a TTL expired; whether it answers a probe in transit.

        `token`: the lowest `bits` of it, from the quoted packet; None when it quotes too little.
        """
        subject = self._busy.get(key)
        if subject is None:
            return False
        run = self._runs[subject]
        expected = run.token & ((1 << bits) - 1)
        if run.done or not run.tries or (token is not None and token != expected):
            return False
        run.hops[run.ttl - 1] = offender
        run.next_hop()
        return True

    def finished(self, now_ns: int) -> list[Trace]:
        """Traces that were finished since the last call; hops without an answer after `_TRIES` are left as None."""
        traces = []
        for subject, run in list(self._runs.items()):
            if run.sent_at_ns is not None and now_ns - run.sent_at_ns >= _WAIT_NS:
                run.sent_at_ns = None
                if run.tries >= _TRIES:
                    run.next_hop()
            if run.done:
                traces.append(Trace(subject, tuple(run.hops)))
                self._end(subject)
                state = self._subjects[subject]
                state.gaps = state.gaps + 1 if None in run.hops else 0
                self._queue(subject, state, now_ns + self._pause_ns(state.gaps), USUAL)
        return traces

    def _waiting(self, now_ns: int) -> list[tuple[Subject, _Run]]:
        """Runs with a probe to send: those in progress first, then as many new ones as the rate allows."""
        runs = [(subject, run) for subject, run in self._runs.items() if run.sent_at_ns is None and not run.done]
        room = int(self._allowance) - len(runs)
        while self._later and self._later[0][0] <= now_ns:
            due_at_ns, ticket, subject = heapq.heappop(self._later)
            if self._is_current(subject, ticket):
                heapq.heappush(self._ready, (self._subjects[subject].rank, due_at_ns, ticket, subject))
        put_off = []
        while self._ready and room > 0:
            entry = heapq.heappop(self._ready)
            subject = entry[3]
            if not self._is_current(subject, entry[2]):
                continue
            if self._subjects[subject].key in self._busy:
                put_off.append(entry)
                continue
            run = self._start(subject)
            if not run.done:  # without a router between the NICs there is no hop to probe
                runs.append((subject, run))
                room -= 1
        for entry in put_off:
            heapq.heappush(self._ready, entry)
        return runs

    def _queue(self, subject: Subject, state: _SubjectState, due_at_ns: int, rank: int) -> None:
        state.ticket, state.rank = next(self._tickets), rank
        heapq.heappush(self._later, (due_at_ns, state.ticket, subject))
        if len(self._later) > 64 + 4 * len(self._subjects):  # mostly entries that are not in force any more
            self._later = [entry for entry in self._later if self._is_current(entry[2], entry[1])]
            heapq.heapify(self._later)

    def _is_current(self, subject: Subject, ticket: int) -> bool:
        state = self._subjects.get(subject)
        return state is not None and state.ticket == ticket

    def _start(self, subject: Subject) -> _Run:
        self._count += 1
        state = self._subjects[subject]
        run = self._runs[subject] = _Run(self._count, [None] * state.distance)
        self._busy[state.key] = subject
        state.ticket = -1
        return run

    def _end(self, subject: Subject) -> None:
        if self._runs.pop(subject, None) is not None:
            del self._busy[self._subjects[subject].key]

    def _pause_ns(self, gaps: int) -> int:
        """The usual interval, or after a trace with gaps a shorter one that grows back to it."""
        return min(self._interval_ns, _GAP_PAUSE_NS << min(gaps - 1, 20)) if gaps else self._interval_ns
