"""All sockets of one role (senders or reflectors): drain the ready ones as one batch, send a batch, read TX stamps.

`SocketTable` is what the engines' batches (`datagrams`) go through. Slots are fixed for life: slot i is one NIC and
port, whether its socket is open now or not (the NIC may be away). No call waits. Whatever is refused, shed or lost is
counted, never raised; a slot whose NIC seems to have gone is noted in `suspects`, for `nics_io` to look at.

The kernel numbers the packets of a socket (OPT_ID) and returns each TX stamp with that number on the error queue.
`TxStampReader` keeps the tokens of each socket's last `RING` packets; a stamp whose number is not in the ring any more
is counted and dropped.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import select
import socket
import time
from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sdfstream.probes.config import NicConfig
from sdfstream.probes.net.batches_io import ERROR_QUEUE, ROWS, MessageBlock, RxBuffer, TxBuffer, uniform, would_block
from sdfstream.probes.net.cmsg import ControlFields, ControlReader, UInt32s
from sdfstream.probes.net.icmp import QUOTE_BYTES, IcmpError, icmp_error
from sdfstream.probes.net.socket_io import OpenError, ProbeSocket, open_probe_sockets, restart_stamp_ids, send_limited
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps, address_octets
from sdfstream.records.units import ABSENT_NS, Int32s, Int64s, UInt8s
from sdfstream.stats import Counters

_AWAY: Final = frozenset({errno.ENODEV, errno.ENETDOWN, errno.ENXIO, errno.EADDRNOTAVAIL, errno.ENETUNREACH})
"""Errors that make us look whether the NIC is still there; the rest of its rows would fail the same way."""
RING: Final = 1024
"""Packets per socket whose TX stamp may be outstanding; a power of two."""
_STAMP_ROWS: Final = 512
_STAMP_CONTROL_WIDTH: Final = 256
_ICMP_MAX: Final = 256
"""ICMP errors stored until they are fetched."""
_STAMP: Final = 4
"""sock_extended_err's second word of a stamp: origin SO_EE_ORIGIN_TIMESTAMPING, no type, no code."""
_NO_TOKEN: Final = -1
_NONE: Final[Int64s] = np.empty(0, np.int64)


