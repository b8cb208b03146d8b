r"""Hosts that warm up: how fast each clock's skew changes, its *drift* (ppb/s), found from the mesh's corrections.

A two-state filter (offset, skew) lags behind a clock whose skew drifts: by :math:`v = (v_1, v_2)` per ppb/s of drift
that set in some time ago. With gains :math:`k_1, k_2` of its updates, v follows from nothing but the filter [1]_:

.. math:: v' = (v_1 + v_2\,dt + dt^2/2,\; v_2 + dt), \qquad v'' = (v_1' (1 - k_1),\; v_2' - k_2 v_1').

What the mesh corrects a clock by then measures its drift: a correction :math:`\delta` of a prediction of variance
:math:`P'` adds :math:`v_1' \delta / P'` to the score s of a drift, and :math:`v_1'^2 k_1 / P'` to its information I.

- *Trials.* A drift sets in at an unknown instant. Every half second a trial begins that supposes it did just then.
  The evidence of a trial is the likelihood of its drift, normal of `_USUAL`, against none; there is an *alarm* when
  that of all trials together is beyond doubt.
- *Correction.* At an alarm the clock gets the drift, and its state what that drift has made of it since: :math:`v\,a`,
  averaged over the trials by their evidence. Sessions hold the evidence and have to be corrected alike; so the sum of
  all that drifts made of a clock, `drifted`, is published with the estimates, and edges follow it (`edgework`).
- *Together.* A job's start warms many hosts at once: when a drift set in is common to them, though each has its own.
  What all clocks of a component show of that instant is put together (`_likely`); once it is clear that many drift,
  each of them needs less evidence of its own.
- *Published* offsets contain what a drift that is likely, but no alarm yet, is expected to have made of them
  (`drift_suspect_ns`, by its probability); no state does.
- *Afterwards* the drift is refined by every correction, as unsteady as it is large (`_UNSTEADY`). What is not known of
  it counts as wander of the frequency meanwhile.
- *Bound.* Suspicion that is no alarm yet widens it, by the error that the suspected drift would have caused; that many
  drift is suspected far earlier than it is believed. What many suspected drifts may have made of the clocks outlasts
  the alarms, which take up too little of it at first.

While nothing drifts, nothing here touches a state.

References
----------
.. [1] B. Friedland, "Treatment of bias in recursive filtering", IEEE Trans. Automatic Control 14(4), 1969.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.numeric.group import sums
from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, TICK_NS, Bools, Float64s, Int64s

_TRIALS: Final = 16
_TICKS_PER_TRIAL: Final = 5
_USUAL: Final = 15.0
"""Standard deviation of a drift that set in, ppb per s. A warming host: 20 at most."""
_MOST: Final = 4.0
"""A drift beyond so many times that is none, but a step or a slew."""
_ALARM: Final = 7.0
"""Logarithm of the evidence: at 4 a steady clock had a false alarm in about 24 minutes."""
_FARTHEST: Final = 12.0
"""A drift that has made more of a clock than so many standard deviations is none: packets would have said so. In a
standing queue one way only one bound is left to say so, and small corrections one way add up to certainty. Only of
fewer than `_LEAST_CLOCKS`: in meshes other paths say so, and trials of true drifts begin from further off."""
_DEAD_S: Final = 2.0
"""After an alarm a clock has none for so long."""
_DEAD_JUMPED_S: Final = 10.0
"""So long after a jump of its own."""
_UNSTEADY: Final = 0.06
"""A drift walks by this share of itself per √s."""
_LASTS_S: Final = 3.0
"""An error of the drift lasts so long before it is corrected: it counts as a random walk of the frequency."""
_WALKS: Final = 0.6
"""So much of what is not known of a drift counts as wander. All of it: estimates are noisier than they need be; none:
filters that are surer than they are right bend what they learn of paths' base delays."""
_SURE: Final = 0.5
"""Probability at which a clock is given its drift."""
_MANY: Final = 0.5
"""Share of a component's clocks that drift when many do."""
_LEAST_CLOCKS: Final = 4
"""Fewer are not many: one packet moves both its clocks."""
_ONE_MOST: Final = 3.0
_TOGETHER: Final = 1.25
"""Logarithm of the odds against it: at 0.25 steady meshes of 8 clocks had a false alarm in about a minute."""
_PER_CLOCK: Final = 0.125
"""More for each clock: the errors of neighbours are not independent of each other."""
_DOUBT_TOGETHER: Final = 1.0
"""The odds from which the bound widens, at least; those of more clocks alone where they are higher."""
_USUAL_DOUBT: Final = 0.4
"""Probability, at these odds, that widens nothing yet: steady meshes of 8 clocks show more in one tick of 130."""
_ANSWERED: Final = 0.21
"""Drifts of many are at first taken for a third of what they are (measured): corrections answer them by 0.4 of what
gains say. The bound reckons with half as much again as they are, since what a clock strays by chance leaves no room."""
_HELD_S: Final = 2.0
"""What many suspected drifts may have made of the clocks is forgotten in this time."""
_TOGETHER_S: Final = 3.0
"""So long it is remembered that many drift: the others need no odds of 1,100 to 1 then."""
_CALM_S: Final = 8.0
"""So long after that nothing is put together: a false alarm must not bring about the next."""
_MOST_LOG: Final = 50.0
_SUSPECT: Final = 1.25
"""A trial of so many standard deviations begins to widen the bound; of none, when many drift."""
_DOUBT: Final = 2.0
_LEAST_SHARE: Final = 0.1
_FADE_S: Final = 5.0
"""The drift of a silent clock is forgotten in this time."""

