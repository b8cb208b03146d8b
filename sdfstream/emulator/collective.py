"""Collectives, one rank's view: pieces to send, chunks received, completion, and a check of the result.

Ring all-reduce (n ranks, the data in n segments): 2·(n − 1) steps. In the first n − 1 a segment travels round the ring
and every rank adds its own numbers (reduce-scatter), then the sums travel round once more (all-gather). Each chunk is
added and passed on at once, without waiting for the rest of its segment.

All-to-all: every rank has a block of its own for every other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from sdfstream.emulator import collective_values as values
from sdfstream.emulator.qp_chunk import Piece
from sdfstream.emulator.qp_receive import Delivered
from sdfstream.records.units import UInt32s

OutgoingPieces = list[tuple[int, Piece]]
"""(peer rank, piece)."""
_BYTES: Final = 4


class Collective(Protocol):
    """One collective at one rank."""

    def start(self) -> OutgoingPieces:
        """The pieces that can be sent without having received anything."""

    def take(self, peer: int, chunk: Delivered) -> OutgoingPieces | str:
        """Take a chunk from rank `peer`; the pieces that can be sent because of it, or why it is refused."""

    @property
    def complete(self) -> bool:
        """Whether everything has come, each chunk once."""

    def is_right(self) -> bool:
        """Whether the result is the expected one, number by number."""


Maker = Callable[[int, int], Collective]
"""(rank, number of the collective) to a fresh collective."""


class RingAllReduce:
    """See the module; `elements` is a multiple of `ranks`."""

    def __init__(self, rank: int, number: int, ranks: int, elements: int, chunk_elements: int) -> None:
        self._rank, self._number, self._ranks = rank, number, ranks
        self._segment = elements // ranks
        self._chunk = chunk_elements
        self._pieces = -(-self._segment // chunk_elements)
        self._last_step = 2 * (ranks - 1) - 1
        self._data: UInt32s = values.brought(rank, number, elements)
        self._seen = bytearray((self._last_step + 1) * self._pieces)
        self._missing = len(self._seen)

    @property
    def complete(self) -> bool:
        """Whether everything has come, each chunk once."""
        return not self._missing

    def start(self) -> OutgoingPieces:
        """Our own segment sets out."""
        return [self._send(0, self._rank, piece) for piece in range(self._pieces)]

    def take(self, peer: int, chunk: Delivered) -> OutgoingPieces | str:
        """Add (reduce-scatter) or store (all-gather) a chunk, and pass it on."""
        if peer != (self._rank - 1) % self._ranks or chunk.step > self._last_step or chunk.piece >= self._pieces:
            return "out-of-place"
        segment = self._segment_of(chunk.step)
        span = self._span(segment, chunk.piece)
        if len(chunk.data) != (span.stop - span.start) * _BYTES:
            return "out-of-place"
        slot = chunk.step * self._pieces + chunk.piece
        if self._seen[slot]:
            return "doubled"
        self._seen[slot] = 1
        self._missing -= 1
        came = np.frombuffer(chunk.data, np.uint32)
        if chunk.step < self._ranks - 1:
            self._data[span] += came
        else:
            self._data[span] = came
        return [self._send(chunk.step + 1, segment, chunk.piece)] if chunk.step < self._last_step else []

    def is_right(self) -> bool:
        """Whether every number is the sum over all ranks."""
        return bool(np.array_equal(self._data, values.total(self._ranks, self._number, len(self._data))))

    def _segment_of(self, step: int) -> int:
        """The segment that comes in `step`."""
        if step < self._ranks - 1:
            return (self._rank - 1 - step) % self._ranks
        return (self._rank - (step - self._ranks + 1)) % self._ranks

    def _span(self, segment: int, piece: int) -> slice:
        first = segment * self._segment
        return slice(first + piece * self._chunk, first + min((piece + 1) * self._chunk, self._segment))

    def _send(self, step: int, segment: int, piece: int) -> tuple[int, Piece]:
        octets = self._data[self._span(segment, piece)].tobytes()
        return (self._rank + 1) % self._ranks, Piece(self._number, step, piece, octets)


class AllToAll:
    """See the module; `elements` is a multiple of `ranks`. The header's step is the rank that sends the block."""

    def __init__(self, rank: int, number: int, ranks: int, elements: int, chunk_elements: int) -> None:
        self._rank, self._number, self._ranks = rank, number, ranks
        self._block = elements // ranks
        self._chunk = chunk_elements
        self._pieces = -(-self._block // chunk_elements)
        self._got: UInt32s = np.zeros((ranks, self._block), np.uint32)
        self._seen = bytearray(ranks * self._pieces)
        self._missing = (ranks - 1) * self._pieces

    @property
    def complete(self) -> bool:
        """Whether everything has come, each chunk once."""
        return not self._missing

    def start(self) -> OutgoingPieces:
        """All blocks set out, a chunk for each peer in turn; the nearest peer is another one for every rank."""
        peers = [(self._rank + step) % self._ranks for step in range(1, self._ranks)]
        blocks = {p: values.sent_to(self._rank, p, self._number, self._block).tobytes() for p in peers}
        size = self._chunk * _BYTES
        return [
            (p, Piece(self._number, self._rank, piece, blocks[p][piece * size : (piece + 1) * size]))
            for piece in range(self._pieces)
            for p in peers
        ]

    def take(self, peer: int, chunk: Delivered) -> OutgoingPieces | str:
        """Store a chunk."""
        first = chunk.piece * self._chunk
        last = min(first + self._chunk, self._block)
        if chunk.step != peer or chunk.piece >= self._pieces or len(chunk.data) != (last - first) * _BYTES:
            return "out-of-place"
        slot = peer * self._pieces + chunk.piece
        if self._seen[slot]:
            return "doubled"
        self._seen[slot] = 1
        self._missing -= 1
        self._got[peer, first:last] = np.frombuffer(chunk.data, np.uint32)
        return []

    def is_right(self) -> bool:
        """Whether every block is the one its sender has for this rank."""
        return all(
            np.array_equal(self._got[p], values.sent_to(p, self._rank, self._number, self._block))
            for p in range(self._ranks)
            if p != self._rank
        )


def maker(kind: str, ranks: int, elements: int, chunk_elements: int) -> Maker:
    """How to make the job's collectives."""
    if kind == "all-reduce":
        return lambda rank, number: RingAllReduce(rank, number, ranks, elements, chunk_elements)
    return lambda rank, number: AllToAll(rank, number, ranks, elements, chunk_elements)
