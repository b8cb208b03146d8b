"""When datagrams truly left: TX stamps, and ICMP errors, from the sockets' error queues, matched to tokens.

The kernel numbers the packets of a socket (OPT_ID) and returns each stamp with that number. A ring per socket keeps
the tokens of the last packets; a stamp whose number is not in the ring any more is counted and dropped.
"""

from __future__ import annotations

import errno
import socket
from array import array
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sdfstream.probes.net.cmsg import Control, ControlReader, UInt32s
from sdfstream.probes.net.mmsg_io import MSG_DONTWAIT, MSG_ERRQUEUE, MessageBlock
from sdfstream.probes.net.socket_io import ProbeSocket
from sdfstream.probes.net.stamping_io import restart_ids
from sdfstream.probes.stamp.datagrams import Left
from sdfstream.records.units import ABSENT_NS, Int32s, Int64s, UInt8s
from sdfstream.stats import Counters

RING: Final = 1024
"""Packets per socket whose stamp may be outstanding; a power of two."""
_ROWS: Final = 512
_QUOTE_BYTES: Final = 64
"""Of a quoted datagram, so much is kept."""
_CONTROL_WIDTH: Final = 256
_ICMP_MAX: Final = 256
"""ICMP errors kept until they are fetched."""
_ORIGIN_ICMP, _ORIGIN_ICMP6 = 2, 3
_STAMP: Final = 4
"""sock_extended_err's second word of a stamp: origin SO_EE_ORIGIN_TIMESTAMPING, no type, no code."""
_NO_TOKEN: Final = -1


@dataclass(frozen=True, slots=True)
class IcmpError:
    """An ICMP or ICMPv6 error that one of our datagrams caused."""

    slot: int
    destination: bytes
    """16 octets: where the datagram was going."""
    port: int
    """Its destination port."""
    offender: bytes
    """16 octets: the router that complains."""
    type: int
    code: int
    v6: bool
    quote: bytes
    """The first octets of our payload as quoted; may be empty (a router need not quote that far)."""

    @property
    def is_time_exceeded(self) -> bool:
        """Whether the TTL ran out on the way (RFC 792 type 11, RFC 4443 type 3)."""
        return self.type == (3 if self.v6 else 11) and self.code == 0


