"""The mesh's clocks: estimate, name and bound of each.

Rows are in order of the clocks' names, so that no sum depends on the order in which they came.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.numeric.graph import components
from sdfstream.numeric.group import Distinct
from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync import drift, mesh, straying, wander
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.estimates import ClockEstimates
from sdfstream.sync.mesh import Solved
from sdfstream.sync.reduce import ReducedEdges
from sdfstream.sync.reference import Scale
from sdfstream.sync.sessions import UNKNOWN
from sdfstream.sync.wander import NEVER, Wander

_SAMPLES_S: Final = 8.0
"""`n` of a row counts the blocks of about this time."""
_STEPS_S: Final = 10.0
_FAULTY_STEPS: Final = 2.5
"""So many steps within about ten seconds are no step but a clock that cannot be agreed with."""
_STEP_ONCE_S: Final = 2.0
"""Sessions notice one step within this time of each other."""
_AFTERMATH_S: Final = 5.0
"""So long after a clock's step its sessions are still finding its new course: what surprises them says nothing of how
clocks wander. Taken for wander, four ends of slews made it 400 times as much, and the neighbours' 7 to 50 times."""
_SETTLED: Final = 0.05
"""A clock that stepped is unsynced until its bound is this share of the step."""
_ALARM_S: Final = 4.0
"""So long a surprise widens the bound."""
_STEP_ALARM_S: Final = 0.3
"""So long after a step, which explains it: sessions know the new course after some ticks."""
_ALARM_MOST: Final = 25.0
_CONTRADICTED: Final = 2.0
"""Blocks; a single one may be a wrong stamp, or a path that became shorter."""
_DOUBTED: Final = 0.5
_USUAL_TICKS: Final = 100.0
_ACCUSED: Final = 20.0
"""Ticks."""


