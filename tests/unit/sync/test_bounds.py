"""Delays as bounds: against the exact posterior of (s, D) on a grid, one way queued, tilts, and who judges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sdfstream.numeric.table import Table
from sdfstream.sync import edge_filter
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.sessions import UNKNOWN, session_table

CONFIG = SyncConfig()
_ERFC = np.vectorize(math.erfc)


def session(n: int = 1, **columns: object) -> Table:
    t = session_table()
    t.grow(n)
    values = {
        "offset_var_ns2": 400.0,
        "base_delay_ns": 10_000.0,
        "base_delay_var_ns2": 100.0,
        "excess_scale_ns": 20.0,
        "blocks": 500.0,
        **columns,
    }
    for name, value in values.items():
        t[name] = value
    return t


def own_prior(t: Table, soft: float = 1.0) -> edge_filter.Prior:
    """Along a line of zeros, by a mesh that knows nothing."""
    n = t.rows
    return edge_filter.prior(t, np.arange(n), expected(n, UNKNOWN), passed(n, soft))


def expected(n: int, variance: float) -> edge_filter.MeshPrediction:
    """A level line at 0, known so well."""
    none = np.zeros(n)
    return edge_filter.MeshPrediction(none, none, np.full(n, variance), none, none)


def passed(n: int, noise_ns2: float, span_s: float = 0.0) -> edge_filter.Passed:
    """Just now."""
    return edge_filter.Passed(np.zeros(n), np.full(n, span_s), np.full(n, noise_ns2))


def teach(t: Table, fwd: object, rev: object, soft: float = 1.0) -> None:
    n = t.rows
    low = np.stack([np.broadcast_to(np.asarray(direction, dtype=float), n) for direction in (fwd, rev)])
    edge_filter.learn_minima(t, np.arange(n), low, own_prior(t, soft), CONFIG)


def on_a_grid(t: Table, fwd: float, rev: float, soft: float, tilt: tuple[float, float]) -> tuple[float, ...]:
    """Means, variances and covariance of (s, D) after both bounds and both tilts, brute force."""
    s0, d0 = float(t["offset_ns"][0]), float(t["base_delay_ns"][0])
    p, v = float(t["offset_var_ns2"][0]), float(t["base_delay_var_ns2"][0])
    s = s0 + math.sqrt(p) * np.linspace(-10, 10, 801)[:, None]
    d = d0 + math.sqrt(v) * np.linspace(-10, 10, 801)[None, :]
    log = -0.5 * ((s - s0) ** 2 / p + (d - d0) ** 2 / v) + tilt[0] * (s + d - d0) + tilt[1] * (d - s - d0)
    weight = np.exp(log - log.max())
    for bound, y in ((fwd, s + d), (rev, d - s)):
        if np.isfinite(bound):
            weight = weight * 0.5 * _ERFC((y - bound) / math.sqrt(2.0 * soft))
    weight = weight / weight.sum()
    ms, md = float((weight * s).sum()), float((weight * d).sum())
    return (
        ms,
        md,
        float((weight * (s - ms) ** 2).sum()),
        float((weight * (d - md) ** 2).sum()),
        float((weight * (s - ms) * (d - md)).sum()),
    )


def compared(fwd: float, rev: float, soft: float = 4.0) -> tuple[Table, tuple[float, ...]]:
    """The session after one block, and the exact posterior: mean of s and of D, their variances and covariance."""
    t, before = session(), session()
    teach(t, 10_000.0 + fwd, 10_000.0 + rev, soft)
    most = 1.0 / math.sqrt(400.0 + 100.0 + soft)
    tilt = [
        min(1.0 / float(t["excess_scale_ns"][k, 0]), most) if np.isfinite(w) else 0.0 for k, w in enumerate((fwd, rev))
    ]
    exact = on_a_grid(before, 10_000.0 + fwd, 10_000.0 + rev, soft, (tilt[0], tilt[1]))
    got = f"s {t['offset_ns'][0]:.2f} ({exact[0]:.2f}), P {t['offset_var_ns2'][0]:.1f} ({exact[2]:.1f})"
    print(f"bounds {fwd:g}, {rev:g}: {got}")
    return t, exact


@pytest.mark.parametrize(("fwd", "rev"), [(10.0, np.inf), (np.inf, -15.0), (-20.0, 60.0), (90.0, 15.0)])
def test_a_pair_of_bounds_leaves_what_the_exact_posterior_does(fwd: float, rev: float) -> None:
    t, (ms, md, p, v, cov) = compared(fwd, rev)
    assert float(t["offset_ns"][0]) == pytest.approx(ms, abs=0.06 * 20.0)
    assert float(t["base_delay_ns"][0]) == pytest.approx(md, abs=0.06 * 10.0)
    assert float(t["offset_var_ns2"][0]) == pytest.approx(p, rel=0.06)
    assert float(t["base_delay_var_ns2"][0]) == pytest.approx(v, rel=0.06)
    assert float(t["base_delay_cov_ns2"][0]) == pytest.approx(cov, abs=0.06 * math.sqrt(p * v))


@pytest.mark.parametrize(("fwd", "rev"), [(0.0, 5.0), (-25.0, -10.0), (0.0, 0.0)])
def test_between_two_near_bounds_it_is_rather_too_modest(fwd: float, rev: float) -> None:
    """The second bound meets the normal law that replaced the first one's wedge: mean near, variance wide."""
    t, (ms, md, p, v, _) = compared(fwd, rev)
    assert float(t["offset_ns"][0]) == pytest.approx(ms, abs=0.1 * 20.0)
    assert float(t["base_delay_ns"][0]) == pytest.approx(md, abs=0.15 * 10.0)
    assert p < float(t["offset_var_ns2"][0]) < 2.0 * p
    assert v < float(t["base_delay_var_ns2"][0]) < 2.0 * v


