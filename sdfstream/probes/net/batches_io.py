"""Batches of datagrams by ``recvmmsg`` and ``sendmmsg``: the kernel's message blocks, what is received, what is sent.

A `MessageBlock` is the kernel's ``struct mmsghdr[]`` with everything it points to: payload, address and control
buffers as plain numpy arrays, allocated once. Many sockets may be drained into successive rows of one block, so that
one numpy pass reads what all of them received. One call costs one system call and releases the GIL.

`RxBuffer` turns received rows into one `Received` batch and refuses strays; `TxBuffer` lays a `ToSend` batch out for
sending, without copying the payload. `uniform` reads the control messages of nearly every batch, `cmsg` those of any.
"""

from __future__ import annotations

import ctypes
import errno
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.errors import UnavailableError
from sdfstream.probes.net.cmsg import V4_MAPPED, ControlFields, ControlReader, Layout, UInt32s, UInt64s
from sdfstream.probes.net.socket_io import CONTROL_BYTES, TOS_AT, ProbeSocket
from sdfstream.probes.stamp.datagrams import Received, ToSend, UInt16s
from sdfstream.records.units import NS_PER_S, Bools, Int32s, Int64s, StampKind, UInt8s
from sdfstream.stats import Counters

if not (sys.platform == "linux" and sys.byteorder == "little" and sys.maxsize > 2**32):
    raise UnavailableError("probing needs a 64-bit little-endian Linux: the message headers are laid out for it")

MSG_TRUNC: Final = 0x20
MSG_DONTWAIT: Final = 0x40
ERROR_QUEUE: Final = 0x2000 | MSG_DONTWAIT
"""Flags to receive from a socket's error queue (MSG_ERRQUEUE)."""

ROWS: Final = 1024
"""Datagrams per batch, received or sent."""
NAME_BYTES: Final = 32
"""Room for one socket address: sockaddr_in6 needs 28."""
_CONTROL_WIDTH: Final = 256
"""Control bytes per received row: stamp, PKTINFO, TTL and TOS need 152 on IPv6."""
_KERNEL: Final = np.full(4096, StampKind.KERNEL, np.uint8)
_AF_INET, _AF_INET6 = 2, 10
_SOCKADDR_IN, _SOCKADDR_IN6 = 16, 28