class MeshClocks:
    """Every clock's state, by name."""

    def __init__(self, config: SyncConfig) -> None:
        self._c = config
        self.names: list[str] = []
        self.estimates = ClockEstimates()
        self.table = Table(
            {
                **wander.COLUMNS,
                **drift.COLUMNS,
                "misfit_ns2": np.float64(0.0),
                "surprise_ns2": np.float64(0.0),
                "breach_ns2": np.float64(0.0),
                "usual_log_var": np.float64(np.nan),
                "usual_lag": np.float64(0.0),
                "reach_factor": np.float64(1.0),
                "samples": np.float64(0.0),
                "sampled_at_ns": np.float64(NEVER),
                "tied_at_ns": np.float64(NEVER),
                "tied_ns2": np.float64(0.0),
                "accused_ticks": np.float64(0.0),
                "settling_ns": np.float64(0.0),
                "steps": np.float64(0.0),
                "stepped_at_ns": np.float64(NEVER),
            },
            wander.WIDE_COLUMNS | drift.WIDE_COLUMNS,
        )
        self.wander = Wander(config)
        self.label: Int64s = np.empty(0, dtype=np.int64)
        """Component of each clock: the smallest clock number in it."""
        self._tied: tuple[Int64s, Int64s, Int64s] | None = None
        """Ends of the pairs that tied the clocks last, and the components that they made."""
        self._pairs = Distinct()

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
        row = {name: k for k, name in enumerate(both)}
        at = np.array([row[name] for name in self.names], dtype=np.int64)
        reference = at[self.estimates.reference] if at.size else 0
        self.names = both
        self.table.scatter(at, len(both))
        self.estimates.table.scatter(at, len(both))
        self.estimates.reference = int(reference)
        label = np.arange(len(both))
        label[at] = at[self.label] if at.size else at
        # a label is the smallest number of its component; the order of old rows has not changed
        self.label = label
        self._walks()
        return at

    def set_bases(self, clock: Int64s, base_ns: Int64s) -> None:
        """First stamps were seen."""
        b = self.estimates.table
        new = ~b["based"][clock]
        b["base_ns"][clock[new]] = base_ns[new]
        b["based"][clock[new]] = True

    def set_drifted(self, clock: int, offset_ns: float, skew_ppb: float) -> None:
        """A mesh without memory takes over what drifts have made of a clock: its sessions have followed that."""
        b = self.estimates.table
        b["drifted_ns"][clock], b["drifted_ppb"][clock] = offset_ns, skew_ppb

    def advance(self, at_ns: float) -> None:
        """Predict every clock forward to `at_ns`."""
        dt = max((at_ns - self.estimates.at_ns) / NS_PER_S, 0.0)
        self.estimates.advance(at_ns)
        drift.predict(self.table, self.estimates.table, dt, ~self.alive())
        self.wander.calm_down(self.table, dt)
        self.table["samples"] *= np.exp(-dt / _SAMPLES_S)
        self.table["steps"] *= np.exp(-dt / _STEPS_S)
        self.table["surprise_ns2"] *= np.exp(-dt / np.where(self._stepped(), _STEP_ALARM_S, _ALARM_S))

    def take(self, s: Solved, e: ReducedEdges, ticks: int) -> None:
        """Take up what the network step found, learn from how far predictions strayed, and renew the bounds."""
        b, t = self.estimates.table, self.table
        predicted = [b[name].copy() for name in ("offset_ns", "offset_var_ns2", "offset_skew_cov")]
        b["offset_ns"], b["skew_ppb"] = s.offset_ns, s.skew_ppb
        held = ~np.isnan(s.offset_var_ns2)
        for name in ("offset_var_ns2", "offset_skew_cov", "skew_var_ppb2"):
            b[name] = np.where(held, getattr(s, name), b[name])
        self._learn_drift(predicted, held, ticks)
        self._learn_usual(held)
        blocks = np.bincount(e.src, e.blocks, self.n) + np.bincount(e.dst, e.blocks, self.n)
        t["samples"] += blocks
        t["sampled_at_ns"] = np.where(blocks > 0.0, self.estimates.at_ns, t["sampled_at_ns"])
        found = mesh.misfit(e, self.label, self._pairs)
        t["misfit_ns2"] = np.where(np.isnan(found), t["misfit_ns2"], found)
        accused = t["accused_ticks"] + np.where(mesh.blame(e, self.n, self._pairs), 1.0, -1.0)
        t["accused_ticks"] = np.clip(accused, 0.0, 2.0 * _ACCUSED)
        self._doubt_breached(e, blocks.astype(np.float64))
        stepping = self._stepped() | (t["breach_ns2"] > 0.0)
        surprise_ns2 = np.minimum(self._surprises(e, stepping), _ALARM_MOST * b["offset_var_ns2"])
        t["surprise_ns2"] = np.maximum(t["surprise_ns2"], surprise_ns2)
        self.wander.surprised(t, b["offset_var_ns2"], np.where(stepping, 0.0, surprise_ns2))
        self.wander.tick(t, b, self.estimates.at_ns, ticks, self.label, self.estimates.reference)
        self._walks()

    def _stepped(self) -> Bools:
        """Clocks in the aftermath of a step."""
        result: Bools = self.estimates.at_ns - self.table["stepped_at_ns"] < _AFTERMATH_S * NS_PER_S
        return result

    def _surprises(self, e: ReducedEdges, stepping: Bools) -> Float64s:
        """(clocks,) mean over each clock's sessions of what surprised them, ns²; not by a neighbour that is `stepping`.

        What one neighbour's step did to its sessions must not open this clock's bound, nor pass for wander.
        """
        total, sessions = np.zeros(self.n), np.zeros(self.n)
        for clock, other in ((e.src, e.dst), (e.dst, e.src)):
            counted = np.where(stepping[other] & ~stepping[clock], 0.0, e.sessions)
            total += np.bincount(clock, e.surprise_ns2 * counted, self.n)
            sessions += np.bincount(clock, counted, self.n)
        result: Float64s = total / np.maximum(sessions, 1.0)
        return result

    def _learn_usual(self, held: Bools) -> None:
        """What each clock's variance usually is, and by how much most clocks of its component are below that now."""
        t = self.table
        log = np.log(np.maximum(self.estimates.table["offset_var_ns2"], 1e-6))
        old = np.where(np.isnan(t["usual_log_var"]) | (t["usual_log_var"] > log + 2.0), log, t["usual_log_var"])
        t["usual_log_var"] = old + (log - old) / _USUAL_TICKS
        size = np.bincount(self.label, minlength=self.n)[self.label]
        below = mesh.medians(t["usual_log_var"] - log, self.label, held)
        t["usual_lag"] = np.where(size >= straying.LARGE, np.maximum(below, 0.0), 0.0)

    def _doubt_breached(self, e: ReducedEdges, blocks: Float64s) -> None:
        """Widen the bound of clocks that packets contradict, before it is clear what the clocks did.

        A step or slew takes `breach_blocks` ticks to be told from wrong stamps; until then nothing is learned, and the
        estimate may be off by as much as the packets say. Contradicted are clocks most of whose packets say so, and
        in the first tick, of which many packets were sent before, those with two of them, more than of a neighbour; one
        that stepped lately with any. `blocks`: of each clock in this tick.
        """
        t = self.table
        breached = np.bincount(e.src, e.breached, self.n) + np.bincount(e.dst, e.breached, self.n)
        square_ns2 = np.bincount(e.src, e.breach_ns2, self.n) + np.bincount(e.dst, e.breach_ns2, self.n)
        first = np.zeros(self.n, dtype=np.bool_)
        hit = np.flatnonzero(e.breached > 0.0)
        if hit.size:
            share = breached / np.maximum(blocks, 1.0)
            src, dst = e.src[hit], e.dst[hit]
            first[src[share[src] > share[dst]]] = first[dst[share[dst] > share[src]]] = True
            first &= breached >= _CONTRADICTED
            first |= self._stepped() & (breached > 0.0)
        doubted = np.where((2.0 * breached > blocks) | first, square_ns2 / np.maximum(breached, 1.0), 0.0)
        t["breach_ns2"] = np.where(blocks > 0.0, doubted, t["breach_ns2"])

    def _learn_drift(self, predicted: list[Float64s], held: Bools, ticks: int) -> None:
        """`predicted`: offset, its variance and covariance before the mesh was solved."""
        b, t = self.estimates.table, self.table
        moved = np.where(held, b["offset_ns"] - predicted[0], 0.0)
        moved = moved - mesh.medians(moved, self.label, held)
        free, drifted_ns = wander.free_errors(self.label), b["drifted_ns"].copy()
        alarm = drift.learn(t, b, drift.Correction(moved, predicted[1], predicted[2], free, self.label), ticks)
        if alarm.any():
            # what surprised the sessions so far was the drift
            self.wander.forget(t, alarm)
            t["surprise_log_q"] = np.where(alarm, 0.0, t["surprise_log_q"])
            # an alarm may be a false one: for a while the bound holds half of what it did
            moved = b["drifted_ns"] - drifted_ns
            t["surprise_ns2"] = np.where(alarm, (_DOUBTED * moved) ** 2, t["surprise_ns2"])

    def own_bound(self, own: Float64s) -> Float64s:
        """Variance behind the bound of each clock, from its own variance `own`: never much less than usual.

        After a lucky packet the variance is too small for a moment: it counts with at
        least its geometric mean of the last ten seconds, less what is common to a large mesh: not all of it is lucky
        at once, but it learns. Surprises and breaches widen it at once.
        """
        t = self.table
        usual_ns2 = np.where(np.isnan(t["usual_log_var"]), own, np.exp(t["usual_log_var"] - t["usual_lag"]))
        result: Float64s = np.maximum(own, usual_ns2) * t["bound_factor"]
        result += t["surprise_ns2"] + t["breach_ns2"] + t["drift_doubt_ns2"]
        return result

    def _walks(self) -> None:
        b = self.estimates.table
        b["freq_walk"] = self.wander.walk(self.table) + self.table["drift_freq_walk"]
        b["phase_walk"] = self._c.phase_wander_ns**2 + self.table["drift_phase_walk"]
        b["bound_ns2"] = np.minimum(self.own_bound(b["offset_var_ns2"]) + self.table["misfit_ns2"], UNKNOWN)

    def step(self, size: Float64s) -> Bools:
        """Steps of about `size` ns (0: none) were seen; which of them are news."""
        if not size.any():
            return np.zeros(self.n, dtype=np.bool_)
        t, at = self.table, self.estimates.at_ns
        new: Bools = (size > 0.0) & (at - t["stepped_at_ns"] > _STEP_ONCE_S * NS_PER_S)
        t["stepped_at_ns"] = np.where(new, at, t["stepped_at_ns"])
        t["steps"] += new
        t["settling_ns"] = np.maximum(t["settling_ns"], np.where(new, _SETTLED * size, 0.0))
        b = self.estimates.table
        self.wander.forget(t, size > 0.0)
        if new.any():
            drift.forget(t, b, size > 0.0, self.label)
        b["offset_var_ns2"] += np.where(new, size * size, 0.0)
        b["skew_var_ppb2"] += np.where(new, size * size, 0.0)
        # what jumped may as well be running, by as much in each tick as in those that told of it
        running_ns = size / (self._c.breach_blocks * self._c.err_sigmas)
        t["surprise_ns2"] = np.maximum(t["surprise_ns2"], np.where(new, running_ns**2, 0.0))
        t["surprise_log_q"] = np.where(new, 0.0, t["surprise_log_q"])
        self._walks()
        return new

    def tie(self, a: Int64s, b: Int64s) -> None:
        """Components by the recent pairs; an island that joins another time line begins its predictions anew."""
        tied = self._tied
        if tied is not None and tied[2] is self.label and np.array_equal(tied[0], a) and np.array_equal(tied[1], b):
            return
        label = components(self.n, a, b)
        if np.array_equal(label, self.label):
            self._tied = a, b, self.label
            return
        strangers = mesh.strangers(self.label, label, self.estimates.reference)
        self.wander.forget(self.table, strangers)
        drift.forget(self.table, self.estimates.table, strangers, label)
        self.label = label
        self._tied = a, b, label

    def change_reference(self, clock: int) -> None:
        """Another clock is the reference.

        Where no pairs tie it to the old one, its own island was tied to that last when `tied_at_ns` says, perhaps
        never; so were all others to it, if not before.
        """
        t, island = self.table["tied_at_ns"], self.label != self.label[clock]
        if island[self.estimates.reference]:
            t[island] = np.minimum(t[island], t[clock])
        self.estimates.reference = clock

    def mark_tied(self) -> None:
        """These clocks stand on the reference's time line now, as well as their bounds say."""
        mine = self.label == self.label[self.estimates.reference]
        self.table["tied_at_ns"][mine] = self.estimates.at_ns
        self.table["tied_ns2"][mine] = self.estimates.table["bound_ns2"][mine]

    def variance_to(self, reference: Scale, own: Float64s) -> Float64s:
        """Variance of each clock's difference to the reference; infinite where nothing ties the two together.

        `own`: own variances at the instant in question, without bound factor and misfit.
        """
        t = self.table
        bound = self.own_bound(own)
        total = reference.variance(bound) * t["reach_factor"] + reference.variance(t["misfit_ns2"])
        foreign = self.label != self.label[reference.clock]
        total = total + np.where(foreign, self._grown(), 0.0)
        return np.where(total >= 0.5 * UNKNOWN, np.inf, total)

    def _grown(self) -> Float64s:
        """Variance between each island and the reference: when they were last tied, and what grew, unseen, since; ns².

        Own variances of an island are about its own mean. That of a clock without samples meanwhile is the one that it
        had, and has grown already.
        """
        t, b = self.table, self.estimates.table
        seconds = np.clip((self.estimates.at_ns - t["tied_at_ns"]) / NS_PER_S, 0.0, 1e6)
        grown = t["tied_ns2"] + 2.0 * (b["skew_var_ppb2"] * seconds**2 + b["freq_walk"] * seconds**3 / 3.0)
        grown = np.where(t["tied_at_ns"] == NEVER, UNKNOWN, np.minimum(grown, UNKNOWN))
        return np.where(t["sampled_at_ns"] >= t["tied_at_ns"], grown, 0.0)

    def status(self, at_ns: float, err_ns: Float64s, settle: bool) -> Int64s:
        """0 synced, 1 holdover, 2 unsynced, 3 faulty; `settle`: a clock inside its bound again is over its step."""
        c, t = self._c, self.table
        fresh = t["sampled_at_ns"] >= at_ns - c.holdover_after_ns
        settling = err_ns > np.where(t["settling_ns"] > 0.0, t["settling_ns"], c.unsynced_err_ns)
        if settle:
            late = at_ns - t["stepped_at_ns"] > _STEP_ONCE_S * NS_PER_S
            t["settling_ns"] = np.where(settling | ~late, t["settling_ns"], 0.0)
        status = np.where(settling, 2, np.where(fresh, 0, 1))
        return np.where((t["steps"] >= _FAULTY_STEPS) | (t["accused_ticks"] >= _ACCUSED), 3, status)

    def alive(self) -> Bools:
        """Clocks with recent samples."""
        result: Bools = self.table["sampled_at_ns"] >= self.estimates.at_ns - self._c.holdover_after_ns
        return result

    def keep(self, mask: Bools) -> None:
        """Forget the clocks whose mask is False."""
        reference = self.names[self.estimates.reference]
        self.names = [name for name, keep in zip(self.names, mask, strict=True) if keep]
        self.table.keep(mask)
        self.estimates.table.keep(mask)
        # a label is the smallest number of its component; name it by the smallest one left
        old = self.label[mask]
        first = np.unique(old, return_index=True)[1]
        self.label = first[np.unique(old, return_inverse=True)[1]]
        self.estimates.reference = self.names.index(reference) if reference in self.names else 0

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "names": self.names,
            "estimates": self.estimates.snapshot(),
            "table": self.table.snapshot(),
            "wander": self.wander.snapshot(),
            "label": self.label,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.names = list(state["names"])
        self.estimates.restore(state["estimates"])
        self.table.restore(state["table"])
        self.wander.restore(state["wander"])
        self.label = state["label"]
        if "bound_factor" not in state["table"]:  # of an earlier version
            self.wander.renew_bound(self.table, self.label)
