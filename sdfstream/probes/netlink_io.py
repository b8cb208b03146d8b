"""Netlink sockets, each in the network namespace it was made for; the messages themselves are `netlink`."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from sdfstream.errors import FormatError
from sdfstream.probes import netlink as nl

NETLINK_ROUTE: Final = 0
NETLINK_GENERIC: Final = 16
_CLONE_NEWNET: Final = 0x40000000
_TIMEOUT_S: Final = 0.5
"""The kernel answers before send() returns, so this only ends a reading that went wrong."""
_MOST_BYTES: Final = 1 << 16

T = TypeVar("T")


class Answer(NamedTuple):
    """What came back for one request."""

    errno: int
    """0 when it succeeded."""
    bodies: list[bytes]


class Question(NamedTuple):
    """One request: message type (or generic family) and body."""

    kind: int
    body: bytes
    dump: bool = False


def in_namespace(path: str | None, make: Callable[[], T]) -> T:
    """`make()` with the calling context inside the network namespace at `path` (None: the present one).

    setns() moves a thread; a thread of its own is used, so nothing can be left in the wrong namespace. A socket
    stays in the namespace it was made in.

    Raises
    ------
    OSError
        The namespace is not there, or may not be entered.
    """
    if path is None:
        return make()
    made: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(descriptor, _CLONE_NEWNET):
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code), path)
            finally:
                os.close(descriptor)
            made.append(make())
        except BaseException as error:  # handed to the caller below
            failed.append(error)

    thread = threading.Thread(target=work, name="setns")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


class NetlinkSocket:
    """One netlink socket; `ask` sends requests and collects their answers."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.settimeout(_TIMEOUT_S)
        self._seq = 0

    def close(self) -> None:
        """Close the socket; the namespace is held no longer."""
        self._socket.close()

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Send `questions` in one datagram and return one answer each, in order.

        Raises
        ------
        OSError
            The socket failed or the kernel did not answer in time.
        """
        if not questions:
            return []
        first = self._seq + 1
        self._seq += len(questions)
        data = b"".join(
            nl.request(q.kind, first + i, q.body, nl.NLM_F_DUMP if q.dump else nl.NLM_F_ACK)
            for i, q in enumerate(questions)
        )
        self._socket.send(data)
        answers = [Answer(errno.ETIMEDOUT, []) for _ in questions]
        open_ = set(range(len(questions)))
        while open_:
            self._collect(self._socket.recv(_MOST_BYTES), first, answers, open_)
        return answers

    def _collect(self, data: bytes, first: int, answers: list[Answer], open_: set[int]) -> None:
        with contextlib.suppress(FormatError):  # what was cut off is missing from the answer and shows as such
            for packet in nl.packets(data):
                place = packet.seq - first
                if place not in open_:
                    continue  # a late answer to an earlier question
                if packet.kind in (nl.NLMSG_ERROR, nl.NLMSG_DONE):
                    answers[place] = Answer(nl.error_of(packet.body), answers[place].bodies)
                    open_.discard(place)
                else:
                    answers[place].bodies.append(packet.body)
