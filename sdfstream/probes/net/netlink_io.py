"""A netlink socket. The messages are `netlink`; `netns_io` enters a namespace."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from sdfstream.errors import FormatError
from sdfstream.probes.net import netlink as nl

NETLINK_ROUTE: Final = 0
NETLINK_GENERIC: Final = 16
NETLINK_NETFILTER: Final = 12
_TIMEOUT_S: Final = 0.5
"""The kernel answers before send() returns, so this only ends a reading that went wrong."""
_MOST_BYTES: Final = 1 << 16


class NetlinkAnswer(NamedTuple):
    """What came back for one request."""

    errno: int
    """0 when it succeeded."""
    bodies: list[bytes]


class NetlinkRequest(NamedTuple):
    """One request: message type (or generic family) and body."""

    kind: int
    body: bytes


class NetlinkSocket:
    """One netlink socket of the network namespace in which the calling thread stands at construction.

    Parameters
    ----------
    protocol : int
    timeout_s : float
        Longest wait for one datagram of an answer.
    """

    def __init__(self, protocol: int, timeout_s: float = _TIMEOUT_S) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.settimeout(timeout_s)
        self._next = 1

    def close(self) -> None:
        """Close the socket; the namespace is held no longer."""
        self._socket.close()

    def numbers(self, n: int) -> int:
        """The first of `n` sequence numbers in a row that were not used yet."""
        first, self._next = self._next, self._next + n
        return first

    def exchange(self, data: bytes, wanted: Collection[int]) -> list[nl.Packet]:
        """Send `data` and collect what comes back until each of these sequence numbers was ended or acknowledged.

        Raises
        ------
        OSError
            The socket failed; TimeoutError when the kernel did not answer in time.
        """
        self._socket.send(data)
        answers: list[nl.Packet] = []
        open_ = set(wanted)
        while open_:
            with contextlib.suppress(FormatError):  # what was cut off is missing from the answer and shows as such
                for packet in nl.packets(self._socket.recv(_MOST_BYTES)):
                    answers.append(packet)
                    if packet.error is not None:
                        open_.discard(packet.seq)
        return answers

    def ask(self, requests: Sequence[NetlinkRequest]) -> list[NetlinkAnswer]:
        """Send `requests` in one datagram and return one answer each, in order.

        Raises
        ------
        OSError
            The socket failed or the kernel did not answer in time.
        """
        if not requests:
            return []
        first = self.numbers(len(requests))
        data = b"".join(nl.request(q.kind, first + i, q.body) for i, q in enumerate(requests))
        answers = [NetlinkAnswer(0, []) for _ in requests]
        for packet in self.exchange(data, range(first, first + len(requests))):
            index = packet.seq - first
            if not 0 <= index < len(requests):
                continue  # a late answer to an earlier question
            if packet.error is None:
                answers[index].bodies.append(packet.body)
            else:
                answers[index] = NetlinkAnswer(packet.error, answers[index].bodies)
        return answers
