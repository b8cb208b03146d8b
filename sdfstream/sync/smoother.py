"""Fixed-lag smoothing: what the clocks' states were some seconds ago, now that later samples are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sdfstream.numeric import kalman
from sdfstream.records.units import NS_PER_S, Float64s
from sdfstream.sync.nodes import STEP_SKEW, Nodes, fresh_bank

TICKS_PER_PASS = 10
"""A pass runs once a second; it costs about four filter steps per tick it publishes."""


class Past(NamedTuple):
    """What a tick did to the clocks."""

    at: float
    """Internal time, ns."""
    z: Float64s
    """Measured offset from the ensemble `age_s` before, ns."""
    variance: Float64s
    """Of z, ns²; infinite: not measured."""
    age_s: Float64s
    doubt: Float64s
    """Size of steps seen (`Nodes.widen`), ns."""


class Smoothed(NamedTuple):
    """States of all clocks that existed at one past tick."""

    at: float
    offset: Float64s
    skew: Float64s
    variance: Float64s


class Smoother:
    """Remembers what each of the last ticks measured, and the filter bank as it stood at every tenth.

    A pass filters again from the oldest bank with the model each clock now trusts most, then runs the
    Rauch-Tung-Striebel recursion back. Memory: 24 bytes per clock and tick, plus the banks.

    Parameters
    ----------
    lag_ns : int
        A tick is published by the first pass at which it is at least so old.
    """

    def __init__(self, lag_ns: int, wander: Float64s, phase: Float64s, skew_limit_ppb: float) -> None:
        self._lag_ns = lag_ns
        self._wander, self._phase = wander, phase
        self._skew_limit_ppb = skew_limit_ppb
        self._past: list[Past] = []
        self._banks: list[tuple[int, float, kalman.State]] = []
        """(number of past ticks before it, its internal time, the bank then), oldest first."""

    def begin(self, nodes: Nodes) -> None:
        """Remember the bank as it stands between two ticks, once every `TICKS_PER_PASS`."""
        if len(self._past) % TICKS_PER_PASS == 0:
            self._banks.append((len(self._past), nodes.at, nodes.snapshot()))

    def push(self, past: Past) -> None:
        """Take in one tick."""
        self._past.append(past)

    def due(self, nodes: Nodes) -> list[Smoothed]:
        """Run a pass; the ticks old enough, oldest first, which are then forgotten. `nodes` as of the newest tick."""
        old = 0
        while old < len(self._past) and nodes.at - self._past[old].at >= self._lag_ns:
            old += 1
        old -= old % TICKS_PER_PASS
        if not old:
            return []
        result = self._pass(nodes, old)
        self._past = self._past[old:]
        self._banks = [(k - old, at, bank) for k, at, bank in self._banks if k >= old]
        return result

    def flush(self, nodes: Nodes) -> list[Smoothed]:
        """Run a last pass over everything that waits."""
        result = self._pass(nodes, len(self._past)) if self._past else []
        self._past, self._banks = [], []
        return result

    def _pass(self, nodes: Nodes, wanted: int) -> list[Smoothed]:
        clocks = nodes.n
        best = nodes.best()
        wander, phase = self._wander[best], self._phase[best]
        start = kalman.State(
            *(_widened(c, f, clocks)[best, np.arange(clocks)] for c, f in zip(*self._start(), strict=True))
        )
        filtered, predicted = [], []
        at, state = self._banks[0][1], start
        for past in self._past:
            state = kalman.predict(state, (past.at - at) / NS_PER_S, wander, phase)
            at = past.at
            predicted.append(state)
            size = _padded(past.doubt, clocks, 0.0)
            skew = np.minimum(STEP_SKEW * size, self._skew_limit_ppb)
            state = state._replace(xx=state.xx + size**2, gg=state.gg + skew**2)
            z, variance = _padded(past.z, clocks, 0.0), _padded(past.variance, clocks, np.inf)
            age_s = _padded(past.age_s, clocks, 0.0)
            state = kalman.update_past(state, z, variance, age_s)
            filtered.append(state)
        return self._back(filtered, predicted, wanted)

    def _start(self) -> tuple[kalman.State, kalman.State]:
        return self._banks[0][2], fresh_bank(self._wander.size, self._skew_limit_ppb)

    def _back(self, filtered: list[kalman.State], predicted: list[kalman.State], wanted: int) -> list[Smoothed]:
        later = filtered[-1]
        result = []
        for k in range(len(filtered) - 1, -1, -1):
            if k < len(filtered) - 1:
                dt = (self._past[k + 1].at - self._past[k].at) / NS_PER_S
                later = kalman.smooth(filtered[k], predicted[k + 1], later, dt) if dt > 0.0 else later
            if k < wanted:
                n = self._past[k].z.size
                result.append(Smoothed(self._past[k].at, later.x[:n], later.g[:n], later.xx[:n]))
        return result[::-1]

    def keep(self, mask: Any) -> None:
        """Forget the clocks whose mask is False."""
        self._past = [Past(p.at, *(c[mask[: c.size]] for c in p[1:])) for p in self._past]
        self._banks = [(k, at, kalman.State(*(c[:, mask[: c.shape[1]]] for c in bank))) for k, at, bank in self._banks]

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {"past": [list(p) for p in self._past], "banks": [[k, at, list(bank)] for k, at, bank in self._banks]}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._past = [Past(*p) for p in state["past"]]
        self._banks = [(k, at, kalman.State(*bank)) for k, at, bank in state["banks"]]


def _padded(column: Float64s, size: int, fill: float) -> Float64s:
    """The column with clocks that came later filled in."""
    return column if column.size == size else np.append(column, np.full(size - column.size, fill))


def _widened(column: Float64s, fresh: Float64s, size: int) -> Float64s:
    """A bank's column (lanes, clocks) with clocks that came later in their initial state."""
    missing = size - column.shape[1]
    return column if not missing else np.concatenate([column, np.repeat(fresh, missing, axis=1)], axis=1)
