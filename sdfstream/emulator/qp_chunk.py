"""Pieces, which ranks send each other, and chunks, which a piece becomes on a queue pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sdfstream.emulator import qp_header as wire

OnDeparture = Callable[[int], None]
"""Called with the instant a packet left (host's clock, ns), and again with the kernel's transmit stamp."""


class Piece:
    """Octets from one rank to another: carried once, by whichever queue pair is first."""

    __slots__ = ("collective", "data", "done", "number", "step")

    def __init__(self, collective: int, step: int, number: int, data: bytes) -> None:
        self.collective = collective
        self.step = step
        self.number = number
        self.data = data
        self.done = False


class Finished(NamedTuple):
    """A chunk whose packets have all been acknowledged."""

    chunk: int
    piece: Piece
    path: int
    """Source port that its last packet left with."""
    packets: int
    retransmits: int
    sent_at_ns: int
    acknowledged_at_ns: int
    report: wire.ChunkReport | None
    """From the receiver; None: its report was lost."""
    first: bool
    """Whether this queue pair was the first to carry the piece."""
    void: bool
    """Whether some of its packets were void: such a chunk carried nothing."""


class CarriedChunk(NamedTuple):
    """A finished chunk as a row of ``sdf.raw.qp.v1`` has it; its octets are gone."""

    chunk: int
    collective: int
    bytes: int
    path: int
    """Source port that its last packet left with."""
    packets: int
    retransmits: int
    sent_at_ns: int
    acknowledged_at_ns: int
    report: wire.ChunkReport | None
    """From the receiver; None: its report was lost."""


class Chunk:
    """A piece on one queue pair."""

    __slots__ = (
        "next_offset",
        "number",
        "packets",
        "path",
        "piece",
        "retransmits",
        "sent_at_ns",
        "unacknowledged",
        "void",
    )

    def __init__(self, number: int, piece: Piece) -> None:
        self.number = number
        self.piece = piece
        self.packets = self.unacknowledged = wire.packets_of(len(piece.data))
        self.next_offset = 0
        self.path = 0
        self.retransmits = 0
        self.sent_at_ns = 0
        self.void = False

    def on_departure(self, at_ns: int) -> None:
        """Its first packet left."""
        self.sent_at_ns = at_ns
