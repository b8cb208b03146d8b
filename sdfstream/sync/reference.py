r"""What all offsets are relative to: one clock, or the mean of many.

The setting ``sync.reference`` is

- empty (default): the smallest clock id of the largest component (of two as large, of that in which it is);
- a clock id, or several with commas: the first of them that lives; where none does, as by default (counted);
- ``mean``: the mean of all clocks of the largest component that live, are synced and lie within a second of it.

**It does not hop.** A reference stays until it has not been the rule's choice for ten seconds on end, so that a
restarting agent or a short split of the mesh changes nothing. Only in the first ten seconds of all, while clocks come
in one by one, every better choice is taken at once. After them the default rule chooses among the clocks that have
been tied to a reference, as long as one of them lives: whoever can publish rows can make up more clocks than there
are hosts, and all others would be unsynced.

**The mean does not jump.** It is a time scale of its own, a position r on the internal line that goes on at the mean
rate of its members and is drawn to the mean of their offsets with a time constant, slowly:

.. math:: \dot r = \overline{g} + \mathrm{clip}\left((\overline{x} - r) / \tau, \pm L\right)

A clock that joins, leaves or steps thus bends it by L at most. What is published relative to it is exact for what it is
used for, differences of clocks and durations up to L; the distance to the plain mean of the moment is `Scale.gap_ns`.

Signs as everywhere: offset = that clock − reference. With :math:`x_i` a clock's position on the internal line, r the
reference's and v variances that are independent of each other (weights w: 1 for a single reference, 1/n for a mean):

.. math::

    \mathrm{offset}_i = x_i - r, \quad \mathrm{skew}_i = g_i - \dot r, \quad
    \mathrm{Var}_i = v_i (1 - 2 w_i) + \sum_j w_j^2 v_j
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.errors import ConfigError
from sdfstream.records.hostclock import MEAN, UTC
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.stats import Counters

HOLD_NS: Final = 10 * NS_PER_S
"""So long another clock must have been the better choice. Shorter: an agent's restart moves all offsets, twice."""
SLEW_PPB: Final = 1_000.0
"""L. Larger: durations on reference time suffer from clocks that come and go; smaller: the mean lags behind them."""
_TAU_S: Final = 10.0
_NEAR_NS: Final = NS_PER_S
"""A clock further from the rest (on TAI, or never set) does not count in the mean, or it would be nobody's time."""
_PAST: Final = 64
"""Ticks whose state is remembered, for smoothed rows: they lie 4 s back at most."""


def check(setting: str) -> tuple[str, ...]:
    """The clock ids of a setting; none for the default rule and for the mean.

    Raises
    ------
    ConfigError
        A name is empty, stands twice, or cannot be a reference.
    """
    if setting in ("", MEAN):
        return ()
    names = tuple(name.strip() for name in setting.split(","))
    if "" in names:
        raise ConfigError(f"sync.reference must be clock ids with commas between, not {setting!r}.")
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f"sync.reference names {name} twice.")
        if name == MEAN:
            raise ConfigError("sync.reference: mean stands for all clocks and goes with no other name.")
        if name == UTC:
            raise ConfigError("sync.reference: utc is no clock of the mesh; name disciplined hosts in sync.utc_clocks.")
    return names


class Named:
    """Numbers of clocks known by name, without a search through all names at every tick."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = tuple(wanted)
        self._number: dict[str, int] = {}
        self._names: Sequence[str] = ()
        self._searched = -1

    def among(self, names: Sequence[str]) -> list[int]:
        """Numbers of those that are there, in the order wanted.

        They are looked up anew when `names` is another list or has another length: names may be added to a list, but
        a list whose names were numbered afresh must be a new one.
        """
        if names is not self._names or len(names) != self._searched:
            self._number = {name: names.index(name) for name in self.wanted if name in names}
            self._names, self._searched = names, len(names)
        return [self._number[name] for name in self.wanted if name in self._number]


class Candidates(NamedTuple):
    """What is known of each clock, by number; all (clocks,)."""

    rank: Int64s
    """Index in the sorted names."""
    label: Int64s
    """Component."""
    alive: Bools
    """With recent samples."""
    known: Bools
    """Bounded."""
    tied: Bools
    """It was in the reference's component at some time."""


class Ensemble(NamedTuple):
    """The clocks at one instant of internal time, by number: position = `base_ns` + `offset_ns` (+ the instant)."""

    at_ns: float
    base_ns: Int64s
    offset_ns: Float64s
    skew_ppb: Float64s


class ReferenceState(NamedTuple):
    """Where the reference stands at some instant of internal time, as if it were a clock."""

    at_ns: float
    base_ns: int
    offset_ns: float
    skew_ppb: float
    """ppb."""


