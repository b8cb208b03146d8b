"""A netlink socket: whole batches out, acknowledgements and answers back, nothing waits for ever."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from sdfstream.errors import LabUnavailableError
from sdfstream.lab.netlink import (
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    Reply,
    Request,
    batches,
    error_sentence,
    failures,
    message,
    replies,
)

NETLINK_ROUTE = 0
NETLINK_NETFILTER = 12
_SEND_BYTES = 65_536
_TIMEOUT_S = 10.0
"""A missing answer must not hang its caller; set-up of a big fabric under load takes one or two seconds."""


class NetlinkSocket:
    """A socket of the network namespace in which the calling thread stands at construction."""

    def __init__(self, protocol: int = NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        seconds = struct.pack("=qq", int(_TIMEOUT_S), 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
        self._socket.bind((0, 0))
        self._sequence = 1

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def apply(self, requests: Sequence[Request]) -> None:
        """Have all requests done, in order; the first refusal that is not tolerated is raised after the last one.

        Raises
        ------
        LabUnavailableError
            The kernel refused a request.
        """
        first, self._sequence = self._sequence, self._sequence + len(requests)
        refused = []
        for data, end in batches(requests, first, _SEND_BYTES):
            self._socket.send(data)
            refused += failures(requests, first, self._until_ack(end))
        if refused:
            raise LabUnavailableError(error_sentence(*refused[0]))

    def commit(self, requests: Sequence[Request], begin: Request, end: Request) -> None:
        """Have all requests done as one transaction (nf_tables): all or none.

        Raises
        ------
        LabUnavailableError
            The kernel refused a request; nothing was done.
        """
        first, self._sequence = self._sequence + 1, self._sequence + len(requests) + 2
        [(data, last)] = batches(requests, first, 1 << 20)
        head = message(begin.kind, NLM_F_REQUEST, first - 1, begin.body)
        tail = message(end.kind, NLM_F_REQUEST, last + 1, end.body)
        self._socket.send(head + data + tail)
        if refused := failures(requests, first, self._until_ack(last)):
            raise LabUnavailableError(error_sentence(*refused[0]))

    def ask(self, request: Request) -> list[bytes]:
        """The bodies of the answers to one request (of all messages of a dump).

        Raises
        ------
        LabUnavailableError
            The kernel refused the request.
        """
        first, self._sequence = self._sequence, self._sequence + 1
        [(data, end)] = batches([request], first, _SEND_BYTES)
        self._socket.send(data)
        answers = self._until_ack(end)
        if refused := failures([request], first, answers):
            raise LabUnavailableError(error_sentence(*refused[0]))
        return [reply.body for reply in answers if reply.kind not in (NLMSG_ERROR, NLMSG_DONE)]

    def _until_ack(self, end: int) -> list[Reply]:
        answers: list[Reply] = []
        while True:
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError as error:
                raise LabUnavailableError(f"the kernel did not answer within {_TIMEOUT_S:.0f} s") from error
            except BlockingIOError as error:
                raise LabUnavailableError(f"the kernel did not answer within {_TIMEOUT_S:.0f} s") from error
            for reply in replies(data):
                answers.append(reply)
                if reply.sequence == end and reply.kind in (NLMSG_ERROR, NLMSG_DONE):
                    return answers
