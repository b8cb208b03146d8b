"""The sending half of a socket table: a `ToSend` batch laid out for ``sendmmsg``, payload not copied."""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.probes.net.cmsg import V4_MAPPED, UInt64s
from sdfstream.probes.net.mmsg_io import MessageBlock
from sdfstream.probes.net.socket_io import CONTROL_BYTES, TOS_AT, ProbeSocket
from sdfstream.probes.stamp.datagrams import ToSend, UInt16s
from sdfstream.records.units import UInt8s

ROWS: Final = 1024
_AF_INET, _AF_INET6 = 2, 10
_SOCKADDR_IN, _SOCKADDR_IN6 = 16, 28


class Outbox:
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


def _runs(values: list[int]) -> list[int]:
    """Where runs of equal values begin, and the end."""
    return [0, *(i for i in range(1, len(values)) if values[i] != values[i - 1]), len(values)]
