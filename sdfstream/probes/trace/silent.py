"""How far the packets of a path that has fallen silent still get: one quick trace.

What tells which of the links in a row passes nothing is the last router that answers. All TTLs are probed at once, and
those without an answer once more: that takes two waits, however long the route is. It goes beside the rate of usual
traces (`tracer`), which would take seconds; whoever asks bounds the number (`paths`).

An answer is told from others by the token in the packet that it quotes. Of a path one of whose routers quotes too
little for that, nothing is told: an answer that cannot be placed is no gap.

Sans-IO: `trace_io` sends the probes and takes the answers. All times are the steady clock's.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from sdfstream.probes.trace.tracer import HopProbe, Key, Subject, Trace
from sdfstream.records.units import ABSENT_NS, NS_PER_MS

WAIT_NS: Final = 100 * NS_PER_MS
"""The route is short: what answers at all has answered by then, or when it is asked again."""
TRIES: Final = 2
_MARK: Final = 1 << 31
"""In each token: those of usual traces have none (`tracer`)."""
_NUMBERS: Final = 1 << 23


@dataclass(slots=True)
class _Run:
    """A trace in progress: TTL 1 to the last router."""

    number: int
    key: Key
    hops: list[bytes | None]
    tries: int = 0
    sent_at_ns: int = ABSENT_NS
    unclear: bool = False
    """An answer came that quotes too little to be placed."""

    def probes(self, subject: Subject) -> list[HopProbe]:
        """One for each router that has not answered."""
        mark = _MARK | self.number << 8
        return [HopProbe(subject, ttl, mark | ttl) for ttl, hop in enumerate(self.hops, 1) if hop is None]

    def is_done(self, now_ns: int) -> bool:
        return None not in self.hops or (self.tries >= TRIES and now_ns - self.sent_at_ns >= WAIT_NS)


class SilentTracer:
    """Traces subjects that are silent, each once."""

    def __init__(self) -> None:
        self._runs: dict[Subject, _Run] = {}
        self._numbers = itertools.count()

    def request(self, subject: Subject, key: Key, distance: int) -> None:
        """Trace this subject at once over `distance` routers, whose answers come under `key`."""
        self._runs[subject] = _Run(next(self._numbers) % _NUMBERS, key, [None] * distance)

    def cancel(self, subject: Subject) -> None:
        """Tell nothing of this subject: it is answered again, or gone."""
        self._runs.pop(subject, None)

    def busy(self) -> list[Subject]:
        """Subjects whose trace is in progress."""
        return list(self._runs)

    def due(self, now_ns: int) -> list[HopProbe]:
        """Probes to send now."""
        probes: list[HopProbe] = []
        for subject, run in self._runs.items():
            if run.tries < TRIES and (not run.tries or now_ns - run.sent_at_ns >= WAIT_NS):
                run.tries, run.sent_at_ns = run.tries + 1, now_ns
                probes += run.probes(subject)
        return probes

    def exceeded(self, key: Key, token: int | None, offender: bytes) -> bool:
        """Take a router's report that a TTL expired; whether it answers a probe of a trace in progress.

        `token`: from the quoted packet; None when it quotes too little.
        """
        mine = [run for run in self._runs.values() if run.key == key]
        if token is None:
            for run in mine:
                run.unclear = True
            return bool(mine)
        ttl = token & 0xFF
        for run in mine:
            if token >> 8 == (_MARK | run.number << 8) >> 8 and 0 < ttl <= len(run.hops):
                run.hops[ttl - 1] = offender
                return True
        return False

    def finished(self, now_ns: int) -> list[Trace]:
        """Traces that were finished since the last call; routers without an answer are None."""
        over = [(subject, run) for subject, run in self._runs.items() if run.is_done(now_ns)]
        for subject, _ in over:
            del self._runs[subject]
        return [Trace(subject, tuple(run.hops), silent=True) for subject, run in over if not run.unclear]
