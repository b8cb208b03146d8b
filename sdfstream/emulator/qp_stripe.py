"""Several queue pairs from one rank to another: every piece goes to whichever has room.

A queue pair that stalls (its path is dead) takes no more, and its unfinished pieces are given to the others, too: the
first to carry a piece counts, the rest of the copy becomes void. So with one of k paths dead about (k − 1)/k of the
throughput stays, and no collective waits for a dead path.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sdfstream.emulator.qp_chunk import Piece
from sdfstream.emulator.qp_send import Requester


class Stripe:
    """Pieces that wait for the queue pairs `qps`, all from one rank to one other."""

    def __init__(self, qps: Sequence[Requester]) -> None:
        self.qps = list(qps)
        self.rescued = 0
        """Pieces that were given to another queue pair because theirs stalled."""
        self._waiting: deque[Piece] = deque()
        self._stalled: set[int] = set()
        self._rescued: set[int] = set()

    @property
    def waiting(self) -> int:
        """Pieces that no queue pair has taken yet."""
        return len(self._waiting)

    def put(self, piece: Piece) -> None:
        """Have `piece` carried."""
        self._waiting.append(piece)

    def feed(self, now_ns: int) -> None:
        """Give waiting pieces to queue pairs that have room, in turn."""
        self._watch(now_ns)
        if not self._waiting:
            return
        fit = [qp for qp in self.qps if qp.number not in self._stalled]
        while self._waiting and any(qp.has_room for qp in fit):
            for qp in fit:
                if qp.has_room and (piece := self._next()) is not None:
                    qp.push(piece, now_ns)
        # The first in turn is the last next time: with few pieces it would get them all.
        self.qps.append(self.qps.pop(0))

    def _next(self) -> Piece | None:
        while self._waiting:
            piece = self._waiting.popleft()
            if not piece.done:
                return piece
        return None

    def _watch(self, now_ns: int) -> None:
        self._stalled = {qp.number for qp in self.qps if qp.stalled(now_ns)}
        self._rescued &= self._stalled
        if len(self._stalled) == len(self.qps):
            return
        for qp in self.qps:
            if qp.number in self._stalled - self._rescued:
                self._rescued.add(qp.number)
                pieces = qp.unfinished()
                self._waiting.extendleft(reversed(pieces))
                self.rescued += len(pieces)
