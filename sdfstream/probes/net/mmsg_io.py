"""``recvmmsg`` and ``sendmmsg`` by ctypes, over message blocks that are allocated and wired up once.

A `MessageBlock` is the kernel's ``struct mmsghdr[]`` with everything it points to: payload, address and control
buffers as plain numpy arrays. Many sockets may be drained into successive rows of one block, so that one numpy pass
reads what all of them received. One call costs one system call and releases the GIL.
"""

from __future__ import annotations

import ctypes
import errno
import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.errors import UnavailableError
from sdfstream.records.units import Int32s, UInt8s

if not (sys.platform == "linux" and sys.byteorder == "little" and sys.maxsize > 2**32):
    raise UnavailableError("probing needs a 64-bit little-endian Linux: the message headers are laid out for it")

MSG_TRUNC: Final = 0x20
MSG_DONTWAIT: Final = 0x40
MSG_ERRQUEUE: Final = 0x2000

NAME_BYTES: Final = 32
"""Room for one socket address: sockaddr_in6 needs 28."""

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


def would_block(result: int) -> bool:
    """Whether a negative `result` of `receive` or `send` only means: nothing there, or no room, now."""
    return result in (-errno.EAGAIN, -errno.EWOULDBLOCK, -errno.EINTR)


def _row_addresses(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    rows = np.arange(len(array), dtype=np.uint64)
    return np.uint64(array.ctypes.data) + rows * np.uint64(array.strides[0])
