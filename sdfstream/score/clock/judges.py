"""What a run is judged by: from tracks to figures, one function per kind of trouble.

Every judge answers at least rms, p99, max and covered over the stretch named in its case. Nothing published is the
worst figure there is, not a missing one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sdfstream.score.clock.delays import FLOOR_NS
from sdfstream.score.clock.model import F
from sdfstream.score.clock.tracks import Delays, Figures, Seen, Track, figures, freshness

Judge = Callable[[Seen], Figures]
TIGHT_NS: Final = 1000.0
"""A bound this narrow says something again; inside a wider one any clock would be."""


def steady(low_s: float, high_s: float = np.inf) -> Judge:
    """Everything after the start: errors, bound, smoothed rows, how fresh."""

    def judge(seen: Seen) -> Figures:
        late = figures(seen.smoothed, low_s, high_s)
        return {
            **figures(seen.causal, low_s, high_s),
            "smoothed_rms": late["rms"],
            "smoothed_p99": late["p99"],
            "smoothed_covered": late["covered"],
            **freshness(seen.causal, 5.0),
        }

    return judge


def cold_start(seen: Seen) -> Figures:
    """From the first packet on: when the error was last above 1 µs, and 15 to 30 s against afterwards."""
    early, later = figures(seen.causal, 15.0, 30.0), figures(seen.causal, 30.0)
    whole = figures(seen.causal, 0.0)
    return {
        **figures(seen.causal, 15.0),
        "covered": whole["covered"],
        "microsecond_s": max(last_above(t, TIGHT_NS) for t in seen.causal.values()),
        "rms_15_30": early["rms"],
        "rms_later": later["rms"],
        "steady_ratio": _ratio(early["rms"], later["rms"]),
    }


def queued(low_s: float, high_s: float) -> Judge:
    """A one-way queue between two instants, and 5 s after: the clocks, and how much of it the delays show."""

    def judge(seen: Seen) -> Figures:
        assert seen.delays is not None
        return {**figures(seen.causal, low_s, high_s + 5.0), **shown(seen.delays, low_s + 1.0, high_s)}

    return judge


def shown(d: Delays, low_s: float, high_s: float) -> Figures:
    """The share of the queueing that published delays show, window by window, and what they show beyond it.

    `least_shown` counts in each window at most what was there, so that too much in one does not make up for too
    little in another; `phantom` is all that was shown and not there, in shares of the same queueing.
    """
    during = (d.at_s >= low_s) & (d.at_s < high_s)
    ahead = d.forward & during
    wait = np.maximum(d.true[ahead] - FLOOR_NS, 0.0)
    told = d.published[ahead] - FLOOR_NS
    if not wait.sum() > 0.0 or not (during & ~d.forward).any():
        return {"least_shown": 0.0, "phantom": np.inf, "owd_covered": 0.0}
    over = np.maximum(told - wait, 0.0).mean() + np.abs(d.published - d.true)[during & ~d.forward].mean()
    error = np.abs(d.published - d.true)[during]
    return {
        "least_shown": float(np.minimum(told, wait).sum() / wait.sum()),
        "phantom": float(over / wait.mean()),
        "owd_covered": float((error <= d.err[during] + 0.5).mean()),
    }


def lied_to(low_s: float) -> Judge:
    """Good clocks against the same seed without lies; the liars told, and nobody else."""

    def judge(seen: Seen) -> Figures:
        good = set(seen.causal) - seen.troubled
        assert seen.clean is not None
        now, before = figures(seen.causal, low_s, names=good), figures(seen.clean.causal, low_s, names=good)
        accused = {name: t.at_s[t.status == "faulty"] for name, t in seen.causal.items()}
        flagged = [float(accused[n].min()) if accused[n].size else np.inf for n in seen.troubled]
        clean = sum(bool((t.status == "faulty").any()) for t in seen.clean.causal.values())
        return {
            **now,
            "clean_p99": before["p99"],
            "clean_ratio": _ratio(now["p99"], before["p99"]),
            "flagged_s": max(flagged, default=np.inf),
            "wrongly": float(sum(accused[n].size > 0 for n in good) + clean),
        }

    return judge


def stepped(at_s: float) -> Judge:
    """One clock steps: told when, right again when, and the others as if nothing had happened."""

    def judge(seen: Seen) -> Figures:
        mine = _only(seen, seen.troubled)
        after = mine.between(at_s)
        told = after.at_s[after.status != "synced"]
        outside = after.at_s[~((np.abs(after.error) <= after.bound) & (after.bound <= TIGHT_NS))]
        return {
            **figures(seen.causal, at_s + 15.0, names=set(seen.troubled)),
            "told_s": float(told.min()) - at_s if told.size else np.inf,
            "inside_s": _since(outside, at_s, after),
            **_others(seen, at_s, at_s + 15.0),
        }

    return judge


def slewed(low_s: float, high_s: float) -> Judge:
    """A daemon slews one clock: how far behind we fall, how soon we are back, and the others."""

    def judge(seen: Seen) -> Figures:
        mine = _only(seen, seen.troubled)
        after = mine.between(high_s)
        outside = after.at_s[~((np.abs(after.error) <= after.bound) & (after.bound <= TIGHT_NS))]
        return {
            **figures(seen.causal, low_s, names=set(seen.troubled)),
            "p99_slewing": figures(seen.causal, low_s, high_s, set(seen.troubled))["p99"],
            "inside_s": _since(outside, high_s, after),
            **_others(seen, low_s, high_s),
        }

    return judge


def split(low_s: float, high_s: float) -> Judge:
    """A mesh falls in two and is joined again: both halves honest, the reference's undisturbed, all back in time."""

    def judge(seen: Seen) -> Figures:
        away = {n: t.between(high_s) for n, t in seen.causal.items() if n in seen.troubled}
        outside = [
            _since(t.at_s[~((np.abs(t.error) <= t.bound) & (t.bound <= TIGHT_NS))], high_s, t) for t in away.values()
        ]
        return {
            **figures(seen.causal, low_s),
            "away_p99": figures(seen.causal, low_s, high_s, set(seen.troubled))["p99"],
            "inside_s": max(outside, default=np.inf),
            "p99_later": figures(seen.causal, high_s + 10.0)["p99"],
            **_others(seen, low_s, high_s),
        }

    return judge


def last_above(track: Track, limit_ns: float) -> float:
    """True time of the last row whose error is above `limit_ns`; infinite where there is no row at all."""
    above = track.at_s[~(np.abs(track.error) <= limit_ns)]
    return np.inf if not track.at_s.size else float(above.max()) if above.size else 0.0


def _since(outside: F, at_s: float, track: Track) -> float:
    """Seconds from `at_s` to the last row that was outside; infinite where there is no row, or the last one is."""
    if not track.at_s.size or (outside.size and outside.max() == track.at_s.max()):
        return np.inf
    return float(outside.max()) - at_s if outside.size else 0.0


def _others(seen: Seen, low_s: float, high_s: float) -> Figures:
    """Clocks that nothing happened to, against the same seed without the trouble."""
    names = set(seen.causal) - seen.troubled
    assert seen.clean is not None
    now, clean = (figures(s.causal, low_s, high_s, names)["p99"] for s in (seen, seen.clean))
    return {"others_p99": now, "others_clean_p99": clean, "others_ratio": _ratio(now, clean)}


def _only(seen: Seen, names: frozenset[str]) -> Track:
    (name,) = names
    return seen.causal[name]


def _ratio(a: float, b: float) -> float:
    return a / b if np.isfinite(a) and np.isfinite(b) and b > 0 else np.inf
