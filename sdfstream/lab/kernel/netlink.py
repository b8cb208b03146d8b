"""Netlink requests, each with a sentence for its failure, packed into few sends (RFC 3549)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sdfstream.probes.net.netlink import NLM_F_ACK, Packet
from sdfstream.probes.net.netlink import request as framed


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """One message to the kernel, without sequence number."""

    kind: int
    flags: int
    body: bytes
    what: str
    """Its subject, for the error sentence."""
    tolerate: frozenset[int] = frozenset()
    """Error numbers that are fine here (the thing is gone already, or there already)."""


def batches(requests: Sequence[KernelRequest], first_sequence: int, limit_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Requests packed into sends of at most `limit_bytes`; only the last of each send asks for an acknowledgement.

    The kernel processes a send in order and reports every failure anyway, so one acknowledgement shows that all
    before it are done, and hundreds of them cannot overrun the receive buffer.

    Yields
    ------
    (bytes, int)
        The send, and the sequence number whose acknowledgement ends it.
    """
    packed: list[bytes] = []
    size = 0
    for i, request in enumerate(requests):
        size += _framed_bytes(request)
        last = i + 1 == len(requests) or size + _framed_bytes(requests[i + 1]) > limit_bytes
        flags = request.flags | (NLM_F_ACK if last else 0)
        packed.append(framed(request.kind, first_sequence + i, request.body, flags))
        if last:
            yield b"".join(packed), first_sequence + i
            packed, size = [], 0


def _framed_bytes(request: KernelRequest) -> int:
    return 16 + len(request.body) + (-len(request.body) % 4)


def error_sentence(request: KernelRequest, error: int) -> str:
    """The request's subject and the kernel's error."""
    return f"{request.what}: {os.strerror(error)} ({errno.errorcode.get(error, error)})"


def failures(
    requests: Sequence[KernelRequest], first_sequence: int, answers: Iterable[Packet]
) -> list[tuple[KernelRequest, int]]:
    """Requests the kernel refused and did not tolerate, with the error number."""
    refused = []
    for reply in answers:
        index = reply.seq - first_sequence
        if reply.error and 0 <= index < len(requests) and reply.error not in requests[index].tolerate:
            refused.append((requests[index], reply.error))
    return refused
