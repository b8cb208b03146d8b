"""Reading a NIC's hardware clock (PHC) between two readings of the system clock: the kernel's structures, sans IO.

``linux/ptp_clock.h``; numbers and layouts are those of 64-bit Linux with the generic ioctl encoding (x86-64, arm64,
riscv64). ``struct ptp_clock_time`` is 16 octets: seconds (s64), nanoseconds (u32), reserved. Three methods, best first:

=============  ==================================================================  ========================
method         what the kernel gives                                               error bound
=============  ==================================================================  ========================
`PRECISE`      one instant by both clocks, latched by hardware                     negligible
`EXTENDED`     n × (system, PHC, system), the system clock read beside the         within the window
               register's read
`OFFSET`       system, PHC, system, PHC, …, system: n of them, read outside the    within a wider window
               driver
=============  ==================================================================  ========================

Of a burst the sample with the smallest window is used: a longer one was interrupted, or waited for the bus.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.hostclock import HOST_EDGE
from sdfstream.records.topics import PROBE
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Int64s, StampKind

MOST_SAMPLES: Final = 25
"""PTP_MAX_SAMPLES."""
SAMPLES: Final = 7
"""In a burst: enough that one is not interrupted, and some 10 µs of a core with a register read over PCIe."""
WIDEST_NS: Final = NS_PER_MS
"""A window wider than this bounds the offset less sharply than the network's probes do."""
_HEAD: Final = 16
"""n_samples (u32) and three reserved words, where there is a head."""
_TIME: Final = np.dtype([("s", "<i8"), ("ns", "<u4"), ("rest", "<u4")])
_LATEST_S: Final = (1 << 62) // NS_PER_S


class ReadMethod(NamedTuple):
    """One ioctl."""

    name: str
    number: int
    size: int
    """Of its structure, octets."""


def _ioctl(direction: int, number: int, size: int) -> int:
    """``_IOC``: direction (1 to the kernel, 2 from it), size, PTP_CLK_MAGIC '=', number."""
    return direction << 30 | size << 16 | ord("=") << 8 | number


PRECISE: Final = ReadMethod("precise", _ioctl(3, 8, 64), 64)
EXTENDED: Final = ReadMethod("extended", _ioctl(3, 9, 1216), 1216)
OFFSET: Final = ReadMethod("offset", _ioctl(1, 5, 832), 832)
CAPABILITIES: Final = ReadMethod("capabilities", _ioctl(2, 1, 80), 80)
METHODS: Final = (PRECISE, EXTENDED, OFFSET)


class Sample(NamedTuple):
    """The system clock before, the hardware clock, the system clock after; ns since each one's epoch."""

    before_ns: int
    phc_ns: int
    after_ns: int

    @property
    def window_ns(self) -> int:
        """Within this the hardware clock was read."""
        return self.after_ns - self.before_ns


def request(method: ReadMethod, samples: int = SAMPLES) -> bytearray:
    """The structure to hand to the kernel, which writes its answer into it.

    >>> len(request(EXTENDED)), request(EXTENDED, 5)[0]
    (1216, 5)
    """
    buffer = bytearray(method.size)
    if method is not PRECISE and method is not CAPABILITIES:
        if not 1 <= samples <= MOST_SAMPLES:
            raise ValueError(f"samples must lie within 1 and {MOST_SAMPLES}")
        buffer[:4] = samples.to_bytes(4, "little")
    return buffer


def offers_precise(capabilities: bytes | bytearray) -> bool:
    """Whether the clock can be latched together with the system's (``cross_timestamping``, the seventh int)."""
    return int.from_bytes(capabilities[24:28], "little", signed=True) > 0


def samples(method: ReadMethod, answer: bytes | bytearray) -> Int64s:
    """(n, 3) int64: before, PHC, after, ns; rows that cannot be readings are left out.

    Left out are a time that is negative, beyond the year 2116 or not normal (nanoseconds of a whole second), and one
    whose system clock went back meanwhile (it was stepped).
    """
    if method is PRECISE:
        device, system = np.frombuffer(answer, _TIME, 2)
        times = np.array([[system, device, system]], dtype=_TIME)
    else:
        n = min(int.from_bytes(answer[:4], "little"), MOST_SAMPLES)
        if method is EXTENDED:
            times = np.frombuffer(answer, _TIME, 3 * n, _HEAD).reshape(n, 3)
        else:
            line = np.frombuffer(answer, _TIME, 2 * n + 1, _HEAD)
            times = np.stack([line[0:-1:2], line[1::2], line[2::2]], axis=1)
    sane = ((times["s"] >= 0) & (times["s"] < _LATEST_S) & (times["ns"] < NS_PER_S)).all(axis=1)
    found: Int64s = times["s"][sane] * NS_PER_S + times["ns"][sane]
    return found[found[:, 2] >= found[:, 0]]


def best(found: Int64s) -> Sample | None:
    """The sample with the smallest window; None when there is none, or even that one is too wide."""
    if not len(found):
        return None
    width = found[:, 2] - found[:, 0]
    chosen = int(np.argmin(width))
    return Sample(*found[chosen].tolist()) if width[chosen] <= WIDEST_NS else None


def rows(host: str, found: Mapping[str, Sample], planes: Mapping[str, str | None], seq: int) -> pa.RecordBatch:
    """Host edges as rows of ``sdf.raw.probe.v1``, one per NIC of `found`, in order of their names.

    t1 and t4 are the host's clock, which the kernel read; t2 = t3 the NIC's. `planes` by NIC id.
    """
    assert PROBE.columns is not None
    nics = sorted(found)
    stamps = np.array([found[nic] for nic in nics], dtype=np.int64).reshape(len(nics), 3)
    n = len(nics)
    ones = np.ones(n, dtype=np.uint8)
    kernel, hardware = ones * StampKind.KERNEL, ones * StampKind.HARDWARE
    return columns.build(
        PROBE.columns,
        {
            "src": nics,
            "dst": nics,
            "clock_src": [host] * n,
            "clock_dst": nics,
            "transport": [HOST_EDGE] * n,
            "path": np.zeros(n, dtype=np.uint32),
            "seq": np.full(n, seq & 0xFFFFFFFF, dtype=np.uint32),
            "t1_ns": stamps[:, 0],
            "t2_ns": stamps[:, 1],
            "t3_ns": stamps[:, 1],
            "t4_ns": stamps[:, 2],
            "t1_kind": kernel,
            "t2_kind": hardware,
            "t3_kind": hardware,
            "t4_kind": kernel,
            "dscp_sent": np.zeros(n, dtype=np.uint8),
            "ecn_sent": np.zeros(n, dtype=np.uint8),
            "size_bytes": np.zeros(n, dtype=np.uint16),
            "plane": [planes.get(nic) for nic in nics],
        },
    )
