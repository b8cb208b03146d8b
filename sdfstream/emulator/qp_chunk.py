"""What a queue pair carries: pieces that ranks want carried, and the chunks that they become on a queue pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sdfstream.emulator import qp_header as wire

Left = Callable[[int], None]
"""Told when a packet left (host's clock, ns); told again when the kernel knows better."""


class Piece:
    """What one rank wants carried to another: some octets with a name; done once, by whichever queue pair."""

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
    report: wire.Report | None
    """What the receiver saw; None: its report was lost."""
    first: bool
    """False: another queue pair was faster, this was a copy."""
    void: bool
    """Parts of it were void packets: it carried nothing."""


class Chunk:
    """A piece on one queue pair."""

    __slots__ = (
        "left_to_ack",
        "next_offset",
        "number",
        "packets",
        "path",
        "piece",
        "retransmits",
        "sent_at_ns",
        "void",
    )

    def __init__(self, number: int, piece: Piece) -> None:
        self.number = number
        self.piece = piece
        self.packets = self.left_to_ack = wire.packets_of(len(piece.data))
        self.next_offset = 0
        self.path = 0
        self.retransmits = 0
        self.sent_at_ns = 0
        self.void = False

    def left(self, at_ns: int) -> None:
        """Its first packet left."""
        self.sent_at_ns = at_ns
