"""The parts of sync one by one: ring, noise, edges' shares, agreement, calibration, late measurements."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric import kalman
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.sync import edges, noise
from sdfstream.sync.agree import agree, faulty
from sdfstream.sync.blocks import blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.nodes import Measured, Nodes
from sdfstream.sync.ring import FINE, WINDOWS, Ring
from sdfstream.sync.table import Table

CONFIG = SyncConfig()


def one(value: float) -> np.ndarray:
    return np.array([value])


def filled_ring(values: np.ndarray, skew_ppb: float = 0.0) -> Ring:
    """One session, one block a tick; forward and reverse alike but for the sign of the clock."""
    ring = Ring()
    ring.grow(1)
    who = np.zeros(1, dtype=np.int64)
    for k, value in enumerate(values):
        at = float(k) * TICK_NS
        ring.turn(at, one(skew_ppb))
        ring.put(who, one(at), one(value), one(value), one(skew_ppb * at / NS_PER_S))
    return ring


@pytest.mark.parametrize("ticks", [1, 5, 16, 17, 40, 300])
def test_a_window_holds_the_smallest_of_its_ticks(ticks: int) -> None:
    values = np.random.default_rng(ticks).exponential(1000.0, ticks)
    ring = filled_ring(values)
    fwd, rev = ring.floors(np.zeros(1, dtype=np.int64), (ticks - 1.0) * TICK_NS, one(0.0), one(0.0))
    for j, length in enumerate(WINDOWS[: 5 if ticks < 2 * FINE else len(WINDOWS)]):
        newest = values[::-1]
        # coarse slots start up to a slot's length earlier or later than the window's name says
        least = newest[: int(length)].min() if length <= FINE else newest[: int(length) + FINE].min()
        most = newest[: int(length)].min() if length <= FINE else newest[: max(int(length) - FINE, FINE)].min()
        assert least <= fwd.low[j, 0] <= most
        assert rev.low[j, 0] == fwd.low[j, 0]
    assert fwd.age_s[0, 0] == 0.0


def test_floors_follow_any_later_line() -> None:
    ring = filled_ring(np.full(60, 500.0), skew_ppb=2000.0)
    fwd, rev = ring.floors(np.zeros(1, dtype=np.int64), 59.0 * TICK_NS, one(2000.0 * 5.9), one(2000.0))
    np.testing.assert_allclose(fwd.low[:8, 0], 500.0, atol=1e-6)
    np.testing.assert_allclose(rev.low[:8, 0], 500.0, atol=1e-6)


def test_forgetting_leaves_the_newest_ticks() -> None:
    ring = filled_ring(np.arange(40.0, 0.0, -1.0))
    ring.forget(np.zeros(1, dtype=np.int64), 3)
    fwd, _ = ring.floors(np.zeros(1, dtype=np.int64), 39.0 * TICK_NS, one(0.0), one(0.0))
    assert fwd.low[-1, 0] == 1.0
    assert np.isinf(fwd.older[2:, 0]).sum() >= 7


def session(**columns: object) -> Table:
    table = edges.session_table()
    table.grow(1)
    for name, value in columns.items():
        table[name] = value
    return table


def test_the_excess_of_exponential_floors_is_found() -> None:
    g = np.random.default_rng(1)
    table = session(rate=np.full((2, 1), 6.4), gap=1.0, excess=np.full((2, 1), 2000.0))
    who = np.zeros(1, dtype=np.int64)
    for _ in range(400):
        newer, older = g.exponential(10e3 / 6.4 / 8, (2, 2, 1))
        noise.learn_floors(table, who, newer, older, one(8.0), one(8.0), one(0.0))
    np.testing.assert_allclose(table["excess"][:, 0], 10e3, rtol=0.4)
    sigma = noise.floor_sigma(table, who, one(8.0), CONFIG)
    np.testing.assert_allclose(sigma[:, 0], table["excess"][:, 0] / 6.4 / 8)


def test_symmetric_small_noise_is_averaged_and_exponential_is_not() -> None:
    g = np.random.default_rng(2)
    for quiet, draw in ((True, lambda n: 5.0 * g.standard_normal(n)), (False, lambda n: 20.0 * g.exponential(size=n))):
        table = session()
        for _ in range(100):
            x = draw(8)
            b = blocks(np.zeros(8, dtype=np.int64), np.zeros(8), x, x[::-1].copy(), np.zeros(1))
            noise.learn_blocks(table, b, one(1.0), CONFIG)
        assert bool(table["quiet"][0]) is quiet


def shares(fwd: float, rev: float, known: float = 20.0**2) -> tuple[float, float]:
    table = session(d=10_000.0, d_variance=4.0, d_at=0.0)
    sigma, spread = np.full((2, 1), 20.0), one(200.0)
    floor = np.array([[fwd], [rev]])
    value, variance = edges._shares(
        table,
        np.zeros(1, dtype=np.int64),
        np.ones(1, dtype=bool),
        floor,
        sigma,
        spread,
        one(0.0),
        one(0.1),
        one(known),
        0.0,
        CONFIG,
    )
    return float(value[0]), float(variance[0])


def test_a_clock_error_moves_both_floors_and_is_measured() -> None:
    value, variance = shares(10_050.0, 9_950.0)
    assert value == pytest.approx(50.0) and variance == pytest.approx(200.0)


def test_a_standing_one_way_queue_is_booked_as_delay() -> None:
    value, variance = shares(40_000.0, 9_995.0)
    assert value == pytest.approx(5.0, abs=1.0)
    assert variance < 30.0**2


def test_a_queue_both_ways_silences_the_session() -> None:
    value, variance = shares(40_000.0, 40_000.0)
    assert abs(value) < 1.0 and variance > 10_000.0**2


def test_what_could_lie_in_either_direction_goes_into_the_error() -> None:
    _, variance = shares(10_100.0, 10_100.0, known=100.0**2)
    assert variance > 90.0**2


def mesh_of(offsets: np.ndarray, lies: dict[int, float], sigma: float = 10.0) -> tuple[Nodes, Table]:
    """A complete mesh; every session of a liar adds its lie with alternating sign."""
    n = offsets.size
    nodes = Nodes(CONFIG)
    nodes.grow(n)
    a, b = np.triu_indices(n, 1)
    nodes.tie(a, b, 0)
    nodes.table["xx"] = 1e4
    nodes._mix()
    table = edges.session_table()
    table.grow(a.size)
    table["clock_src"], table["clock_dst"] = a, b
    lie = np.array(
        [
            sum(size * (-1) ** k for c, size in lies.items() if c in pair)
            for k, pair in enumerate(zip(a, b, strict=True))
        ]
    )
    table["z"] = offsets[b] - offsets[a] + lie
    table["z_variance"], table["z_news"], table["said"], table["z_span"] = sigma**2, 1.0, 0, 0.1
    return nodes, table


def test_the_mesh_finds_all_clocks_and_moves_no_others_for_one_that_jumped() -> None:
    offsets = np.array([0.0, 30.0, -20.0, 10.0, 250_000.0, -15.0])
    nodes, table = mesh_of(offsets, {})
    m = agree(nodes, table, 0)
    assert m is not None
    np.testing.assert_allclose(m.value - m.value[0], offsets - offsets[0], atol=1e-3)
    assert np.abs(m.value[[0, 1, 2, 3, 5]]).max() < 100.0


def test_two_halves_that_agree_within_themselves_are_brought_together() -> None:
    offsets = np.where(np.arange(8) < 4, 0.0, 2000.0)
    nodes, table = mesh_of(offsets, {})
    between = (table["clock_src"] < 4) & (table["clock_dst"] >= 4)
    table["z_variance"] = np.where(between, 500.0**2, 10.0**2)
    for _ in range(3):
        m = agree(nodes, table, 0)
    assert m is not None
    np.testing.assert_allclose(m.value - m.value[0], offsets, atol=1.0)


def test_a_liar_is_found_and_hardly_moves_the_good() -> None:
    nodes, table = mesh_of(np.zeros(8), {3: 10_000.0})
    for _ in range(30):
        m = agree(nodes, table, 0)
    assert m is not None
    good = np.delete(np.arange(8), 3)
    assert np.ptp(m.value[good]) < 5.0
    np.testing.assert_array_equal(np.flatnonzero(faulty(table, nodes, 0, 1000.0)), [3])


def test_nobody_is_faulty_in_an_honest_mesh() -> None:
    nodes, table = mesh_of(np.arange(8) * 100.0, {})
    for _ in range(30):
        agree(nodes, table, 0)
    assert not faulty(table, nodes, 0, 1000.0).any()


def test_a_late_measurement_is_that_of_the_line_then() -> None:
    """Against the textbook update with H = (1, −a)."""
    s = kalman.State(one(3.0), one(2.0), one(100.0), one(5.0), one(4.0))
    got = kalman.update_past(s, one(10.0), one(9.0), one(1.5))
    p, h = np.array([[100.0, 5.0], [5.0, 4.0]]), np.array([1.0, -1.5])
    gain = p @ h / (h @ p @ h + 9.0)
    state = np.array([3.0, 2.0]) + gain * (10.0 - h @ [3.0, 2.0])
    p = p - np.outer(gain, h @ p)
    np.testing.assert_allclose([got.x[0], got.g[0]], state)
    np.testing.assert_allclose([got.xx[0], got.xg[0], got.gg[0]], [p[0, 0], p[0, 1], p[1, 1]], rtol=1e-9)


def drive_bank(wander_ppb: float, sigma: float, seed: int) -> Nodes:
    """A bank fed with honest, non-overlapping measurements of a clock of known wander."""
    g = np.random.default_rng(seed)
    nodes = Nodes(CONFIG)
    nodes.grow(1)
    x = rate = 0.0
    for k in range(1200):
        nodes.advance(k * float(TICK_NS))
        rate += wander_ppb * np.sqrt(0.1) * g.standard_normal()
        x += 0.1 * rate
        z = x + sigma * g.standard_normal() - nodes.table["offset"]
        nodes.update(Measured(z, one(sigma**2), one(1.0), one(1.0), one(0.0), one(0.1)))
        nodes.heard(np.ones(1, dtype=np.int64), one(1.0))
    return nodes


@pytest.mark.parametrize(("wander_ppb", "low", "high"), [(0.3, 0.2, 2.0), (10.0, 4.0, 40.0)])
def test_the_bank_finds_how_fast_a_clock_wanders(wander_ppb: float, low: float, high: float) -> None:
    found = [float(drive_bank(wander_ppb, 30.0, seed).wander()[0]) for seed in (1, 2, 3)]
    assert low <= float(np.median(found)) <= high


def test_honest_measurements_need_no_calibration() -> None:
    found = [float(drive_bank(3.0, 30.0, seed).calibration()[0]) for seed in (1, 2, 3, 4)]
    assert 0.5 < float(np.median(found)) < 2.0