class SocketTable:
    """The sockets of one role.

    Parameters
    ----------
    slots : sequence of (NicConfig, port)
        One socket each; all are closed until `adopt`.
    width : int
        Longest UDP payload received whole, bytes.
    hardware : bool
        Ask the NICs for stamps.
    counters : Counters
        Gets refused, unsent, receive-failed, stamps-unmatched by reason.
    """

    def __init__(
        self, slots: Sequence[tuple[NicConfig, int]], *, width: int, hardware: bool, counters: Counters
    ) -> None:
        self.slots = tuple(slots)
        self.sockets: list[ProbeSocket | None] = [None] * len(slots)
        self.wanted = [True] * len(slots)
        """Which slots are to be open while their NIC is there."""
        self.suspects: set[int] = set()
        self.counters = counters
        self._hardware = hardware
        self._epoll = select.epoll()
        self._slot_of: dict[int, int] = {}
        self._rx = RxBuffer(len(slots), width, {address_octets(nic.address) for nic, _ in slots}, counters)
        self._tx = TxBuffer(len(slots))
        self._stamps = TxStampReader(len(slots), counters)
        self._own_address = devices_with_several_addresses(slots)

    def fileno(self) -> int:
        """Readable when some socket is: for the event loop."""
        return self._epoll.fileno()

    def make(self, slots: Sequence[int]) -> list[ProbeSocket | OpenError]:
        """Sockets for these slots, all of one NIC, or why there is none; changes nothing, so any thread may call it."""
        nic = self.slots[slots[0]][0]
        own_address = (nic.netns, nic.device) in self._own_address
        ports = [self.slots[slot][1] for slot in slots]
        return open_probe_sockets(nic, ports, own_address=own_address, hardware=self._hardware)

    def adopt(self, slot: int, opened: ProbeSocket) -> None:
        """Send and receive by `opened`, made for `slot`, from now on."""
        self.close(slot)
        self.sockets[slot] = opened
        self._slot_of[opened.fd] = slot
        self._rx.opened(slot, opened)
        self._tx.opened(slot, opened)
        self._stamps.opened(slot, opened)
        self._epoll.register(opened.fd, select.EPOLLIN)

    def close(self, slot: int) -> None:
        """Close the socket of `slot`, if it is open."""
        opened = self.sockets[slot]
        if opened is not None:
            self.sockets[slot] = None
            del self._slot_of[opened.fd]
            self._stamps.closed(slot)
            with contextlib.suppress(OSError):
                self._epoll.unregister(opened.fd)
            opened.sock.close()

    def close_all(self) -> None:
        """Close everything; the table is done with."""
        for slot in range(len(self.slots)):
            self.close(slot)
        self._epoll.close()

    def receive(self) -> Received | None:
        """Drain the ready sockets as far as the buffer goes; None when nothing acceptable has arrived.

        The arrays are views of the table's buffers: use them before the next call. `backlog`: there may be more.
        """
        buffer = self._rx
        buffer.rewind()
        ready = self._epoll.poll(0, max(1, len(self._slot_of)))
        ready.sort(key=lambda entry: self._slot_of[entry[0]])  # so that the rows, and answers to them, are in order
        fair = max(64, ROWS // max(1, len(ready)))
        for fd, events in ready:
            slot = self._slot_of[fd]
            if events & select.EPOLLERR:
                self._stamps.pending.add(slot)
            if events & select.EPOLLIN and buffer.used < ROWS:
                n = buffer.take(fd, slot, fair)
                if n < 0 and not would_block(n):
                    self._failed("receive-failed", slot, -n, 1)
        if not buffer.used:
            return None
        return buffer.batch()

    @property
    def backlog(self) -> bool:
        """Whether the last `receive` may have left datagrams in the sockets, because the buffer was filled."""
        return self._rx.used >= 64

    def send(self, batch: ToSend) -> Int64s:
        """Send `batch`; returns the tokens of the rows that could not be sent, normally none.

        One system call per socket and 1,024 rows. TX stamps come later, by `read_tx_stamps`, under the rows' tokens.
        """
        unsent: list[int] = []
        for start in range(0, len(batch.length), ROWS):
            rows = slice(start, min(start + ROWS, len(batch.length)))
            edges = self._tx.lay_out(batch, rows)
            slots, tokens = batch.socket[rows], batch.token[rows]
            for first, end in itertools.pairwise(edges):
                if first < end:
                    unsent += [start + i for i in self._send_slot(int(slots[first]), first, end, tokens)]
        return batch.token[unsent] if unsent else _NONE

    def _send_slot(self, slot: int, first: int, end: int, tokens: Int64s) -> list[int]:
        """Send rows first…end−1 by one socket, never more at a time than stamps fit; the rows not sent."""
        opened = self.sockets[slot]
        if opened is None:
            self.counters.add("unsent", "nic-away", end - first)
            return list(range(first, end))
        unsent: list[int] = []
        retried = -1
        while first < end:
            handed_at_ns = time.time_ns()
            sent = self._tx.send(opened.fd, first, min(end - first, self._stamps.room(slot)))
            if sent > 0:
                self._stamps.sent(slot, tokens[first : first + sent], handed_at_ns)
                first += sent
                continue
            if not would_block(sent):
                self._stamps.restart(slot)
                if retried != first:  # an earlier ICMP error was reported instead of this row's result: try once more
                    retried = first
                    continue
            hopeless = would_block(sent) or -sent in _AWAY
            last = end if hopeless else first + 1
            self._failed("unsent", slot, -sent, last - first)
            unsent += range(first, last)
            first = last
        return unsent

    def send_limited(self, slot: int, address: bytes, port: int, payload: bytes, tos: int, ttl: int) -> bool:
        """Send one datagram with its own TTL (path tracing); False when it did not go."""
        opened = self.sockets[slot]
        if opened is None:
            return False
        for _ in range(2):
            try:
                send_limited(opened, address, port, payload, tos, ttl)
            except OSError as error:
                self._stamps.restart(slot)
                number = error.errno or 0
            else:
                self._stamps.sent_without_token(slot)
                return True
        self._failed("unsent", slot, number, 1)
        return False

    def read_tx_stamps(self) -> TxStamps | None:
        """TX stamps that the kernel has returned since the last call; None when there is none."""
        return self._stamps.collect()

    def take_icmp(self) -> list[IcmpError]:
        """ICMP errors met by `read_tx_stamps` and `send` since the last call."""
        return self._stamps.take_icmp()

    def _failed(self, what: str, slot: int, number: int, rows: int) -> None:
        self.counters.add(what, errno.errorcode.get(number, str(number)).lower(), rows)
        if number in _AWAY:
            self.suspects.add(slot)


class TxStampReader:
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
        self._block = MessageBlock(_STAMP_ROWS, QUOTE_BYTES, _STAMP_CONTROL_WIDTH)
        self._slot: Int32s = np.zeros(_STAMP_ROWS, np.int32)
        self._control = ControlReader()
        self._ready: list[TxStamps] = []

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
            self._outstanding[slot] = (
                0  # a stamp that has not come by now is late or lost: the others do not wait for it
            )
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

    def sent_without_token(self, slot: int) -> None:
        """The kernel took a packet whose stamp is not used."""
        self.sent(slot, np.array([_NO_TOKEN], np.int64), 0)

    def restart(self, slot: int) -> None:
        """Restart the numbering of `slot`: a failed send may have used up a number or not (kernels differ)."""
        opened = self._sockets[slot]
        if opened is not None:
            self._read([slot])
            restart_stamp_ids(opened.sock, opened.kind)
            self._forget(slot)

    def collect(self) -> TxStamps | None:
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
                asked = _STAMP_ROWS - used
                n = self._block.receive(opened.fd, used, asked, ERROR_QUEUE)
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
        same = uniform(self._control.layouts, control, size)
        if same is not None and (error := same.layout.error // 4) > 0 and (same.quads[:, error + 1] == _STAMP).all():
            self._match(self._slot[:n], same.quads[:, error + 3], same.at_ns, same.kind)
        else:
            self._sort_out(self._control.read(control, size))
        self._block.rewind()

    def _sort_out(self, control: ControlFields) -> None:
        """Separate stamps from ICMP errors."""
        stamps = (control.error[:, 1] & 0xFF == _STAMP) & (control.at_ns != ABSENT_NS)
        for row in np.flatnonzero(~stamps).tolist():
            self._keep_icmp(row, control)
        slot = self._slot[: len(stamps)]
        self._match(slot[stamps], control.error[stamps, 3], control.at_ns[stamps], control.kind[stamps])

    def _match(self, slot: Int32s, number: UInt32s, at_ns: Int64s, kind: UInt8s) -> None:
        """Find the token of each stamp; `number` is its packet's (ee_data)."""
        age = self._next[slot] - number  # modulo 2³²; 1 for the last packet
        index = slot * RING + (number & (RING - 1))
        token = self._tokens.take(index)
        wanted = (age - 1 < RING) & (token != _NO_TOKEN)
        handed = self._handed.take(index)
        if not wanted.all():
            self._counters.add("stamps-unmatched", "", int((age - 1 >= RING).sum()))
            token, at_ns, kind, handed = token[wanted], at_ns[wanted], kind[wanted], handed[wanted]
        if len(token):
            self._ready.append(TxStamps(token=token, at_ns=at_ns, kind=kind, user_at_ns=handed))

    def _keep_icmp(self, row: int, control: ControlFields) -> None:
        behind, quoted = int(control.offender[row]), min(int(self._block.length[row]), QUOTE_BYTES)
        error = icmp_error(
            int(self._slot[row]),
            control.error[row].tobytes(),
            self._block.name[row].tobytes(),
            self._block.control[row, behind : behind + 28].tobytes(),
            self._block.data[row, :quoted].tobytes(),
        )
        if error is None or len(self.icmp) >= _ICMP_MAX:
            self._counters.add("icmp-ignored", "", 1)
        else:
            self.icmp.append(error)

    def _forget(self, slot: int) -> None:
        self._count[slot] = 0
        self._outstanding[slot] = 0


def devices_with_several_addresses(slots: Sequence[tuple[NicConfig, int]]) -> set[tuple[str | None, str]]:
    """Where a wildcard socket per NIC would clash; the loopback device may be shared with other processes, too."""
    addresses: dict[tuple[str | None, str], set[str]] = {}
    for nic, _ in slots:
        addresses.setdefault((nic.netns, nic.device), set()).add(nic.address)
    return {key for key, found in addresses.items() if len(found) > 1 or key[1] == "lo"}


def _joined(batches: list[TxStamps]) -> TxStamps:
    columns: dict[str, Any] = {f: np.concatenate([getattr(p, f) for p in batches]) for f in TxStamps.__slots__}
    return TxStamps(**columns)
