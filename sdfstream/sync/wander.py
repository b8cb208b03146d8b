r"""How fast clocks wander, and how far to trust the filter's own idea of its error: learned from strayed predictions.

For a filter that is right about itself, what it changes its mind by is what it learns: over any stretch of time,

.. math:: E\,(\hat{x}_t - \hat{x}_{t|t-W})^2 = P_{t|t-W} - P_t .

Each clock keeps its state at the start of stretches of several lengths W, and at their end compares both sides.

- *Long stretches measure the random walk.* With too small a q the filter hangs on to the past, and its error grows more
  the longer the stretch; with too large a one, less. A clock is tested at the shortest W over which the prediction
  grows several times as wide as the estimate. Its information about log q is known (a squared normal deviate, and the
  error goes with q to the power 0.4 or so), so log q is itself a small filter: a term common to all clocks, learned
  from all of them, and each clock's own.
- *Short stretches measure the scale*: a ratio above one at every W is a filter that trusts its packets too much
  (`scale`, which also divides the long ones' ratios).
- *The bound* takes the worst ratio of all W, as far as it is beyond chance (`straying`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.numeric.group import sums
from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync import straying
from sdfstream.sync.config import SyncConfig

HORIZONS: Final = (10, 40, 80, 160, 320)
"""Ticks; the first is the short one."""
_SHORT: Final = 0
_FAR: Final = 2.5
"""A stretch is long when the prediction's variance over it grows by so many times the estimate's."""
_SETTLED: Final = 9.0
"""An estimate that became so much better meanwhile was still being found: its ratio is not the steady one."""
_EXPECTED: Final = 0.85
"""Mean ratio over long stretches of a filter with the right q (simulated): the bounds' law is not normal."""
_PER_TEST: Final = 0.32
"""Fisher information of one test about log q: half of 0.8², the error's variance going with q to the power 0.8."""
_SCORE: Final = 0.4
_CLIP: Final = 8.0
_MOST_INFO: Final = 12.0
_ROUNDS: Final = 4.0
_FADE: Final = 0.98
_COMMON_CLIP: Final = 1.6
_OWN_INFO: Final = (6.0, 20.0)
"""Of a clock's own term of log q: at first, and at most."""
_ALARM_INFO: Final = 2.0
_SURPRISE_S: Final = 5.0
_MOST_SURPRISE: Final = 6.0
_LASTING: Final = 0.7
_ALARMING: Final = 4.0
"""A surprise of so many times a clock's own variance, averaged over its sessions, is evidence of more wander."""
_UP: Final = 1.2
_DOWN: Final = -0.7
_SCALE_POWER: Final = 1.0
_SCALE_MEMORY: Final = 0.98
_RATIO_MEMORY_S: Final = 60.0
_WILD: Final = 30.0
_START: Final = 5.0
_LEAST_SCALE: Final = 1.0
NEVER: Final = -1e18


COLUMNS: Final = {
    "short_error": np.float64(3.0),
    "short_expected_error": np.float64(3.0),
    "own_log_q": np.float64(0.0),
    "own_log_q_info": np.float64(_OWN_INFO[0]),
    "surprise_log_q": np.float64(0.0),
    "bound_factor": np.float64(1.0),
}
"""Columns of the clocks' table that belong here."""
WIDE_COLUMNS: Final = {
    **{
        f"start_{name}": np.zeros(len(HORIZONS))
        for name in ("offset_ns", "skew_ppb", "offset_var_ns2", "offset_skew_cov", "skew_var_ppb2")
    },
    "start_at_ns": np.full(len(HORIZONS), NEVER),
    "error": np.full(len(HORIZONS), _START),
    "expected_error": np.full(len(HORIZONS), _START),
    "expected_square": np.full(len(HORIZONS), _START**2 / straying.START),
}
"""Those with a value per horizon."""


def free_errors(label: Int64s) -> Float64s:
    """In a gauge in which the mean stands still, n clocks have n − 1 errors: each its share of them."""
    size = np.bincount(label, minlength=label.size)[label]
    result: Float64s = np.maximum(size - 1.0, 0.0) / np.maximum(size, 1.0)
    return result