_MMSGHDR: Final = np.dtype(
    {
        "names": ["name", "namelen", "iov", "iovlen", "control", "controllen", "flags", "len"],
        "formats": ["u8", "u4", "u8", "u8", "u8", "u8", "i4", "i4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)

_libc: Final = ctypes.CDLL(None, use_errno=True)
for _call, _extra in ((_libc.recvmmsg, (ctypes.c_void_p,)), (_libc.sendmmsg, ())):
    _call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, *_extra)
    _call.restype = ctypes.c_int


class MessageBlock:
    """`rows` messages of at most `width` payload and `control_width` control bytes each.

    Parameters
    ----------
    rows, width, control_width : int
        `control_width` is a multiple of 8. `width` 0 makes a block for sending whose payload lies elsewhere
        (see `point_at`).

    Attributes
    ----------
    data, name, control : (rows, …) uint8
        What the kernel writes into or reads from.
    """

    def __init__(self, rows: int, width: int, control_width: int) -> None:
        self.rows = rows
        self.width = width
        self.data: UInt8s = np.zeros((rows, width), np.uint8)
        self.name: UInt8s = np.zeros((rows, NAME_BYTES), np.uint8)
        self.control: UInt8s = np.zeros((rows, control_width), np.uint8)
        self._iov: npt.NDArray[np.uint64] = np.zeros((rows, 2), np.uint64)
        self._header: npt.NDArray[Any] = np.zeros(rows, _MMSGHDR)
        self._address = self._header.ctypes.data
        header = self._header
        header["name"] = _row_addresses(self.name)
        header["namelen"] = NAME_BYTES
        header["iov"] = _row_addresses(self._iov)
        header["iovlen"] = 1
        header["control"] = _row_addresses(self.control)
        header["controllen"] = control_width
        if width:
            self._iov[:, 0] = _row_addresses(self.data)
            self._iov[:, 1] = width
        # Field views, made once: each costs a microsecond to make.
        self.namelen: npt.NDArray[np.uint32] = header["namelen"]
        self.controllen: npt.NDArray[np.uint64] = header["controllen"]
        self.flags: Int32s = header["flags"]
        self.length: Int32s = header["len"]
        self._numbers = np.arange(rows, dtype=np.uint64)
        self._touched = 0

    def receive(self, fd: int, first: int, count: int, flags: int) -> int:
        """Receive up to `count` messages into rows `first`…; the number received, or −errno.

        With MSG_TRUNC in `flags`, `length` is the length on the wire, also of a message that was cut off.
        """
        n: int = _libc.recvmmsg(fd, self._address + first * _MMSGHDR.itemsize, count, flags, None)
        if n < 0:
            return -ctypes.get_errno()
        self._touched = max(self._touched, first + n)
        return n

    def rewind(self) -> None:
        """Give the rows used since the last `rewind` back to the kernel: restore the lengths that it overwrote."""
        n = self._touched
        if n:
            self.namelen[:n] = NAME_BYTES
            self.controllen[:n] = self.control.shape[1]
            self._touched = 0

    def point_at(self, data: UInt8s, length: Int32s) -> None:
        """Let rows 0…n−1 send `data` (n, width), whose rows are contiguous, without a copy.

        `data` must stay alive, and unchanged, until it is sent.
        """
        n = len(length)
        if data.strides[1] != 1:
            raise ValueError("the bytes of a datagram must lie side by side")
        np.multiply(self._numbers[:n], np.uint64(data.strides[0]), out=self._iov[:n, 0])
        self._iov[:n, 0] += np.uint64(data.__array_interface__["data"][0])
        self._iov[:n, 1] = length

    def send(self, fd: int, first: int, count: int) -> int:
        """Send rows `first`…; the number that the kernel took, or −errno when it did not take the first."""
        n: int = _libc.sendmmsg(fd, self._address + first * _MMSGHDR.itemsize, count, MSG_DONTWAIT)
        return n if n >= 0 else -ctypes.get_errno()


@dataclass(slots=True)
class Uniform:
    """What n rows of one and the same layout say, with a stamp in every row: nearly every batch. Views, read only."""

    layout: Layout
    at_ns: Int64s
    kind: UInt8s
    octets: UInt8s
    """(n, w) the control buffers."""
    quads: UInt32s
    """(n, w / 4) the same as 32-bit words."""


def uniform(layouts: Sequence[Layout], control: UInt8s, size: npt.NDArray[np.unsignedinteger[Any]]) -> Uniform | None:
    """Read rows that are all of one known layout with kernel stamps, at a third of the cost of `ControlReader.read`.

    None for all other batches. `control` and `size` as in `ControlReader.read`.
    """
    words = control.view(np.int64)
    headers = words.view(np.uint64)
    for layout in layouts:
        if layout.stamp < 0 or not (size == layout.size).all():
            continue
        if not (headers.take(layout.words, axis=1) == layout.expected).all():
            continue
        word = layout.stamp // 8
        at_ns = words[:, word] * NS_PER_S
        at_ns += words[:, word + 1]
        n = len(at_ns)
        if words[:, word + 4].any() or not at_ns.all() or n > len(_KERNEL):
            return None
        return Uniform(layout, at_ns, _KERNEL[:n], control, control.view(np.uint32))
    return None


class RxBuffer:
    """Buffers for `ROWS` datagrams of all sockets of a table.

    Parameters
    ----------
    slots : int
        Sockets of the table.
    width : int
        Longest UDP payload received whole, bytes.
    ours : set of bytes
        Addresses (16 octets) of all our NICs: what is meant for one of them but came in by another is on the
        wrong rail.
    counters : Counters
        Gets ``refused.wrong-rail``, ``refused.wrong-address``, ``refused.control``.
    """

    def __init__(self, slots: int, width: int, ours: set[bytes], counters: Counters) -> None:
        stride = (width + 63) // 64 | 1  # an odd number of cache lines: rows spread over all sets of the cache
        self.used = 0
        self._block = MessageBlock(ROWS, stride * 64, _CONTROL_WIDTH)
        self._slot: Int32s = np.zeros(ROWS, np.int32)
        self._reader = ControlReader()
        self._ours = np.frombuffer(b"".join(sorted(ours)), np.uint64)[1::2]
        self._counters = counters
        self._own4: UInt32s = np.zeros((slots, 3), np.uint32)  # interface, address, address: as in struct in_pktinfo
        self._own: UInt64s = np.zeros((slots, 2), np.uint64)
        self._has_v6 = False
        self._address: UInt8s = np.zeros((ROWS, 16), np.uint8)
        self._address[:, 10:12] = 0xFF
        self._address4 = self._address.view(np.uint32)[:, 3]
        # sockaddr_in: port at octet 2, address at 4; sockaddr_in6: address at 8
        self._family = self._block.name.view(np.uint16)[:, 0]
        self._port = self._block.name.view(">u2")[:, 1]
        self._v4_address = self._block.name.view(np.uint32)[:, 1]

    def opened(self, slot: int, opened: ProbeSocket) -> None:
        """Receive by `opened` in `slot` from now on."""
        self._own4[slot, 0] = opened.interface
        self._own4[slot, 1:] = np.frombuffer(opened.address, np.uint32)[3]
        self._own[slot] = np.frombuffer(opened.address, np.uint64)
        self._has_v6 = self._has_v6 or opened.v6

    def rewind(self) -> None:
        """Begin a new batch."""
        self._block.rewind()
        self.used = 0

    def take(self, fd: int, slot: int, most: int) -> int:
        """Receive up to `most` datagrams from one socket; the number received, or −errno."""
        n = self._block.receive(fd, self.used, min(most, ROWS - self.used), MSG_DONTWAIT | MSG_TRUNC)
        if n > 0:
            self._slot[self.used : self.used + n] = slot
            self.used += n
        return n

    def batch(self) -> Received | None:
        """The datagrams taken since `rewind`, less strays; None when no row is left."""
        user_at_ns = time.time_ns()
        n, box = self.used, self._block
        slot = self._slot[:n]
        control, size = box.control[:n], box.controllen[:n]
        same = uniform(self._reader.layouts, control, size)
        # Rows of one layout whose PKTINFO says for each: this interface, this address, for us (it nearly always does).
        if same is not None and (info := same.layout.pktinfo4 // 4) > 0:
            right = same.quads[:, info : info + 3] == self._own4[slot]
            if right.all():
                tos, ttl = same.octets[:, same.layout.tos], same.octets[:, same.layout.ttl]
                return self._received(same.at_ns, same.kind, tos, ttl, user_at_ns)
        return self._checked(self._reader.read(control, size), slot, user_at_ns)

    def _checked(self, control: ControlFields, slot: Int32s, user_at_ns: int) -> Received | None:
        """Look at every row: drop and count those that came in by the wrong NIC."""
        received = self._received(control.at_ns, control.kind, control.tos, control.ttl, user_at_ns)
        right_address = (control.destination == self._own[slot]).all(axis=1)
        right = right_address & (control.interface == self._own4[slot, 0])
        if right.all():
            return received
        self._count(control, right, right_address)
        return _only(received, right) if right.any() else None

    def _received(self, at_ns: Int64s, kind: UInt8s, tos: UInt8s, ttl: UInt8s, user_at_ns: int) -> Received:
        n, box = self.used, self._block
        return Received(
            data=box.data[:n],
            length=box.length[:n],
            socket=self._slot[:n],
            address=self._senders(n),
            port=self._port[:n].astype(np.uint16),
            at_ns=at_ns,
            kind=kind,
            user_at_ns=user_at_ns,
            tos=tos,
            ttl=ttl,
        )

    def _senders(self, n: int) -> UInt8s:
        """Source addresses as (n, 16) octets."""
        address = self._address[:n]
        if self._has_v6:
            is_v6 = self._family[:n] == _AF_INET6
            address[:, :10] = 0
            address[:, 10:12] = 0xFF
            address[:, 12:] = self._block.name[:n, 4:8]
            address[is_v6] = self._block.name[:n][is_v6, 8:24]
        else:
            self._address4[:n] = self._v4_address[:n]
        return address

    def _count(self, control: ControlFields, right: Bools, right_address: Bools) -> None:
        """Count strays: wrong rail, not for us at all (broadcast …), or with unreadable control messages."""
        unreadable = control.interface == 0
        wrong_rail = ~right & ~unreadable & (right_address | np.isin(control.destination[:, 1], self._ours))
        wrong_address = ~right & ~unreadable & ~wrong_rail
        for reason, rows in (("wrong-rail", wrong_rail), ("wrong-address", wrong_address), ("control", unreadable)):
            self._counters.add("refused", reason, int(rows.sum()))


class TxBuffer:
    """Headers for `ROWS` datagrams, and what every slot sends with: source address, interface."""

    def __init__(self, slots: int) -> None:
        self._block = MessageBlock(ROWS, 0, CONTROL_BYTES)
        self._templates: UInt8s = np.zeros((slots, CONTROL_BYTES), np.uint8)
        self._control_bytes: UInt64s = np.zeros(slots, np.uint64)
        self._has_v6 = False
        name = self._block.name
        self._family = name.view(np.uint16)[:, 0]
        self._port = name.view(">u2")[:, 1]
        self._family[:] = _AF_INET
        self._block.namelen[:] = _SOCKADDR_IN

    def opened(self, slot: int, opened: ProbeSocket) -> None:
        """Send by `opened` in `slot` from now on."""
        self._templates[slot] = opened.control
        self._control_bytes[slot] = opened.control_bytes
        self._block.controllen[:] = opened.control_bytes  # until there are both families
        self._has_v6 = self._has_v6 or opened.v6

    def lay_out(self, batch: ToSend, rows: slice) -> list[int]:
        """Make `rows` (at most `ROWS`) of `batch` ready; returns where a new socket begins, and the end."""
        block = self._block
        slot = batch.socket[rows]
        n = len(slot)
        block.point_at(batch.data[rows], batch.length[rows])
        self._templates.take(slot, axis=0, out=block.control[:n], mode="clip")
        block.control[:n, TOS_AT] = batch.tos[rows]
        if self._has_v6:
            block.controllen[:n] = self._control_bytes[slot]
        self._destinations(batch.address[rows], batch.port[rows])
        return _runs(slot.tolist())

    def send(self, fd: int, first: int, count: int) -> int:
        """Send laid-out rows by one socket; the number the kernel took, or −errno."""
        return self._block.send(fd, first, count)

    def _destinations(self, address: UInt8s, port: UInt16s) -> None:
        n = len(port)
        name = self._block.name[:n]
        self._port[:n] = port
        if not self._has_v6:
            name[:, 4:8] = address[:, 12:16]
            return
        v4 = np.ascontiguousarray(address).view(np.uint64)[:, 1] & np.uint64(0xFFFFFFFF) == np.uint64(V4_MAPPED)
        v4 &= ~address[:, :10].any(axis=1)
        self._family[:n] = np.where(v4, _AF_INET, _AF_INET6)
        self._block.namelen[:n] = np.where(v4, _SOCKADDR_IN, _SOCKADDR_IN6)
        name[:, 4:] = 0
        name[v4, 4:8] = address[v4, 12:16]
        name[~v4, 8:24] = address[~v4]


def would_block(result: int) -> bool:
    """Whether a negative `result` of `receive` or `send` only means: nothing there, or no room, now."""
    return result in (-errno.EAGAIN, -errno.EWOULDBLOCK, -errno.EINTR)


def _row_addresses(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    rows = np.arange(len(array), dtype=np.uint64)
    return np.uint64(array.ctypes.data) + rows * np.uint64(array.strides[0])


def _only(received: Received, rows: Bools) -> Received:
    columns: dict[str, Any] = {name: getattr(received, name) for name in Received.__slots__}
    chosen: dict[str, Any] = {name: v[rows] if isinstance(v, np.ndarray) else v for name, v in columns.items()}
    return Received(**chosen)


def _runs(values: list[int]) -> list[int]:
    """Where runs of equal values begin, and the end."""
    return [0, *(i for i in range(1, len(values)) if values[i] != values[i - 1]), len(values)]