COLUMNS: Final = {
    # of the drift in `estimates`: variance (0: there is none), and the filter's lag per ppb/s of its error
    "drift_var": np.float64(0.0),
    "drift_lag_ns": np.float64(0.0),
    "drift_lag_ppb": np.float64(0.0),
    "drift_dead_s": np.float64(0.0),
    # seconds for which it is remembered that many clocks of the component drift since then
    "drift_together_s": np.float64(0.0),
    "drift_doubt_ns2": np.float64(0.0),
    # that part of it which many suspected drifts make, with what is held of earlier ticks'
    "drift_many_ns2": np.float64(0.0),
    # what a drift that is likely, but no alarm yet, is expected to have made of the offset
    "drift_suspect_ns": np.float64(0.0),
    # random walks until the next tick: of the frequency, ns²/s³, of the phase, ns²/s
    "drift_freq_walk": np.float64(0.0),
    "drift_phase_walk": np.float64(0.0),
}
"""Columns of the clocks' table that belong here."""
WIDE_COLUMNS: Final = {
    name: np.zeros(_TRIALS) for name in ("trial_on", "trial_lag_ns", "trial_lag_ppb", "trial_score", "trial_info")
}
"""Those with a value per trial."""


class Correction(NamedTuple):
    """What the mesh did to its prediction; all (clocks,)."""

    offset_ns: Float64s
    """By how much each offset was moved more than most clocks' were: one wild clock moves the gauge of all."""
    offset_var_ns2: Float64s
    """Of the prediction."""
    offset_skew_cov: Float64s
    free: Float64s
    """Each clock's share of the errors that its gauge leaves free (`wander.free_errors`)."""
    label: Int64s
    """Component of each."""


class _Found(NamedTuple):
    """Averages over the trials, by their probability, of some clocks: lag and drift, and their variances."""

    drift: Float64s
    drift_var: Float64s
    offset_ns: Float64s
    offset_var: Float64s
    skew_ppb: Float64s
    skew_var: Float64s
    lag_ns: Float64s
    lag_ppb: Float64s


def predict(t: Table, b: Table, dt: float, silent: Bools) -> None:
    """Time update of all lags, `dt` seconds; `silent`: clocks without recent samples."""
    on = t["trial_on"]
    t["trial_lag_ns"] += t["trial_lag_ppb"] * dt + 0.5 * dt * dt * on
    t["trial_lag_ppb"] += dt * on
    known = t["drift_var"] > 0.0
    t["drift_lag_ns"] += t["drift_lag_ppb"] * dt + 0.5 * dt * dt * known
    t["drift_lag_ppb"] += dt * known
    drift = b["drift_ppb_s"]
    t["drift_var"] += known * (_UNSTEADY * drift) ** 2 * dt
    for name in ("drift_dead_s", "drift_together_s"):
        t[name] = np.maximum(t[name] - dt, 0.0)
    t["drift_many_ns2"] *= np.exp(-dt / _HELD_S)
    if silent.any():
        b["drift_ppb_s"] = np.where(silent, drift * np.exp(-dt / _FADE_S), drift)


