"""Packets of any five-tuple whose TTL is to expire, and the ICMP errors that quote them (RFC 792, RFC 4443).

A packet carries a token: in the IP identification (IPv4, 16 bits of it, since a router need quote no more than the IP
header and eight octets), and in the first payload octets of UDP or the sequence number of TCP (all 32 bits).

A TCP packet is a bare segment without any flag. Should one reach an end after all, it is dropped there without an
answer: a segment must carry at least ACK, SYN or RST to be looked at (Linux ``tcp_rcv_established``). UDP packets
carry a few octets of padding. IPv6: the flow label is 0; where a fabric hashes flow labels, a flow that sets one may
take another route than its trace.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

UDP: Final = 17
TCP: Final = 6
PROTOCOLS: Final = {"udp": UDP, "tcp": TCP}
_V4_PREFIX: Final = bytes(10) + b"\xff\xff"
_DONT_FRAGMENT: Final = 0x4000
_PADDING: Final = 12
_IP: Final = 20
_IP6: Final = 40
_PORTS: Final = 8
"""Octets behind the IP header that every router quotes."""


class FiveTuple(NamedTuple):
    """The input of an ECMP hash; addresses as 16 octets, IPv4 as ::ffff:a.b.c.d."""

    protocol: int
    source: bytes
    destination: bytes
    source_port: int
    destination_port: int

    @property
    def v6(self) -> bool:
        """Whether it is IPv6."""
        return not self.destination.startswith(_V4_PREFIX)


class PacketTemplate(NamedTuple):
    """How the traceroute packets of a subject are sent."""

    nic: str
    """NIC id that sends them."""
    five_tuple: FiveTuple
    tos: int


class Quote(NamedTuple):
    """A packet whose TTL expired, as the router quotes it."""

    flow: FiveTuple
    token: int | None
    """The quoted bits of it; None: none."""
    bits: int
    """How many of its lowest bits were quoted."""
    offender: bytes
    """16 octets: the router."""


def packet(flow: FiveTuple, tos: int, ttl: int, token: int) -> bytes:
    """An IP packet of `flow`; the kernel fills in the IPv4 header checksum."""
    body = _udp(flow, token) if flow.protocol == UDP else _tcp(flow, token)
    if flow.v6:
        head = struct.pack("!IHBB", 6 << 28 | tos << 20, len(body), flow.protocol, ttl)
        return head + flow.source + flow.destination + body
    length, identification = _IP + len(body), token & 0xFFFF
    head = struct.pack("!BBHHHBBH", 0x45, tos, length, identification, _DONT_FRAGMENT, ttl, flow.protocol, 0)
    return head + flow.source[12:] + flow.destination[12:] + body


def quote4(message: bytes) -> Quote | None:
    """The quote in an IPv4 datagram with an ICMP message; None: it is no "TTL exceeded" about TCP or UDP."""
    at = (message[0] & 15) * 4 if message else 0
    if at < _IP or len(message) < at + 8 + _IP or message[at] != 11 or message[at + 1] != 0:
        return None
    quoted = message[at + 8 :]
    header = (quoted[0] & 15) * 4
    if quoted[0] >> 4 != 4 or header < _IP or len(quoted) < header + _PORTS:
        return None
    (identification, fragment) = struct.unpack_from("!HH", quoted, 4)
    if quoted[9] not in (UDP, TCP) or fragment & 0x1FFF:
        return None
    ports = struct.unpack_from("!HH", quoted, header)
    flow = FiveTuple(quoted[9], _V4_PREFIX + quoted[12:16], _V4_PREFIX + quoted[16:20], *ports)
    return Quote(flow, identification, 16, _V4_PREFIX + message[12:16])


def quote6(message: bytes, offender: bytes) -> Quote | None:
    """The quote in an ICMPv6 message from `offender`; None: it is no "hop limit exceeded" about TCP or UDP."""
    if len(message) < 8 + _IP6 + _PORTS or message[0] != 3 or message[1] != 0:
        return None
    quoted = message[8:]
    if quoted[0] >> 4 != 6 or quoted[6] not in (UDP, TCP):
        return None
    ports = struct.unpack_from("!HH", quoted, _IP6)
    flow = FiveTuple(quoted[6], quoted[8:24], quoted[24:40], *ports)
    at = _IP6 + (8 if flow.protocol == UDP else 4)
    token = int.from_bytes(quoted[at : at + 4], "big") if len(quoted) >= at + 4 else None
    return Quote(flow, token, 32, offender)


def _udp(flow: FiveTuple, token: int) -> bytes:
    payload = struct.pack("!I", token & 0xFFFFFFFF) + bytes(_PADDING)
    length = 8 + len(payload)
    head = struct.pack("!HHHH", flow.source_port, flow.destination_port, length, 0)
    total = _checksum(flow, head + payload) or 0xFFFF
    return head[:6] + struct.pack("!H", total) + payload


def _tcp(flow: FiveTuple, token: int) -> bytes:
    head = struct.pack("!HHIIBBHHH", flow.source_port, flow.destination_port, token & 0xFFFFFFFF, 0, 5 << 4, 0, 0, 0, 0)
    return head[:16] + struct.pack("!H", _checksum(flow, head)) + head[18:]


def _checksum(flow: FiveTuple, body: bytes) -> int:
    """Over the pseudo header and `body` (RFC 768, RFC 9293, RFC 8200 section 8.1)."""
    first = 0 if flow.v6 else 12
    text = flow.source[first:] + flow.destination[first:] + struct.pack("!II", len(body), flow.protocol) + body
    total: int = sum(struct.unpack(f"!{len(text) // 2}H", text))  # every header and body has even length
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
