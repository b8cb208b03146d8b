"""Token buckets: packets per second of all senders together, and of each sender."""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.probes.stamp.datagrams import UInt64s
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Bools, Float64s, Int64s

BURST: Final = 0.1
"""A bucket holds a tenth of a second's packets."""
SHARED: Final = 4096
"""Buckets of senders that have none of their own; which one is a sender's is a hash of its address."""


class TokenBucket:
    """At most `pps` packets per second, in bursts of a tenth of that; full at first."""

    def __init__(self, pps: float) -> None:
        self._pps = pps
        self._allowance = self._burst = max(1.0, pps * BURST)
        self._filled_at = ABSENT_NS

    def granted(self, wanted: int, now_ns: int) -> int:
        """How many of `wanted` packets pass."""
        if self._filled_at != ABSENT_NS:
            fill = (now_ns - self._filled_at) * self._pps / NS_PER_S
            self._allowance = min(self._burst, self._allowance + max(0.0, fill))
        self._filled_at = now_ns
        granted = min(wanted, int(self._allowance))
        self._allowance -= granted
        return granted


class SourceBuckets:
    """A token bucket of `pps` for each of some senders, and `SHARED` ones for all others.

    Memory does not grow with the number of senders: a flood of made-up addresses fills up the shared buckets and costs
    nobody with a bucket of its own anything. `salt` keeps strangers from choosing whose shared bucket they empty.

    Batches are booked together: as long as all packets since the last booking together are no more than the emptiest
    bucket had, none can be over, whosever they are.
    """

    def __init__(self, pps: float, salt: int) -> None:
        self._pps = pps
        self._burst = max(1.0, pps * BURST)
        self._salt = np.uint64(salt & 0xFFFF_FFFF_FFFF_FFFF)
        self._unbooked: list[Int64s] = []
        self.resize(0)

    def resize(self, own: int) -> None:
        """From now on `own` senders have a bucket of their own; every bucket is full."""
        self._own = own
        self._allowance: Float64s = np.full(own + SHARED, self._burst)
        self._filled_at = ABSENT_NS
        self._unbooked.clear()
        self._sure = int(self._burst)

    def shared(self, key: UInt64s) -> Int64s:
        """(n,) buckets of senders by a hash of their address."""
        mixed = (key ^ self._salt) * np.uint64(0x9E37_79B9_7F4A_7C15)
        return self._own + (mixed >> np.uint64(52)).astype(np.int64)

    def over(self, bucket: Int64s, now_ns: int) -> Bools | None:
        """(n,) packets that their bucket has no room for, the later ones first; None: all pass."""
        if self._filled_at == ABSENT_NS:
            self._filled_at = now_ns
        self._sure -= len(bucket)
        if self._sure >= 0:
            self._unbooked.append(bucket)
            return None
        self._book(now_ns)
        many = np.bincount(bucket, minlength=len(self._allowance))
        granted = np.minimum(many, self._allowance.astype(np.int64))
        self._allowance -= granted
        self._sure = int(self._allowance.min())
        if (granted == many).all():
            return None
        order = np.argsort(bucket, kind="stable")
        starts = np.cumsum(many) - many
        rank = np.empty(len(bucket), dtype=np.int64)
        rank[order] = np.arange(len(bucket)) - starts[bucket[order]]
        result: Bools = rank >= granted[bucket]
        return result

    def _book(self, now_ns: int) -> None:
        """Take what has passed out of the buckets, then fill them up to now."""
        if self._unbooked:
            self._allowance -= np.bincount(np.concatenate(self._unbooked), minlength=len(self._allowance))
            self._unbooked.clear()
        fill = max(0, now_ns - self._filled_at) * self._pps / NS_PER_S
        self._allowance = np.minimum(self._burst, self._allowance + fill)
        self._filled_at = now_ns
