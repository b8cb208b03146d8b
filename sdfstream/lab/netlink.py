"""Netlink messages as bytes: the frame, attributes, and reading replies (RFC 3549 section 2; linux/netlink.h)."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_ECHO = 0x8
NLM_F_DUMP = 0x300
NLM_F_REPLACE = 0x100
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_APPEND = 0x800
NLMSG_ERROR = 2
NLMSG_DONE = 3
NLA_F_NESTED = 0x8000
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")


@dataclass(frozen=True, slots=True)
class Request:
    """One message to the kernel, without sequence number."""

    kind: int
    flags: int
    body: bytes
    what: str
    """What it asks, for the error sentence."""
    tolerate: frozenset[int] = frozenset()
    """Error numbers that are fine here (the thing is gone already, or there already)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One message from the kernel. `error` is None unless it is an NLMSG_ERROR (0: an acknowledgement)."""

    kind: int
    sequence: int
    body: bytes
    error: int | None


def attribute(kind: int, payload: bytes) -> bytes:
    """One attribute, padded to 4 bytes."""
    size = 4 + len(payload)
    return _ATTRIBUTE.pack(size, kind) + payload + bytes(-size % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | NLA_F_NESTED, b"".join(attributes))


def u32(kind: int, value: int) -> bytes:
    """An attribute with one unsigned 32-bit number in host order."""
    return attribute(kind, struct.pack("=I", value))


def text(kind: int, value: str) -> bytes:
    """An attribute with a zero-terminated name."""
    return attribute(kind, value.encode() + b"\0")


def address(kind: int, value: str) -> bytes:
    """An attribute with an IPv4 or IPv6 address."""
    return attribute(kind, ip_address(value).packed)


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """One framed message."""
    size = 16 + len(body)
    return _HEADER.pack(size, kind, flags, sequence, 0) + body + bytes(-size % 4)


def batches(requests: Sequence[Request], first_sequence: int, limit_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Requests packed into sends of at most `limit_bytes`; only the last of each send asks for an acknowledgement.

    The kernel works a send off in order and reports every failure anyway, so one acknowledgement tells that all
    before it are done, and hundreds of them cannot overrun the receive buffer.

    Yields
    ------
    (bytes, int)
        The send, and the sequence number whose acknowledgement ends it.
    """
    packed: list[bytes] = []
    size = 0
    for i, request in enumerate(requests):
        size += _framed(request)
        last = i + 1 == len(requests) or size + _framed(requests[i + 1]) > limit_bytes
        flags = request.flags | NLM_F_REQUEST | (NLM_F_ACK if last else 0)
        packed.append(message(request.kind, flags, first_sequence + i, request.body))
        if last:
            yield b"".join(packed), first_sequence + i
            packed, size = [], 0


def _framed(request: Request) -> int:
    return 16 + len(request.body) + (-len(request.body) % 4)


def replies(data: bytes) -> Iterator[Reply]:
    """The messages of one receive; a truncated tail ends it."""
    position = 0
    while position + 16 <= len(data):
        size, kind, _, sequence, _ = _HEADER.unpack_from(data, position)
        if size < 16 or position + size > len(data):
            return
        body = data[position + 16 : position + size]
        error = -int.from_bytes(body[:4], "little", signed=True) if kind == NLMSG_ERROR else None
        yield Reply(kind, sequence, body, error)
        position += size + (-size % 4)


def attributes(data: bytes, position: int = 0) -> dict[int, bytes]:
    """Attributes by kind (a repeated kind: the last); a malformed tail is left out."""
    found: dict[int, bytes] = {}
    while position + 4 <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, position)
        if size < 4 or position + size > len(data):
            break
        found[kind & 0x3FFF] = data[position + 4 : position + size]
        position += size + (-size % 4)
    return found


def error_sentence(request: Request, error: int) -> str:
    """What was asked and what the kernel said."""
    return f"{request.what}: {os.strerror(error)} ({errno.errorcode.get(error, error)})"


def failures(requests: Sequence[Request], first_sequence: int, answers: Iterable[Reply]) -> list[tuple[Request, int]]:
    """Requests the kernel refused and did not tolerate, with the error number."""
    refused = []
    for reply in answers:
        index = reply.sequence - first_sequence
        if reply.error and 0 <= index < len(requests) and reply.error not in requests[index].tolerate:
            refused.append((requests[index], reply.error))
    return refused
