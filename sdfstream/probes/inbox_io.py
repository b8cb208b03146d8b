"""The receiving half of a socket table: rows as the kernel wrote them, to one `Received` batch, strays refused."""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np

from sdfstream.probes.cmsg import V4_MAPPED, Control, ControlReader, UInt64s
from sdfstream.probes.datagrams import Received
from sdfstream.probes.mmsg_io import MSG_DONTWAIT, MSG_TRUNC, MessageBlock
from sdfstream.records.units import Bools, Int32s, UInt8s
from sdfstream.stats import Counters

ROWS: Final = 1024
_CONTROL_WIDTH: Final = 256
"""Control bytes per row: stamp, PKTINFO, TTL and TOS need 152 on IPv6."""
_AF_INET6: Final = 10


class Inbox:
    """Buffers for `ROWS` datagrams of all sockets of a table.

    Parameters
    ----------
    width : int
        Longest UDP payload received whole, bytes.
    ours : set of bytes
        Addresses (16 octets) of all our NICs: what is meant for one of them but came in by another is on the
        wrong rail.
    counters : Counters
        Gets ``refused.wrong-rail``, ``refused.wrong-address``, ``refused.control``.
    """

    def __init__(self, width: int, ours: set[bytes], counters: Counters) -> None:
        stride = (width + 63) // 64 | 1  # an odd number of cache lines: rows spread over all sets of the cache
        self.used = 0
        self._block = MessageBlock(ROWS, stride * 64, _CONTROL_WIDTH)
        self._slot: Int32s = np.zeros(ROWS, np.int32)
        self._reader = ControlReader()
        self._ours = np.frombuffer(b"".join(sorted(ours)), np.uint64)[1::2]
        self._counters = counters
        # sockaddr_in: port at octet 2, address at 4; sockaddr_in6: address at 8
        self._family = self._block.name.view(np.uint16)[:, 0]
        self._port = self._block.name.view(">u2")[:, 1]
        self._v4_address = self._block.name.view(np.uint32)[:, 1]

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

    def batch(self, address: UInt64s, interface: Int32s, *, has_v6: bool) -> Received | None:
        """The datagrams taken since `rewind`, less strays; None when no row is left.

        Parameters
        ----------
        address : (slots, 2) uint64
            Each slot's own address as two words.
        interface : (slots,) int32
            Each slot's interface index.
        has_v6 : bool
            Whether any slot is IPv6 (spares the work when none is).
        """
        user_at_ns = time.time_ns()
        n, box = self.used, self._block
        slot = self._slot[:n]
        control = self._reader.read(box.control[:n], box.controllen[:n])
        received = Received(
            data=box.data[:n],
            length=box.length[:n].astype(np.int32),
            socket=slot,
            address=self._senders(n, has_v6),
            port=self._port[:n].astype(np.uint16),
            at_ns=control.at_ns,
            kind=control.kind,
            user_at_ns=user_at_ns,
            tos=control.tos,
            ttl=control.ttl,
        )
        right_address = control.destination[:, 1] == address[slot, 1]
        if has_v6:
            right_address &= control.destination[:, 0] == address[slot, 0]
        right = right_address & (control.interface == interface[slot])
        if right.all():
            return received
        self._count(control, right, right_address)
        return _only(received, right) if right.any() else None

    def _senders(self, n: int, has_v6: bool) -> UInt8s:
        """Source addresses as (n, 16) octets."""
        address = np.zeros((n, 2), np.uint64)
        address[:, 1] = self._v4_address[:n].astype(np.uint64) << np.uint64(32) | np.uint64(V4_MAPPED)
        octets = address.view(np.uint8)
        if has_v6:
            is_v6 = self._family[:n] == _AF_INET6
            octets[is_v6] = self._block.name[:n][is_v6, 8:24]
        return octets

    def _count(self, control: Control, right: Bools, right_address: Bools) -> None:
        """Count strays: wrong rail, not for us at all (broadcast …), or with unreadable control messages."""
        unreadable = control.interface == 0
        wrong_rail = ~right & ~unreadable & (right_address | np.isin(control.destination[:, 1], self._ours))
        wrong_address = ~right & ~unreadable & ~wrong_rail
        for reason, rows in (("wrong-rail", wrong_rail), ("wrong-address", wrong_address), ("control", unreadable)):
            self._counters.add("refused", reason, int(rows.sum()))


def _only(received: Received, rows: Bools) -> Received:
    columns: dict[str, Any] = {name: getattr(received, name) for name in Received.__slots__}
    kept: dict[str, Any] = {name: v[rows] if isinstance(v, np.ndarray) else v for name, v in columns.items()}
    return Received(**kept)