def test_many_blocks_find_offset_and_base_delay_and_know_how_well() -> None:
    """200 sessions with exponential queues of 200 ns (mean of a block's smallest), 100 blocks each; seed 1."""
    g = np.random.default_rng(1)
    n, nu, s, base_delay_ns = 200, 200.0, 150.0, 20_000.0
    t = session(
        n,
        offset_var_ns2=2000.0**2,
        base_delay_ns=19_000.0,
        base_delay_var_ns2=2000.0**2,
        excess_scale_ns=1000.0,
        blocks=0.0,
    )
    for _ in range(100):
        teach(t, base_delay_ns + s + g.exponential(nu, n), base_delay_ns - s + g.exponential(nu, n))
    error = t["offset_ns"] - s
    expected_ns = math.sqrt(t["offset_var_ns2"].mean())
    print(f"rms {error.std():.2f} (best possible {nu / 100 / math.sqrt(2):.2f}), expected {expected_ns:.2f}")
    assert abs(error.mean()) < 0.3 * error.std()
    assert error.std() < 3.0 * nu / 100 / math.sqrt(2)
    assert 0.3 < float((error**2).mean() / t["offset_var_ns2"].mean()) < 3.0
    assert float(np.abs(t["base_delay_ns"] - base_delay_ns).mean()) < 10.0


def test_a_queue_in_one_direction_leaves_the_other_bound_measuring() -> None:
    """The level is known; nothing comes through ahead for 100 blocks; back there is the usual. Seed 2."""
    g = np.random.default_rng(2)
    n, s = 100, 60.0
    t = session(n, offset_var_ns2=200.0**2, base_delay_var_ns2=4.0)
    for _ in range(100):
        teach(t, 10_000.0 + 40_000.0 + g.exponential(20_000.0, n), 10_000.0 - s + g.exponential(20.0, n))
    assert abs(float(t["offset_ns"].mean()) - s) < 4.0
    assert float(np.sqrt(t["offset_var_ns2"]).mean()) < 10.0


def test_the_tilts_of_directions_alike_cancel() -> None:
    t = session(offset_var_ns2=400.0)
    teach(t, 10_000.0 + 1e6, 10_000.0 + 1e6)
    assert float(t["offset_ns"][0]) == 0.0
    assert float(t["offset_var_ns2"][0]) == pytest.approx(400.0)
    assert float(t["base_delay_ns"][0]) > 10_000.0


def test_a_direction_without_packets_says_nothing() -> None:
    t = session()
    teach(t, np.inf, np.inf)
    assert (float(t["offset_ns"][0]), float(t["base_delay_ns"][0])) == (0.0, 10_000.0)
    assert float(t["offset_var_ns2"][0]) == pytest.approx(400.0)
    np.testing.assert_array_equal(t["excess_scale_ns"][:, 0], 20.0)


def test_the_scale_follows_the_median_of_the_smallest_excess() -> None:
    g = np.random.default_rng(3)
    n = 100
    t = session(n, offset_var_ns2=0.01, base_delay_var_ns2=0.01, excess_scale_ns=20.0)
    for _ in range(200):
        teach(t, 10_000.0 + g.exponential(500.0, n), 10_000.0 + g.exponential(50.0, n))
        # the bounds' place is given here
        t["offset_ns"], t["base_delay_ns"], t["offset_var_ns2"], t["base_delay_var_ns2"], t["base_delay_cov_ns2"] = (
            0.0,
            10_000.0,
            0.01,
            0.01,
            0.0,
        )
    fwd, rev = np.exp(np.log(t["excess_scale_ns"]).mean(axis=1))
    assert fwd == pytest.approx(500.0, rel=0.15)
    assert rev == pytest.approx(50.0, rel=0.15)


def test_bounds_that_were_soft_for_a_moment_are_not_remembered_as_queues() -> None:
    t = session(excess_scale_ns=20.0)
    teach(t, 10_000.0, 10_000.0, soft=1e12)
    assert float(t["excess_scale_ns"].max()) < 25.0


