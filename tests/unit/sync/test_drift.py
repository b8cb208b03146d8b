"""Drifts found from a filter's own corrections: simulated clocks under a plain Kalman filter that knows no drift."""

from __future__ import annotations

import numpy as np

from sdfstream.numeric import kalman
from sdfstream.numeric.table import Table
from sdfstream.sync import drift, wander
from sdfstream.sync.estimates import COLUMNS

CLOCKS = 24
Q = 1.0
"""ppb/√s."""
R = 1750.0
"""Variance of a tick's measurement, ns²: as a clock of a small mesh at 64/s and law B."""
STATE = ("offset_ns", "skew_ppb", "offset_var_ns2", "offset_skew_cov", "skew_var_ppb2")


class DriftingClocks:
    """Clocks whose frequency walks, and drifts where told; measured once per tick."""

    def __init__(self, seed: int, together: bool = False) -> None:
        """`together`: all are one component, whose clocks may begin to drift at once."""
        self.label = np.arange(CLOCKS) * (not together)
        self.t = Table({**wander.COLUMNS, **drift.COLUMNS}, {**wander.WIDE_COLUMNS, **drift.WIDE_COLUMNS})
        self.b = Table(COLUMNS)
        self.t.grow(CLOCKS)
        self.b.grow(CLOCKS)
        self.b["offset_var_ns2"], self.b["skew_var_ppb2"] = 1e4, 1e4
        self.x, self.g, self.ppb_s = np.zeros(CLOCKS), np.zeros(CLOCKS), np.zeros(CLOCKS)
        self.rng = np.random.default_rng(seed)
        self.ticks, self.alarms = 0, np.zeros(CLOCKS, dtype=int)

    def run(self, seconds: float, silent: bool = False) -> None:
        t, b, dt = self.t, self.b, 0.1
        for _ in range(round(seconds / dt)):
            self.ticks += 1
            self.x += self.g * dt + 0.5 * dt * dt * self.ppb_s
            self.g += self.ppb_s * dt + Q * np.sqrt(dt) * self.rng.standard_normal(CLOCKS)
            s = kalman.ClockState(*(b[name].copy() for name in STATE))
            # as `ClockEstimates.advance` does
            s = s._replace(x=s.x + 0.5 * dt * dt * b["drift_ppb_s"], g=s.g + dt * b["drift_ppb_s"])
            wander_ppb = np.sqrt(Q * Q + t["drift_freq_walk"])
            s = kalman.predict(s, dt, wander_ppb, np.sqrt(t["drift_phase_walk"]))
            drift.predict(t, b, dt, np.full(CLOCKS, silent))
            less = 0.0 if silent else 1.0 / (s.xx + R)
            off = (self.x + np.sqrt(R) * self.rng.standard_normal(CLOCKS) - s.x) * less
            found = (s.x + s.xx * off, s.g + s.xg * off, s.xx - s.xx**2 * less, s.xg - s.xx * s.xg * less)
            for name, value in zip(STATE, (*found, s.gg - s.xg**2 * less), strict=True):
                b[name] = value
            moved = drift.Correction(b["offset_ns"] - s.x, s.xx, s.xg, np.ones(CLOCKS), self.label)
            self.alarms += drift.learn(t, b, moved, self.ticks)

    @property
    def error(self) -> np.ndarray:
        """Offset, ns."""
        return self.b["offset_ns"] - self.x


def test_a_drift_is_found_in_seconds_and_what_it_did_is_corrected() -> None:
    known, late = [], []
    for seed in (1, 2, 3, 4):
        bank = DriftingClocks(seed)
        bank.run(40.0)
        quiet = bank.error.std()
        bank.ppb_s[::2] = 20.0
        bank.run(4.5)
        found = bank.b["drift_ppb_s"][::2].copy()
        known.append(float((np.abs(found - 20.0) < 10.0).mean()))
        bank.run(10.0)
        late.append(float(np.abs(bank.error[::2]).mean()))
        print(f"seed {seed}: {found.round(1)}, then {bank.b['drift_ppb_s'][::2].round(1)}; quiet {quiet:.1f} ns")
        # 0.5 · 20 · 14.5² = 2,100 ns: what a line would be off by
        assert np.abs(bank.error[::2]).max() < 120.0
    print(f"known within 4.5 s: {known}; mean error 15 s after it set in: {late} ns")
    assert np.mean(known) >= 0.75
    assert np.median(late) < 40.0


