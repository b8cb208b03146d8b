"""Fixed-lag smoothing: what the clocks' states were some seconds ago, now that later packets are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sdfstream.numeric import kalman
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync.estimates import ClockEstimates
from sdfstream.sync.sessions import UNKNOWN

TICKS_PER_PASS = 10
"""A pass runs once a second, back over all that is remembered."""
STEP_SKEW = 0.05
"""A clock that stepped by so many ns may have changed its rate by this share of it in ns per second."""

_CLOCKS_AT_ONCE = 1024
"""So that what is made of all ticks at once stays in the processor's cache."""
_ANYWHERE = 0.5 * UNKNOWN
"""ns²: `estimates` caps variances at `UNKNOWN`, beyond which offset and skew no longer go together."""


class Past(NamedTuple):
    """The clocks as they stood after one tick; all but `at_ns` are (clocks,)."""

    at_ns: float
    """Internal time, ns."""
    offset_ns: Float64s
    skew_ppb: Float64s
    offset_var_ns2: Float64s
    offset_skew_cov: Float64s
    skew_var_ppb2: Float64s
    walk: Float64s
    phase: Float64s
    step_ns: Float64s
    """Size of steps seen in this tick, ns."""
    known: Bools
    """Clocks that were known."""
    drift_ppb_s: Float64s
    """How fast the skew drifts from here on."""


class Smoothed(NamedTuple):
    """States of the clocks at one past tick."""

    at_ns: float
    offset_ns: Float64s
    skew_ppb: Float64s
    variance: Float64s
    known: Bools


