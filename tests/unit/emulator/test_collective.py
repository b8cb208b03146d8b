"""Collectives by hand: what comes in any order gives the right result, and what should not come is refused."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.emulator import collective_values as values
from sdfstream.emulator.collective import Collective, maker
from sdfstream.emulator.qp_chunk import Piece
from sdfstream.emulator.qp_receive import Delivered
from sdfstream.emulator.qp_stripe import Stripe
from sdfstream.emulator.rank import RankEngine
from sdfstream.stats import Counters


def delivered(piece: Piece) -> Delivered:
    return Delivered(piece.collective, piece.step, piece.number, bytearray(piece.data))


def exchange(kind: str, ranks: int, elements: int, chunk: int, seed: int) -> list[Collective]:
    """Run one collective over a wire that delivers in random order."""
    rng = np.random.default_rng(seed)
    made = [maker(kind, ranks, elements, chunk)(rank, 5) for rank in range(ranks)]
    flying = [(rank, to, piece) for rank in range(ranks) for to, piece in made[rank].start()]
    while flying:
        rank, to, piece = flying.pop(int(rng.integers(len(flying))))
        answer = made[to].take(rank, delivered(piece))
        assert not isinstance(answer, str), answer
        flying += [(to, peer, more) for peer, more in answer]
    return made


@pytest.mark.parametrize("kind", ["all-reduce", "all-to-all"])
@pytest.mark.parametrize(("ranks", "segment", "chunk"), [(2, 10, 3), (3, 7, 7), (4, 100, 16), (5, 1, 64)])
def test_any_order_of_arrival_gives_the_right_result(kind: str, ranks: int, segment: int, chunk: int) -> None:
    for one in exchange(kind, ranks, ranks * segment, chunk, seed=ranks):
        assert one.complete
        assert one.is_right()


@pytest.mark.parametrize("kind", ["all-reduce", "all-to-all"])
def test_a_missing_chunk_keeps_it_open_and_a_changed_octet_is_seen(kind: str) -> None:
    one, other = (maker(kind, 2, 40, 10)(rank, 0) for rank in range(2))
    for number, (_, piece) in enumerate(other.start()):
        assert not one.complete
        chunk = delivered(piece)
        if number == 0:
            chunk.data[3] ^= 1
        answer = one.take(1, chunk)
        assert not isinstance(answer, str)
    if kind == "all-reduce":
        assert not one.complete
        for number in range(2):
            came = values.total(2, 0, 40)[number * 10 : number * 10 + 10].tobytes()
            assert one.take(1, Delivered(0, 1, number, bytearray(came))) == []
    assert one.complete
    assert not one.is_right()


@pytest.mark.parametrize("kind", ["all-reduce", "all-to-all"])
def test_what_comes_twice_or_is_out_of_place_is_refused_and_changes_nothing(kind: str) -> None:
    make = maker(kind, 3, 30, 5)
    one, sender = make(0, 0), make(2, 0)
    _, piece = next((to, p) for to, p in sender.start() if to == 0)
    good = delivered(piece)
    assert not isinstance(one.take(2, good), str)
    assert one.take(2, good) == "doubled"
    for bad in (
        good._replace(piece=99),
        good._replace(step=99),
        good._replace(data=bytearray(4)),
    ):
        assert one.take(2, bad) == "out-of-place"
    assert one.take(1, good) == "out-of-place"


def test_the_sum_of_what_all_bring_is_the_known_one() -> None:
    for ranks in (2, 5, 9):
        together = sum((values.brought(r, 3, 50) for r in range(1, ranks)), values.brought(0, 3, 50))
        assert np.array_equal(together, values.total(ranks, 3, 50))


def test_neighbouring_ranks_collectives_and_indices_bring_different_numbers() -> None:
    assert len(set(values.brought(0, 0, 1000).tolist())) == 1000
    assert not (values.brought(0, 0, 100) == values.brought(1, 0, 100)).any()
    assert not (values.brought(0, 0, 100) == values.brought(0, 1, 100)).any()
    assert not (values.sent_to(0, 1, 0, 100) == values.sent_to(1, 0, 0, 100)).any()


def test_a_rank_keeps_what_comes_for_the_next_collective_and_refuses_what_is_further_ahead() -> None:
    make, counters = maker("all-to-all", 2, 8, 64), Counters("job")
    rank = RankEngine(0, make, {1: Stripe([])}, counters)
    chunk = [delivered(make(1, n).start()[0][1]) for n in range(3)]
    rank.take(1, chunk[0])  # before it has begun
    rank.begin()
    rank.take(1, chunk[0])
    rank.take(1, chunk[1])
    rank.take(1, chunk[2])
    assert counters.as_dict() == {"job.doubled": 1, "job.refused.far-ahead": 1}
    rank.acknowledged(Piece(0, 0, 0, b""))
    assert rank.finish()
    rank.begin()
    rank.acknowledged(Piece(0, 0, 0, b""))
    assert rank.finish()
    assert (rank.tally.done, rank.tally.right) == (2, 2)