def test_clocks_that_do_not_drift_are_let_alone() -> None:
    alarms = []
    for seed in range(1, 6):
        bank = DriftingClocks(seed)
        bank.run(60.0)
        alarms.append(int(bank.alarms.sum()))
        assert not bank.b["drift_ppb_s"][bank.alarms == 0].any()
        assert not bank.b["drifted_ns"][bank.alarms == 0].any()
    print(f"alarms among {CLOCKS} clocks in a minute, seeds 1-5: {alarms}")
    assert np.mean(alarms) <= 1.5


def test_the_end_of_a_drift_is_noticed() -> None:
    bank = DriftingClocks(1)
    bank.run(30.0)
    bank.ppb_s[:] = 20.0
    bank.run(20.0)
    bank.ppb_s[:] = 0.0
    bank.run(15.0)
    print(f"15 s after the end: {bank.b['drift_ppb_s'].round(1)}, error {bank.error.round(0)}")
    assert np.median(np.abs(bank.b["drift_ppb_s"])) < 6.0
    assert np.median(np.abs(bank.error)) < 60.0


def test_the_drift_of_a_silent_clock_is_forgotten() -> None:
    bank = DriftingClocks(1)
    bank.b["drift_ppb_s"] = 20.0
    bank.run(20.0, silent=True)
    assert np.abs(bank.b["drift_ppb_s"]).max() < 0.5


def test_what_shook_the_mesh_is_no_drift() -> None:
    bank = DriftingClocks(1)
    bank.run(30.0)
    bank.ppb_s[:] = 20.0
    bank.run(2.0)
    jumped = np.arange(CLOCKS) == 4
    bank.b["drift_ppb_s"][4] = 7.0
    drift.forget(bank.t, bank.b, jumped, np.zeros(CLOCKS, dtype=np.int64))
    assert not bank.t["trial_score"].any()
    assert bank.b["drift_ppb_s"][4] == 0.0
    before = bank.alarms.copy()
    bank.run(1.5)
    assert (bank.alarms == before).all()
    bank.run(6.0)
    assert bank.alarms[4] == before[4]
    assert (bank.alarms > before).sum() > CLOCKS // 2


def test_what_many_suspected_drifts_may_have_done_widens_the_bound_beyond_their_alarms() -> None:
    for seed in (1, 2, 3):
        bank = DriftingClocks(seed, together=True)
        bank.run(20.0)
        usual = []
        for _ in range(200):
            bank.run(0.1)
            usual.append(float(np.median(bank.t["drift_many_ns2"])))
        bank.alarms[:] = 0
        bank.ppb_s[:] = np.where(np.arange(CLOCKS) % 2, 20.0, -20.0)
        while not bank.alarms.any() and bank.ticks < 500:
            bank.run(0.1)
        first, held = bank.ticks / 10.0 - 40.0, bank.t["drift_many_ns2"].copy()
        bank.run(1.0)
        later = bank.t["drift_many_ns2"].copy()
        bank.run(12.0)
        print(f"seed {seed}: first alarm after {first:.1f} s, bound then √{held.min():.0f} to √{held.max():.0f} ns")
        # of a steady mesh it is narrow nine ticks of ten
        assert np.quantile(usual, 0.9) < 0.1 * held.min()
        # of all clocks, those without an alarm too: 20 ppb/s for as long make so much of a clock
        assert (held > (5.0 * first**2) ** 2 / 9.0).all()
        assert (later > 0.5 * held).all()
        assert (bank.t["drift_many_ns2"] < 0.1 * held).all()


def test_small_corrections_one_way_do_not_add_up_to_a_drift_that_packets_would_have_shown() -> None:
    """In a standing queue one way one bound is left; until a packet meets it, all corrections have one sign."""
    bank = DriftingClocks(1)
    t, b = bank.t, bank.b
    b["offset_var_ns2"] = 400.0
    nothing, half = np.zeros(CLOCKS), np.full(CLOCKS, 0.5)
    alarms = 0
    for tick in range(1, 121):
        drift.predict(t, b, 0.1, np.zeros(CLOCKS, dtype=np.bool_))
        correction = drift.Correction(np.full(CLOCKS, -0.105), np.full(CLOCKS, 400.01), nothing, half, bank.label)
        alarms += int(drift.learn(t, b, correction, tick).sum())
    moved_ns = b["drifted_ns"].min()
    print(f"12 s of corrections by -0.1 ns, clocks known to 20 ns: {alarms} alarms, moved {moved_ns:.0f} ns")
    assert not alarms
    assert not b["drifted_ns"].any()