class Smoother:
    """Remembers the last ticks; a pass is the Rauch-Tung-Striebel recursion back over them, clock by clock.

    Memory: 81 bytes per clock and tick, 40 ticks at a lag of 3 s.

    Parameters
    ----------
    lag_ns : int
        A tick is published by the first pass at which it is at least so old.
    skew_limit_ppb : float
    """

    def __init__(self, lag_ns: int, skew_limit_ppb: float) -> None:
        self._lag_ns = lag_ns
        self._skew_limit_ppb = skew_limit_ppb
        self._past: list[Past] = []

    def push(self, b: ClockEstimates, step_ns: Float64s) -> None:
        """Remember this tick.

        While evidence comes later than before, ticks pass in which its present stands still: they are one, and are
        published once, as the last of them left it.
        """
        t = b.table
        names = (
            "offset_ns",
            "skew_ppb",
            "offset_var_ns2",
            "offset_skew_cov",
            "skew_var_ppb2",
            "freq_walk",
            "phase_walk",
        )
        if self._past and self._past[-1].at_ns == b.at_ns:
            step_ns = np.maximum(step_ns, self._past.pop().step_ns)
        columns = (t[name].copy() for name in names)
        self._past.append(Past._make([b.at_ns, *columns, step_ns, t["based"].copy(), t["drift_ppb_s"].copy()]))

    def due(self, at_ns: float) -> list[Smoothed]:
        """Run a pass; the ticks old enough at internal time `at_ns`, oldest first, which are then forgotten."""
        old = 0
        while old < len(self._past) and at_ns - self._past[old].at_ns >= self._lag_ns:
            old += 1
        result = self._pass(old) if old else []
        self._past = self._past[old:]
        return result

    def flush(self) -> list[Smoothed]:
        """Run a last pass over everything that waits."""
        result = self._pass(len(self._past))
        self._past = []
        return result

    def _pass(self, wanted: int) -> list[Smoothed]:
        """The oldest `wanted` ticks, smoothed by all later ones; clocks do not depend on each other."""
        if not self._past:
            return []
        clocks = self._past[0].offset_ns.size
        if clocks <= _CLOCKS_AT_ONCE:
            return self._pass_of(self._past, wanted)
        pieces = [
            self._pass_of(
                [Past._make([p.at_ns, *(c[low : low + _CLOCKS_AT_ONCE] for c in p[1:])]) for p in self._past], wanted
            )
            for low in range(0, clocks, _CLOCKS_AT_ONCE)
        ]
        return [
            Smoothed(same[0].at_ns, *map(np.concatenate, zip(*(s[1:] for s in same), strict=True)))
            for same in zip(*pieces, strict=True)
        ]

    def _pass_of(self, past: list[Past], wanted: int) -> list[Smoothed]:
        """Predictions and gains depend on no later tick: those of all ticks are made in one go, (ticks − 1, clocks)."""
        every = Past._make(map(np.array, zip(*past, strict=True)))
        states = kalman.ClockState(*every[1:6])
        dt: Float64s = np.diff(np.array([p.at_ns for p in past]))[:, None] / NS_PER_S
        before = kalman.ClockState._make(column[:-1] for column in states)
        ahead = self._predicted(before, every, dt)
        with np.errstate(over="ignore", invalid="ignore"):
            gain = kalman.backward_gain(before, ahead, dt)
        # a clock that may be anywhere (a step by a second or more) has no history
        known: Bools = ahead.xx < _ANYWHERE
        all_known: list[bool] = np.logical_and.reduce(known, axis=1).tolist()
        later = kalman.ClockState._make(column[-1] for column in states)
        result = [later]
        for k in range(len(past) - 2, -1, -1):
            if dt[k, 0] > 0.0:
                matrix = kalman.Gain._make(column[k] for column in gain)
                later = _back(_row(before, k), _row(ahead, k), later, matrix, None if all_known[k] else known[k])
            result.append(later)
        oldest_first = result[::-1][:wanted]
        return [Smoothed(p.at_ns, s.x, s.g, s.xx, p.known) for p, s in zip(past, oldest_first, strict=False)]

    def _predicted(self, before: kalman.ClockState, every: Past, dt: Float64s) -> kalman.ClockState:
        """Every tick's state but the last one's, predicted to the next tick."""
        walk, phase, step_ns = every.walk[1:], every.phase[1:], every.step_ns[1:]
        drift_ppb_s = every.drift_ppb_s[:-1]
        ahead = kalman.predict(before, dt, np.sqrt(walk), np.sqrt(phase))
        turn = np.minimum(STEP_SKEW * step_ns, self._skew_limit_ppb)
        return ahead._replace(
            x=ahead.x + 0.5 * dt * dt * drift_ppb_s,
            g=ahead.g + dt * drift_ppb_s,
            xx=ahead.xx + step_ns**2,
            gg=ahead.gg + turn**2,
        )

    def scatter(self, at: Int64s, rows: int) -> None:
        """Clocks got new numbers: old clock j is ``at[j]`` now; the others were not there."""

        def moved(column: Any, fill: Any) -> Any:
            fresh = np.full(rows, fill, dtype=column.dtype)
            fresh[at] = column
            return fresh

        fills = {"offset_var_ns2": UNKNOWN, "known": False}
        self._past = [
            Past._make([p.at_ns, *(moved(getattr(p, name), fills.get(name, 0.0)) for name in Past._fields[1:])])
            for p in self._past
        ]

    def keep(self, mask: Bools) -> None:
        """Forget the clocks whose mask is False."""
        self._past = [Past._make([p.at_ns, *(c[mask] for c in p[1:])]) for p in self._past]

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {"past": [list(p) for p in self._past]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        # a snapshot of an earlier version knows of no drift
        self._past = [Past._make([*p, np.zeros_like(p[1])][: len(Past._fields)]) for p in state["past"]]


def _row(states: kalman.ClockState, k: int) -> kalman.ClockState:
    return kalman.ClockState._make(column[k] for column in states)


def _back(
    state: kalman.ClockState,
    ahead: kalman.ClockState,
    later: kalman.ClockState,
    gain: kalman.Gain,
    known: Bools | None,
) -> kalman.ClockState:
    """One step back; `known`: the clocks that have a history, None: all of them."""
    with np.errstate(over="ignore", invalid="ignore"):
        smoothed = kalman.smooth(state, ahead, later, gain)
    if known is None:
        return smoothed
    return kalman.ClockState._make(np.where(known, new, old) for new, old in zip(smoothed, state, strict=True))
