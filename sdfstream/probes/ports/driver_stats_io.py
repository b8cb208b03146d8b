"""A driver's own counters by ioctl (SIOCETHTOOL): netlink gives their names but not their values."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import socket
import struct
from typing import Final

_SIOCETHTOOL: Final = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_ETH_SS_STATS: Final = 1
_NAME_BYTES: Final = 32
_SPARE: Final = 4096
"""Counters the buffer has room for beyond those announced: the kernel writes as many as there are by then."""
_IFNAMSIZ: Final = 16


class DriverStats:
    """Names and values of a device's counters, asked over one socket in the device's namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def names(self, device: str) -> list[str]:
        """Names of the driver's counters, in the order of `values`.

        Raises
        ------
        OSError
            The driver has none (EOPNOTSUPP), the device is not there, or its name is too long for an ioctl.
        """
        n = self._count(device)
        buffer = ctypes.create_string_buffer(12 + (n + _SPARE) * _NAME_BYTES)
        struct.pack_into("=III", buffer, 0, _GSTRINGS, _ETH_SS_STATS, n)
        self._ask(device, buffer)
        (announced,) = struct.unpack_from("=I", buffer, 8)
        raw = bytes(buffer)[12:]
        cut = (raw[i * _NAME_BYTES : (i + 1) * _NAME_BYTES] for i in range(min(announced, n)))
        return [name.partition(b"\0")[0].decode("ascii", "replace").strip() for name in cut]

    def values(self, device: str) -> tuple[int, ...]:
        """Values of the driver's counters; errors as `names`."""
        n = self._count(device)
        buffer = ctypes.create_string_buffer(8 + (n + _SPARE) * 8)
        struct.pack_into("=II", buffer, 0, _GSTATS, n)
        self._ask(device, buffer)
        (announced,) = struct.unpack_from("=I", buffer, 4)
        return struct.unpack_from(f"={min(announced, n)}Q", buffer, 8)

    def _count(self, device: str) -> int:
        buffer = ctypes.create_string_buffer(20)
        struct.pack_into("=IIQ", buffer, 0, _GSSET_INFO, 0, 1 << _ETH_SS_STATS)
        self._ask(device, buffer)
        mask, n = struct.unpack_from("=QI", buffer, 8)
        if not mask:
            raise OSError(errno.EOPNOTSUPP, "the driver has no counters of its own", device)
        return int(n)

    def _ask(self, device: str, buffer: ctypes.Array[ctypes.c_char]) -> None:
        name = device.encode()
        if len(name) >= _IFNAMSIZ:
            raise OSError(errno.EOPNOTSUPP, "an ioctl takes no alternative name", device)
        request = struct.pack(f"{_IFNAMSIZ}sP16x", name, ctypes.addressof(buffer))
        fcntl.ioctl(self._socket.fileno(), _SIOCETHTOOL, request)
