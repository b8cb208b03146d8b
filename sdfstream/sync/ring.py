"""The last block minima of every session, on a scale that outlives corrections of the clocks.

A block's minimum is kept as the raw difference of the two clocks' readings (corrected delay plus or minus the clock
difference that it was corrected with), so that it can be looked at again along any later line of offset and skew.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync.table import Table

BLOCKS: Final = 80
"""Ticks remembered (8 s when nothing is late). Memory: 24 bytes × 80 = 1,920 bytes a session."""


class Ring:
    """Block minima by session, (BLOCKS, sessions) per direction, +inf where a tick had none; and when they were."""

    def __init__(self) -> None:
        columns = {"fwd": (np.float64, np.inf), "rev": (np.float64, np.inf), "at": (np.float64, 0.0)}
        self.table = Table(columns, BLOCKS, tuple(columns))
        self.slot = -1
        """Newest slot."""

    def grow(self, sessions: int) -> None:
        """Room for `sessions` more."""
        self.table.grow(sessions)

    def turn(self, at: float) -> None:
        """Open the slot of a new tick at internal time `at`."""
        self.slot = (self.slot + 1) % BLOCKS
        for name, empty in (("fwd", np.inf), ("rev", np.inf), ("at", at)):
            self.table[name][self.slot] = empty

    def put(self, session: Int64s, at: Float64s, fwd: Float64s, rev: Float64s, ahead: Float64s) -> None:
        """Minima of blocks whose mean instant is `at`, corrected with the clock difference `ahead` there, ns."""
        self.table["at"][self.slot, session] = at
        self.table["fwd"][self.slot, session] = fwd + ahead
        self.table["rev"][self.slot, session] = rev - ahead

    def along(
        self, session: Int64s, at: float, ahead: Float64s, skew_ppb: Float64s
    ) -> tuple[Float64s, Float64s, Float64s]:
        """Ages in s and corrected minima of both directions, newest first, each (BLOCKS, sessions).

        The clock difference is `ahead` at internal time `at` and ran with `skew_ppb` before.
        """
        order = (self.slot - np.arange(BLOCKS)) % BLOCKS
        age_s = (at - self.table["at"][order][:, session]) / NS_PER_S
        line = ahead - skew_ppb * age_s
        return age_s, self.table["fwd"][order][:, session] - line, self.table["rev"][order][:, session] + line

    def forget(self, session: Int64s, keep: int) -> None:
        """Forget all but the newest `keep` blocks of these sessions."""
        old = (self.slot - np.arange(keep, BLOCKS)) % BLOCKS
        for name in ("fwd", "rev"):
            self.table[name][old[:, None], session[None, :]] = np.inf

    def keep(self, mask: Bools) -> None:
        """Drop the sessions where `mask` is False."""
        self.table.keep(mask)

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {"table": self.table.state(), "slot": self.slot}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.table.load(state["table"])
        self.slot = int(state["slot"])