def learn(t: Table, b: Table, c: Correction, ticks: int) -> Bools:
    """Learn from the mesh's corrections, and correct the estimates `b`; which clocks had an alarm."""
    share = np.maximum(c.free, _LEAST_SHARE)
    predicted = np.maximum(c.offset_var_ns2, 1e-6)
    gain = np.clip(1.0 - b["offset_var_ns2"] / predicted, 0.0, 1.0)
    turn = c.offset_skew_cov / predicted * gain
    score = np.where(gain > 0.0, c.offset_ns / predicted, 0.0)
    # where predictions stray anyway, since the clock wanders by more than is known yet, they say less of drifts
    trust = _trust(t)
    score, info = score * trust, gain / predicted * trust

    lag = t["trial_lag_ns"]
    t["trial_score"] += lag * score
    t["trial_info"] += lag * lag * info
    t["trial_lag_ppb"] -= turn * lag
    t["trial_lag_ns"] = lag * (1.0 - gain)
    by = _refined(t, share, score, info)
    t["drift_lag_ppb"] -= turn * t["drift_lag_ns"]
    t["drift_lag_ns"] *= 1.0 - gain
    _correct(b, slice(None), by, t["drift_lag_ns"] * by, t["drift_lag_ppb"] * by)
    alarm = _decide(t, b, share, c.label)
    if ticks % _TICKS_PER_TRIAL == 0:
        _begin(t, ticks // _TICKS_PER_TRIAL % _TRIALS)
    return alarm


def _trust(t: Table) -> Float64s:
    """(clocks,) how much corrections are believed, by all horizons but the worst (the longest is one test at first)."""
    ratio = np.sort(t["error"] / t["expected_error"], axis=0)[-2]
    result: Float64s = 1.0 / np.maximum(ratio, 1.0)
    return result


def forget(t: Table, b: Table, jumped: Bools, label: Int64s) -> None:
    """A component was shaken: corrections say nothing of drifts there; for longer those of clocks that jumped."""
    shaken = sums(label, jumped, label.size)[label] > 0.0
    for name in WIDE_COLUMNS:
        t[name][:, shaken] = 0.0
    for name in COLUMNS:
        t[name][jumped] = 0.0
    t["drift_suspect_ns"][shaken] = 0.0
    b["drift_ppb_s"][jumped] = 0.0
    dead_s = np.where(shaken, np.maximum(t["drift_dead_s"], _DEAD_S), t["drift_dead_s"])
    t["drift_dead_s"] = np.where(jumped, _DEAD_JUMPED_S, dead_s)


def _begin(t: Table, trial: int) -> None:
    """The oldest trial begins anew."""
    for name in ("trial_lag_ns", "trial_lag_ppb", "trial_score", "trial_info"):
        t[name][trial] = 0.0
    t["trial_on"][trial] = 1.0


def _refined(t: Table, share: Float64s, score: Float64s, info: Float64s) -> Float64s:
    """By how much the drifts that are known change, ppb/s."""
    lag, variance = t["drift_lag_ns"], t["drift_var"]
    left = variance / (1.0 + variance / share * lag * lag * info)
    t["drift_var"] = left
    result: Float64s = left / share * lag * score
    return result


def _decide(t: Table, b: Table, share: Float64s, label: Int64s) -> Bools:
    """Alarms, and what is suspected meanwhile."""
    score, info = t["trial_score"], t["trial_info"]
    usual = _USUAL * _USUAL
    variance = share / (info + share / usual)
    drift = variance / share * score
    square = score * drift / share
    far = np.abs(t["trial_lag_ns"] * drift) > _FARTHEST * np.sqrt(b["offset_var_ns2"])
    on = (t["trial_on"] > 0.0) & ~(far & (np.bincount(label, minlength=label.size)[label] < _LEAST_CLOCKS))
    evidence = np.where(on, 0.5 * (square - np.log1p(info * usual / share)), -np.inf)
    since = t["drift_together_s"]
    alone = np.where(since > _CALM_S, 0.0, _ALARM)
    calm = _pooled((since > 0.0).astype(np.float64)[None], label)[0] == 0.0
    likely = _likely(evidence, on & calm, share, label, alone)
    t["drift_together_s"] = np.where(likely.together, _CALM_S + _TOGETHER_S, since)
    found = _averages(likely.drifts, drift, variance, t["trial_lag_ns"], t["trial_lag_ppb"])
    alarm: Bools = (likely.drifts.sum(axis=0) > _SURE) & (t["drift_dead_s"] <= 0.0)
    over = np.maximum(np.sqrt(square) - np.where(since > 0.0, _SUSPECT, _SUSPECT * (1.0 - likely.doubt)), 0.0)
    t["drift_doubt_ns2"] = _DOUBT * (t["trial_lag_ns"] ** 2 * variance * over * over).max(axis=0)
    many_ns2 = (likely.doubted * t["trial_lag_ns"] ** 2 * (variance + drift * drift)).sum(axis=0) / _ANSWERED**2
    t["drift_many_ns2"] = np.maximum(t["drift_many_ns2"], many_ns2)
    t["drift_suspect_ns"] = found.offset_ns
    t["drift_freq_walk"] = t["drift_phase_walk"] = 0.0
    hit = np.flatnonzero(alarm)
    if hit.size:
        sound = hit[np.abs(found.drift[hit]) < _MOST * _USUAL]
        _take_up(t, b, sound, _Found._make(column[sound] for column in found))
        for name in WIDE_COLUMNS:
            t[name][:, hit] = 0.0
        for name in ("drift_suspect_ns", "drift_doubt_ns2"):
            t[name][hit] = 0.0
    t["drift_doubt_ns2"] += t["drift_many_ns2"] + t["drift_lag_ns"] ** 2 * t["drift_var"]
    t["drift_freq_walk"] += _LASTS_S * (_WALKS * t["drift_var"] + (2.0 * _UNSTEADY * b["drift_ppb_s"]) ** 2)
    return alarm


class _Likely(NamedTuple):
    """Probability that each clock's drift set in at each trial, (trials, clocks)."""

    drifts: Float64s
    doubted: Float64s
    """Probability that many drift since then, for the bound: believed far earlier, beyond what is usual."""
    together: Bools
    """(clocks,) many clocks of its component drift: that is believed."""
    doubt: Float64s
    """(clocks,) probability that many drift, for the bound."""


def _likely(evidence: Float64s, on: Bools, share: Float64s, label: Int64s, alone: Float64s) -> _Likely:
    """A drift sets in on one clock alone, or on many of a component at once, as at a job's start.

    Then `_MANY` of them drift, and what all of them show of the instant is put together; one clock counts for
    `_ONE_MOST` at most. `alone` (clocks,): logarithm of the odds against a drift of one clock alone.
    """
    ratio = np.exp(np.minimum(evidence, _MOST_LOG))
    own = ratio * np.exp(-alone) / _TRIALS
    own /= 1.0 + own.sum(axis=0)
    mixed = 1.0 - _MANY + _MANY * ratio
    clocks = np.bincount(label, minlength=label.size)[label]
    each = np.where(on, np.log(mixed), 0.0)
    pooled = _pooled(share * np.minimum(each, _ONE_MOST), label)
    given, found = _MANY * ratio / mixed, []
    for odds in (_TOGETHER + _PER_CLOCK * clocks, np.maximum(_DOUBT_TOGETHER, _PER_CLOCK * clocks)):
        common = np.exp(np.minimum(pooled - odds, _MOST_LOG)) / _TRIALS
        found.append(np.where(clocks >= _LEAST_CLOCKS, common / (1.0 + common.sum(axis=0)), 0.0))
    believed, doubt = (common.sum(axis=0) for common in found)
    beyond = np.maximum(doubt - _USUAL_DOUBT, 0.0) / ((1.0 - _USUAL_DOUBT) * np.maximum(doubt, _USUAL_DOUBT))
    return _Likely(found[0] * given + (1.0 - believed) * own, found[1] * beyond, believed > _SURE, doubt)


def _pooled(x: Float64s, label: Int64s) -> Float64s:
    """Sums over each clock's component of `x` (trials, clocks), by clock."""
    if not label.any():  # one component, as nearly always
        return np.broadcast_to(x.sum(axis=1)[:, None], x.shape)
    return np.stack([np.bincount(label, row, label.size)[label] for row in x])


def _averages(weight: Float64s, drift: Float64s, variance: Float64s, lag_ns: Float64s, lag_ppb: Float64s) -> _Found:
    """`weight` (trials, clocks): probability of each; what it lacks of one, there is no drift."""
    total = np.maximum(weight.sum(axis=0), 1e-300)

    def both(factor: Float64s | float) -> tuple[Float64s, Float64s]:
        """Mean and variance of a multiple of the drift."""
        x = factor * drift
        middle = (weight * x).sum(axis=0)
        return middle, (weight * (factor * factor * variance + x * x)).sum(axis=0) - middle * middle

    lag = ((weight * x).sum(axis=0) / total for x in (lag_ns, lag_ppb))
    return _Found(*both(1.0), *both(lag_ns), *both(lag_ppb), *lag)


def _take_up(t: Table, b: Table, clock: Int64s, found: _Found) -> None:
    """These clocks drift, and have done so for a while."""
    _correct(b, clock, found.drift, found.offset_ns, found.skew_ppb)
    t["drift_var"][clock] = found.drift_var
    t["drift_lag_ns"][clock], t["drift_lag_ppb"][clock] = found.lag_ns, found.lag_ppb
    t["drift_dead_s"][clock] = _DEAD_S
    tick_s = TICK_NS / NS_PER_S
    t["drift_freq_walk"][clock] = found.skew_var / tick_s
    t["drift_phase_walk"][clock] = found.offset_var / tick_s


def _correct(b: Table, clock: Any, drift: Float64s, offset_ns: Float64s, skew_ppb: Float64s) -> None:
    for name, by in (
        ("offset_ns", offset_ns),
        ("drifted_ns", offset_ns),
        ("skew_ppb", skew_ppb),
        ("drifted_ppb", skew_ppb),
        ("drift_ppb_s", drift),
    ):
        b[name][clock] += by
