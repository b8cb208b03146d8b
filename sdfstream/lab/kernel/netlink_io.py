"""A node's netlink socket: whole batches out, acknowledgements and answers back, nothing waits for ever."""

from __future__ import annotations

from collections.abc import Sequence

from sdfstream.errors import LabUnavailableError
from sdfstream.lab.kernel.netlink import KernelRequest, batches, error_sentence, failures
from sdfstream.probes.net import netlink as nl
from sdfstream.probes.net.netlink_io import NETLINK_ROUTE, NetlinkSocket

_SEND_BYTES = 65_536
_TIMEOUT_S = 10.0
"""A missing answer must not hang its caller; set-up of a big fabric under load takes one or two seconds."""


class NodeSocket:
    """A socket of the network namespace in which the calling thread stands at construction."""

    def __init__(self, protocol: int = NETLINK_ROUTE) -> None:
        self._socket = NetlinkSocket(protocol, _TIMEOUT_S)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def apply(self, requests: Sequence[KernelRequest]) -> None:
        """Have all requests done, in order; the first refusal that is not tolerated is raised after the last one.

        Raises
        ------
        LabUnavailableError
            The kernel refused a request.
        """
        first = self._socket.numbers(len(requests))
        answers = [reply for send in batches(requests, first, _SEND_BYTES) for reply in self._exchange(*send)]
        _raise_first(failures(requests, first, answers))

    def commit(self, requests: Sequence[KernelRequest], begin: KernelRequest, end: KernelRequest) -> None:
        """Have all requests done as one transaction (nf_tables): all or none.

        Raises
        ------
        LabUnavailableError
            The kernel refused a request; nothing was done.
        """
        first = self._socket.numbers(len(requests) + 2) + 1
        [(data, last)] = batches(requests, first, 1 << 20)
        head = nl.request(begin.kind, first - 1, begin.body, 0)
        tail = nl.request(end.kind, last + 1, end.body, 0)
        _raise_first(failures(requests, first, self._exchange(head + data + tail, last)))

    def ask(self, request: KernelRequest) -> list[bytes]:
        """The bodies of the answers to one request (of all messages of a dump).

        Raises
        ------
        LabUnavailableError
            The kernel refused the request.
        """
        first = self._socket.numbers(1)
        [(data, end)] = batches([request], first, _SEND_BYTES)
        answers = self._exchange(data, end)
        _raise_first(failures([request], first, answers))
        return [reply.body for reply in answers if reply.error is None]

    def _exchange(self, data: bytes, end: int) -> list[nl.Packet]:
        try:
            return self._socket.exchange(data, [end])
        except TimeoutError as error:
            raise LabUnavailableError(f"the kernel did not answer within {_TIMEOUT_S:.0f} s") from error


def _raise_first(refused: Sequence[tuple[KernelRequest, int]]) -> None:
    if refused:
        raise LabUnavailableError(error_sentence(*refused[0]))
