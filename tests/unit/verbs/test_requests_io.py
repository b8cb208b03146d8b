"""Work requests that are posted again: what each holds when it is posted, and what is freed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sdfstream.verbs.requests_io import MemorySpan, ReceiveRequests, SendRequests

MEMORY = SimpleNamespace(buf=1000, lkey=7)


class Sge:
    def __init__(self, address: int, octets: int, key: int) -> None:
        self.held, self.closed = (address, octets, key), False

    def close(self) -> None:
        self.closed = True


class Request:
    """As pyverbs has it: what is behind it can be set, and never taken back."""

    made = 0

    def __init__(self, sg: list[Sge], num_sge: int, wr_id: int = 0, opcode: int = 0, send_flags: int = 0) -> None:
        Request.made += 1
        self.pieces = [piece.held for piece in sg]
        self.wr_id, self.behind, self.closed = wr_id, None, False
        assert not any(piece.closed for piece in sg)
        assert len(sg) == num_sge

    @property
    def next_wr(self) -> Any:
        return self.behind

    @next_wr.setter
    def next_wr(self, behind: Request) -> None:
        assert behind is not None
        self.behind = behind

    def close(self) -> None:
        self.closed = True


LIBRARY: Any = SimpleNamespace(
    enums=SimpleNamespace(IBV_SEND_SIGNALED=2), wr=SimpleNamespace(SGE=Sge, SendWR=Request, RecvWR=Request)
)


def posted(first: Any) -> list[tuple[int, int, int]]:
    """Id, address and octets of a request and those behind it, as a driver walks them."""
    found = []
    while first is not None:
        assert not first.closed
        ((address, octets, _),) = first.pieces
        found.append((first.wr_id, address, octets))
        first = first.next_wr
    return found


def test_a_request_is_made_once_for_each_place_and_length() -> None:
    sends = SendRequests(LIBRARY, MEMORY, 2)
    first = sends.one(MemorySpan(1, 0, 64))
    assert posted(first) == [(1, 1000, 64)]
    assert sends.one(MemorySpan(2, 0, 64)) is first
    assert posted(first) == [(2, 1000, 64)]
    other = sends.one(MemorySpan(3, 0, 65))
    assert (posted(other), first.closed) == ([(3, 1000, 65)], True)


def test_what_was_in_a_chain_drags_nothing_behind_it_when_it_is_posted_alone() -> None:
    sends = SendRequests(LIBRARY, MEMORY, 2)
    spans = [MemorySpan(n, n * 64, 64) for n in range(4)]
    assert posted(sends.chain(spans)) == [(n, 1000 + n * 64, 64) for n in range(4)]
    assert posted(sends.one(spans[1])) == [(1, 1064, 64)]
    assert posted(sends.chain(spans[1:3])) == [(1, 1064, 64), (2, 1128, 64)]
    assert posted(sends.chain(spans[::-1])) == [(n, 1000 + n * 64, 64) for n in (3, 2, 1, 0)]


def test_a_prepared_chain_makes_only_its_last_request() -> None:
    sends = SendRequests(LIBRARY, MEMORY, 2)
    spans = [MemorySpan(n, n * 64, 64) for n in range(16)]
    for span in spans:
        sends.prepare(span.offset, span.octets)
    before = Request.made
    sends.chain(spans)
    assert Request.made == before + 1


def test_room_for_a_message_is_made_once() -> None:
    receives = ReceiveRequests(LIBRARY, MEMORY)
    first = receives.one(MemorySpan(3, 128, 64))
    assert posted(first) == [(3, 1128, 64)]
    assert receives.one(MemorySpan(3, 128, 64)) is first
