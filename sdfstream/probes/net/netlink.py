"""Netlink messages and attributes as bytes: build requests, take answers apart (linux/netlink.h, native byte order).

Pure: `netlink_io` holds the sockets. A message is a 16-byte header (length, type, flags, sequence, port) and a
body padded to 4; an attribute is (length, type) and a value padded to 4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final, NamedTuple

from sdfstream.errors import FormatError

NLM_F_REQUEST: Final = 0x1
NLM_F_ACK: Final = 0x4
NLM_F_ECHO: Final = 0x8
NLM_F_DUMP: Final = 0x300
NLM_F_REPLACE: Final = 0x100
NLM_F_EXCL: Final = 0x200
NLM_F_CREATE: Final = 0x400
NLM_F_APPEND: Final = 0x800
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
_NESTED: Final = 0x8000
_TYPE_MASK: Final = 0x3FFF

_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")


class Packet(NamedTuple):
    """One netlink message of an answer."""

    kind: int
    seq: int
    body: bytes

    @property
    def error(self) -> int | None:
        """The errno of what ends an answer, 0 when all went well; None: more of the answer follows."""
        return error_of(self.body) if self.kind in (NLMSG_ERROR, NLMSG_DONE) else None


def request(kind: int, seq: int, body: bytes, flags: int = NLM_F_ACK) -> bytes:
    """One request with its header, padded."""
    return _HEADER.pack(_HEADER.size + len(body), kind, NLM_F_REQUEST | flags, seq, 0) + body + b"\0" * (-len(body) % 4)


def packets(data: bytes) -> Iterator[Packet]:
    """The messages of one datagram.

    Raises
    ------
    FormatError
        ``truncated`` when a length does not fit; the messages before it have been yielded.
    """
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER.size:
            raise FormatError("truncated", "netlink header")
        length, kind, _, seq, _ = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= length <= len(data) - at:
            raise FormatError("truncated", "netlink message")
        yield Packet(kind, seq, data[at + _HEADER.size : at + length])
        at += (length + 3) & ~3


def error_of(body: bytes) -> int:
    """The errno of an NLMSG_ERROR or NLMSG_DONE body; 0 is an acknowledgement."""
    return -int.from_bytes(body[:4], _ORDER, signed=True) if len(body) >= 4 else 0


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4)


def nested(kind: int, *inner: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | _NESTED, b"".join(inner))


def u8(kind: int, value: int) -> bytes:
    """An attribute with one octet."""
    return attribute(kind, value.to_bytes(1, _ORDER))


def u32(kind: int, value: int) -> bytes:
    """An attribute with a 32-bit number."""
    return attribute(kind, value.to_bytes(4, _ORDER))


def text(kind: int, value: str) -> bytes:
    """An attribute with a zero-terminated string."""
    return attribute(kind, value.encode("utf-8", "surrogateescape") + b"\0")


def address(kind: int, value: str) -> bytes:
    """An attribute with an IPv4 or IPv6 address."""
    return attribute(kind, ip_address(value).packed)


def walk(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Attributes in order as (type without flags, value).

    Raises
    ------
    FormatError
        ``truncated`` when a length does not fit.
    """
    at = 0
    while len(data) - at >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if not _ATTRIBUTE.size <= length <= len(data) - at:
            raise FormatError("truncated", "netlink attribute")
        yield kind & _TYPE_MASK, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes) -> dict[int, bytes]:
    """Attributes by type; where a type repeats, the last one."""
    return dict(walk(data))


def number(value: bytes | None) -> int | None:
    """An unsigned number of 1, 2, 4 or 8 octets; None for anything else."""
    if value is None or len(value) not in (1, 2, 4, 8):
        return None
    return int.from_bytes(value, _ORDER)


_ORDER: Final = "little" if struct.pack("=H", 1)[0] else "big"
