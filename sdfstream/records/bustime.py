"""Instants of agents' clocks on the bus's time line: when something was seen, however late it was published.

A reading and the bus time of the message that carries it differ by the clock's offset from the bus and by how long the
message took. The smallest difference seen so far is taken for the offset, so a message that waited is dated back by
as much as it waited longer than the fastest one. The estimate may rise slowly, since clocks drift. It starts afresh
after a jump of minutes, and when readings went back and stay behind: a producer's messages come in its order, so that
is a clock that was set, not lateness.

What a message teaches is used from the next bus instant on, so that it does not matter how rows are spread over
messages of one instant.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]

_MOST_CLOCKS = 65_536
_DRIFT = 10_000
"""The estimate may rise by 1/_DRIFT of the time passed: 100 ppm."""
_JUMP_NS = 120 * NS_PER_S
_SET_NS: Final = 2500 * NS_PER_MS
"""Readings that go back by less may stand so in a producer's rows: a lost probe's is that of its sending."""
_SURE_NS: Final = 3 * NS_PER_S
"""Readings stay behind for so long before the clock counts as set: rows kept over an outage come between newer ones."""
LATE_NS: Final = NS_PER_S
"""What is made this long before it enters the bus is late."""
_BACK_NS = 60 * NS_PER_S
"""Nothing is dated back further than this."""
_FAR_NS: Final = 1 << 62
"""A clock that shows the wildest reading of 64 bits lies no further off than this: sums stay within 64 bits."""


@dataclass(slots=True)
class _ClockOffset:
    offset_ns: int
    """Bus time less reading, smallest so far."""
    at_ns: int
    waiting_ns: int
    """Smallest difference of bus instant `waiting_at_ns`, not used yet."""
    waiting_at_ns: int
    reading_ns: int
    """Newest reading of the last message."""
    set_ns: int = 0
    """Smallest difference since readings went back."""
    set_at_ns: int = ABSENT_NS
    """When they did; absent: they did not, or have come forward again."""


_FIELDS: Final = tuple(f.name for f in fields(_ClockOffset))
"""Plain numbers, which `astuple` would copy deep, at ten times the cost."""


class BusTime:
    """Offsets of clocks by name."""

    def __init__(self) -> None:
        self._clocks: dict[str, _ClockOffset] = {}

    def note(self, clock: str, reading_ns: int, at_ns: int) -> None:
        """Take the newest reading in a message that entered the bus at `at_ns`."""
        difference_ns = min(max(at_ns - reading_ns, -_FAR_NS), _FAR_NS)
        known = self._clocks.get(clock)
        if known is None:
            if len(self._clocks) < _MOST_CLOCKS:
                self._clocks[clock] = _ClockOffset(difference_ns, at_ns, difference_ns, at_ns, reading_ns)
            return
        self._watch_for_setting(known, reading_ns, difference_ns, at_ns)
        if at_ns > known.waiting_at_ns:
            self._fold(known)
            known.waiting_ns, known.waiting_at_ns = difference_ns, at_ns
        known.waiting_ns = min(known.waiting_ns, difference_ns)

    @staticmethod
    def _watch_for_setting(known: _ClockOffset, reading_ns: int, difference_ns: int, at_ns: int) -> None:
        back = known.reading_ns - reading_ns > _SET_NS
        known.reading_ns = reading_ns
        if known.set_at_ns == ABSENT_NS:
            if back:
                known.set_ns, known.set_at_ns = difference_ns, at_ns
            return
        known.set_ns = min(known.set_ns, difference_ns)
        if known.set_ns - known.offset_ns < _SET_NS:
            known.set_at_ns = ABSENT_NS
        elif at_ns - known.set_at_ns > _SURE_NS:
            known.offset_ns, known.at_ns, known.set_at_ns = known.set_ns, at_ns, ABSENT_NS
            known.waiting_ns, known.waiting_at_ns = known.set_ns, at_ns

    @staticmethod
    def _fold(known: _ClockOffset) -> None:
        risen_ns = known.offset_ns + (known.waiting_at_ns - known.at_ns) // _DRIFT
        jumped = known.waiting_ns - known.offset_ns > _JUMP_NS
        known.offset_ns = known.waiting_ns if jumped else min(risen_ns, known.waiting_ns)
        known.at_ns = known.waiting_at_ns

    def of(self, clock: str, readings_ns: Ints, at_ns: int) -> Ints:
        """Bus time of readings in a message that entered the bus at `at_ns`: then or before; then, if all is new."""
        offset_ns = self.offset_ns(clock, at_ns)
        if offset_ns is None:
            return np.full(readings_ns.shape, at_ns, np.int64)
        return dated(readings_ns, offset_ns, at_ns)

    def offset_ns(self, clock: str, at_ns: int) -> int | None:
        """What to add to readings in a message that entered the bus at `at_ns` (`dated`); None: they are of then."""
        known = self._clocks.get(clock)
        if known is None or known.at_ns == at_ns:
            return None
        if at_ns > known.waiting_at_ns:
            self._fold(known)
            known.waiting_ns, known.waiting_at_ns = known.offset_ns + _JUMP_NS, at_ns
        return known.offset_ns

    def of_one(self, clock: str, reading_ns: int, at_ns: int) -> int:
        """`of` a single reading."""
        offset_ns = self.offset_ns(clock, at_ns)
        if offset_ns is None:
            return at_ns
        within_ns = min(max(reading_ns, -_FAR_NS), _FAR_NS)
        return min(max(within_ns + offset_ns, at_ns - _BACK_NS), at_ns)

    def of_exchanges(self, batch: pa.RecordBatch, at_ns: int) -> tuple[Ints, list[tuple[str, int]]]:
        """(rows,) bus time at which each exchange of a probe batch ended; and up to when each host has reported.

        An exchange ends with its answer, or for want of one with the probe's sending. The newest reading of every
        clock is taken as by `note`; a host has reported up to the newest of its clocks' (one, or one in each NIC).
        """
        t4_ns = columns.instants(batch, "t4_ns")
        ended_ns = np.where(t4_ns == ABSENT_NS, columns.values(batch, "t1_ns"), t4_ns)
        src, nics = columns.coded(batch, "src")
        clock, clocks = columns.coded(batch, "clock_src")
        seen_ns = np.full(batch.num_rows, at_ns, np.int64)
        hosts: dict[str, int] = {}
        for number, mine in _by_code(clock):
            name, nic = clocks[number].as_py(), nics[int(src[mine][0])].as_py()
            if name is None or nic is None:
                continue
            self.note(name, int(ended_ns[mine].max()), at_ns)
            seen_ns[mine] = self.of(name, ended_ns[mine], at_ns)
            host, newest_ns = host_of(nic), int(seen_ns[mine].max())
            hosts[host] = max(hosts.get(host, newest_ns), newest_ns)
        return seen_ns, sorted(hosts.items())

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[name, *(getattr(clock, field) for field in _FIELDS)] for name, clock in self._clocks.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._clocks = {name: _ClockOffset(*rest) for name, *rest in state}


def dated(readings_ns: Ints, offset_ns: Ints | int, at_ns: Ints | int) -> Ints:
    """Bus time of readings, not after their message and not further back than a minute."""
    result: Ints = np.minimum(np.maximum(readings_ns + offset_ns, at_ns - _BACK_NS), at_ns)
    return result


def as_of_ns(made_ns: int, at_ns: int) -> int:
    """The instant of which a message speaks that entered the bus at `at_ns`: then, unless it is late.

    >>> as_of_ns(5_000_000_000, 5_200_000_000), as_of_ns(5_000_000_000, 9_000_000_000)
    (5200000000, 5000000000)
    """
    return at_ns if at_ns - made_ns <= LATE_NS else made_ns


def _by_code(codes: npt.NDArray[np.int32]) -> list[tuple[int, Any]]:
    """Each code that is no null, and which rows have it; an agent's rows are mostly of one clock."""
    if codes.size and codes[0] >= 0 and bool((codes == codes[0]).all()):
        return [(int(codes[0]), slice(None))]
    return [(number, codes == number) for number in np.unique(codes[codes >= 0]).tolist()]
