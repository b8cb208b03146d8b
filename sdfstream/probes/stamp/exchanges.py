"""The exchanges under way: one ring per path, all rings in preallocated arrays.

The slot of an exchange is ``first[path] + (seq & mask[path])``. A ring is as deep as the time-out, the wait for the
follow-up and the longest expected pause between two flushes need; a probe that finds its slot still in use pushes
the old exchange out, counted as ``shed``.

An answer is kept as its octets (base packet and TLVs in our own arrangement) and decoded when its row is written: a
flush decodes ten batches in one go. A follow-up is kept as the slot of the answer that carried it, under the
*reflector's* sequence number: it may come before the answer it belongs to (reordering), and a stateful reflector
numbers answers by itself.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.probes.stamp import tlv
from sdfstream.probes.stamp.packet import Fields, Mode, fields
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Bools, Int64s, StampKind, UInt8s

FREE: Final = 0
SENT: Final = 1
ANSWERED: Final = 2
DONE: Final = 3
"""Answered and handed out as a row; a further copy is a duplicate."""
LOST: Final = 4
"""Timed out and handed out as a row; an answer comes too late."""

ARRIVAL: Final = np.dtype(
    [
        ("answered_at", "i8"),  # scheduling clock
        ("t4_at", "i8"),  # system clock or NIC
        ("t4_user", "i8"),  # system clock
        ("t4_kind", "u1"),
        ("tos", "u1"),
        ("ttl", "u1"),
    ],
    align=True,
)

MAX_TIMEOUT_NS: Final = NS_PER_S
TIMEOUT_INTERVALS: Final = 5
FLUSH_PAUSE_NS: Final = NS_PER_S
"""The longest pause between two calls of ``rows`` that loses nothing."""
JITTER: Final = 0.25
"""Pacing: interval · uniform(1 − JITTER, 1 + JITTER)."""
WAIT_INTERVALS: Final = 1.5
"""How long an answered exchange waits for its follow-up, which comes with the path's next answer: the longest
interval that the jitter allows, and a quarter more for a round trip that grew."""


def timeout_ns(interval_ns: Int64s) -> Int64s:
    """When an unanswered probe is given up: min(1 s, 5 intervals)."""
    return np.minimum(MAX_TIMEOUT_NS, TIMEOUT_INTERVALS * interval_ns)


_PER_SLOT: Final = (
    *("state", "seq", "sent_at", "t1_word", "t1_user", "t1_at", "t1_kind"),
    *("arrival", "_base", "_extension", "_carrier", "_mark"),
)


class Exchanges:
    """Rings of p paths with the given intervals (p,). Arrays are (slots,) unless said otherwise."""

    def __init__(self, interval_ns: Int64s, mode: Mode) -> None:
        self._mode = mode
        none = np.empty(0, dtype=np.int64)
        self.timeout_ns: Int64s = none
        self.wait_ns: Int64s = none
        self.mask: Int64s = none
        self.first: Int64s = none
        self.path: Int64s = none
        self.state: UInt8s = np.zeros(0, dtype=np.uint8)
        self.seq: Int64s = none
        self.sent_at: Int64s = none
        """Scheduling clock."""
        self.t1_word: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        """T1 as in the packet."""
        self.t1_user: Int64s = none
        """System clock: when the packet was built, or handed to the kernel where that is known."""
        self.t1_at: Int64s = none
        """System clock or NIC; ABSENT until the stamp comes."""
        self.t1_kind: UInt8s = np.zeros(0, dtype=np.uint8)
        self.arrival = np.zeros(0, dtype=ARRIVAL)
        self._base: UInt8s = np.zeros((0, mode.base_bytes), dtype=np.uint8)
        self._extension: UInt8s = np.zeros((0, tlv.EXTENSION.itemsize), dtype=np.uint8)
        self._carrier: Int64s = none
        """Slot of the answer whose Follow-Up Telemetry speaks of this reflector sequence number."""
        self._mark: Int64s = none
        self.grow(interval_ns)

    def grow(self, interval_ns: Int64s) -> None:
        """Make rings for more paths, behind those that are there; nothing under way is touched."""
        shortest = np.maximum(1, (interval_ns * (1 - JITTER)).astype(np.int64))
        need = (timeout_ns(interval_ns) + (WAIT_INTERVALS * interval_ns).astype(np.int64) + FLUSH_PAUSE_NS) // shortest
        depth = 1 << np.ceil(np.log2(need + 2)).astype(np.int64)
        self.first = np.concatenate([self.first, np.cumsum(depth) - depth + len(self)])
        self.path = np.concatenate([self.path, np.repeat(np.arange(len(depth)) + len(self.mask), depth)])
        self.mask = np.concatenate([self.mask, depth - 1])
        self.timeout_ns = np.concatenate([self.timeout_ns, timeout_ns(interval_ns)])
        self.wait_ns = np.concatenate([self.wait_ns, (WAIT_INTERVALS * interval_ns).astype(np.int64)])
        slots = int(depth.sum())
        for name in _PER_SLOT:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((slots, *old.shape[1:]), dtype=old.dtype)]))
        self.answer: Fields = fields(self._base, self._mode.answer)
        self.extension: Fields = fields(self._extension, tlv.EXTENSION)

    def free(self, path: Int64s) -> None:
        """Forget what is under way on these paths."""
        self.state[np.isin(self.path, path)] = FREE

    def __len__(self) -> int:
        return len(self.state)

    def slot(self, path: Int64s, seq: Int64s) -> Int64s:
        """Where exchange `seq` of `path` lies."""
        result: Int64s = self.first[path] + (seq & self.mask[path])
        return result

    def first_of_each(self, slot: Int64s) -> Bools:
        """Which of the entries is the first with its slot: the others are copies within one batch."""
        order = np.arange(len(slot))
        self._mark[slot[::-1]] = order[::-1]  # of equal indices the last assignment stays
        result: Bools = self._mark[slot] == order
        return result

    def open(self, slot: Int64s, seq: Int64s, now_ns: int, t1_user: int, t1_word: int) -> int:
        """Start exchanges; returns how many old ones were pushed out."""
        state = self.state[slot]
        shed = int(np.count_nonzero((state == SENT) | (state == ANSWERED)))
        self.state[slot] = SENT
        self.seq[slot] = seq
        self.sent_at[slot] = now_ns
        self.t1_word[slot] = t1_word
        self.t1_user[slot] = t1_user
        self.t1_at[slot] = ABSENT_NS
        self.t1_kind[slot] = StampKind.NONE
        return shed

    def stamp(self, slot: Int64s, at_ns: Int64s, kind: StampKind) -> None:
        """Take sending times of one kind; a better kind that is there already stays."""
        held = self.t1_kind[slot]
        better = (held == StampKind.NONE) | (held < kind)
        slot = slot[better]
        self.t1_at[slot] = at_ns[better]
        self.t1_kind[slot] = kind

    def take(self, slot: Int64s, base: UInt8s, extension: UInt8s, arrival: npt.NDArray[np.void]) -> None:
        """Keep answers: octets of the base packet and of the TLVs, (n, ...), and how they arrived."""
        self.state[slot] = ANSWERED
        self._base[slot] = base
        self._extension[slot] = extension
        self.arrival[slot] = arrival
        found = fields(extension, tlv.EXTENSION)
        tells = (found["fu_head"] == tlv.FU_HEAD) & (found["fu_at"] != 0)
        carrier = slot[tells]
        self._carrier[self.slot(self.path[carrier], found["fu_seq"][tells].astype(np.int64))] = carrier

    def follow_ups(self, slot: Int64s) -> tuple[Fields, Any, Bools]:
        """The Follow-Up Telemetry of answered exchanges, the error estimate beside it, and whether it came."""
        seq = self.answer["seq"][slot].astype(np.int64)
        carrier = self._carrier[self.slot(self.path[slot], seq)]
        found = self.extension[carrier]
        told: Bools = (found["fu_head"] == tlv.FU_HEAD) & (found["fu_at"] != 0) & (found["fu_seq"] == seq)
        told &= self.path[carrier] == self.path[slot]
        return found, self.answer["error"][carrier], told
