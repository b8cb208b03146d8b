"""The exchanges under way: one ring per path, all in one preallocated structured array.

The slot of an exchange is ``first[path] + (seq & mask[path])``. A ring is as deep as the time-out, the wait for the
follow-up and the longest expected pause between two flushes need; a probe that finds its slot still in use pushes
the old exchange out, counted as ``shed``.

Follow-ups lie in a second array with the same slots, under the *reflector's* sequence number: a follow-up may come
before the answer it belongs to (reordering), and a stateful reflector numbers answers by itself.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.records.units import ABSENT_NS, NS_PER_S, Int32s, Int64s, StampKind

FREE: Final = 0
SENT: Final = 1
ANSWERED: Final = 2
DONE: Final = 3
"""Answered and handed out as a row; a further copy is a duplicate."""
LOST: Final = 4
"""Timed out and handed out as a row; an answer comes too late."""

EXCHANGE: Final = np.dtype(
    [
        ("state", "u1"),
        ("seq", "u4"),
        ("path", "i4"),
        ("sent_at", "i8"),  # scheduling clock
        ("t1_word", "u8"),  # as in the packet
        ("t1_user", "i8"),  # system clock, when the packet was built or handed over
        ("t1_at", "i8"),  # system clock or NIC, ABSENT until the stamp comes
        ("t1_kind", "u1"),
        ("answered_at", "i8"),  # scheduling clock
        ("reflector_seq", "u4"),
        ("t2_word", "u8"),
        ("t3_word", "u8"),
        ("error", "u2"),
        ("t4_at", "i8"),
        ("t4_user", "i8"),
        ("t4_kind", "u1"),
        ("method_in", "u1"),
        ("cos", "u4"),
        ("cos_head", "u4"),  # 0: not to be used
        ("tos_rev", "u1"),
        ("ttl_fwd", "u1"),
        ("ttl_rev", "u1"),
    ]
)
FOLLOW_UP: Final = np.dtype([("seq", "u4"), ("word", "u8"), ("error", "u2"), ("mode", "u1")])

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


class Exchanges:
    """Rings of p paths with the given intervals."""

    def __init__(self, interval_ns: Int64s) -> None:
        shortest = np.maximum(1, (interval_ns * (1 - JITTER)).astype(np.int64))
        self.timeout_ns = timeout_ns(interval_ns)
        self.wait_ns: Int64s = (WAIT_INTERVALS * interval_ns).astype(np.int64)
        need = (self.timeout_ns + self.wait_ns + FLUSH_PAUSE_NS) // shortest + 2
        depth = 1 << np.ceil(np.log2(need)).astype(np.int64)
        self.mask: Int64s = depth - 1
        self.first: Int64s = np.cumsum(depth) - depth
        total = int(depth.sum())
        self.ring = np.zeros(total, dtype=EXCHANGE)
        self.follow_ups = np.zeros(total, dtype=FOLLOW_UP)
        self._mark = np.zeros(total, dtype=np.int64)
        # views of the columns that every call touches
        self.state = self.ring["state"]
        self.seq = self.ring["seq"]
        self.sent_at = self.ring["sent_at"]

    def slot(self, path: Int32s, seq: np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]) -> Int64s:
        """Where exchange `seq` of `path` lies."""
        result: Int64s = self.first[path] + (seq.astype(np.int64) & self.mask[path])
        return result

    def first_of_each(self, slot: Int64s) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of the entries is the first with its slot: the others are copies within one batch."""
        order = np.arange(len(slot))
        self._mark[slot[::-1]] = order[::-1]  # of equal indices the last assignment stays
        result: np.ndarray[tuple[int], np.dtype[np.bool_]] = self._mark[slot] == order
        return result

    def open(self, slot: Int64s, seq: Int64s, path: Int64s, now_ns: int, t1_user: int, t1_word: int) -> int:
        """Start exchanges; returns how many old ones were pushed out."""
        state = self.state[slot]
        shed = int(np.count_nonzero((state == SENT) | (state == ANSWERED)))
        fresh = np.zeros(len(slot), dtype=EXCHANGE)
        fresh["state"] = SENT
        fresh["seq"] = seq
        fresh["path"] = path
        fresh["sent_at"] = now_ns
        fresh["t1_word"] = t1_word
        fresh["t1_user"] = t1_user
        fresh["t1_at"] = ABSENT_NS
        fresh["t1_kind"] = StampKind.NONE
        self.ring[slot] = fresh
        return shed

    def answered_path(self, slot: Int64s) -> Int32s:
        """The path of each slot."""
        result: Int32s = self.ring["path"][slot]
        return result
