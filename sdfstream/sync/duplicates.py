"""Which exchanges were seen before: each session remembers its last exchange in every residue of seq mod 64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import Bools, Int64s

UInt32s = npt.NDArray[np.uint32]
_SLOTS = 64


class Seen:
    """A row is a repeat when the session's previous row of the same seq mod 64 had the same seq and t1.

    So a repeat is recognised while fewer than 64 further probes of its session came in between (4 s at 16/s). The
    mark is 32 bits of a hash: one fresh row in 4·10⁹ is taken for a repeat. 256 bytes per session.
    """

    def __init__(self) -> None:
        self._marks: UInt32s = np.zeros(0, dtype=np.uint32)
        self._owner: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)

    def grow(self, sessions: int) -> None:
        """Room for `sessions` sessions in all."""
        need = sessions * _SLOTS
        if self._marks.size < need:
            size = max(need, 2 * self._marks.size)
            marks = np.zeros(size, dtype=np.uint32)
            marks[: self._marks.size] = self._marks
            self._marks = marks
            self._owner = np.zeros(size, dtype=np.int32)

    def repeats(self, session: Int64s, seq: Int64s, t1_ns: Int64s) -> Bools:
        """Which rows are repeats; remembers all of them. Cutting the rows into calls anywhere changes nothing."""
        slot = session * _SLOTS + (seq & (_SLOTS - 1))
        mixed = (t1_ns.view(np.uint64) + seq.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mark = (mixed >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
        rows = np.arange(slot.size, dtype=np.int32)
        self._owner[slot] = rows
        result: Bools
        if np.array_equal(self._owner[slot], rows):
            result = self._marks[slot] == mark
            self._marks[slot] = mark
            return result
        order = np.argsort(slot, kind="stable")
        slots, marks = slot[order], mark[order]
        first = np.empty(slots.size, dtype=np.bool_)
        first[0] = True
        np.not_equal(slots[1:], slots[:-1], out=first[1:])
        before = np.empty_like(marks)
        before[1:] = marks[:-1]
        before[first] = self._marks[slots[first]]
        last = np.append(first[1:], True)
        self._marks[slots[last]] = marks[last]
        result = np.empty(slots.size, dtype=np.bool_)
        result[order] = before == marks
        return result

    def keep(self, sessions: Bools) -> None:
        """Forget the sessions whose mask is False; the others close up."""
        kept = self._marks[: sessions.size * _SLOTS].reshape(-1, _SLOTS)[sessions].ravel()
        self._marks = kept.copy()
        self._owner = np.zeros(kept.size, dtype=np.int32)

    def state(self, sessions: int) -> UInt32s:
        """The marks of the first `sessions` sessions."""
        return self._marks[: sessions * _SLOTS]

    def load(self, marks: UInt32s) -> None:
        """Take up what `state` gave."""
        self._marks = marks.copy()
        self._owner = np.zeros(marks.size, dtype=np.int32)
