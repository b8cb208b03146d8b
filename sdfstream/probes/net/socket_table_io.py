"""All sockets of one role (senders or reflectors): drain the ready ones as one batch, send a batch, tell when it left.

`SocketTable` is what the engines' batches (`datagrams`) go through. Slots are fixed for life: slot i is one NIC and
port, whether its socket is open just now or not (the NIC may be away). Nothing here waits: every call takes what is
there. Whatever is refused, shed or lost is counted, never raised; a slot whose NIC seems to have gone is noted in
`suspects`, for `nics_io` to look at.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import select
import socket
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from sdfstream.probes.config import NicConfig
from sdfstream.probes.net.mmsg_io import would_block
from sdfstream.probes.net.receive_io import ROWS as INBOX_ROWS
from sdfstream.probes.net.receive_io import Inbox
from sdfstream.probes.net.send_io import ROWS as OUTBOX_ROWS
from sdfstream.probes.net.send_io import Outbox
from sdfstream.probes.net.socket_io import OpenError, ProbeSocket, limited_control, mapped, open_probe_sockets
from sdfstream.probes.net.tx_stamps_io import IcmpError, LeftStamps
from sdfstream.probes.stamp.datagrams import Left, Received, ToSend
from sdfstream.records.units import Int64s
from sdfstream.stats import Counters

_AWAY: Final = frozenset({errno.ENODEV, errno.ENETDOWN, errno.ENXIO, errno.EADDRNOTAVAIL, errno.ENETUNREACH})
"""Errors that make us look whether the NIC is still there; the rest of its rows would fail the same way."""


_NONE: Final[Int64s] = np.empty(0, np.int64)


class SocketTable:
    """The sockets of one role.

    Parameters
    ----------
    slots : sequence of (NicConfig, port)
        One socket each; all are closed until `open`.
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
        self._inbox = Inbox(len(slots), width, {mapped(nic.address) for nic, _ in slots}, counters)
        self._outbox = Outbox(len(slots))
        self._stamps = LeftStamps(len(slots), counters)
        self._own_address = _devices_with_several_addresses(slots)

    def fileno(self) -> int:
        """Readable when some socket is: for the event loop."""
        return self._epoll.fileno()

    def open(self, slot: int) -> ProbeSocket:
        """Open the socket of `slot` (again). Raises what `socket_io.open_probe_socket` does."""
        self.close(slot)
        opened = self.make([slot])[0]
        if isinstance(opened, Exception):
            raise opened
        self.adopt(slot, opened)
        return opened

    def make(self, slots: Sequence[int]) -> list[ProbeSocket | OpenError]:
        """Sockets for these slots, all of one NIC, or why there is none; the table is not changed.

        May be called from another thread: it can take a while on a busy machine.
        """
        nic = self.slots[slots[0]][0]
        own_address = (nic.netns, nic.device) in self._own_address
        ports = [self.slots[slot][1] for slot in slots]
        return open_probe_sockets(nic, ports, own_address=own_address, hardware=self._hardware)

    def adopt(self, slot: int, opened: ProbeSocket) -> None:
        """Send and receive by `opened`, made for `slot`, from now on."""
        self.close(slot)
        self.sockets[slot] = opened
        self._slot_of[opened.fd] = slot
        self._inbox.opened(slot, opened)
        self._outbox.opened(slot, opened)
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

        The arrays are views of the table's buffers: use them before the next call. `backlog` tells whether there
        may be more.
        """
        inbox = self._inbox
        inbox.rewind()
        ready = self._epoll.poll(0, max(1, len(self._slot_of)))
        ready.sort(key=lambda entry: self._slot_of[entry[0]])  # so that the rows, and answers to them, are in order
        fair = max(64, INBOX_ROWS // max(1, len(ready)))
        for fd, events in ready:
            slot = self._slot_of[fd]
            if events & select.EPOLLERR:
                self._stamps.pending.add(slot)
            if events & select.EPOLLIN and inbox.used < INBOX_ROWS:
                n = inbox.take(fd, slot, fair)
                if n < 0 and not would_block(n):
                    self._failed("receive-failed", slot, -n, 1)
        if not inbox.used:
            return None
        return inbox.batch()

    @property
    def backlog(self) -> bool:
        """Whether the last `receive` may have left datagrams behind, because the buffer was filled."""
        return self._inbox.used >= 64

    def send(self, batch: ToSend) -> Int64s:
        """Send `batch`; returns the tokens of the rows that could not be sent, normally none.

        One system call per socket and 1,024 rows. When a row left, `left` tells later, under its token.
        """
        unsent: list[int] = []
        for start in range(0, len(batch.length), OUTBOX_ROWS):
            rows = slice(start, min(start + OUTBOX_ROWS, len(batch.length)))
            edges = self._outbox.lay_out(batch, rows)
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
            sent = self._outbox.send(opened.fd, first, min(end - first, self._stamps.room(slot)))
            if sent > 0:
                self._stamps.sent(slot, tokens[first : first + sent], handed_at_ns)
                first += sent
                continue
            if not would_block(sent):
                self._stamps.restart(slot)
                if retried != first:  # an earlier ICMP error is reported in the row's place: try once more
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
        if opened.v6:
            destination: tuple[str, int] = (socket.inet_ntop(socket.AF_INET6, address), port)
        else:
            destination = (socket.inet_ntop(socket.AF_INET, address[12:]), port)
        for _ in range(2):
            try:
                opened.sock.sendmsg([payload], limited_control(opened, tos, ttl), 0, destination)
            except OSError as error:
                self._stamps.restart(slot)
                number = error.errno or 0
            else:
                self._stamps.sent_untold(slot)
                return True
        self._failed("unsent", slot, number, 1)
        return False

    def left(self) -> Left | None:
        """When datagrams left, as far as the kernel has told since the last call."""
        return self._stamps.collect()

    def take_icmp(self) -> list[IcmpError]:
        """ICMP errors met by `left` and `send` since the last call."""
        return self._stamps.take_icmp()

    def _failed(self, what: str, slot: int, number: int, rows: int) -> None:
        self.counters.add(what, errno.errorcode.get(number, str(number)).lower(), rows)
        if number in _AWAY:
            self.suspects.add(slot)


def _devices_with_several_addresses(slots: Sequence[tuple[NicConfig, int]]) -> set[tuple[str | None, str]]:
    """Where a wildcard socket per NIC would clash; the loopback device may be shared with other processes, too."""
    addresses: dict[tuple[str | None, str], set[str]] = {}
    for nic, _ in slots:
        addresses.setdefault((nic.netns, nic.device), set()).add(nic.address)
    return {key for key, found in addresses.items() if len(found) > 1 or key[1] == "lo"}
