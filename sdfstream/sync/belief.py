"""What is believed of every clock: the mesh's state, as the edge work needs it one tick later.

Internal time. Every clock has an integer `base_ns` (near its first stamp minus bus time), so that reading − base lies
near bus time for every clock, however wrong. On that scale x is the clock's offset from the *ensemble*, a free common
gauge; what is published is the difference to the reference clock's x.

The covariance is that clock's *own part*: the variance of the difference of two clocks is the sum of both parts.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.records.units import NS_PER_S, Float64s, Int64s
from sdfstream.sync.reference import Place
from sdfstream.sync.sites import UNKNOWN
from sdfstream.sync.table import Table

COLUMNS: Final[dict[str, tuple[Any, Any]]] = {
    "base_ns": (np.int64, 0),
    "based": (np.bool_, False),
    "offset": (np.float64, 0.0),
    "skew": (np.float64, 0.0),
    "xx": (np.float64, UNKNOWN),
    "xg": (np.float64, 0.0),
    "gg": (np.float64, 0.0),
    "walk": (np.float64, 0.0),
    "phase": (np.float64, 0.0),
    "bound": (np.float64, UNKNOWN),
}
"""offset (ns), skew (ns/s = ppb) and the three covariances of the own part; `walk` and `phase`: random walks of the
frequency (ns²/s³) and of the phase (ns²/s); `bound`: variance behind the published error, ns²."""


class Beliefs:
    """One row per clock, at one instant of internal time `at` (ns since `origin_ns`)."""

    def __init__(self) -> None:
        self.table = Table(COLUMNS)
        self.origin_ns = 0
        self.at = 0.0
        self.solved_at = 0.0
        """Instant of the last tick that the mesh had heard of, where these have been carried forward since."""
        self.lag_ns = 0.0
        """How far the newest evidence is behind the bus (`lag`)."""
        self.reference = 0
        """Number of the reference clock, or of the one by which the reference's component is told."""
        self.place = Place(0.0, 0, 0.0, 0.0)
        """Where the reference stood when the mesh was last solved."""

    @property
    def n(self) -> int:
        """Clocks known."""
        return self.table.n

    @property
    def unbased(self) -> bool:
        """Whether a clock waits for its first stamp to be taken up by the mesh."""
        return not bool(self.table["based"].all())

    def advance(self, at: float) -> None:
        """Predict every clock forward to `at`."""
        dt = (at - self.at) / NS_PER_S
        self.at = at
        if dt <= 0.0:
            return
        t = self.table
        walk, phase, xg, gg = t["walk"], t["phase"], t["xg"].copy(), t["gg"].copy()
        t["offset"] += t["skew"] * dt
        grown = (2.0 * xg + gg * dt) * dt + phase * dt + walk * (dt**3 / 3.0)
        t["xx"] = np.minimum(t["xx"] + grown, UNKNOWN)
        t["xg"] = xg + gg * dt + walk * (dt * dt / 2.0)
        t["gg"] = gg + walk * dt

    def pair(self, src: Int64s, dst: Int64s) -> tuple[Float64s, Float64s]:
        """Predicted clock difference dst − src, and its variance, ns and ns²."""
        t = self.table
        return t["offset"][dst] - t["offset"][src], np.minimum(t["xx"][src] + t["xx"][dst], UNKNOWN)

    def both(self, name: str, src: Int64s, dst: Int64s) -> Float64s:
        """Sum of a variance or walk over both clocks of each session."""
        column = self.table[name]
        result: Float64s = column[src] + column[dst]
        return result

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "table": self.table.state(),
            "origin_ns": self.origin_ns,
            "at": self.at,
            "solved_at": self.solved_at,
            "lag_ns": self.lag_ns,
            "reference": self.reference,
            "place": list(self.place),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.table.load(state["table"])
        self.origin_ns, self.at = int(state["origin_ns"]), float(state["at"])
        self.solved_at = float(state["solved_at"])
        self.lag_ns, self.reference = float(state["lag_ns"]), int(state["reference"])
        self.place = Place(*state["place"])


class Told:
    """Beliefs of named clocks, as the edge work takes them up."""

    def __init__(self, names: list[str], beliefs: Beliefs) -> None:
        self.names = names
        self.beliefs = beliefs

    @property
    def n(self) -> int:
        """Clocks known."""
        return len(self.names)

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {"names": self.names, "beliefs": self.beliefs.state()}

    @classmethod
    def of(cls, state: dict[str, Any]) -> Told:
        """What `state` gave."""
        beliefs = Beliefs()
        beliefs.load(state["beliefs"])
        return cls(list(state["names"]), beliefs)
