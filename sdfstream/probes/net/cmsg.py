"""Control messages of whole batches (cmsg(3), RFC 3542): a layout is learnt once, then checked and read for all rows.

The kernel writes the control messages of a datagram in an order that depends on its version, the address family and
on whether there was a stamp. So nothing is assumed: the first row of a kind is walked message by message, which
gives a `Layout` (where each header stands and what it says); every other row with the same headers is read by
array operations, and a row that fits no known layout is walked in turn. Rows of a batch may be mixed freely.
Nearly every batch is of one layout: `batches_io.uniform` reads it at a third of the cost.

Layouts are for 64-bit little-endian Linux (`mmsg_io` refuses others).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import ABSENT_NS, NS_PER_S, Int32s, Int64s, StampKind, UInt8s

UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
Rows: TypeAlias = "slice | npt.NDArray[np.intp]"

SOL_IP, SOL_SOCKET, SOL_IPV6 = 0, 1, 41
_FIELDS: Final[dict[tuple[int, int], tuple[str, int]]] = {
    # (level, type): (field, least payload bytes)
    (SOL_SOCKET, 37): ("stamp", 48),  # SCM_TIMESTAMPING: software, unused, hardware timespec
    (SOL_SOCKET, 65): ("stamp", 48),  # SCM_TIMESTAMPING_NEW, the same on 64 bits
    (SOL_IP, 8): ("pktinfo4", 12),
    (SOL_IPV6, 50): ("pktinfo6", 20),
    (SOL_IP, 2): ("ttl", 4),
    (SOL_IPV6, 52): ("ttl", 4),
    (SOL_IP, 1): ("tos", 1),
    (SOL_IPV6, 67): ("tos", 4),
    (SOL_IP, 11): ("error", 16),  # sock_extended_err, the offender's address behind it
    (SOL_IPV6, 25): ("error", 16),
}
_HEADER: Final = 16
MOST_LAYOUTS: Final = 16
"""Layouts remembered; a kernel makes a handful, so more means that something feeds us nonsense."""

V4_MAPPED: Final = 0xFFFF0000
"""Second half of ::ffff:0.0.0.0 as a little-endian word; the IPv4 address goes above it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the control messages of one kind of row stand. An offset of −1: not there."""

    size: int
    """Control bytes in all."""
    words: npt.NDArray[np.intp]
    """Indices of the 8-byte words that hold headers."""
    expected: UInt64s
    """What those words say."""
    stamp: int = -1
    pktinfo4: int = -1
    pktinfo6: int = -1
    ttl: int = -1
    tos: int = -1
    error: int = -1


@dataclass(slots=True)
class ControlFields:
    """What the control messages of n rows say. Arrays may be views of the buffer that was read."""

    at_ns: Int64s
    """(n,) kernel or hardware stamp, ABSENT_NS where there is none."""
    kind: UInt8s
    """(n,) StampKind; USER where there is no stamp. Read only."""
    tos: UInt8s
    """(n,) TOS or traffic class octet; 0 when not given."""
    ttl: UInt8s
    """(n,) TTL or hop limit; 0 when not given."""
    interface: Int32s
    """(n,) index of the interface it came in by; 0 when not given."""
    destination: UInt64s
    """(n, 2) the packet's destination address as two words, IPv4 as ::ffff:a.b.c.d; 0 when not given."""
    error: UInt32s
    """(n, 4) sock_extended_err: errno, origin | type << 8 | code << 16, info, data; zeros where there is none."""
    offender: Int32s
    """(n,) byte offset of the offender's socket address in the row's control buffer; −1 where there is none."""


@dataclass(slots=True)
class ControlReader:
    """Reads control buffers; remembers the layouts it has met."""

    unreadable: int = 0
    """Rows whose control messages could not be read, so far."""
    layouts: list[Layout] = field(default_factory=list)
    """Those met so far, at most `MOST_LAYOUTS`."""

    def read(self, control: UInt8s, size: npt.NDArray[np.unsignedinteger[Any]]) -> ControlFields:
        """Read n rows of whatever layouts.

        Parameters
        ----------
        control : (n, w) uint8
            The control buffers, contiguous, w a multiple of 8. Bytes beyond `size` are stale and not looked at.
        size : (n,) unsigned
            Control bytes of each row (msg_controllen).
        """
        n = len(size)
        out = _blank(n)
        if not n:
            return out
        words = control.view(np.uint64)
        left: npt.NDArray[np.intp] | None = None  # None: all rows, none is dealt with yet
        for layout in self.layouts:
            left = _take(layout, words, size, left, out)
            if left is not None and not len(left):
                return out
        while left is None or len(left):
            left = self._learn_one(words, control, size, left, out)
        return out

    def _learn_one(
        self, words: UInt64s, control: UInt8s, size: Any, left: npt.NDArray[np.intp] | None, out: ControlFields
    ) -> npt.NDArray[np.intp]:
        """Walk the first row that fits no known layout; take every row like it."""
        if left is None:
            left = np.arange(len(size))
        first = left[0]
        layout = learn(control[first].tobytes(), int(size[first]))
        if layout is None:
            self.unreadable += 1
            return left[1:]
        if len(self.layouts) < MOST_LAYOUTS:
            self.layouts.append(layout)
        rest = _take(layout, words, size, left, out)
        assert rest is not None
        return rest


