"""Instants of agents' clocks on the bus's time line: when something was seen, however late it was published.

A reading and the bus time of the message that carries it differ by the clock's offset from the bus and by how long the
message took. The smallest difference seen so far is taken for the offset, so a message that waited is dated back by
as much as it waited longer than the fastest one. The estimate may rise slowly, since clocks drift; a jump of
minutes starts it afresh.

What a message teaches is used from the next bus instant on, so that it does not matter how rows are spread over
messages of one instant.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.units import ABSENT_NS, NS_PER_S

Ints = npt.NDArray[np.int64]

_MOST_CLOCKS = 65_536
_DRIFT = 10_000
"""The estimate may rise by 1/_DRIFT of the time passed: 100 ppm."""
_JUMP_NS = 120 * NS_PER_S
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
                self._clocks[clock] = _ClockOffset(difference_ns, at_ns, difference_ns, at_ns)
            return
        if at_ns > known.waiting_at_ns:
            self._fold(known)
            known.waiting_ns, known.waiting_at_ns = difference_ns, at_ns
        known.waiting_ns = min(known.waiting_ns, difference_ns)

    @staticmethod
    def _fold(known: _ClockOffset) -> None:
        risen_ns = known.offset_ns + (known.waiting_at_ns - known.at_ns) // _DRIFT
        jumped = known.waiting_ns - known.offset_ns > _JUMP_NS
        known.offset_ns = known.waiting_ns if jumped else min(risen_ns, known.waiting_ns)
        known.at_ns = known.waiting_at_ns

    def of(self, clock: str, readings_ns: Ints, at_ns: int) -> Ints:
        """Bus time of readings in a message that entered the bus at `at_ns`: then or before; then, if all is new."""
        known = self._clocks.get(clock)
        if known is None or known.at_ns == at_ns:
            return np.full(readings_ns.shape, at_ns, np.int64)
        if at_ns > known.waiting_at_ns:
            self._fold(known)
            known.waiting_ns, known.waiting_at_ns = known.offset_ns + _JUMP_NS, at_ns
        dated: Ints = np.clip(readings_ns + known.offset_ns, at_ns - _BACK_NS, at_ns)
        return dated

    def of_one(self, clock: str, reading_ns: int, at_ns: int) -> int:
        """`of` a single reading."""
        within = min(max(reading_ns, -_FAR_NS), _FAR_NS)
        return int(self.of(clock, np.array([within], np.int64), at_ns)[0])

    def of_exchanges(self, batch: pa.RecordBatch, at_ns: int) -> tuple[Ints, list[tuple[str, int]]]:
        """(rows,) bus time at which each exchange of a probe batch ended; and up to when each host has reported.

        An exchange ends with its answer, or for want of one with the probe's sending. The newest reading of every
        clock is taken as by `note`.
        """
        t4_ns = columns.instants(batch, "t4_ns")
        ended_ns = np.where(t4_ns == ABSENT_NS, columns.values(batch, "t1_ns"), t4_ns)
        src, nics = columns.coded(batch, "src")
        clock, clocks = columns.coded(batch, "clock_src")
        seen_ns = np.full(batch.num_rows, at_ns, np.int64)
        hosts: list[tuple[str, int]] = []
        for number, mine in _by_code(clock):
            name, nic = clocks[number].as_py(), nics[int(src[mine][0])].as_py()
            if name is None or nic is None:
                continue
            self.note(name, int(ended_ns[mine].max()), at_ns)
            seen_ns[mine] = self.of(name, ended_ns[mine], at_ns)
            hosts.append((host_of(nic), int(seen_ns[mine].max())))
        return seen_ns, hosts

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[name, *astuple(clock)] for name, clock in self._clocks.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._clocks = {name: _ClockOffset(*rest) for name, *rest in state}


def _by_code(codes: npt.NDArray[np.int32]) -> list[tuple[int, Any]]:
    """Each code that is no null, and which rows have it; an agent's rows are mostly of one clock."""
    if codes.size and codes[0] >= 0 and bool((codes == codes[0]).all()):
        return [(int(codes[0]), slice(None))]
    return [(number, codes == number) for number in np.unique(codes[codes >= 0]).tolist()]
