"""Path tracing: which routers a path's packets pass, found by packets whose TTL runs out on the way.

A traced packet is like the path's probes (five-tuple, class, size) but for its TTL, so an ECMP hash sends it the same
way; the router at which the TTL runs out reports itself (ICMP time exceeded). How far the far host is, is known:
probes leave with TTL 255 and the reflector tells the TTL they arrive with. So TTLs 1…distance are asked for, and no
traced packet reaches the far host.

Routers answer such packets at a limited rate (Linux: one a second to each asker, after a burst of six). So packets
are few and spread, an unanswered hop is asked again, and a trace with gaps is made again after a growing pause. What
has no answer is ``None``; nothing is filled in from earlier traces. A path that falls silent is not traced.

Sans-IO: `trace_io` sends the packets and brings the answers. All times are the steady clock's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sdfstream.probes.datagrams import SENT_TTL
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Int64s, UInt8s

LONGEST: Final = 64
"""More routers than this, and the TTL was not 255 when the probe left."""
_WAIT_NS: Final = NS_PER_S
_TRIES: Final = 3
_SILENCE_NS: Final = 2 * NS_PER_S
"""A path heard again after this long is traced anew: it may run elsewhere now."""
_GAP_PAUSE_NS: Final = 10 * NS_PER_S
_BURST: Final = 4.0
"""Packets that may go at once."""
_NEVER: Final = np.iinfo(np.int64).max

Key = tuple[int, bytes, int]
"""Slot, destination address and port: what an ICMP error tells that quotes none of our payload."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a packet on this path that lives for `ttl` hops."""

    path: int
    ttl: int
    token: int
    """Stands in the packet's first four octets, so that a quoted packet is recognised."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A finished trace: one entry per router on the way, None where none answered."""

    path: int
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


class Tracer:
    """When to ask which hop of which path.

    Parameters
    ----------
    keys : sequence of Key
        One per path. Of paths with the same key only one is traced at a time.
    interval_ns : int
        A path is traced anew this long after its last trace.
    rate_hz : float
        Packets per second over all paths.
    """

    def __init__(self, keys: Sequence[Key], interval_ns: int, rate_hz: float) -> None:
        n = len(keys)
        self._keys = tuple(keys)
        self._interval_ns = interval_ns
        self._rate_hz = rate_hz
        self._allowance = _BURST
        self._filled_at = 0
        self._due_at: Int64s = np.full(n, _NEVER, np.int64)
        self._distance: Int64s = np.full(n, -1, np.int64)
        self._heard_at: Int64s = np.full(n, ABSENT_NS, np.int64)
        self._gaps = [0] * n
        self._jobs: dict[int, _Job] = {}
        self._busy: dict[Key, int] = {}
        self._count = 0

    def heard(self, heard_at_ns: Int64s, ttl_fwd: UInt8s, now_ns: int) -> None:
        """What the probes show, per path: when an answer was last heard (ABSENT_NS: never), and the TTL it told.

        A path is due when it is first heard, when its length changes, and when it comes back from silence.
        """
        fresh = heard_at_ns > self._heard_at
        returned = fresh & (self._heard_at < heard_at_ns - _SILENCE_NS)
        distance = np.where(ttl_fwd > 0, SENT_TTL - ttl_fwd.astype(np.int64), -1)
        distance[distance > LONGEST] = -1
        moved = fresh & (distance != self._distance)
        self._heard_at = heard_at_ns.copy()
        for path in np.flatnonzero(moved | returned).tolist():
            self._end(path)
            self._distance[path] = distance[path]
            self._gaps[path] = 0
            self._due_at[path] = now_ns if distance[path] >= 0 else _NEVER

    def due(self, now_ns: int) -> list[Ask]:
        """Packets to send now."""
        self._allowance = min(_BURST, self._allowance + (now_ns - self._filled_at) * self._rate_hz / NS_PER_S)
        self._filled_at = now_ns
        asks: list[Ask] = []
        for path, job in self._waiting(now_ns):
            if self._allowance < 1:
                break
            self._allowance -= 1
            job.tries += 1
            job.sent_at = now_ns
            asks.append(Ask(path, job.ttl, job.token))
        return asks

    def exceeded(self, key: Key, token: int | None, offender: bytes) -> None:
        """A router reports that the TTL ran out; `token` from the quoted packet, None when it quotes too little."""
        path = self._busy.get(key)
        if path is None:
            return
        job = self._jobs[path]
        if job.done or not job.tries or (token is not None and token != job.token):
            return
        job.hops[job.ttl - 1] = offender
        job.next_hop()

    def finished(self, now_ns: int) -> list[Trace]:
        """Traces that are done since the last call; gives up on hops that do not answer."""
        traces = []
        for path, job in list(self._jobs.items()):
            if job.sent_at is not None and now_ns - job.sent_at >= _WAIT_NS:
                job.sent_at = None
                if job.tries >= _TRIES:
                    job.next_hop()
            if self._silent(path, now_ns):
                self._end(path)
                self._due_at[path] = _NEVER  # until it is heard again
            elif job.done:
                traces.append(Trace(path, tuple(job.hops)))
                self._end(path)
                self._gaps[path] = self._gaps[path] + 1 if None in job.hops else 0
                self._due_at[path] = now_ns + self._pause_ns(self._gaps[path])
        return traces

    def slots(self) -> set[int]:
        """Sockets with a trace under way: their ICMP errors are wanted."""
        return {key[0] for key in self._busy}

    def _waiting(self, now_ns: int) -> list[tuple[int, _Job]]:
        """Jobs that are to send: those under way first, then as many new ones as may send, the longest due first."""
        jobs = [(path, job) for path, job in self._jobs.items() if job.sent_at is None and not job.done]
        room = int(self._allowance) - len(jobs)
        if room > 0:
            due = np.flatnonzero(self._due_at <= now_ns)
            for path in due[np.argsort(self._due_at[due], kind="stable")].tolist():
                if room <= 0:
                    break
                if self._keys[path] not in self._busy and not self._silent(path, now_ns):
                    job = self._start(path)
                    if not job.done:  # without a router on the way there is nothing to ask
                        jobs.append((path, job))
                        room -= 1
        return jobs

    def _start(self, path: int) -> _Job:
        self._count += 1
        job = self._jobs[path] = _Job(self._count, [None] * int(self._distance[path]))
        self._busy[self._keys[path]] = path
        self._due_at[path] = _NEVER
        return job

    def _end(self, path: int) -> None:
        if self._jobs.pop(path, None) is not None:
            del self._busy[self._keys[path]]

    def _silent(self, path: int, now_ns: int) -> bool:
        return bool(now_ns - int(self._heard_at[path]) >= _SILENCE_NS)

    def _pause_ns(self, gaps: int) -> int:
        """The usual interval, or after a trace with gaps a shorter one that grows back to it."""
        return min(self._interval_ns, _GAP_PAUSE_NS << min(gaps - 1, 20)) if gaps else self._interval_ns