class Wander:
    """What is known of the random walk of the clocks' frequency."""

    def __init__(self, c: SyncConfig) -> None:
        self._c = c
        self.log_q = float(np.log(c.wander_ppb))
        """Common term of log q, q in ppb per √s."""
        self.info = 1.0 / c.wander_spread**2
        """Information about it: one over its variance."""

    def walk(self, t: Table) -> Float64s:
        """Each clock's q², ns²/s³."""
        q = np.maximum(np.exp(self.log_q + t["own_log_q"] + t["surprise_log_q"]), self._c.least_wander_ppb)
        result: Float64s = q * q
        return result

    def renew_bound(self, t: Table, label: Int64s) -> None:
        """Work out anew what each clock's variance is multiplied by in its published bound (`bound_factor`)."""
        t["bound_factor"] = straying.bound_factor(
            t["error"], t["expected_error"], t["expected_square"], label, self._c.least_bound_factor
        )

    def surprised(self, t: Table, offset_var_ns2: Float64s, surprise_ns2: Float64s) -> None:
        """Packets surprised some clocks' sessions by more than any queue explains (`surprise_ns2`, ns²).

        That is a test that failed, long before a long stretch is over; it counts for some seconds only.
        """
        hit: Bools = surprise_ns2 > _ALARMING * offset_var_ns2
        if hit.any():
            ratio = surprise_ns2 / (_ALARMING * np.maximum(offset_var_ns2, 1e-3))
            more = t["surprise_log_q"] + self._scores(t, hit, ratio) / _ALARM_INFO
            t["surprise_log_q"] = np.where(hit, np.clip(more, 0.0, _MOST_SURPRISE), t["surprise_log_q"])

    def calm_down(self, t: Table, dt_s: float) -> None:
        """Surprises fade; one that no drift explained meanwhile (`drift`) leaves a share in what is known of q."""
        gone = t["surprise_log_q"] * -np.expm1(-dt_s / _SURPRISE_S)
        t["surprise_log_q"] -= gone
        t["own_log_q"] = np.clip(t["own_log_q"] + _LASTING * gone, -1.0, 6.0)

    def tick(self, t: Table, b: Table, at_ns: float, ticks: int, label: Int64s, reference: int) -> None:
        """Ends of stretches: compare, learn, begin the next. `t`: the clocks' table; `b`: their estimates.

        What all clocks are taken for is learnt from those tied to the `reference`: others may be anybody's.
        """
        due = [horizon for horizon, length in enumerate(HORIZONS) if ticks % length == 0]
        if not due:
            return
        free = free_errors(label)
        tied = label == label[reference]
        for horizon in due:
            self._compare(t, b, horizon, at_ns, free, tied)
            for name in ("offset_ns", "skew_ppb", "offset_var_ns2", "offset_skew_cov", "skew_var_ppb2"):
                t[f"start_{name}"][horizon] = b[name]
            # what is known of a drift is no wander
            t["start_offset_ns"][horizon] -= b["drifted_ns"]
            t["start_skew_ppb"][horizon] -= b["drifted_ppb"]
            t["start_at_ns"][horizon] = np.where(free > 0.0, at_ns, NEVER)
        self.renew_bound(t, label)

    def _compare(self, t: Table, b: Table, horizon: int, at_ns: float, free: Float64s, tied: Bools) -> None:
        known = t["start_at_ns"][horizon] > NEVER
        dt = np.where(known, (at_ns - t["start_at_ns"][horizon]) / NS_PER_S, 0.0)
        now = np.maximum(b["offset_var_ns2"], 1e-3)
        settled: Bools = known & (dt > 0.0) & (t["start_offset_var_ns2"][horizon] < _SETTLED * now) & (free > 0.0)
        if not settled.any():
            return
        grown = self._grown(t, b, horizon, dt)
        expected_error = np.maximum(grown - now, 1e-3) * free
        off = b["offset_ns"] - b["drifted_ns"] - t["start_offset_ns"][horizon] - t["start_skew_ppb"][horizon] * dt
        error = off * off
        self._accumulate(t, horizon, dt, settled, error / now, expected_error / now)
        if horizon != _SHORT:
            half = self._grown(t, b, horizon, 0.5 * dt) - now
            near = (half < _FAR * now) if horizon > _SHORT + 1 else np.ones_like(known)
            far = settled & (expected_error >= _FAR * now * free) & near
            # alone in its gauge a clock has no error to expect, and no test
            self._learn(t, far, error / np.where(far, expected_error, 1.0), free * tied)

    def _grown(self, t: Table, b: Table, horizon: int, dt: Float64s) -> Float64s:
        offset_var_ns2, offset_skew_cov, skew_var_ppb2 = (
            t[f"start_{name}"][horizon] for name in ("offset_var_ns2", "offset_skew_cov", "skew_var_ppb2")
        )
        result: Float64s = (
            offset_var_ns2
            + (2.0 * offset_skew_cov + skew_var_ppb2 * dt) * dt
            + b["phase_walk"] * dt
            + b["freq_walk"] * dt**3 / 3.0
        )
        return result

    def _accumulate(
        self, t: Table, horizon: int, dt: Float64s, settled: Bools, error: Float64s, expected_error: Float64s
    ) -> None:
        """Sums of both sides, with forgetting."""
        fade = np.where(settled, np.exp(-dt / _RATIO_MEMORY_S), 1.0)
        capped = np.minimum(error, _WILD * expected_error)
        t["error"][horizon] = t["error"][horizon] * fade + np.where(settled, capped, 0.0)
        t["expected_error"][horizon] = t["expected_error"][horizon] * fade + np.where(settled, expected_error, 0.0)
        square = np.where(settled, expected_error * expected_error, 0.0)
        t["expected_square"][horizon] = t["expected_square"][horizon] * (fade * fade) + square
        if horizon == _SHORT:
            fade = np.where(settled, _SCALE_MEMORY, 1.0)
            capped = np.minimum(error, 25.0 * np.maximum(expected_error, 1.0))
            t["short_error"] = t["short_error"] * fade + np.where(settled, capped, 0.0)
            t["short_expected_error"] = t["short_expected_error"] * fade + np.where(settled, expected_error, 0.0)

    def _learn(self, t: Table, far: Bools, ratio: Float64s, share: Float64s) -> None:
        """One step of the filter of log q: the common term, to which tests count by their `share`, then each's own.

        One wild clock must not set what all are taken for: a test counts little beyond what it expects of itself.
        """
        if not far.any():
            return
        score = self._scores(t, far, ratio)
        usual = self._learn_common(far, score, share)
        t["own_log_q_info"] = np.where(
            far, np.minimum(t["own_log_q_info"] + _PER_TEST, _OWN_INFO[1]), t["own_log_q_info"]
        )
        own = t["own_log_q"] + (score - usual) / t["own_log_q_info"]
        t["own_log_q"] = np.where(far, np.clip(own, -1.0, 6.0), t["own_log_q"])

    def _scores(self, t: Table, far: Bools, ratio: Float64s) -> Float64s:
        """Scores of the tests `far`; 0 elsewhere."""
        scale = np.maximum(t["short_error"] / t["short_expected_error"], _LEAST_SCALE) ** _SCALE_POWER
        result: Float64s = np.where(far, _SCORE * np.clip(ratio / (_EXPECTED * scale) - 1.0, -1.0, _CLIP), 0.0)
        return result

    def _learn_common(self, far: Bools, score: Float64s, share: Float64s) -> float:
        """The common term; returns the mean score of these tests."""
        one = np.zeros(far.size, dtype=np.int64)
        tests = float(sums(one, far * share, 1)[0])
        several = tests > 1.0
        counted = np.minimum(score, _COMMON_CLIP) if several else score
        total = float(sums(one, counted * share, 1)[0])
        # many clocks are asked at once: what is known must outlast some such rounds
        most = max(_MOST_INFO, _ROUNDS * _PER_TEST * tests, _FADE * self.info)
        self.info = min(self.info + _PER_TEST * tests, most)
        lowest = float(np.log(self._c.least_wander_ppb))
        self.log_q = float(np.clip(self.log_q + np.clip(total / self.info, _DOWN, _UP), lowest, 7.0))
        return total / max(tests, 1e-9)

    def forget(self, t: Table, jumped: Bools) -> None:
        """These clocks jumped: no prediction from before is compared."""
        t["start_at_ns"] = np.where(jumped, NEVER, t["start_at_ns"])

    def snapshot(self) -> dict[str, Any]:
        """Everything but the table."""
        return {"log_q": self.log_q, "info": self.info}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.log_q, self.info = float(state["log_q"]), float(state["info"])
