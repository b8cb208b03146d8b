"""The clocks as the mesh keeps them: rows in order of names, who comes and goes, steps, status, bounds of islands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sdfstream.numeric.codec import dump, load
from sdfstream.records.units import NS_PER_S
from sdfstream.sync.clocks import MeshClocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.mesh import solve
from sdfstream.sync.reduce import ReducedEdges
from sdfstream.sync.reference import Scale
from sdfstream.sync.sessions import UNKNOWN
from tests.fixtures.sync_edges import edges

CONFIG = SyncConfig()
SYNCED, HOLDOVER, UNSYNCED, FAULTY = range(4)


def known(*names: str) -> MeshClocks:
    clocks = MeshClocks(CONFIG)
    clocks.enter(list(names))
    clocks.set_bases(np.arange(len(names)), np.arange(len(names)) + 100)
    clocks.estimates.table["offset_var_ns2"], clocks.estimates.table["skew_var_ppb2"] = 100.0, 1.0
    return clocks


def tick(clocks: MeshClocks, e: ReducedEdges, number: int, at_s: float) -> None:
    clocks.advance(at_s * NS_PER_S)
    clocks.tie(e.src[e.recent], e.dst[e.recent])
    b = clocks.estimates.table
    clocks.take(solve(e, b["offset_ns"], b["skew_ppb"], b["offset_var_ns2"], clocks.label), e, number)
    clocks.step(np.zeros(clocks.n))


def ring(n: int, **columns: Any) -> ReducedEdges:
    return edges(np.arange(n), (np.arange(n) + 1) % n, **{"weight": 0.02, "blocks": 1.0, **columns})


def test_a_clock_that_most_of_its_packets_contradict_is_in_doubt_at_once_and_no_other_is() -> None:
    """What it did is known four ticks later; meanwhile nothing is learned, and its bound must not claim otherwise."""
    clocks = known("a", "b", "c", "d")
    every = [(i, j) for i in range(4) for j in range(i)]
    src, dst = map(np.array, zip(*every, strict=True))
    of_d = (src == 3).astype(np.float64)
    calm = edges(src, dst, weight=0.02, blocks=1.0)
    tick(clocks, calm, 1, 0.1)
    before = clocks.estimates.table["bound_ns2"].copy()
    tick(clocks, calm._replace(breached=of_d, breach_ns2=of_d * 50e3**2), 2, 0.2)
    bound = clocks.estimates.table["bound_ns2"].copy()
    assert bound[3] >= 50e3**2
    assert (bound[:3] < 2.0 * before[:3]).all(), "one of three contradicts each of the others"
    tick(clocks, calm, 3, 0.3)
    assert clocks.estimates.table["bound_ns2"][3] < 2.0 * before[3]


def test_doubt_lasts_until_packets_say_otherwise() -> None:
    clocks = known("a", "b")
    e = ring(2)._replace(breached=np.ones(2), breach_ns2=np.full(2, 9e6))
    tick(clocks, e, 1, 0.1)
    tick(clocks, ring(2, blocks=0.0), 2, 0.2)
    assert (clocks.estimates.table["bound_ns2"] >= 9e6).all()
    again = MeshClocks(CONFIG)
    again.restore(load(dump(clocks.snapshot())))
    for one in (clocks, again):
        tick(one, ring(2), 3, 0.3)
        assert (one.estimates.table["bound_ns2"] < 9e6).all()


def complete(n: int) -> tuple[Any, Any]:
    """Both clocks of every pair of `n`."""
    src, dst = map(np.array, zip(*[(i, j) for i in range(n) for j in range(i)], strict=True))
    return src, dst


def test_before_a_tick_is_over_two_contradicting_sessions_are_enough_where_no_neighbour_has_as_many() -> None:
    """Packets of half a tick were sent before the clock went astray; a single one may be a wrong stamp."""
    src, dst = complete(6)
    for many, doubted in ((1, False), (2, True)):
        clocks = known(*"abcdef")
        calm = edges(src, dst, weight=0.02, blocks=1.0)
        tick(clocks, calm, 1, 0.1)
        breached = ((src == 5) & (dst < many)).astype(np.float64)
        tick(clocks, calm._replace(breached=breached, breach_ns2=breached * 50e3**2), 2, 0.2)
        assert (clocks.estimates.table["bound_ns2"] >= 50e3**2).tolist() == [False] * 5 + [doubted]


@pytest.mark.parametrize("stepped", [False, True])
def test_what_surprises_sessions_of_a_clock_that_stepped_is_no_wander_and_soon_forgotten(stepped: bool) -> None:
    src, dst = complete(4)
    of_d = (src == 3).astype(np.float64)
    clocks = known("a", "b", "c", "d")
    calm = edges(src, dst, weight=1e-8, blocks=1.0)
    tick(clocks, calm, 1, 0.1)
    clocks.step(np.array([0.0, 0.0, 0.0, 200e3 if stepped else 0.0]))
    tick(clocks, calm._replace(surprise_ns2=of_d * 30e3**2), 2, 0.2)
    t = clocks.table
    assert (t["surprise_ns2"][:3] > 0.0).tolist() == [not stepped] * 3
    assert t["surprise_ns2"][3] >= 10e3**2, "its bound still holds what surprised it"
    assert (t["surprise_log_q"] > 0.0).tolist() == [not stepped] * 4
    tick(clocks, calm, 3, 3.2)
    assert bool(t["surprise_ns2"][3] < 500.0**2) is stepped


def test_what_jumped_may_be_running_and_move_as_far_in_the_next_tick() -> None:
    clocks = known("a", "b", "c")
    tick(clocks, ring(3), 1, 0.1)
    clocks.step(np.array([0.0, 200e3, 0.0]))
    tick(clocks, ring(3), 2, 0.2)
    bound = CONFIG.err_sigmas * np.sqrt(clocks.estimates.table["bound_ns2"])
    assert bound[1] > 0.8 * 200e3 / CONFIG.breach_blocks
    assert (bound[[0, 2]] < 200.0).all()


def test_rows_stand_in_order_of_names_whoever_came_first() -> None:
    clocks = known("m", "b")
    assert clocks.names == ["b", "m"]
    clocks.estimates.table["offset_ns"] = [1.0, 2.0]
    clocks.estimates.reference = 1
    clocks.tie(np.array([0]), np.array([1]))
    at = clocks.enter(["z", "a", "m"])
    assert clocks.names == ["a", "b", "m", "z"]
    assert at is not None and at.tolist() == [1, 2]
    assert clocks.estimates.table["offset_ns"].tolist() == [0.0, 1.0, 2.0, 0.0]
    assert clocks.estimates.table["offset_var_ns2"].tolist() == [UNKNOWN, 100.0, 100.0, UNKNOWN]
    assert clocks.label.tolist() == [0, 1, 1, 3]
    assert clocks.names[clocks.estimates.reference] == "m"
    assert clocks.enter(["a", "z"]) is None


def test_a_base_once_set_stays() -> None:
    clocks = known("a", "b")
    clocks.set_bases(np.array([1]), np.array([999]))
    assert clocks.estimates.table["base_ns"].tolist() == [100, 101]


def test_forgotten_clocks_leave_the_others_as_they_were() -> None:
    clocks = known("a", "b", "c", "d", "e")
    clocks.tie(np.array([0, 2, 3]), np.array([2, 4, 1]))
    clocks.estimates.table["offset_ns"] = [0.0, 1.0, 2.0, 3.0, 4.0]
    clocks.estimates.reference = 2
    clocks.keep(np.array([False, True, True, True, True]))
    assert clocks.names == ["b", "c", "d", "e"]
    assert clocks.estimates.table["offset_ns"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert clocks.label.tolist() == [0, 1, 0, 1]
    assert clocks.estimates.reference == 1


def test_a_step_is_news_once_and_unsyncs_until_the_bound_is_small_again() -> None:
    clocks = known("a", "b", "c")
    tick(clocks, ring(3), 1, 1.0)
    size = np.array([0.0, 250e3, 0.0])
    clocks.step(np.zeros(3))
    assert clocks.step(size).tolist() == [False, True, False]
    assert clocks.step(size).tolist() == [False, False, False], "sessions notice one step within two seconds"
    assert clocks.estimates.table["offset_var_ns2"][1] >= 250e3**2
    wide, small = np.array([100.0, 100e3, 100.0]), np.full(3, 100.0)
    at = clocks.estimates.at_ns
    assert clocks.status(at, wide, settle=True).tolist() == [SYNCED, UNSYNCED, SYNCED]
    assert clocks.status(at, small, settle=True).tolist() == [SYNCED, SYNCED, SYNCED]
    assert clocks.status(at, wide, settle=True).tolist() == [SYNCED, UNSYNCED, SYNCED]
    tick(clocks, ring(3), 2, 4.0)
    clocks.status(clocks.estimates.at_ns, small, settle=True)
    assert clocks.status(clocks.estimates.at_ns, wide, settle=True).tolist() == [SYNCED, SYNCED, SYNCED]


def test_a_clock_that_keeps_stepping_is_faulty_and_gets_over_it() -> None:
    clocks = known("a", "b", "c")
    for second in (1.0, 4.0, 7.0):
        tick(clocks, ring(3), 1, second)
        assert clocks.step(np.array([0.0, 5e3, 0.0])).any()
    # the three have decayed a little; a fourth makes it so
    tick(clocks, ring(3), 1, 10.0)
    clocks.step(np.array([0.0, 5e3, 0.0]))
    small = np.full(3, 10.0)
    assert clocks.status(clocks.estimates.at_ns, small, settle=True).tolist() == [SYNCED, FAULTY, SYNCED]
    tick(clocks, ring(3), 2, 30.0)
    assert clocks.status(clocks.estimates.at_ns, small, settle=True).tolist() == [SYNCED] * 3


def test_a_liar_is_faulty_after_two_seconds_of_accusation() -> None:
    clocks = known(*"abcdef")
    a, b = np.triu_indices(6, 1)
    e = edges(a, b, weight=0.02, blocks=1.0, disagreeing=((a == 3) | (b == 3)).astype(float))
    reported = []
    for k in range(1, 31):
        tick(clocks, e, k, 0.1 * k)
        reported.append(int(clocks.status(clocks.estimates.at_ns, np.full(6, 10.0), settle=True)[3]))
    assert reported.index(FAULTY) == 19
    assert clocks.status(clocks.estimates.at_ns, np.full(6, 10.0), settle=True).tolist() == [0, 0, 0, 3, 0, 0]


def test_silence_is_holdover_and_the_doubt_grows() -> None:
    clocks = known("a", "b")
    tick(clocks, edges([0], [1], weight=0.02, blocks=1.0), 1, 1.0)
    before = clocks.estimates.table["offset_var_ns2"].copy()
    tick(clocks, edges([0], [1], weight=0.0, blocks=0.0, recent=False), 2, 4.0)
    assert clocks.status(clocks.estimates.at_ns, np.full(2, 10.0), settle=True).tolist() == [HOLDOVER] * 2
    assert (clocks.estimates.table["offset_var_ns2"] > before).all()
    assert not clocks.alive().any()


def first_clock(clocks: MeshClocks) -> Scale:
    """The first clock is the reference."""
    return Scale(0, np.eye(clocks.n)[0])


def test_an_islands_bound_grows_with_the_time_it_was_cut_off() -> None:
    clocks = known("a", "b", "c", "d")
    for k in range(1, 11):
        tick(clocks, ring(4), k, 0.1 * k)
        clocks.mark_tied()
    own = clocks.estimates.table["offset_var_ns2"].copy()
    tied = clocks.variance_to(first_clock(clocks), own)
    assert np.isfinite(tied).all() and tied[0] == 0.0
    cut = edges([0, 2], [1, 3], weight=0.02, blocks=1.0)
    widths = []
    for k in range(11, 101):
        tick(clocks, cut, k, 0.1 * k)
        clocks.mark_tied()
        widths.append(clocks.variance_to(first_clock(clocks), own))
    assert widths[-1][2] > 3.0 * widths[20][2] > 3.0 * tied[2]
    assert widths[-1][1] < 3.0 * tied[1] + 100.0


def test_a_clock_never_tied_to_the_reference_is_unknown() -> None:
    clocks = known("a", "b", "c", "d")
    for k in range(1, 5):
        tick(clocks, edges([0, 2], [1, 3], weight=0.02, blocks=1.0), k, 0.1 * k)
        clocks.mark_tied()
    total = clocks.variance_to(first_clock(clocks), clocks.estimates.table["offset_var_ns2"].copy())
    assert np.isinf(total).tolist() == [False, False, True, True]


@pytest.mark.parametrize("met", [False, True])
def test_what_is_known_of_an_island_does_not_follow_a_reference_into_another(met: bool) -> None:
    """Since when two islands drift apart is the same seen from either; where they never met nothing is known."""
    clocks = known("a", "b", "c", "d")
    cut = edges([0, 2], [1, 3], weight=0.02, blocks=1.0)
    for k in range(1, 41):
        tick(clocks, ring(4) if met and k < 20 else cut, k, 0.1 * k)
        clocks.mark_tied()
    own = clocks.estimates.table["offset_var_ns2"].copy()
    before = clocks.variance_to(first_clock(clocks), own)
    clocks.change_reference(2)
    clocks.mark_tied()
    after = clocks.variance_to(Scale(2, np.eye(clocks.n)[2]), own)
    assert np.isinf([*before[2:], *after[:2]]).tolist() == [not met] * 4
    assert np.isfinite(after[2:]).all()
    if met:
        # four tied clocks know each three quarters of what two do (Foster): 6 of 84 ns²
        assert after[0] == pytest.approx(before[2], rel=0.1) and after[0] > 1.2 * after[3]


@pytest.mark.parametrize("lucky", [1.0, 0.2])
def test_a_lucky_moment_does_not_narrow_the_bound(lucky: float) -> None:
    clocks = known("a", "b", "c")
    for k in range(1, 41):
        tick(clocks, ring(3), k, 0.1 * k)
    usual_ns2 = clocks.own_bound(clocks.estimates.table["offset_var_ns2"])
    tick(clocks, ring(3, weight=0.02 / lucky), 41, 4.1)
    assert (clocks.own_bound(clocks.estimates.table["offset_var_ns2"]) > 0.8 * usual_ns2).all()


@pytest.mark.parametrize("n", [8, 24])
def test_a_large_mesh_that_learns_is_not_as_wide_as_it_was(n: int) -> None:
    """Its variances fall by a third in 1.5 s, all of them alike; of fewer clocks the margin is kept."""
    clocks = known(*(f"c{k:02d}" for k in range(n)))
    for k in range(1, 16):
        tick(clocks, ring(n, weight=0.02 * (1.0 + 0.033 * k)), k, 0.1 * k)
    own, t = clocks.estimates.table["offset_var_ns2"].copy(), clocks.table
    width = clocks.own_bound(own) / (own * t["bound_factor"])
    print(f"{n} clocks: {width.max():.2f} times what their variances say")
    assert (width < 1.05).all() if n == 24 else (width > 1.15).all()
    # one of them that is lucky alone keeps its usual one
    lucky = np.where(np.arange(n) == 3, 0.2, 1.0) * own
    assert clocks.own_bound(lucky)[3] > 0.8 * clocks.own_bound(own)[3]


def test_the_bound_of_a_snapshot_of_an_earlier_version_is_worked_out_anew() -> None:
    clocks, other = known("a", "b", "c"), MeshClocks(CONFIG)
    for k in range(1, 42):
        tick(clocks, ring(3, offset_ns=[5.0 * k, 0.0, 0.0]), k, 0.1 * k)
    assert clocks.table["bound_factor"].max() > 2.0
    state = load(dump(clocks.snapshot()))
    for name in ("bound_factor", "expected_square", "usual_lag"):
        del state["table"][name]
    other.restore(state)
    assert (other.table["bound_factor"] >= clocks.table["bound_factor"]).all()


def test_all_that_is_known_comes_back_from_its_bytes() -> None:
    clocks, other = known("a", "b", "c"), MeshClocks(CONFIG)
    for k in range(1, 15):
        tick(clocks, ring(3, offset_ns=[5.0, -2.0, -3.0]), k, 0.1 * k)
    other.restore(load(dump(clocks.snapshot())))
    assert dump(other.snapshot()) == dump(clocks.snapshot())
    for k in range(15, 30):
        for c in (clocks, other):
            tick(c, ring(3), k, 0.1 * k)
    assert dump(other.snapshot()) == dump(clocks.snapshot())


def test_the_same_pairs_tie_the_same_clocks_also_after_another_came_in() -> None:
    clocks = known("b", "c")
    a, b = np.array([0]), np.array([1])
    for _ in range(2):
        clocks.tie(a, b)
        assert clocks.label.tolist() == [0, 0]
    clocks.enter(["a"])
    clocks.tie(a, b)  # now of a and b
    assert clocks.label.tolist() == [0, 0, 2]
    clocks.tie(np.array([0, 1]), np.array([1, 2]))
    assert clocks.label.tolist() == [0, 0, 0]
