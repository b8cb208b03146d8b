"""The receiving half of a socket table: rows as the kernel wrote them, to one `Received` batch, strays refused."""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np

from sdfstream.probes.net.cmsg import Control, ControlReader, UInt32s, UInt64s
from sdfstream.probes.net.mmsg_io import MSG_DONTWAIT, MSG_TRUNC, MessageBlock
from sdfstream.probes.net.socket_io import ProbeSocket
from sdfstream.probes.stamp.datagrams import Received
from sdfstream.records.units import Bools, Int32s, Int64s, UInt8s
from sdfstream.stats import Counters

ROWS: Final = 1024
_CONTROL_WIDTH: Final = 256
"""Control bytes per row: stamp, PKTINFO, TTL and TOS need 152 on IPv6."""
_AF_INET6: Final = 10


class Inbox:
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
        same = self._reader.uniform(control, size)
        # Rows of one layout whose PKTINFO says for each: this interface, this address, for us (it nearly always does).
        if same is not None and (info := same.layout.pktinfo4 // 4) > 0:
            right = same.quads[:, info : info + 3] == self._own4[slot]
            if right.all():
                tos, ttl = same.octets[:, same.layout.tos], same.octets[:, same.layout.ttl]
                return self._received(same.at_ns, same.kind, tos, ttl, user_at_ns)
        return self._checked(self._reader.read(control, size), slot, user_at_ns)

    def _checked(self, control: Control, slot: Int32s, user_at_ns: int) -> Received | None:
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
