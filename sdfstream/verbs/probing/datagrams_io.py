"""The seam between UD endpoints and the STAMP engines: `Received`, `ToSend` and `TxStamps` of queue pairs.

A UDP socket is bound to a source port; a queue pair sends by any. So a sender's endpoint counts as one socket of the
engine for each source port, and the immediate data of an answer says which. A reflector's is one socket; where an
answer must go (queue pair and key) is remembered from the last probe of each sender and source port.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from sdfstream.errors import FormatError
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps, address_octets
from sdfstream.records.units import ABSENT_NS, StampKind
from sdfstream.stats import Counters
from sdfstream.verbs.probing.arrival import packet_headers
from sdfstream.verbs.probing.routes import roce_route
from sdfstream.verbs.probing.ud_endpoint_io import UdAddress, UdEndpoint, UdMessages
from sdfstream.verbs.udp_port import LEAST_PORT

REFLECTOR_PORT: Final = 862
"""What the engines see as the reflector's port: STAMP's own; on the wire there is none."""
_MOST_SENDERS: Final = 65_536


class SenderDatagrams:
    """A sender's endpoint; socket i of the engine is source port `ports[i]`.

    Parameters
    ----------
    endpoint : UdEndpoint
    ports : sequence of int
    peer_of : callable
        The queue pair at an address, 16 octets; None: nobody there has been met.
    counters : Counters
        Gets ``refused.send``, ``refused.not-met`` and ``refused.source-port``.
    """

    def __init__(
        self,
        endpoint: UdEndpoint,
        ports: Sequence[int],
        peer_of: Callable[[bytes], UdAddress | None],
        counters: Counters,
    ) -> None:
        self._endpoint, self._peer_of, self._counters = endpoint, peer_of, counters
        self._ports = list(ports)
        self._sockets = {port: number for number, port in enumerate(self._ports)}

    def socket(self, port: int) -> int:
        """The number of a source port, a new one if need be."""
        if port not in self._sockets:
            self._sockets[port] = len(self._ports)
            self._ports.append(port)
        return self._sockets[port]

    def send(self, due: ToSend) -> list[int]:
        """Send what is due; tokens of what could not be sent."""
        unsent = []
        for i in range(len(due.length)):
            port, token = self._ports[int(due.socket[i])], int(due.token[i])
            peer = self._peer_of(due.address[i].tobytes())
            if peer is None:
                self._counters.add("refused", "not-met")
                unsent.append(token)
                continue
            route = roce_route(peer.gid, port, int(due.tos[i]))
            octets = due.data[i, : due.length[i]].tobytes()
            if not self._endpoint.send(token, octets, peer, route, port):
                self._counters.add("refused", "send")
                unsent.append(token)
        return unsent

    def take(self, messages: UdMessages, now_ns: int) -> Received:
        """Answers among the messages; those of source ports that are not ours are counted and left."""
        socket = [self._sockets.get(c.immediate & 0xFFFF, -1) for c in messages.received]
        rows = [i for i, number in enumerate(socket) if number >= 0]
        self._counters.add("refused", "source-port", len(socket) - len(rows))
        return _received(messages, rows, [socket[i] for i in rows], [REFLECTOR_PORT] * len(rows), now_ns)


class ReflectorDatagrams:
    """A reflector's endpoint, socket 0 of its engine."""

    def __init__(self, endpoint: UdEndpoint, counters: Counters) -> None:
        self._endpoint, self._counters = endpoint, counters
        self._keys: OrderedDict[bytes, int] = OrderedDict()
        self._pairs: OrderedDict[tuple[bytes, int], int] = OrderedDict()
        """(address, source port) to the queue pair that asked last, the one unheard of longest first."""

    def know(self, address: str, qkey: int) -> None:
        """The key of a sender's queue pairs; beyond `_MOST_SENDERS` the one that said it first is forgotten."""
        octets = address_octets(address)
        self._keys[octets] = qkey
        self._keys.move_to_end(octets)
        if len(self._keys) > _MOST_SENDERS:
            self._keys.popitem(last=False)

    def forget(self, address: str) -> None:
        """Answer this sender no more."""
        self._keys.pop(address_octets(address), None)

    def take(self, messages: UdMessages, now_ns: int) -> Received:
        """Probes among the messages; those whose immediate data is no source port of RoCEv2 are counted and left."""
        ports = [c.immediate & 0xFFFF for c in messages.received]
        rows = [i for i, port in enumerate(ports) if port >= LEAST_PORT and messages.received[i].immediate <= 0xFFFF]
        self._counters.add("refused", "source-port", len(ports) - len(rows))
        received = _received(messages, rows, [0] * len(rows), [ports[i] for i in rows], now_ns)
        for row, i in enumerate(rows):
            asked = received.address[row].tobytes(), ports[i]
            self._pairs[asked] = messages.received[i].peer_qpn
            self._pairs.move_to_end(asked)
            if len(self._pairs) > _MOST_SENDERS:
                self._pairs.popitem(last=False)
        return received

    def send(self, answers: ToSend) -> None:
        """Send answers by the source ports of their probes; those to nobody known are counted."""
        for i in range(len(answers.length)):
            address, port = answers.address[i].tobytes(), int(answers.port[i])
            qpn, qkey = self._pairs.get((address, port)), self._keys.get(address)
            if qpn is None or qkey is None:
                self._counters.add("refused", "no-queue-pair")
                continue
            gid = _gid(address)
            octets = answers.data[i, : answers.length[i]].tobytes()
            route = roce_route(gid, port, int(answers.tos[i]))
            if not self._endpoint.send(int(answers.token[i]), octets, UdAddress(gid, qpn, qkey), route, port):
                self._counters.add("refused", "send")


