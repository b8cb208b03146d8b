"""How fast clocks wander, learned from strayed predictions: simulated clocks of known q under a plain Kalman filter."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric import kalman
from sdfstream.numeric.codec import dump, load
from sdfstream.numeric.table import Table
from sdfstream.sync import wander
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.estimates import COLUMNS
from sdfstream.sync.wander import HORIZONS, NEVER, WIDE_COLUMNS, Wander, free_errors

CLOCKS = 24
SEEDS = (1, 2, 3)
R = 400.0
"""Variance of a tick's measurement, ns²."""
PHASE = 0.09


class SimulatedClocks:
    """Clocks that wander as the model says, each measured once per tick; the filter takes its q from `Wander`."""

    def __init__(self, q: object, seed: int, start_ppb: float = 1.3, learn: bool = True) -> None:
        self.q = np.broadcast_to(np.asarray(q, dtype=float), CLOCKS)
        self.wander = Wander(SyncConfig(wander_ppb=start_ppb))
        self.t, self.b = Table(wander.COLUMNS, WIDE_COLUMNS), Table(COLUMNS)
        self.t.grow(CLOCKS)
        self.b.grow(CLOCKS)
        self.b["offset_var_ns2"], self.b["skew_var_ppb2"], self.b["phase_walk"] = 1e4, 1e4, PHASE
        self.x, self.g = np.zeros(CLOCKS), np.zeros(CLOCKS)
        self.rng = np.random.default_rng(seed)
        self.label = np.zeros(CLOCKS, dtype=np.int64)
        self.learn, self.ticks, self.noise = learn, 0, 1.0

    def run(self, seconds: float) -> None:
        names = ("offset_ns", "skew_ppb", "offset_var_ns2", "offset_skew_cov", "skew_var_ppb2")
        for _ in range(round(seconds * 10)):
            self.ticks += 1
            draw = self.rng.standard_normal((4, CLOCKS))
            kick = self.q * np.sqrt(0.1)
            # phase and frequency noise of one tick, with the model's covariance
            self.x += 0.1 * self.g + 0.05 * kick * draw[0] + kick * 0.1 / np.sqrt(12.0) * draw[1]
            self.x += np.sqrt(PHASE * 0.1) * draw[3]
            self.g = self.g + kick * draw[0]
            if self.learn:
                self.b["freq_walk"] = self.wander.walk(self.t)
            else:
                self.b["freq_walk"] = self.q**2
            s = kalman.ClockState(*(self.b[n].copy() for n in names))
            s = kalman.predict(s, 0.1, np.sqrt(self.b["freq_walk"]), np.sqrt(self.b["phase_walk"]))
            z = self.x + self.noise * np.sqrt(R) * draw[2]
            less = 1.0 / (s.xx + R)
            off = (z - s.x) * less
            values = (
                s.x + s.xx * off,
                s.g + s.xg * off,
                s.xx * R * less,
                s.xg * R * less,
                s.gg - s.xg**2 * less,
            )
            for name, value in zip(names, values, strict=True):
                self.b[name] = value
            self.wander.tick(self.t, self.b, self.ticks * 1e8, self.ticks, self.label, 0)


@pytest.mark.parametrize(("true_ppb", "start_ppb"), [(10.0, 1.0), (2.0, 20.0), (5.0, 5.0)])
def test_log_q_is_found_from_a_factor_of_ten_off(true_ppb: float, start_ppb: float) -> None:
    """After two minutes, within a factor of two: the q that clocks are taken for, median over the seeds."""
    common, median = [], []
    for seed in SEEDS:
        bank = SimulatedClocks(true_ppb, seed, start_ppb)
        bank.run(120.0)
        common.append(float(np.exp(bank.wander.log_q)))
        median.append(float(np.median(np.sqrt(bank.wander.walk(bank.t)))))
    print(
        f"q = {true_ppb} from {start_ppb}, seeds {SEEDS}: common {np.round(common, 2)}, clocks' {np.round(median, 2)}"
    )
    for found in (common, median):
        assert 0.5 * true_ppb < np.median(found) < 2.0 * true_ppb
        assert 0.33 * true_ppb < min(found) and max(found) < 3.0 * true_ppb