class Scale(NamedTuple):
    """The reference of one tick."""

    clock: int
    """Its number; for a mean, of a clock in its component."""
    weights: Float64s
    """(clocks,) summing to 1."""
    gap_ns: float = 0.0
    """Mean of the members less the reference; 0 for a single clock."""

    def variance(self, independent: Float64s) -> Float64s:
        """Variance of each clock's difference to the reference, ns²; 0 for a single reference itself.

        `independent`: variances that add up to that of a difference, for the first clocks.
        """
        w = self.weights[: independent.size]
        own = np.where(w > 0.0, independent, 0.0)
        result: Float64s = np.maximum(independent * (1.0 - 2.0 * w) + float((w**2 * own).sum()), 0.0)
        return result


class Reference:
    """Chooses the reference each tick, and knows where it is.

    Parameters
    ----------
    setting : str
        ``sync.reference``; checked by `check`.
    counters : Counters
        Gets ``reference-changed`` and ``reference-fell-back`` (none of the named clocks lives).
    """

    def __init__(self, setting: str, counters: Counters) -> None:
        self._wanted = Named(check(setting))
        self._mean = _Mean(counters) if setting == MEAN else None
        self._counters = counters
        self._name: str | None = None
        self._clock = 0
        """Its number, as of the last `choose`."""
        self._members: Int64s = np.empty(0, dtype=np.int64)
        """Of the mean; none: it is where the clock is."""
        self._gap_ns = 0.0
        self._began_at: float | None = None
        self._better_since: float | None = None
        self._fell_back = False

    @property
    def clock(self) -> int:
        """Number of the reference; for a mean, of a clock in its component; 0 before there is one."""
        return self._clock

    def choose(self, names: Sequence[str], clocks: Candidates, ensemble: Ensemble) -> Scale:
        """Choose the reference of this tick by the rule, and advance it.

        Parameters
        ----------
        names : sequence of str
            Clock ids by number; numbered afresh only in a new list.
        clocks : Candidates
        ensemble : Ensemble
            Now.
        """
        self._resolve(names)
        if clocks.alive.any():
            choice = self._rule(names, clocks, ensemble.at_ns)
            self._settle(choice, names[choice], ensemble.at_ns)
        if self._mean is not None and self._name is not None:
            mine = clocks.label == clocks.label[self._clock]
            members = np.flatnonzero(clocks.alive & clocks.known & mine)
            self._members, self._gap_ns = self._mean.follow(members, ensemble, young=self._young(ensemble.at_ns))
        return self.scale(len(names))

    def scale(self, clocks: int) -> Scale:
        """The reference as of the last `choose`, among so many clocks."""
        weights = np.zeros(clocks)
        if self._members.size:
            weights[self._members] = 1.0 / self._members.size
        else:
            weights[self.clock : self.clock + 1] = 1.0
        return Scale(self.clock, weights, self._gap_ns)

    def state_at(self, ensemble: Ensemble) -> ReferenceState:
        """Where the reference stands at the bank's instant, which may lie in the past (smoothed states).

        A bank of the past may hold fewer clocks than there are now, but must hold the reference (`clock`).
        """
        if self._mean is not None and self._mean.begun:
            return self._mean.state_at(ensemble.at_ns)
        c = self.clock
        return ReferenceState(
            ensemble.at_ns, int(ensemble.base_ns[c]), float(ensemble.offset_ns[c]), float(ensemble.skew_ppb[c])
        )

    def keep(self, retained: Bools) -> None:
        """Clocks were forgotten: those not `retained`; the others' numbers close up (until the next `choose`)."""
        self._members = (np.cumsum(retained) - 1)[self._members[retained[self._members]]]
        self._clock = int(retained[: self._clock].sum()) if retained[self._clock] else 0

    def _resolve(self, names: Sequence[str]) -> None:
        """The reference's number among the clocks of now; a forgotten clock is the reference no longer."""
        if self._name is None or (self._clock < len(names) and names[self._clock] == self._name):
            return
        if self._name in names:
            self._clock = names.index(self._name)
        else:
            self._name, self._clock = None, 0

    def _young(self, at_ns: float) -> bool:
        return self._began_at is None or at_ns - self._began_at < HOLD_NS

    def _rule(self, names: Sequence[str], clocks: Candidates, at_ns: float) -> int:
        """The clock that the setting chooses, of those that live."""
        rank, label, alive, _, tied = clocks
        if self._wanted.wanted:
            found = next((i for i in self._wanted.among(names) if alive[i]), None)
            fallen = found is None and not self._young(at_ns)
            if fallen and not self._fell_back:
                self._counters.add("reference-fell-back")
            self._fell_back = fallen
            if found is not None:
                return found
        size = np.bincount(label[alive], minlength=label.size)[label]
        if not self._young(at_ns) and (alive & tied).any():
            alive = alive & tied
        largest = alive & (size == size[alive].max())
        here = largest & (label == label[self._clock])
        # of two as large as each other that of the present reference stays it
        candidates = np.flatnonzero(here if self._name is not None and here.any() else largest)
        return int(candidates[np.argmin(rank[candidates])])

    def _settle(self, choice: int, name: str, at_ns: float) -> None:
        """Take the choice once another than the present reference has been better for long enough."""
        if self._began_at is None:
            self._began_at, self._clock, self._name = at_ns, choice, name
        if name == self._name:
            self._better_since = None
            return
        if self._better_since is None:
            self._better_since = at_ns
        if self._name is None or self._young(at_ns) or at_ns - self._better_since >= HOLD_NS:
            self._clock, self._name, self._better_since = choice, name, None
            if self._mean is None:
                self._counters.add("reference-changed")

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "name": self._name,
            "clock": self._clock,
            "members": self._members,
            "gap_ns": self._gap_ns,
            "began_at": self._began_at,
            "better_since": self._better_since,
            "fell_back": self._fell_back,
            "mean": self._mean.snapshot() if self._mean is not None else None,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `snapshot` gave, made under the same setting."""
        self._name = state["name"]
        self._clock = state["clock"]
        self._members = state["members"]
        self._gap_ns = state["gap_ns"]
        self._began_at = state["began_at"]
        self._better_since = state["better_since"]
        self._fell_back = state["fell_back"]
        if self._mean is not None:
            self._mean.restore(state["mean"])


class _Mean:
    """A time scale that goes at its members' mean rate, drawn to the mean of their offsets."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._base_ns = 0
        self._rate = 0.0
        """Of the members, ppb."""
        self._past: list[tuple[float, float, float]] = []
        """(instant, position − base, rate in ppb) of the last ticks: from each one on in a straight line."""
        self._alone_since: float | None = None

    @property
    def begun(self) -> bool:
        """Whether it is anywhere."""
        return bool(self._past)

    def state_at(self, at_ns: float) -> ReferenceState:
        """Where it stands, or stood."""
        since = next((p for p in reversed(self._past) if p[0] <= at_ns), self._past[0])
        return ReferenceState(at_ns, self._base_ns, since[1] + since[2] * (at_ns - since[0]) / NS_PER_S, since[2])

    def follow(self, clocks: Int64s, ensemble: Ensemble, *, young: bool) -> tuple[Int64s, float]:
        """Go on to the bank's instant; the members of now among `clocks`, and how far ahead their mean is, ns."""
        if not self._past:
            if not clocks.size:
                return clocks, 0.0
            self._begin(clocks, ensemble)
        position = self.state_at(ensemble.at_ns).offset_ns
        off = (ensemble.base_ns[clocks] - self._base_ns) + (ensemble.offset_ns[clocks] - position)
        near = np.abs(off) <= _NEAR_NS
        if clocks.size and not near.any():
            if self._alone_for(ensemble.at_ns) >= HOLD_NS:
                self._counters.add("reference-changed")
                self._past, self._alone_since = [], None
                return self.follow(clocks, ensemble, young=young)
        else:
            self._alone_since = None
        clocks, gap = clocks[near], 0.0
        if clocks.size:
            gap, self._rate = float(off[near].mean()), float(ensemble.skew_ppb[clocks].mean())
        if young:
            position, gap = position + gap, 0.0
        pull = float(np.clip(gap / _TAU_S, -SLEW_PPB, SLEW_PPB))
        self._past = [*self._past[1 - _PAST :], (ensemble.at_ns, position, self._rate + pull)]
        return clocks, gap

    def _begin(self, clocks: Int64s, ensemble: Ensemble) -> None:
        """At the clock in the middle: its whole nanoseconds are the base, so that no float is large."""
        middle = clocks[np.argsort(ensemble.base_ns[clocks], kind="stable")[clocks.size // 2]]
        self._base_ns = int(ensemble.base_ns[middle])
        self._past = [(ensemble.at_ns, float(ensemble.offset_ns[middle]), float(ensemble.skew_ppb[middle]))]

    def _alone_for(self, at_ns: float) -> float:
        """How long there have been clocks, but none near."""
        if self._alone_since is None:
            self._alone_since = at_ns
        return at_ns - self._alone_since

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "base_ns": self._base_ns,
            "rate": self._rate,
            "past": [list(p) for p in self._past],
            "alone_since": self._alone_since,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._base_ns = state["base_ns"]
        self._rate = state["rate"]
        self._past = [(at_ns, position, rate) for at_ns, position, rate in state["past"]]
        self._alone_since = state["alone_since"]
