"""The last half minute of every session's block minima, in two grains, on a scale that outlives corrections.

Fine: one slot per tick for 16 ticks. Coarse: one slot per 16 ticks, which keeps the lowest of them; 16 of those. A
minimum is kept as the raw difference of the two clocks' readings (corrected delay plus or minus the clock difference
that it was corrected with) and the instant it stands for, to be looked at again along any later line.
Whatever line a coarse slot was chosen along, what it holds is a packet that was really there: a bad choice loses
sharpness, never truth.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync.table import Table

FINE: Final = 16
"""Ticks remembered one by one, and ticks in a coarse slot."""
COARSE: Final = 16
"""Coarse slots: 25.6 s. Memory: (16 + 16) slots × 2 directions × (value, instant) = 1,024 bytes a session."""
_CUTS: Final = ((0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 17), (17, 18), (18, 20), (20, 24), (24, 32))
"""Segments of the slots, newest first; window j is segments 0..j."""
WINDOWS: Final = np.array([1, 2, 4, 8, 16, 24, 40, 72, 136, 264])
"""Ticks in each window, on average: the coarse slots start 0 to 15 ticks back and overlap the fine ones by as much."""

OVERLAP: Final = 5
"""The window whose oldest segment, the newest coarse slot, lies partly in the fine ones."""
HALVES: Final = np.array([1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 18.5, 35.0, 68.0, 132.0])
"""Ticks in the oldest segment of each window and in what is newer: where they differ, n of the mean of
:math:`|A - B|`, that is :math:`(a + b)/(a^2 + b^2)` with a and b one over the ticks of each."""


class Floors(NamedTuple):
    """Smallest corrected difference of one direction, each (windows, sessions); +inf where there is none."""

    low: Float64s
    """Of the window."""
    age_s: Float64s
    """How long ago that was, s."""
    older: Float64s
    """Of the window's oldest segment alone, which is about its older half."""


class Ring:
    """Block minima by session; slots are (slot, session) and hold +inf where nothing was heard."""

    def __init__(self) -> None:
        fine = {name: (np.float64, fill) for name, fill in (("fwd", np.inf), ("rev", np.inf), ("at", 0.0))}
        coarse = {n: (np.float64, np.inf if n in ("fwd", "rev") else 0.0) for n in ("fwd", "rev", "fwd_at", "rev_at")}
        self.fine = Table(fine, FINE, tuple(fine))
        self.coarse = Table(coarse, COARSE, tuple(coarse))
        self.ticks = 0
        """Turns so far."""

    def grow(self, sessions: int) -> None:
        """Room for `sessions` more."""
        self.fine.grow(sessions)
        self.coarse.grow(sessions)

    def turn(self, at: float, skew_ppb: Float64s) -> None:
        """Open the slot of a new tick at internal time `at`; after 16, the filled ones go into a coarse slot.

        `skew_ppb`: slope of the predicted clock difference of every session.
        """
        if self.ticks and self.ticks % FINE == 0:
            self._coarsen(skew_ppb)
        self.ticks += 1
        slot = self.ticks % FINE
        for name, empty in (("fwd", np.inf), ("rev", np.inf), ("at", at)):
            self.fine[name][slot] = empty

    def _coarsen(self, skew_ppb: Float64s) -> None:
        """The lowest of the fine slots along the line, per direction."""
        slot = (self.ticks // FINE) % COARSE
        at = self.fine["at"]
        bent = skew_ppb * (at - at[self.ticks % FINE]) / NS_PER_S
        everyone = np.arange(at.shape[1])
        for name, sign in (("fwd", -1.0), ("rev", 1.0)):
            best = np.argmin(self.fine[name] + sign * bent, axis=0)
            self.coarse[name][slot] = self.fine[name][best, everyone]
            self.coarse[f"{name}_at"][slot] = at[best, everyone]

    def put(self, session: Int64s, at: Float64s, fwd: Float64s, rev: Float64s, ahead: Float64s) -> None:
        """Minima of blocks whose mean instant is `at`, corrected with the clock difference `ahead` there, ns."""
        slot = self.ticks % FINE
        self.fine["at"][slot, session] = at
        self.fine["fwd"][slot, session] = fwd + ahead
        self.fine["rev"][slot, session] = rev - ahead

    def floors(self, session: Int64s, at: float, ahead: Float64s, skew_ppb: Float64s) -> tuple[Floors, Floors]:
        """Windowed floors of both directions along the line that is `ahead` at internal time `at`, with its slope."""
        order = (self.ticks - np.arange(FINE)) % FINE
        # the newest coarse slot that is filled
        last = ((self.ticks - 1) // FINE - np.arange(COARSE)) % COARSE
        result = []
        fine_age = (at - self.fine["at"][order[:, None], session]) / NS_PER_S
        for name, sign in (("fwd", -1.0), ("rev", 1.0)):
            coarse_at = self.coarse[f"{name}_at"][last[:, None], session]
            age = np.concatenate([fine_age, (at - coarse_at) / NS_PER_S])
            raw = np.concatenate([self.fine[name][order[:, None], session], self.coarse[name][last[:, None], session]])
            result.append(_windows(raw + sign * (ahead - skew_ppb * age), age))
        return result[0], result[1]

    def recent(self, session: Int64s, ticks: int, ahead: Float64s) -> tuple[Float64s, Float64s]:
        """Smallest difference of the last `ticks` <= 16 ticks of both directions, along a level line."""
        order = (self.ticks - np.arange(ticks)) % FINE
        fwd = self.fine["fwd"][order[:, None], session].min(axis=0) - ahead
        return fwd, self.fine["rev"][order[:, None], session].min(axis=0) + ahead

    def forget(self, session: Int64s, keep: int) -> None:
        """Forget all but the newest `keep` ticks of these sessions."""
        old = (self.ticks - np.arange(keep, FINE)) % FINE
        for name in ("fwd", "rev"):
            self.fine[name][old[:, None], session[None, :]] = np.inf
            self.coarse[name][:, session] = np.inf

    def keep(self, mask: Bools) -> None:
        """Drop the sessions where `mask` is False."""
        self.fine.keep(mask)
        self.coarse.keep(mask)

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {"fine": self.fine.state(), "coarse": self.coarse.state(), "ticks": self.ticks}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.fine.load(state["fine"])
        self.coarse.load(state["coarse"])
        self.ticks = int(state["ticks"])


def _windows(value: Float64s, age: Float64s) -> Floors:
    """Cumulative minima over the segments."""
    everyone = np.arange(value.shape[1])
    low: list[Float64s] = []
    ages: list[Float64s] = []
    older: list[Float64s] = []
    for first, end in _CUTS:
        best = first + np.argmin(value[first:end], axis=0)
        here, when = value[best, everyone], age[best, everyone]
        older.append(here)
        if low:
            lower = low[-1] <= here
            here, when = np.where(lower, low[-1], here), np.where(lower, ages[-1], when)
        low.append(here)
        ages.append(when)
    return Floors(np.stack(low), np.stack(ages), np.stack(older))