def tx_stamps(messages: UdMessages) -> TxStamps:
    """When messages left, by the NIC's clock; no stamp where the device has none."""
    tokens = [token for token, _ in messages.sent]
    at_ns = [ABSENT_NS if stamp is None else stamp for _, stamp in messages.sent]
    stamps = np.array(at_ns, dtype=np.int64)
    kind = np.where(stamps == ABSENT_NS, np.uint8(StampKind.NONE), np.uint8(StampKind.HARDWARE))
    user = np.full(len(tokens), ABSENT_NS, dtype=np.int64)
    return TxStamps(np.array(tokens, dtype=np.int64), stamps, kind, user)


def _received(
    messages: UdMessages, rows: Sequence[int], socket: Sequence[int], port: Sequence[int], now_ns: int
) -> Received:
    """The engines' shape of some of the messages; address, class and TTL from the packets' own headers."""
    found = packet_headers(messages.headers[rows])
    picked = [messages.received[i] for i in rows]
    at_ns = np.array([ABSENT_NS if c.at_ns is None else c.at_ns for c in picked], dtype=np.int64)
    absent = at_ns == ABSENT_NS
    header = messages.headers.shape[1]
    return Received(
        data=messages.data[rows],
        length=np.array([c.octets - header for c in picked], dtype=np.int32),
        socket=np.array(socket, dtype=np.int32),
        address=found.address,
        port=np.array(port, dtype=np.uint16),
        at_ns=at_ns,
        kind=np.where(absent, np.uint8(StampKind.NONE), np.uint8(StampKind.HARDWARE)),
        user_at_ns=now_ns,
        tos=found.tos,
        ttl=found.ttl,
    )


def address_of(gid: str) -> str:
    """The IP address that a GID stands for. FormatError: it is no GID.

    >>> address_of("0000:0000:0000:0000:0000:ffff:0a00:0001")
    '10.0.0.1'
    """
    try:
        parsed = ipaddress.IPv6Address(gid)
    except ValueError:
        raise FormatError("gid", f"{gid!r} is no GID") from None
    return str(parsed.ipv4_mapped or parsed)


def _gid(address: bytes) -> str:
    """An address as a GID is written; IPv4 is mapped."""
    return ipaddress.IPv6Address(address).exploded
