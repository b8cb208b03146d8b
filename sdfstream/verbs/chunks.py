"""Chunks that arrive exactly once, over whichever of several queue pairs carries them: ledgers of both ends, no I/O.

A chunk is retained until its queue pair reports it as acknowledged. When a queue pair dies, nobody knows which of its
unacknowledged chunks arrived, so all are sent again by another one; the receiver takes the first copy of each.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("!QIIq")
HEADER_BYTES: Final = _HEADER.size


class ChunkHeader(NamedTuple):
    """What precedes a chunk's payload."""

    number: int
    octets: int
    checksum: int
    """CRC-32 of the payload."""
    sent_at_ns: int
    """By the sender's clock, when it was first posted."""


def encode(number: int, payload: bytes, sent_at_ns: int) -> bytes:
    """A chunk's header."""
    return _HEADER.pack(number, len(payload), zlib.crc32(payload), sent_at_ns)


def decode(octets: bytes) -> tuple[ChunkHeader, bytes] | None:
    """Header and payload of what arrived; None: it is damaged.

    >>> decode(encode(7, b"data", 5) + b"data")
    (ChunkHeader(number=7, octets=4, checksum=2918445923, sent_at_ns=5), b'data')
    >>> decode(encode(7, b"data", 5) + b"date") is None
    True
    """
    if len(octets) < HEADER_BYTES:
        return None
    header = ChunkHeader(*_HEADER.unpack_from(octets))
    payload = octets[HEADER_BYTES : HEADER_BYTES + header.octets]
    if len(payload) != header.octets or zlib.crc32(payload) != header.checksum:
        return None
    return header, payload


@dataclass(frozen=True, slots=True)
class CarriedMessage:
    """A chunk that is acknowledged."""

    number: int
    octets: int
    """Header and payload."""
    sent_at_ns: int
    acknowledged_at_ns: int
    posts: int
    """How often it was given to a queue pair; the second time after a failover."""
    path: int
    """Source port of the queue pair that was acknowledged."""


@dataclass(slots=True)
class SentChunk:
    """A chunk that has been given to a queue pair."""

    number: int
    slot: int
    octets: int
    """Header and payload."""
    sent_at_ns: int
    posts: int = 0
    """How often it was given to a queue pair."""
    outstanding: int = 0
    """Posts whose completion has not come: until then a device may read its slot."""
    acknowledged_at_ns: int | None = None


@dataclass(slots=True)
class ChunkOutbox:
    """The sending end: which slots are free, what is unacknowledged."""

    slots: int
    _next: int = 0
    _free: list[int] = field(init=False)
    _chunks: dict[int, SentChunk] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._free = list(range(self.slots - 1, -1, -1))

    @property
    def has_room(self) -> bool:
        """Whether another chunk may be begun."""
        return bool(self._free)

    @property
    def is_empty(self) -> bool:
        """Whether every chunk is acknowledged."""
        return not any(True for _ in self.unacknowledged())

    def begin(self, octets: int, now_ns: int) -> SentChunk:
        """A new chunk with a slot of its own."""
        chunk = SentChunk(self._next, self._free.pop(), octets, now_ns)
        self._next += 1
        self._chunks[chunk.number] = chunk
        return chunk

    def posted(self, chunk: SentChunk) -> None:
        """A queue pair has taken it."""
        chunk.posts += 1
        chunk.outstanding += 1

    def completed(self, number: int, *, ok: bool, now_ns: int) -> SentChunk | None:
        """A post of it has ended; the chunk if it is acknowledged by that for the first time."""
        chunk = self._chunks.get(number)
        if chunk is None:
            return None
        chunk.outstanding -= 1
        first = ok and chunk.acknowledged_at_ns is None
        if first:
            chunk.acknowledged_at_ns = now_ns
        if chunk.acknowledged_at_ns is not None and chunk.outstanding <= 0:
            self._free.append(chunk.slot)
            del self._chunks[number]
        return chunk if first else None

    def unacknowledged(self) -> Iterator[SentChunk]:
        """What must be sent again when its queue pair died, oldest first."""
        return (chunk for chunk in self._chunks.values() if chunk.acknowledged_at_ns is None)


@dataclass(slots=True)
class ChunkInbox:
    """The receiving end: each chunk once. Memory is bounded by how far chunks overtake each other."""

    taken: int = 0
    repeated: int = 0
    damaged: int = 0
    checksum: int = 0
    """Sum of the checksums of the chunks taken, modulo 2^64: the same in whatever order they came."""
    _floor: int = 0
    _above: set[int] = field(default_factory=set)

    def take(self, octets: bytes) -> tuple[ChunkHeader, bytes] | None:
        """The chunk in these octets; None: it came before, or is damaged (counted)."""
        found = decode(octets)
        if found is None:
            self.damaged += 1
            return None
        header = found[0]
        if header.number < self._floor or header.number in self._above:
            self.repeated += 1
            return None
        self._above.add(header.number)
        while self._floor in self._above:
            self._above.discard(self._floor)
            self._floor += 1
        self.taken += 1
        self.checksum = (self.checksum + header.checksum) % 2**64
        return found

    @property
    def missing(self) -> int:
        """Chunks that others have overtaken."""
        return (max(self._above) + 1 - self._floor - len(self._above)) if self._above else 0
