"""Which paths each agent finds silent, and from when on: both ends of every session, all at once."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import Bools, Int64s

ALIVE: Final = 1
SILENT: Final = 2
NAMES: Final = {ALIVE: "alive", SILENT: "silent"}


class StateChanges(NamedTuple):
    """StateChanges of a block: session, its new state, when, and the last packet before."""

    session: Int64s
    state: npt.NDArray[np.int8]
    at_ns: Int64s
    last_ns: Int64s


class Watch:
    """One role of all sessions: when a packet came last, and whether its path is silent."""

    def __init__(self, first_ns: Int64s, limit_ns: Int64s) -> None:
        self.last_ns, self.limit_ns = first_ns.copy(), limit_ns
        self.state = np.full(first_ns.size, ALIVE, np.int8)

    def advance(self, session: Int64s, came_ns: Int64s, came: Bools, until_ns: Int64s, frozen: Bools) -> StateChanges:
        """Take packets of a block, ordered by session, and the end of each session's block.

        `frozen` sessions' agents do not live: nothing is found by them.
        """
        n = self.last_ns.size
        first, last = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
        if session.size:
            begins = np.flatnonzero(np.r_[True, session[1:] != session[:-1]])
            which = session[begins]
            first[which] = np.minimum.reduceat(np.where(came, came_ns, np.iinfo(np.int64).max), begins)
            last[which] = np.maximum.reduceat(np.where(came, came_ns, -1), begins)
        due = self.last_ns + self.limit_ns
        silent = (self.state == ALIVE) & (due < first) & (due <= until_ns) & ~frozen
        back = (silent | (self.state == SILENT)) & (last >= 0) & ~frozen
        s, b = np.flatnonzero(silent), np.flatnonzero(back)
        made = StateChanges(
            np.concatenate([s, b]),
            np.concatenate([np.full(s.size, SILENT, np.int8), np.full(b.size, ALIVE, np.int8)]),
            np.concatenate([due[s], first[b]]),
            np.concatenate([self.last_ns[s], first[b]]),
        )
        self.state[s], self.state[b] = SILENT, ALIVE
        self.last_ns = np.maximum(self.last_ns, last)
        if frozen.any():  # an agent that starts again begins anew
            self.last_ns[frozen] = until_ns[frozen]
            self.state[frozen] = ALIVE
        return made