class LeftStamps:
    """Outstanding TX stamps of all sockets of a table."""

    def __init__(self, slots: int, counters: Counters) -> None:
        self.pending: set[int] = set()
        """Slots whose error queue is to be read."""
        self.icmp: list[IcmpError] = []
        self._counters = counters
        self._sockets: list[ProbeSocket | None] = [None] * slots
        self._count = array("I", bytes(4 * max(1, slots)))
        """Number that the kernel gives the next packet of each slot, modulo 2³²; cheap to read one by one."""
        self._next: UInt32s = np.frombuffer(self._count, np.uint32)
        """The same memory, for all at once."""
        self._outstanding = [0] * slots
        self._tokens: Int64s = np.full((slots, RING), _NO_TOKEN, np.int64)
        self._handed: Int64s = np.zeros((slots, RING), np.int64)
        self._block = MessageBlock(_ROWS, _QUOTE_BYTES, _CONTROL_WIDTH)
        self._slot: Int32s = np.zeros(_ROWS, np.int32)
        self._control = ControlReader()
        self._ready: list[Left] = []

    def opened(self, slot: int, opened: ProbeSocket) -> None:
        """A new socket in `slot`: its packets count from 0."""
        self._sockets[slot] = opened
        self._forget(slot)

    def closed(self, slot: int) -> None:
        """No more stamps will come from `slot`."""
        self._sockets[slot] = None
        self.pending.discard(slot)
        self._forget(slot)

    def room(self, slot: int) -> int:
        """Packets that may be sent by `slot` now so that no stamp is lost for want of buffer; at least 1."""
        opened = self._sockets[slot]
        most = min(RING, opened.stamp_room if opened else 1)
        if self._outstanding[slot] >= most:
            self._read([slot])
            self._outstanding[slot] = 0  # what has not come by now is late or lost: it shall not hold up the others
        return most - self._outstanding[slot]

    def sent(self, slot: int, tokens: Int64s, handed_at_ns: int) -> None:
        """The kernel took packets with these tokens, in this order."""
        n = len(tokens)
        number = self._count[slot]
        at = number & (RING - 1)
        first = min(n, RING - at)
        self._tokens[slot, at : at + first] = tokens[:first]
        self._handed[slot, at : at + first] = handed_at_ns
        if first < n:
            self._tokens[slot, : n - first] = tokens[first:]
            self._handed[slot, : n - first] = handed_at_ns
        self._count[slot] = (number + n) & 0xFFFFFFFF
        self._outstanding[slot] += n
        self.pending.add(slot)

    def sent_untold(self, slot: int) -> None:
        """The kernel took a packet whose stamp nobody wants."""
        self.sent(slot, np.array([_NO_TOKEN], np.int64), 0)

    def restart(self, slot: int) -> None:
        """Begin the numbering of `slot` afresh: after a failed send nobody knows whether it used up a number."""
        opened = self._sockets[slot]
        if opened is not None:
            self._read([slot])
            restart_ids(opened.sock, opened.kind)
            self._forget(slot)

    def collect(self) -> Left | None:
        """All stamps that have come since the last call; None when there is none."""
        if self.pending:
            slots = list(self.pending)
            self.pending.clear()
            self._read(slots)
        if not self._ready:
            return None
        ready, self._ready = self._ready, []
        return ready[0] if len(ready) == 1 else _joined(ready)

    def take_icmp(self) -> list[IcmpError]:
        """ICMP errors that have come since the last call."""
        taken, self.icmp = self.icmp, []
        return taken

    def _read(self, slots: list[int]) -> None:
        """Empty the error queues of `slots`; one parse for as many rows as the block holds."""
        used = 0
        for slot in slots:
            opened, first = self._sockets[slot], used
            while opened is not None:
                asked = _ROWS - used
                n = self._block.receive(opened.fd, used, asked, MSG_ERRQUEUE | MSG_DONTWAIT)
                if n <= 0:
                    if used == first:
                        self._take_error(opened)
                    break
                self._slot[used : used + n] = slot
                self._outstanding[slot] = max(0, self._outstanding[slot] - n)
                used += n
                if n < asked:
                    break
                self._parse(used)
                used = 0
        if used:
            self._parse(used)

    def _take_error(self, opened: ProbeSocket) -> None:
        """Clear an error that a socket holds without an entry in its queue; else it would wake us for ever."""
        number = opened.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._counters.add("socket-error", errno.errorcode.get(number, str(number)).lower())

    def _parse(self, n: int) -> None:
        control, size = self._block.control[:n], self._block.controllen[:n]
        same = self._control.uniform(control, size)
        if same is not None and (error := same.layout.error // 4) > 0 and (same.quads[:, error + 1] == _STAMP).all():
            self._match(self._slot[:n], same.quads[:, error + 3], same.at_ns, same.kind)
        else:
            self._sort_out(self._control.read(control, size))
        self._block.rewind()

    def _sort_out(self, control: Control) -> None:
        """Tell stamps from ICMP errors."""
        stamps = (control.error[:, 1] & 0xFF == _STAMP) & (control.at_ns != ABSENT_NS)
        for row in np.flatnonzero(~stamps).tolist():
            self._keep_icmp(row, control)
        slot = self._slot[: len(stamps)]
        self._match(slot[stamps], control.error[stamps, 3], control.at_ns[stamps], control.kind[stamps])

    def _match(self, slot: Int32s, number: UInt32s, at_ns: Int64s, kind: UInt8s) -> None:
        """Find the token of each stamp; `number` is its packet's (ee_data)."""
        age = self._next[slot] - number  # modulo 2³²; 1 for the last packet
        place = slot * RING + (number & (RING - 1))
        token = self._tokens.take(place)
        wanted = (age - 1 < RING) & (token != _NO_TOKEN)
        handed = self._handed.take(place)
        if not wanted.all():
            self._counters.add("stamps-unmatched", "", int((age - 1 >= RING).sum()))
            token, at_ns, kind, handed = token[wanted], at_ns[wanted], kind[wanted], handed[wanted]
        if len(token):
            self._ready.append(Left(token=token, at_ns=at_ns, kind=kind, user_at_ns=handed))

    def _keep_icmp(self, row: int, control: Control) -> None:
        """Keep an ICMP error; an error of local origin (a packet longer than the MTU) is only counted."""
        error = control.error[row].tobytes()
        if error[4] not in (_ORIGIN_ICMP, _ORIGIN_ICMP6) or len(self.icmp) >= _ICMP_MAX:
            self._counters.add("icmp-ignored", "", 1)
            return
        name = self._block.name[row].tobytes()
        behind = int(control.offender[row])
        self.icmp.append(
            IcmpError(
                slot=int(self._slot[row]),
                destination=_sockaddr_address(name),
                port=int.from_bytes(name[2:4], "big"),
                offender=_sockaddr_address(self._block.control[row, behind : behind + 28].tobytes()),
                type=error[5],
                code=error[6],
                v6=error[4] == _ORIGIN_ICMP6,
                quote=self._block.data[row, : min(int(self._block.length[row]), _QUOTE_BYTES)].tobytes(),
            )
        )

    def _forget(self, slot: int) -> None:
        self._count[slot] = 0
        self._outstanding[slot] = 0


def _sockaddr_address(sockaddr: bytes) -> bytes:
    """16 octets of the address in a sockaddr_in or sockaddr_in6."""
    family = int.from_bytes(sockaddr[:2], "little")
    if family == 10:
        return sockaddr[8:24]
    return bytes(10) + b"\xff\xff" + sockaddr[4:8]


def _joined(parts: list[Left]) -> Left:
    columns: dict[str, Any] = {f: np.concatenate([getattr(p, f) for p in parts]) for f in Left.__slots__}
    return Left(**columns)
