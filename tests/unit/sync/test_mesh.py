"""Clocks as members of a mesh: gauge, strangers, blame for jumps and for lasting disagreement, common misfit."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.records.units import Int64s
from sdfstream.sync import mesh
from sdfstream.sync.reduce import ReducedEdges
from tests.fixtures.sync_edges import edges


def complete(n: int, **columns: object) -> ReducedEdges:
    a, b = np.triu_indices(n, 1)
    return edges(a, b, **columns)


def at(n: int, who: int) -> np.ndarray:
    """The complete mesh's edges at a clock."""
    a, b = np.triu_indices(n, 1)
    result: np.ndarray = (a == who) | (b == who)
    return result


def test_new_clocks_and_long_silent_ones_do_not_make_the_gauge() -> None:
    variance = np.array([10.0, 20.0, 1e18, 15.0, 1e6, 1e18, 30.0])
    label = np.zeros(7, dtype=np.int64)
    assert mesh.anchors(variance, label).tolist() == [True, True, False, True, False, False, True]


def test_all_are_anchors_while_fewer_than_two_are_known() -> None:
    assert mesh.anchors(np.array([10.0, 1e18, 1e18]), np.zeros(3, dtype=np.int64)).all()
    label = np.array([0, 0, 0, 3, 3, 3])
    two = mesh.anchors(np.array([10.0, 10.0, 1e18, 1e18, 1e18, 1e18]), label)
    assert two.tolist() == [True, True, False, True, True, True]


@pytest.mark.parametrize("anchors", [0, 1, 2, 5, 6])
def test_the_median_of_one_component_is_that_of_several_and_of_numpy(anchors: int) -> None:
    x = np.random.default_rng(anchors).normal(size=8)
    anchor = np.arange(8) < anchors
    alone = mesh.medians(x, np.zeros(8, dtype=np.int64), anchor)
    beside = mesh.medians(np.append(x, 5.0), np.array([0] * 8 + [8]), np.append(anchor, False))[:8]
    assert alone.tolist() == beside.tolist() == [np.median(x[anchor]) if anchors else 0.0] * 8


def test_a_liar_is_blamed_and_its_neighbours_are_not() -> None:
    e = complete(8, disagreeing=at(8, 3).astype(float))
    np.testing.assert_array_equal(np.flatnonzero(mesh.blame(e, 8)), [3])


def test_a_liar_fitted_to_half_its_neighbours_is_blamed_all_the_same() -> None:
    a, b = np.triu_indices(8, 1)
    bad = at(8, 3) & ((a < 2) | (b > 6))
    np.testing.assert_array_equal(np.flatnonzero(mesh.blame(complete(8, disagreeing=bad.astype(float)), 8)), [3])


def test_two_liars_are_both_blamed() -> None:
    e = complete(10, disagreeing=(at(10, 3) | at(10, 7)).astype(float))
    np.testing.assert_array_equal(np.flatnonzero(mesh.blame(e, 10)), [3, 7])


@pytest.mark.parametrize("bad", [[], [4]])
def test_one_bad_neighbourhood_is_a_paths_fault_and_nobodys(bad: list[int]) -> None:
    column = np.zeros(28)
    column[bad] = 1.0
    assert not mesh.blame(complete(8, disagreeing=column), 8).any()


def test_a_clock_most_of_whose_sessions_jumped_has_stepped() -> None:
    jumped = at(8, 3)
    e = complete(8, jumped=jumped.astype(float), step_ns=np.where(jumped, 250e3, 0.0))
    assert mesh.stepped(e, 8).tolist() == [0.0, 0.0, 0.0, 250e3, 0.0, 0.0, 0.0, 0.0]


def test_no_clock_is_blamed_for_a_step_while_half_its_sessions_stand() -> None:
    jumped = at(8, 3) & (np.cumsum(at(8, 3)) <= 3)
    assert not mesh.stepped(complete(8, jumped=jumped.astype(float), step_ns=250e3 * jumped), 8).any()


def test_of_two_clocks_alone_both_may_have_stepped() -> None:
    assert mesh.stepped(edges([0], [1], jumped=1.0, step_ns=5e3), 2).tolist() == [5e3, 5e3]


def test_silent_sessions_do_not_stand_up_for_a_clock() -> None:
    jumped = at(8, 3) & (np.cumsum(at(8, 3)) <= 3)
    e = complete(8, jumped=jumped.astype(float), step_ns=250e3 * jumped, recent=~at(8, 3) | jumped)
    assert mesh.stepped(e, 8)[3] == 250e3


def test_the_smaller_island_is_the_stranger_unless_the_reference_lives_there() -> None:
    before, now = np.array([0, 0, 0, 3, 3]), np.zeros(5, dtype=np.int64)
    assert mesh.strangers(before, now, 0).tolist() == [False, False, False, True, True]
    assert mesh.strangers(before, now, 4).tolist() == [True, True, True, False, False]
    # nobody was absorbed where the mesh fell apart
    assert not mesh.strangers(now, before, 0).any()


def one(clocks: int) -> Int64s:
    """Labels of one component."""
    return np.zeros(clocks, dtype=np.int64)


def test_misfit_falls_with_neighbours_and_not_with_sessions() -> None:
    n, square = 9, 100.0
    few, many = (mesh.misfit(complete(n, disagreement_ns2=square, sessions=k), one(n)) for k in (1.0, 50.0))
    np.testing.assert_allclose(few, square / (n - 1))
    np.testing.assert_allclose(many, few)


def test_both_directions_are_one_neighbour() -> None:
    one_way = mesh.misfit(edges([0, 1, 0], [1, 2, 2], disagreement_ns2=100.0), one(3))
    both = mesh.misfit(edges([0, 1, 1, 2, 0], [1, 0, 2, 1, 2], disagreement_ns2=100.0), one(3))
    np.testing.assert_allclose(both, one_way)


def test_a_queue_on_one_edge_does_not_widen_the_bound_without_limit() -> None:
    square = np.full(36, 100.0)
    square[0] = 1e12
    assert mesh.misfit(complete(9, disagreement_ns2=square), one(9)).max() <= (7 * 100.0 + 1600.0) / 64


def test_another_component_widens_no_bound() -> None:
    a, b = np.triu_indices(4, 1)
    src, dst = np.concatenate([a, a + 4]), np.concatenate([b, b + 4])
    square = np.where(src < 4, 100.0, 1e18)
    both = mesh.misfit(edges(src, dst, disagreement_ns2=square), np.repeat([0, 4], 4))
    np.testing.assert_allclose(both[:4], mesh.misfit(complete(4, disagreement_ns2=100.0), one(4)))


def test_a_clock_that_without_samples_keeps_what_it_had() -> None:
    found = mesh.misfit(edges([0, 1], [1, 2], disagreement_ns2=100.0, recent=[True, False]), one(3))
    assert np.isnan(found).tolist() == [False, False, True]
