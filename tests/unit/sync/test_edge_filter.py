"""What a session knows by itself: ageing, learning, and that two halves of the evidence add up to the whole."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric import kalman
from sdfstream.numeric.table import Table
from sdfstream.sync import edge_filter, sessions
from sdfstream.sync.config import SyncConfig

DRIFT = 0.05


def table(n: int = 1, **columns: object) -> Table:
    t = sessions.session_table()
    t.grow(n)
    for name, value in columns.items():
        t[name] = value
    return t


def every(t: Table) -> np.ndarray:
    return np.arange(t.rows)


def state(t: Table) -> kalman.ClockState:
    return kalman.ClockState(
        *(t[name].copy() for name in ("offset_ns", "slope_ppb", "offset_var_ns2", "offset_slope_cov", "slope_var_ppb2"))
    )


def test_ageing_alone_is_the_clock_models_prediction() -> None:
    t = table(
        2,
        offset_ns=[10.0, -5.0],
        slope_ppb=[3.0, 40.0],
        offset_var_ns2=[400.0, 25.0],
        offset_slope_cov=[10.0, -2.0],
        slope_var_ppb2=[4.0, 9.0],
    )
    walk, phase = np.array([2.0, 0.1]), np.array([0.09, 1.0])
    wanted = kalman.predict(state(t), 0.7, np.sqrt(walk), np.sqrt(phase))
    # the mesh knows less than the session does: k = 1
    edge_filter.age(t, 0.7, walk, phase, 10.0 * t["offset_var_ns2"], DRIFT)
    for got, want in zip(state(t), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_the_base_delay_walks_on_its_own() -> None:
    t = table(1, base_delay_ns=5000.0, base_delay_var_ns2=100.0, offset_var_ns2=1.0)
    edge_filter.age(t, 4.0, np.zeros(1), np.zeros(1), np.ones(1), 0.5)
    assert float(t["base_delay_ns"][0]) == 5000.0
    assert float(t["base_delay_var_ns2"][0]) == pytest.approx(101.0)


def test_what_is_not_known_stays_merely_unknown() -> None:
    t = table(1, slope_var_ppb2=1e12)
    edge_filter.age(t, 1e4, np.ones(1), np.ones(1), np.ones(1), DRIFT)
    assert float(t["offset_var_ns2"][0]) == float(t["base_delay_var_ns2"][0]) == sessions.UNKNOWN


def test_learning_is_the_textbooks_update() -> None:
    p = np.array([[400.0, 10.0], [10.0, 4.0]])
    t = table(
        1, offset_ns=10.0, slope_ppb=3.0, offset_var_ns2=p[0, 0], offset_slope_cov=p[0, 1], slope_var_ppb2=p[1, 1]
    )
    z, r, d_ref = 25.0, 50.0, 7.0
    edge_filter.update(t, every(t), np.zeros(1), np.array([d_ref]), np.array([(z - d_ref) / r]), np.array([1.0 / r]))
    h = np.array([1.0, 0.0])
    gain = p @ h / (h @ p @ h + r)
    mean, p = np.array([10.0, 3.0]) + gain * (z - 10.0), p - np.outer(gain, h @ p)
    np.testing.assert_allclose([t["offset_ns"][0], t["slope_ppb"][0]], mean, rtol=1e-12)
    np.testing.assert_allclose(
        [t["offset_var_ns2"][0], t["offset_slope_cov"][0], t["slope_var_ppb2"][0]],
        [p[0, 0], p[0, 1], p[1, 1]],
        rtol=1e-12,
    )


def test_no_news_changes_nothing() -> None:
    t = table(1, offset_ns=10.0, slope_ppb=3.0, offset_var_ns2=400.0, offset_slope_cov=10.0, slope_var_ppb2=4.0)
    before = state(t)
    edge_filter.update(t, every(t), np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))
    for got, want in zip(state(t), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_tilt_without_precision_moves_the_mean_and_leaves_the_doubt() -> None:
    t = table(1, offset_ns=10.0, offset_var_ns2=400.0, offset_slope_cov=10.0, slope_var_ppb2=4.0)
    edge_filter.update(t, every(t), np.zeros(1), np.zeros(1), np.array([0.01]), np.zeros(1))
    assert float(t["offset_ns"][0]) == pytest.approx(14.0)
    assert float(t["slope_ppb"][0]) == pytest.approx(0.1)
    assert float(t["offset_var_ns2"][0]) == 400.0


def test_two_filters_with_half_the_evidence_each_add_up_to_the_filter_that_had_it_all() -> None:
    g = np.random.default_rng(1)
    walk, phase, r = 4.0, 0.09, 100.0
    full = table(1, offset_var_ns2=1e4, slope_var_ppb2=1e4)
    half = table(2, offset_var_ns2=2e4, slope_var_ppb2=2e4)
    one, both = np.zeros(1), np.zeros(2)
    for _ in range(200):
        mesh_var = full["offset_var_ns2"].copy()
        edge_filter.age(full, 0.1, one + walk, one + phase, mesh_var, DRIFT)
        edge_filter.age(half, 0.1, both + walk, both + phase, np.repeat(mesh_var, 2), DRIFT)
        z = np.sqrt(2.0 * r) * g.standard_normal(2)
        edge_filter.update(half, every(half), both, both, z / (2.0 * r), both + 1.0 / (2.0 * r))
        edge_filter.update(full, every(full), one, one, np.array([z.mean() / r]), one + 1.0 / r)
    for name in ("offset_var_ns2", "offset_slope_cov", "slope_var_ppb2"):
        np.testing.assert_allclose(half[name], 2.0 * full[name][0], rtol=1e-6)
    np.testing.assert_allclose(half["offset_ns"].mean(), full["offset_ns"][0], rtol=1e-6)
    np.testing.assert_allclose(half["slope_ppb"].mean(), full["slope_ppb"][0], rtol=1e-6)


@pytest.mark.parametrize("from_ns", [0.0, 15_000.0, -15_000.0])
def test_a_prior_far_wider_than_a_round_trip_is_not_left_beside_its_bounds(from_ns: float) -> None:
    """Both directions took 1.3 µs, so the error of the prediction is less than that, whichever bound comes first."""
    t = table(1)
    sessions.start(t, every(t), sessions.FirstBlock(*(np.array([x]) for x in (0.0, 0.0, 0.0, 1300.0))), 50e3)
    wide = [np.array([x]) for x in (from_ns, 17_000.0**2, 0.0, 0.0, 0.0, 9.0)]
    t["offset_ns"][:], t["offset_var_ns2"][:] = from_ns, 17_000.0**2
    v = edge_filter.Prior(*wide, np.array([True]))
    edge_filter.learn_minima(t, every(t), np.array([[1300.0], [1300.0]]), v, SyncConfig())
    assert abs(float(t["offset_ns"][0])) < 0.3 * 1300.0
    assert float(t["offset_var_ns2"][0]) < 1300.0**2


def test_doubt_widens_and_moves_nothing() -> None:
    t = table(1, offset_ns=10.0, slope_ppb=3.0, offset_var_ns2=400.0, slope_var_ppb2=4.0)
    edge_filter.inflate(t, every(t), np.array([100.0]))
    assert (t["offset_ns"][0], t["slope_ppb"][0]) == (10.0, 3.0)
    assert float(t["offset_var_ns2"][0]) == 10_400.0
    assert 4.0 < float(t["slope_var_ppb2"][0]) <= 1e6 + 4.0


def test_news_of_long_ago_is_the_textbooks_update_of_the_line_then() -> None:
    """H = (1, −age): a packet of two seconds ago says where the line was, and so something of its slope."""
    p = np.array([[400.0, 10.0], [10.0, 4.0]])
    t = table(
        1, offset_ns=10.0, slope_ppb=3.0, offset_var_ns2=p[0, 0], offset_slope_cov=p[0, 1], slope_var_ppb2=p[1, 1]
    )
    z, r, age = 25.0, 50.0, 2.0
    y = 10.0 - age * 3.0
    edge_filter.update(t, every(t), np.array([age]), np.array([y]), np.array([(z - y) / r]), np.array([1.0 / r]))
    h = np.array([1.0, -age])
    gain = p @ h / (h @ p @ h + r)
    mean, p = np.array([10.0, 3.0]) + gain * (z - y), p - np.outer(gain, h @ p)
    np.testing.assert_allclose([t["offset_ns"][0], t["slope_ppb"][0]], mean, rtol=1e-12)
    np.testing.assert_allclose(
        [t["offset_var_ns2"][0], t["offset_slope_cov"][0], t["slope_var_ppb2"][0]],
        [p[0, 0], p[0, 1], p[1, 1]],
        rtol=1e-12,
    )
