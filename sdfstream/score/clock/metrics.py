"""Metrics of a run: from tracks to figures, one function per kind of trouble.

Every metric gives at least rms, p99, max and covered over the stretch named in its case. A stretch without published
rows gets the worst figures there are, not none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sdfstream.records.units import Float64s
from sdfstream.score.clock.delays import FLOOR_NS
from sdfstream.score.clock.tracks import Figures, OwdWindows, RunTracks, Track, figures, freshness

Metric = Callable[[RunTracks], Figures]
TIGHT_NS: Final = 1000.0
"""A wider bound counts as no bound: any clock would be inside."""


def steady_state(low_s: float, high_s: float = np.inf) -> Metric:
    """Steady state: errors, bound, smoothed rows, freshness."""

    def metric(run: RunTracks) -> Figures:
        late = figures(run.smoothed, low_s, high_s)
        return {
            **figures(run.causal, low_s, high_s),
            "smoothed_rms": late["rms"],
            "smoothed_p99": late["p99"],
            "smoothed_covered": late["covered"],
            **freshness(run.causal, 5.0),
        }

    return metric


def cold_start(run: RunTracks) -> Figures:
    """From the first packet on: when the error was last above 1 µs, and 15 to 30 s against afterwards."""
    early, later = figures(run.causal, 15.0, 30.0), figures(run.causal, 30.0)
    whole = figures(run.causal, 0.0)
    return {
        **figures(run.causal, 15.0),
        "covered": whole["covered"],
        "microsecond_s": max(last_above(t, TIGHT_NS) for t in run.causal.values()),
        "rms_15_30": early["rms"],
        "rms_later": later["rms"],
        "steady_ratio": _ratio(early["rms"], later["rms"]),
    }


def queueing(low_s: float, high_s: float) -> Metric:
    """A one-way queue between two instants, and 5 s after: clock errors, and the share of it that the delays show."""

    def metric(run: RunTracks) -> Figures:
        assert run.delays is not None
        return {**figures(run.causal, low_s, high_s + 5.0), **queueing_shown(run.delays, low_s + 1.0, high_s)}

    return metric


def queueing_shown(d: OwdWindows, low_s: float, high_s: float) -> Figures:
    """The share of the queueing that published delays show, window by window, and the excess that they show.

    `least_shown` counts in each window at most the true queueing, so that too much in one does not make up for too
    little in another; `phantom` is all published delay that was not there, in shares of the same queueing.
    """
    during = (d.at_s >= low_s) & (d.at_s < high_s)
    ahead = d.forward & during
    wait = np.maximum(d.true[ahead] - FLOOR_NS, 0.0)
    published = d.published[ahead] - FLOOR_NS
    if not wait.sum() > 0.0 or not (during & ~d.forward).any():
        return {"least_shown": 0.0, "phantom": np.inf, "owd_covered": 0.0}
    over = np.maximum(published - wait, 0.0).mean() + np.abs(d.published - d.true)[during & ~d.forward].mean()
    error = np.abs(d.published - d.true)[during]
    return {
        "least_shown": float(np.minimum(published, wait).sum() / wait.sum()),
        "phantom": float(over / wait.mean()),
        "owd_covered": float((error <= d.err[during] + 0.5).mean()),
    }


def falsetickers(low_s: float) -> Metric:
    """Good clocks against the same seed without falsetickers (RFC 5905); which clocks were flagged, and when."""

    def metric(run: RunTracks) -> Figures:
        good = set(run.causal) - run.troubled
        assert run.clean is not None
        now, before = figures(run.causal, low_s, names=good), figures(run.clean.causal, low_s, names=good)
        accused = {name: t.at_s[t.status == "faulty"] for name, t in run.causal.items()}
        flagged = [float(accused[n].min()) if accused[n].size else np.inf for n in run.troubled]
        clean = sum(bool((t.status == "faulty").any()) for t in run.clean.causal.values())
        return {
            **now,
            "clean_p99": before["p99"],
            "clean_ratio": _ratio(now["p99"], before["p99"]),
            "flagged_s": max(flagged, default=np.inf),
            "wrongly": float(sum(accused[n].size > 0 for n in good) + clean),
        }

    return metric


def clock_step(at_s: float) -> Metric:
    """One clock steps: time to its status, time back inside the bound, and the other clocks' errors."""

    def metric(run: RunTracks) -> Figures:
        mine = _only(run, run.troubled)
        after = mine.between(at_s)
        unsynced = after.at_s[after.status != "synced"]
        outside = after.at_s[~((np.abs(after.error) <= after.bound) & (after.bound <= TIGHT_NS))]
        return {
            **figures(run.causal, at_s + 15.0, names=set(run.troubled)),
            "told_s": float(unsynced.min()) - at_s if unsynced.size else np.inf,
            "inside_s": _since(outside, at_s, after),
            **_others(run, at_s, at_s + 15.0),
        }

    return metric


def clock_slew(low_s: float, high_s: float) -> Metric:
    """A daemon slews one clock: its errors meanwhile, time back inside the bound, and the other clocks' errors."""

    def metric(run: RunTracks) -> Figures:
        mine = _only(run, run.troubled)
        after = mine.between(high_s)
        outside = after.at_s[~((np.abs(after.error) <= after.bound) & (after.bound <= TIGHT_NS))]
        return {
            **figures(run.causal, low_s, names=set(run.troubled)),
            "p99_slewing": figures(run.causal, low_s, high_s, set(run.troubled))["p99"],
            "inside_s": _since(outside, high_s, after),
            **_others(run, low_s, high_s),
        }

    return metric


def partition(low_s: float, high_s: float) -> Metric:
    """A mesh is partitioned and joined again: errors of both sides, time back inside the bound."""

    def metric(run: RunTracks) -> Figures:
        away = {n: t.between(high_s) for n, t in run.causal.items() if n in run.troubled}
        outside = [
            _since(t.at_s[~((np.abs(t.error) <= t.bound) & (t.bound <= TIGHT_NS))], high_s, t) for t in away.values()
        ]
        return {
            **figures(run.causal, low_s),
            "away_p99": figures(run.causal, low_s, high_s, set(run.troubled))["p99"],
            "inside_s": max(outside, default=np.inf),
            "p99_later": figures(run.causal, high_s + 10.0)["p99"],
            **_others(run, low_s, high_s),
        }

    return metric


def last_above(track: Track, limit_ns: float) -> float:
    """True time of the last row whose error is above `limit_ns`; infinite where there is no row at all."""
    above = track.at_s[~(np.abs(track.error) <= limit_ns)]
    return np.inf if not track.at_s.size else float(above.max()) if above.size else 0.0


def _since(outside: Float64s, at_s: float, track: Track) -> float:
    """Seconds from `at_s` to the last row that was outside; infinite where there is no row, or the last one is."""
    if not track.at_s.size or (outside.size and outside.max() == track.at_s.max()):
        return np.inf
    return float(outside.max()) - at_s if outside.size else 0.0


def _others(run: RunTracks, low_s: float, high_s: float) -> Figures:
    """The clocks in no trouble, against the same seed without the trouble."""
    names = set(run.causal) - run.troubled
    assert run.clean is not None
    now, clean = (figures(s.causal, low_s, high_s, names)["p99"] for s in (run, run.clean))
    return {"others_p99": now, "others_clean_p99": clean, "others_ratio": _ratio(now, clean)}


def _only(run: RunTracks, names: frozenset[str]) -> Track:
    (name,) = names
    return run.causal[name]


def _ratio(a: float, b: float) -> float:
    return a / b if np.isfinite(a) and np.isfinite(b) and b > 0 else np.inf