@pytest.mark.parametrize("seed", SEEDS)
def test_a_filter_that_is_right_about_itself_strays_as_it_expects(seed: int) -> None:
    bank = SimulatedClocks(5.0, seed, learn=False)
    bank.run(120.0)
    for horizon, ticks in enumerate(HORIZONS[:-1]):
        ratio = float(bank.t["error"][horizon].sum() / bank.t["expected_error"][horizon].sum())
        print(f"seed {seed}: after {ticks} ticks {ratio:.2f}")
        assert 0.6 < ratio < 1.6
    assert 0.7 < float((bank.t["short_error"] / bank.t["short_expected_error"]).mean()) < 1.4


def test_a_filter_that_trusts_its_packets_too_much_says_so_in_its_bound() -> None:
    """Measurements are in truth twice as wide as it thinks; seed 1."""
    honest, fooled = SimulatedClocks(5.0, 1, learn=False), SimulatedClocks(5.0, 1, learn=False)
    fooled.noise = 2.0
    honest.run(60.0)
    fooled.run(60.0)
    wide, usual_ns2 = (float(bank.t["bound_factor"].mean()) for bank in (fooled, honest))
    print(f"bound's factor {usual_ns2:.2f} honest, {wide:.2f} fooled")
    assert wide > 1.5 * usual_ns2
    assert float((fooled.t["short_error"] / fooled.t["short_expected_error"]).mean()) > 2.0


@pytest.mark.parametrize("seed", SEEDS)
def test_one_wild_clock_does_not_set_what_all_are_taken_for(seed: int) -> None:
    q = np.full(CLOCKS, 3.0)
    q[5] = 300.0
    bank = SimulatedClocks(q, seed, 3.0)
    bank.run(120.0)
    each, found = np.sqrt(bank.wander.walk(bank.t)), float(np.exp(bank.wander.log_q))
    print(f"seed {seed}: common {found:.2f}, wild {each[5]:.1f}, others {np.median(np.delete(each, 5)):.2f}")
    assert found < 9.0
    assert np.median(np.delete(each, 5)) < 9.0
    assert each[5] > 30.0


def test_a_surprise_raises_only_the_clock_that_it_is_about() -> None:
    bank = SimulatedClocks(3.0, 1)
    bank.run(20.0)
    before, common = bank.wander.walk(bank.t), bank.wander.log_q
    alarm = np.zeros(CLOCKS)
    alarm[4] = 100.0 * bank.b["offset_var_ns2"][4]
    bank.wander.surprised(bank.t, bank.b["offset_var_ns2"], alarm)
    after = bank.wander.walk(bank.t)
    assert after[4] > 1.2 * before[4]
    np.testing.assert_array_equal(np.delete(after, 4), np.delete(before, 4))
    assert bank.wander.log_q == common
    bank.wander.calm_down(bank.t, 60.0)
    faded = bank.wander.walk(bank.t)[4]
    assert before[4] < faded < after[4]


def test_a_clock_that_jumped_is_not_compared_with_what_it_was() -> None:
    bank = SimulatedClocks(3.0, 1)
    bank.run(20.0)
    who = np.arange(CLOCKS) == 4
    before = bank.wander.walk(bank.t)
    bank.x[4] += 250e3
    bank.b["offset_ns"][4] += 250e3
    bank.wander.forget(bank.t, who)
    assert (bank.t["start_at_ns"][:, 4] == NEVER).all() and (bank.t["start_at_ns"][0, :4] > NEVER).all()
    bank.run(1.0)
    assert float(bank.wander.walk(bank.t)[4]) < 2.0 * float(before[4])


def test_a_clock_alone_has_no_error_in_its_own_gauge() -> None:
    np.testing.assert_allclose(free_errors(np.array([0, 0, 2, 3, 3, 3])), [0.5, 0.5, 0.0, 2 / 3, 2 / 3, 2 / 3])
    bank = SimulatedClocks(3.0, 1)
    bank.label = np.arange(CLOCKS)
    before = bank.wander.snapshot()
    bank.run(20.0)
    assert bank.wander.snapshot() == before


def test_what_was_learned_comes_back_from_its_bytes() -> None:
    bank, other = SimulatedClocks(3.0, 1), Wander(SyncConfig())
    bank.run(10.0)
    other.restore(load(dump(bank.wander.snapshot())))
    assert other.snapshot() == bank.wander.snapshot()
