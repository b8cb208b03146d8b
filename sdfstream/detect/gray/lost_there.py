"""Probes that were lost on the way there, by the reflector's own number of each answer (RFC 8762 section 4.3).

Between two answers of a session, of which the probes have numbers s < s' and the reflector gave r < r', the reflector
had r' − r − 1 of the s' − s − 1 probes between: their answers were lost, the others on the way there. A stateless
reflector copies the probe's number, so that all of them seem to be answers; what it shows is never a loss on the way
there. Only those are counted, which makes them proof; of a session that counts none nothing is known.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.numeric.bins import RingBins
from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, Bools, Int64s

_WRAP: Final = 1 << 32
_MOST: Final = 8
"""Probes between two answers: of more an outage took some, or their sender was restarted."""
_NONE: Final = -1
BINS, WIDTH_NS = 32, 2 * NS_PER_S


class LostThere:
    """Probes of every session that were lost on the way there, in bins of 2 s."""

    def __init__(self) -> None:
        self.table = Table({"seq": np.int64(_NONE), "number": np.int64(_NONE)})
        """Per session: number of the last answered probe, and the reflector's."""
        self.window = RingBins(BINS, WIDTH_NS, ("there",))

    def ensure(self, sessions: int) -> None:
        """Have a row for every session."""
        self.table.ensure(sessions)
        self.window.ensure(sessions)

    def forget(self, slots: Int64s) -> None:
        """Start anew for these sessions."""
        self.table.reset(slots)
        self.window.reset(slots)

    def take(self, slots: Int64s, seq: Int64s, number: Int64s, known: Bools, at_ns: int) -> None:
        """Take rows of these sessions: number of the probe, the reflector's where it is `known`; bus time."""
        self.window.advance(at_ns)
        slots, seq, number = slots[known], seq[known], number[known]
        if not slots.size:
            return
        order = np.lexsort((seq, slots))
        slots, seq, number = slots[order], seq[order], number[order]
        first = np.append(True, slots[1:] != slots[:-1])
        last = np.append(first[1:], True)
        t = self.table
        seq_before = np.where(first, t["seq"][slots], np.append(_NONE, seq[:-1]))
        number_before = np.where(first, t["number"][slots], np.append(_NONE, number[:-1]))
        t["seq"][slots[last]], t["number"][slots[last]] = seq[last], number[last]
        between = (seq - seq_before) % _WRAP - 1
        answered = (number - number_before) % _WRAP - 1
        there = between - answered
        proven = (seq_before != _NONE) & (between > 0) & (between <= _MOST) & (answered >= 0) & (there > 0)
        self.window.add("there", slots[proven], there[proven])

    def since(self, since_ns: int) -> Int64s:
        """(sessions,) how many were lost there since this bus time, of the last minute."""
        bins = int(self.window.now_bin - since_ns // WIDTH_NS) + 1
        return self.window.recent("there", min(BINS, max(1, bins)))

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"table": self.table.snapshot(), "window": self.window.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.table.restore(state["table"])
        self.window.restore(state["window"])