def learn(control: bytes, size: int) -> Layout | None:
    """Walk one row's control messages; None when they make no sense."""
    if size > len(control):
        return None
    offset = 0
    words: list[int] = []
    fields: dict[str, int] = {}
    while offset + _HEADER <= size:
        length, layer, kind = _header(control, offset)
        if length < _HEADER or offset + length > size:
            return None
        words += (offset // 8, offset // 8 + 1)
        name, least = _FIELDS.get((layer, kind), ("", 0))
        if name and length - _HEADER >= least:
            fields.setdefault(name, offset + _HEADER)
        offset += (length + 7) & ~7
    expected = np.frombuffer(control, np.uint64)[words]
    return Layout(size, np.array(words, np.intp), expected, **fields)


def _header(control: bytes, offset: int) -> tuple[int, int, int]:
    return (
        int.from_bytes(control[offset : offset + 8], "little"),
        int.from_bytes(control[offset + 8 : offset + 12], "little", signed=True),
        int.from_bytes(control[offset + 12 : offset + 16], "little", signed=True),
    )


def _take(
    layout: Layout, words: UInt64s, size: Any, left: npt.NDArray[np.intp] | None, out: ControlFields
) -> npt.NDArray[np.intp] | None:
    """Read those of the rows `left` (None: all) that have this layout; returns the others."""
    here: Rows = slice(None) if left is None else left
    fits = size[here] == layout.size
    if layout.size:
        headers = words[here].take(layout.words, axis=1)
        fits &= (headers == layout.expected).all(axis=1)
    if fits.all():
        _fill(layout, words, here, out)
        return np.empty(0, np.intp)
    if left is None:
        left = np.arange(len(size))
    mine = left[fits]
    if len(mine):
        _fill(layout, words, mine, out)
    others: npt.NDArray[np.intp] = left[~fits]
    return others


def _fill(layout: Layout, words: UInt64s, rows: Rows, out: ControlFields) -> None:
    """Copy the fields of `rows`, which all have this layout."""
    octets = words.view(np.uint8)
    if layout.stamp >= 0:
        _fill_stamps(words.view(np.int64), layout.stamp // 8, rows, out)
    if layout.tos >= 0:
        out.tos[rows] = octets[rows, layout.tos]
    if layout.ttl >= 0:
        out.ttl[rows] = octets[rows, layout.ttl]
    if layout.pktinfo4 >= 0:
        quads = words.view(np.uint32)
        out.interface[rows] = quads[rows, layout.pktinfo4 // 4]
        address = quads[rows, layout.pktinfo4 // 4 + 2]
        out.destination[rows, 1] = address.astype(np.uint64) << np.uint64(32) | np.uint64(V4_MAPPED)
    if layout.pktinfo6 >= 0:
        word = layout.pktinfo6 // 8
        out.destination[rows] = words[rows, word : word + 2]
        out.interface[rows] = words.view(np.uint32)[rows, layout.pktinfo6 // 4 + 4]
    if layout.error >= 0:
        word = layout.error // 4
        out.error[rows] = words.view(np.uint32)[rows, word : word + 4]
        out.offender[rows] = layout.error + 16


def _fill_stamps(words: Int64s, word: int, rows: Rows, out: ControlFields) -> None:
    """Software stamp in the first timespec, hardware in the third (timestamping.rst); never both by our options."""
    software = words[rows, word] * NS_PER_S + words[rows, word + 1]
    hardware = words[rows, word + 4] * NS_PER_S + words[rows, word + 5]
    if hardware.any():
        is_hardware = hardware != 0
        at_ns = np.where(is_hardware, hardware, software)
        kind = np.where(is_hardware, StampKind.HARDWARE, StampKind.KERNEL)
    else:
        at_ns, kind = software, np.full(len(software), StampKind.KERNEL)
    there = at_ns != 0
    out.at_ns[rows] = np.where(there, at_ns, ABSENT_NS)
    out.kind[rows] = np.where(there, kind, StampKind.USER)


def _blank(n: int) -> ControlFields:
    return ControlFields(
        at_ns=np.full(n, ABSENT_NS, np.int64),
        kind=np.full(n, StampKind.USER, np.uint8),
        tos=np.zeros(n, np.uint8),
        ttl=np.zeros(n, np.uint8),
        interface=np.zeros(n, np.int32),
        destination=np.zeros((n, 2), np.uint64),
        error=np.zeros((n, 4), np.uint32),
        offender=np.full(n, -1, np.int32),
    )
