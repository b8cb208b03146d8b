"""One rank: collective after collective, each checked at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdfstream.emulator.collective import Collective, Maker, OutgoingPieces
from sdfstream.emulator.qp_chunk import Piece
from sdfstream.emulator.qp_receive import Delivered
from sdfstream.emulator.qp_stripe import Stripe
from sdfstream.stats import Counters


@dataclass(slots=True)
class Tally:
    """Counts of one rank since the start."""

    done: int = 0
    """Collectives completed."""
    right: int = 0
    """Of these, with every number as it must be."""
    payload_bytes: int = 0
    """Delivered to the collectives, each octet once."""


class RankEngine:
    """Runs collectives 0, 1, …, one `begin` each.

    A collective is over for a rank when everything has come and everything sent was acknowledged, so no rank is more
    than one collective ahead of another; chunks of the next one wait.

    Parameters
    ----------
    rank : int
    make : Maker
    stripes : mapping of peer rank to Stripe
    counters : Counters
        Gets ``refused`` (``out-of-place``, ``far-ahead``) and ``doubled`` chunks, which were not used twice.
    """

    def __init__(self, rank: int, make: Maker, stripes: Mapping[int, Stripe], counters: Counters) -> None:
        self.rank = rank
        self.stripes = stripes
        self.tally = Tally()
        self.current: int | None = None
        """Number of the collective it works on; None before `begin` and after the last one."""
        self._make = make
        self._counters = counters
        self._collective: Collective | None = None
        self._outstanding = 0
        self._next = 0
        self._early: list[tuple[int, Delivered]] = []

    def begin(self) -> None:
        """Start the next collective."""
        self.current = self._next
        self._next += 1
        self._collective = self._make(self.rank, self.current)
        self._send(self._collective.start())
        early, self._early = self._early, []
        for peer, chunk in early:
            self.take(peer, chunk)

    def take(self, peer: int, chunk: Delivered) -> None:
        """A chunk came from rank `peer`."""
        if self._collective is None or chunk.collective != self.current:
            if chunk.collective == self._next:
                self._early.append((peer, chunk))
            elif chunk.collective < self._next:
                self._counters.add("doubled")
            else:
                self._counters.add("refused", "far-ahead")
            return
        answer = self._collective.take(peer, chunk)
        if isinstance(answer, str):
            if answer == "doubled":
                self._counters.add("doubled")
            else:
                self._counters.add("refused", answer)
            return
        self.tally.payload_bytes += len(chunk.data)
        self._send(answer)

    def acknowledged(self, piece: Piece) -> None:
        """One of our pieces has arrived."""
        self._outstanding -= 1

    def finish(self) -> bool:
        """Whether the collective is over; it is checked and counted then."""
        if self._collective is None or self._outstanding or not self._collective.complete:
            return False
        self.tally.done += 1
        self.tally.right += self._collective.is_right()
        self._collective = None
        self.current = None
        return True

    def _send(self, pieces: OutgoingPieces) -> None:
        for peer, piece in pieces:
            self.stripes[peer].put(piece)
        self._outstanding += len(pieces)