@pytest.mark.parametrize(
    ("what", "columns", "alone"),
    [
        ("the mesh knows better", {}, False),
        ("the session knows better", {"offset_var_ns2": 50.0}, True),
        ("they disagree", {"offset_ns": 100.0}, True),
        ("they differ within their bounds", {"offset_ns": 60.0}, False),
        ("the session is young", {"blocks": 30.0}, True),
        ("it lastingly disagrees", {"disagreement_ns2": 500.0, "bias_ns": 20.0}, True),
        ("it disagreed once", {"disagreement_ns2": 500.0, "bias_ns": 1.0}, False),
    ],
)
def test_who_judges_a_block(what: str, columns: dict[str, float], alone: bool) -> None:
    t = session(**{"offset_var_ns2": 400.0, **columns})
    v = edge_filter.prior(t, np.zeros(1, dtype=np.int64), expected(1, 100.0), passed(1, 1.0))
    assert bool(v.alone[0]) is alone, what
    assert float(v.mean[0]) == (columns.get("offset_ns", 0.0) if alone else 0.0)
    wanted = columns.get("offset_var_ns2", 400.0) if alone else 100.0 + 2.0 * columns.get("bias_ns", 0.0) ** 2
    assert float(v.variance[0]) == wanted


@pytest.mark.parametrize("columns", [{"slope_var_ppb2": 500e3**2}, {"slope_ppb": -500e3}])
def test_a_session_alone_that_knows_no_slope_takes_no_bound_for_sharp(columns: dict[str, float]) -> None:
    """Within a block of 0.1 s a clock slewed by 500 ppm runs by 50 µs: bounds of its two ends contradict each other."""
    for blocks, wanted in ((30.0, 1.0 + (0.5 * 500e3 * 0.1) ** 2), (500.0, 1.0)):
        t = session(offset_var_ns2=400.0, blocks=blocks, **columns)
        v = edge_filter.prior(t, np.zeros(1, dtype=np.int64), expected(1, 100.0), passed(1, 1.0, 0.1))
        assert bool(v.alone[0]) is (blocks < 50.0)
        assert float(v.soft[0]) == pytest.approx(wanted)


def test_what_others_taught_the_mesh_reaches_the_base_delay() -> None:
    """Offset and level go together as the covariance says."""
    t = session(base_delay_var_ns2=100.0, base_delay_cov_ns2=60.0, reported_mean_ns=0.0, reported_var_ns2=144.0)
    edge_filter.propagate(t, np.zeros(1, dtype=np.int64), np.array([12.0]), np.array([36.0]))
    assert float(t["base_delay_ns"][0]) == pytest.approx(10_000.0 + 60.0 / 144.0 * 12.0)
    # exact conditioning on an offset of variance 36 that was 144
    assert float(t["base_delay_var_ns2"][0]) == pytest.approx(100.0 - (60.0 / 144.0) ** 2 * (144.0 - 36.0))
    assert float(t["base_delay_cov_ns2"][0]) == pytest.approx(60.0 / 144.0 * 36.0)
    assert float(t["reported_var_ns2"][0]) == 0.0


@pytest.mark.parametrize(
    ("short", "broken", "size"),
    [(10.0, False, 0.0), (50.0, False, 50.0), (59.0, False, 59.0), (100.0, True, 0.0), (-1e6, False, 0.0)],
)
def test_what_no_queue_explains(short: float, broken: bool, size: float) -> None:
    """σ = 10, scale = 20: doubt from 40 on, broken from 60 = 6 σ = 3 scales on."""
    e = np.array([[-short], [500.0]])
    got = edge_filter.gate(e, np.full((2, 1), 10.0), np.full((2, 1), 20.0), CONFIG)
    assert bool(got.broken[0]) is broken
    assert float(got.surprise_ns[0]) == size
    assert float(got.breach_ns[0]) == (short if broken else 0.0)


def test_sigma_is_that_of_the_bounds_variance() -> None:
    t = session(offset_var_ns2=400.0, base_delay_var_ns2=100.0, base_delay_cov_ns2=50.0)
    fwd, rev = edge_filter.sigma(own_prior(t, 1.0), t, np.zeros(1, dtype=np.int64))[:, 0]
    assert fwd == pytest.approx(math.sqrt(601.0))
    assert rev == pytest.approx(math.sqrt(401.0))


def test_a_base_delay_that_a_break_made_surer_than_its_covariance_allows_stays_positive() -> None:
    t = session(
        2,
        base_delay_var_ns2=[4.0, 400.0],
        base_delay_cov_ns2=[-190.0, -190.0],
        reported_var_ns2=[100.0, 100.0],
        reported_mean_ns=[5.0, 5.0],
    )
    edge_filter.propagate(t, np.arange(2), np.zeros(2), np.zeros(2))
    assert t["base_delay_var_ns2"] == pytest.approx([4e-6, 400.0 - 361.0])
    teach(t, [10_000.0, 10_000.0], [10_000.0, 10_000.0])
    assert np.isfinite(t["base_delay_ns"]).all()
    assert (t["base_delay_var_ns2"] > 0.0).all()
