"""Work requests that are made once and posted again.

Making one costs as much as posting it, and pyverbs frees what it holds only when it is closed: a program that made a
request for each message would grow by sixty octets with each.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from sdfstream.verbs.library_io import Verbs


class MemorySpan(NamedTuple):
    """A message, or room for one: its id in the completion, and where it lies in the memory."""

    id: int
    offset: int
    octets: int


class _Made(NamedTuple):
    octets: int
    request: Any


class SendRequests:
    """Requests to send from one memory; each is used again for the next message at its offset with its length.

    Parameters
    ----------
    verbs : Verbs
    memory : pyverbs.mr.MR
    opcode : int
        ``IBV_WR_SEND`` or the like.
    """

    def __init__(self, verbs: Verbs, memory: Any, opcode: int) -> None:
        self._verbs, self._memory, self._opcode = verbs, memory, opcode
        self._last: dict[int, _Made] = {}
        self._followed: dict[int, _Made] = {}
        """By offset: those that once had another behind them, which pyverbs cannot take back."""

    def prepare(self, offset: int, octets: int) -> None:
        """Have what a later `chain` with this message needs."""
        self._made(self._followed, offset, octets)

    def one(self, send: MemorySpan) -> Any:
        """A request with nothing behind it."""
        request = self._made(self._last, send.offset, send.octets)
        request.wr_id = send.id
        return request

    def chain(self, sends: Sequence[MemorySpan]) -> Any:
        """The first of several requests, each behind the one before, to be posted by one call; at least one."""
        requests = [self._made(self._followed, send.offset, send.octets) for send in sends[:-1]]
        for request, send in zip(requests, sends, strict=False):
            request.wr_id = send.id
        requests.append(self.one(sends[-1]))
        for request, behind in itertools.pairwise(requests):
            request.next_wr = behind
        return requests[0]

    def _made(self, held: dict[int, _Made], offset: int, octets: int) -> Any:
        found = held.get(offset)
        if found is None or found.octets != octets:
            if found is not None:
                found.request.close()
            enums, wr = self._verbs.enums, self._verbs.wr
            sge = wr.SGE(self._memory.buf + offset, octets, self._memory.lkey)
            flags = enums.IBV_SEND_SIGNALED
            found = _Made(octets, wr.SendWR(sg=[sge], num_sge=1, opcode=self._opcode, send_flags=flags))
            sge.close()  # the request has a copy
            held[offset] = found
        return found.request


class ReceiveRequests:
    """Requests for room in one memory, likewise."""

    def __init__(self, verbs: Verbs, memory: Any) -> None:
        self._verbs, self._memory = verbs, memory
        self._made: dict[MemorySpan, Any] = {}

    def one(self, room: MemorySpan) -> Any:
        """The request for this id, offset and length."""
        if room not in self._made:
            sge = self._verbs.wr.SGE(self._memory.buf + room.offset, room.octets, self._memory.lkey)
            self._made[room] = self._verbs.wr.RecvWR(wr_id=room.id, sg=[sge], num_sge=1)
            sge.close()
        return self._made[room]
