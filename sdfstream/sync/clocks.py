"""The clocks as the mesh keeps them: what is believed of each, what it is called, and how far to trust it.

Rows are in order of the clocks' names, so that no sum depends on the order in which they were first heard.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.numeric.graph import components
from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync import mesh, wander
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_filter import UNKNOWN
from sdfstream.sync.estimates import Beliefs
from sdfstream.sync.mesh import Solved
from sdfstream.sync.reduce import Edges
from sdfstream.sync.reference import Scale
from sdfstream.sync.wander import NEVER, Wander

_SAMPLES_S: Final = 8.0
"""`n` of a row counts the blocks of about this time."""
_STEPS_S: Final = 10.0
_FAULTY_STEPS: Final = 2.5
"""So many steps within about ten seconds are no step but a clock that cannot be agreed with."""
_STEP_ONCE_S: Final = 2.0
"""Sessions notice one step within this time of each other."""
_SETTLED: Final = 0.05
"""A clock that stepped is unsynced until its bound is this share of the step."""
_ALARM_S: Final = 4.0
"""So long a surprise widens the bound."""
_ALARM_MOST: Final = 25.0
_USUAL_TICKS: Final = 100.0
_ACCUSED: Final = 20.0
"""Ticks."""


class Clocks:
    """Every clock's state, by name."""

    def __init__(self, config: SyncConfig) -> None:
        self._c = config
        self.names: list[str] = []
        self.beliefs = Beliefs()
        self.table = Table(
            {
                **wander.COLUMNS,
                "misfit": np.float64(0.0),
                "alarm": np.float64(0.0),
                "usual_log": np.float64(np.nan),
                "reach": np.float64(1.0),
                "samples": np.float64(0.0),
                "sampled_at": np.float64(NEVER),
                "tied_at": np.float64(NEVER),
                "accused": np.float64(0.0),
                "settling": np.float64(0.0),
                "steps": np.float64(0.0),
                "stepped_at": np.float64(NEVER),
            },
            wander.WIDE_COLUMNS,
        )
        self.wander = Wander(config)
        self.label: Int64s = np.empty(0, dtype=np.int64)
        """Component of each clock: the smallest clock number in it."""

    @property
    def n(self) -> int:
        """Clocks known."""
        return len(self.names)

    def enter(self, names: list[str]) -> Int64s | None:
        """Make room for `names` not known yet; where the old rows went, or None when nothing changed."""
        fresh = sorted(set(names).difference(self.names))
        if not fresh:
            return None
        both = sorted([*self.names, *fresh])
        place = {name: k for k, name in enumerate(both)}
        at = np.array([place[name] for name in self.names], dtype=np.int64)
        reference = at[self.beliefs.reference] if at.size else 0
        self.names = both
        self.table.scatter(at, len(both))
        self.beliefs.table.scatter(at, len(both))
        self.beliefs.reference = int(reference)
        label = np.arange(len(both))
        label[at] = at[self.label] if at.size else at
        # a label is the smallest number of its component; the order of old rows has not changed
        self.label = label
        self._walks()
        return at

    def set_bases(self, clock: Int64s, base_ns: Int64s) -> None:
        """First stamps were seen."""
        b = self.beliefs.table
        new = ~b["based"][clock]
        b["base_ns"][clock[new]] = base_ns[new]
        b["based"][clock[new]] = True

    def advance(self, at: float) -> None:
        """Predict every clock forward to `at`."""
        dt = max((at - self.beliefs.at) / NS_PER_S, 0.0)
        self.beliefs.advance(at)
        self.table["samples"] *= np.exp(-dt / _SAMPLES_S)
        self.table["steps"] *= np.exp(-dt / _STEPS_S)
        self.table["alarm"] *= np.exp(-dt / _ALARM_S)

    def take(self, s: Solved, e: Edges, ticks: int) -> None:
        """Take up what the network step found, learn from how far predictions strayed, and renew the bounds."""
        b, t = self.beliefs.table, self.table
        b["offset"], b["skew"] = s.offset, s.skew
        held = ~np.isnan(s.xx)
        for name in ("xx", "xg", "gg"):
            b[name] = np.where(held, getattr(s, name), b[name])
        log = np.log(np.maximum(b["xx"], 1e-6))
        old = np.where(np.isnan(t["usual_log"]) | (t["usual_log"] > log + 2.0), log, t["usual_log"])
        t["usual_log"] = old + (log - old) / _USUAL_TICKS
        blocks = np.bincount(e.src, e.blocks, self.n) + np.bincount(e.dst, e.blocks, self.n)
        t["samples"] += blocks
        t["sampled_at"] = np.where(blocks > 0.0, self.beliefs.at, t["sampled_at"])
        found = mesh.misfit(e, self.n)
        t["misfit"] = np.where(np.isnan(found), t["misfit"], found)
        accused = t["accused"] + np.where(mesh.blame(e, self.n), 1.0, -1.0)
        t["accused"] = np.clip(accused, 0.0, 2.0 * _ACCUSED)
        alarm = np.bincount(e.src, e.alarm * e.sessions, self.n) + np.bincount(e.dst, e.alarm * e.sessions, self.n)
        sessions = np.bincount(e.src, e.sessions, self.n) + np.bincount(e.dst, e.sessions, self.n)
        # what one neighbour's step did to its sessions must not open this clock's bound
        alarm = np.minimum(alarm / np.maximum(sessions, 1.0), _ALARM_MOST * b["xx"])
        t["alarm"] = np.maximum(t["alarm"], alarm)
        self.wander.surprised(t, b["xx"], alarm, self.label)
        self.wander.tick(t, b, self.beliefs.at, ticks, self.label)
        self._walks()

    def own_bound(self, own: Float64s) -> Float64s:
        """Variance behind the bound of each clock, of its own part `own`: never much less than it usually is.

        A lucky packet makes an estimate believe itself for a moment more than is good: the variance counts with at
        least its geometric mean of the last ten seconds. Surprises widen it at once.
        """
        t = self.table
        usual = np.where(np.isnan(t["usual_log"]), own, np.exp(t["usual_log"]))
        result: Float64s = np.maximum(own, usual) * self.wander.bound_factor(t) + t["alarm"]
        return result

    def _walks(self) -> None:
        b = self.beliefs.table
        b["walk"] = self.wander.walk(self.table)
        b["phase"] = self._c.phase_wander_ns**2
        b["bound"] = np.minimum(self.own_bound(b["xx"]) + self.table["misfit"], UNKNOWN)

    def step(self, size: Float64s) -> Bools:
        """Steps of about `size` ns (0: none) were seen; which of them are news."""
        t, at = self.table, self.beliefs.at
        new: Bools = (size > 0.0) & (at - t["stepped_at"] > _STEP_ONCE_S * NS_PER_S)
        t["stepped_at"] = np.where(new, at, t["stepped_at"])
        t["steps"] += new
        t["settling"] = np.maximum(t["settling"], np.where(new, _SETTLED * size, 0.0))
        self.wander.forget(t, size > 0.0)
        b = self.beliefs.table
        b["xx"] += np.where(new, size * size, 0.0)
        b["gg"] += np.where(new, size * size, 0.0)
        self._walks()
        return new

    def tie(self, a: Int64s, b: Int64s) -> None:
        """Components by the pairs heard lately; an island that joins another time line forgets how it predicted."""
        label = components(self.n, a, b)
        if np.array_equal(label, self.label):
            return
        self.wander.forget(self.table, mesh.strangers(self.label, label, self.beliefs.reference))
        self.label = label

    def mark_tied(self) -> None:
        """These clocks stand on the reference's time line now."""
        mine = self.label == self.label[self.beliefs.reference]
        self.table["tied_at"][mine] = self.beliefs.at

    def variance_to(self, reference: Scale, own: Float64s) -> Float64s:
        """Variance of each clock's difference to the reference; infinite where nothing ties the two together.

        `own`: variances of the own parts at the instant in question, without bound factor and misfit.
        """
        t = self.table
        bound = self.own_bound(own)
        total = reference.variance(bound) * t["reach"] + reference.variance(t["misfit"])
        foreign = self.label != self.label[reference.clock]
        total = total + np.where(foreign, self._grown(), 0.0)
        return np.where(total >= 0.5 * UNKNOWN, np.inf, total)

    def _grown(self) -> Float64s:
        """Variance that grew, unseen, between each island and the reference since they were last tied, ns².

        A clock that heard nobody meanwhile carries that doubt already.
        """
        t, b = self.table, self.beliefs.table
        seconds = np.clip((self.beliefs.at - t["tied_at"]) / NS_PER_S, 0.0, 1e6)
        grown = 2.0 * (b["gg"] * seconds**2 + b["walk"] * seconds**3 / 3.0)
        grown = np.where(t["tied_at"] == NEVER, UNKNOWN, np.minimum(grown, UNKNOWN))
        return np.where(t["sampled_at"] >= t["tied_at"], grown, 0.0)

    def status(self, at: float, err_ns: Float64s, settle: bool) -> Int64s:
        """0 synced, 1 holdover, 2 unsynced, 3 faulty; `settle`: a clock inside its bound again is over its step."""
        c, t = self._c, self.table
        fresh = t["sampled_at"] >= at - c.holdover_after_ns
        settling = err_ns > np.where(t["settling"] > 0.0, t["settling"], c.unsynced_err_ns)
        if settle:
            late = at - t["stepped_at"] > _STEP_ONCE_S * NS_PER_S
            t["settling"] = np.where(settling | ~late, t["settling"], 0.0)
        status = np.where(settling, 2, np.where(fresh, 0, 1))
        return np.where((t["steps"] >= _FAULTY_STEPS) | (t["accused"] >= _ACCUSED), 3, status)

    def alive(self) -> Bools:
        """Clocks heard lately."""
        result: Bools = self.table["sampled_at"] >= self.beliefs.at - self._c.holdover_after_ns
        return result

    def keep(self, mask: Bools) -> None:
        """Forget the clocks whose mask is False."""
        reference = self.names[self.beliefs.reference]
        self.names = [name for name, kept in zip(self.names, mask, strict=True) if kept]
        self.table.keep(mask)
        self.beliefs.table.keep(mask)
        # a label is the smallest number of its component; name it by the smallest kept one
        old = self.label[mask]
        first = np.unique(old, return_index=True)[1]
        self.label = first[np.unique(old, return_inverse=True)[1]]
        self.beliefs.reference = self.names.index(reference) if reference in self.names else 0

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "names": self.names,
            "beliefs": self.beliefs.snapshot(),
            "table": self.table.snapshot(),
            "wander": self.wander.snapshot(),
            "label": self.label,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.names = list(state["names"])
        self.beliefs.restore(state["beliefs"])
        self.table.restore(state["table"])
        self.wander.restore(state["wander"])
        self.label = state["label"]
