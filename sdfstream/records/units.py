"""Units, signs and small code points, stated once.

Sign convention (the only one)
------------------------------
- **clock offset = that clock − reference**; positive: that clock is ahead.
- **edge offset = reflector − sender**; positive: the reflector's clock is ahead of the sender's.
- **positive skew = that clock runs fast** against the reference.
- ``corrected = reading − offset − skew · (reading − at)``.

Time
----
Instants are int64 nanoseconds since the Unix epoch, named ``*_at_ns`` or ``t1_ns``..``t4_ns``; durations are
``*_ns``. An absolute time is never a float: adjacent float64 values at today's epoch lie 256 ns apart. Subtract
first, convert after.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Float64s = npt.NDArray[np.float64]
UInt8s = npt.NDArray[np.uint8]
UInt32s = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000

TICK_NS: Final = 100 * NS_PER_MS
"""Stages step at every multiple of this on the bus's time line (contract 4.3)."""

ABSENT_NS: Final = np.iinfo(np.int64).min
"""How an absent (null) instant is written in an int64 array inside a stage; never on the bus."""


class StampKind(IntEnum):
    """Who made a time stamp (columns ``t1_kind``..``t4_kind``)."""

    USER = 0
    KERNEL = 1
    HARDWARE = 2
    NONE = 255


class Ecn(IntEnum):
    """The two ECN bits of an IP header (RFC 3168 section 5)."""

    NOT_ECT = 0
    ECT1 = 1
    ECT0 = 2
    CE = 3
