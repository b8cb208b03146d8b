"""Bus time: the ticks at which sync does its work, and how far behind the bus the evidence is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from sdfstream.numeric.group import runs
from sdfstream.records.slices import SLICE_NS, start_of_slice
from sdfstream.records.units import NS_PER_MS, NS_PER_S, TICK_NS, Bools, Float64s, Int64s
from sdfstream.stats import Counters

LONGEST_GAP_NS: Final = 60 * NS_PER_S
"""Clocks carried on without evidence for longer are not worth carrying on, and bus time that jumped so far may not be
the hosts' time at all: sync begins anew."""


class Ticks:
    """Every 100 ms boundary after the first message, once, in order; a jump over very many is taken in one stride."""

    def __init__(self, most: int, counters: Counters) -> None:
        self._most = most
        self._counters = counters
        self.next: int | None = None
        """The next boundary; None before `begin`."""

    def begin(self, bus_at_ns: int) -> None:
        """The first message is of this instant."""
        self.next = (bus_at_ns // TICK_NS + 1) * TICK_NS

    def upto(self, now_ns: int) -> Iterator[int]:
        """Boundaries up to `now_ns`."""
        if self.next is None or now_ns < self.next:
            return
        behind = (now_ns - self.next) // TICK_NS - self._most
        if behind > 0:
            self._counters.add("ticks-skipped", n=behind)
            self.next += behind * TICK_NS
        while self.next <= now_ns:
            yield self.next
            self.next += TICK_NS

    def slices(self, after_ns: int, now_ns: int) -> Iterator[tuple[int, bool]]:
        """Ends of slices after `after_ns` up to `now_ns`, in order, and whether a tick is due there.

        Every one of them, whether messages came in it or not, so that nothing depends on who told of the time. Of a
        jump that is taken in one stride those beside the ticks that are left.
        """
        if self.next is None:
            return
        for tick_ns in self.upto(now_ns):
            first_ns = max(start_of_slice(after_ns), tick_ns - TICK_NS) + SLICE_NS
            yield from ((at_ns, False) for at_ns in range(first_ns, tick_ns, SLICE_NS))
            yield tick_ns, True
            after_ns = tick_ns
        yield from ((at_ns, False) for at_ns in range(start_of_slice(after_ns) + SLICE_NS, now_ns + 1, SLICE_NS))


_TICKS: Final = 20
NEAR_NS: Final = 10.0 * NS_PER_S
"""Rows further than this from the present are backlog, or stamps of a clock that jumped."""
NEVER_LATE_NS: Final = 60.0 * NS_PER_S
"""A row further away than this is not late: its clock was set."""
LATE_NS: Final = 100.0 * NS_PER_MS
"""Evidence that lies so far back is late; less is what agents gather for."""
_STRETCHES: Final = 30
"""Stretches of 20 ticks, a minute: what has been the lag for longer is no lateness but how the bus's clock stands."""


class NewestLag:
    """Smallest lag (bus time − corrected t4) of one process's rows of a tick.

    Rows further than `NEAR_NS` from the lag so far are left out: backlog, or a clock that was set. Where most rows of
    20 ticks were left out, it is the lag that is wrong (a backlog that grew was drained faster than the lag follows, or
    the bus's own clock was set): then the median of those rows counts. Else no row would ever be near again.
    """

    def __init__(self) -> None:
        self._least = math.inf
        self._near = 0
        self._away: list[Float64s] = []
        self._wrong_ticks = 0

    def add(self, lag_ns: Float64s, usual_ns: float) -> Bools:
        """Take in the lags of some rows (NaN: unanswered); returns which are near the lag so far, `usual_ns`."""
        away = np.abs(lag_ns - usual_ns)
        near: Bools = away < NEAR_NS
        n = int(np.count_nonzero(near))
        if n:
            self._least = min(self._least, float(lag_ns[near].min()))
            self._near += n
        if n < lag_ns.size:
            late_or_early = lag_ns[(away >= NEAR_NS) & (away < NEVER_LATE_NS)]
            self._away += [late_or_early] if late_or_early.size else []
        return near

    def end_tick(self) -> float:
        """The tick's smallest lag in ns; infinite: no row counts."""
        lag_ns, away = self._least, sum(lags.size for lags in self._away)
        if self._near or away:
            self._wrong_ticks = self._wrong_ticks + 1 if away > self._near else 0
        if self._wrong_ticks >= _TICKS and away:
            lag_ns = float(np.median(np.concatenate(self._away)))
        self._least, self._near, self._away = math.inf, 0, []
        return lag_ns

    def snapshot(self) -> dict[str, Any]:
        """Everything."""
        away = [np.concatenate(self._away)] if self._away else []  # however they were cut into calls
        return {"least": self._least, "near": self._near, "away": away, "wrong_ticks": self._wrong_ticks}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._least, self._near = float(state["least"]), int(state["near"])
        self._away, self._wrong_ticks = list(state["away"]), int(state["wrong_ticks"])


class Lag:
    """Smallest (bus time − corrected t4) over the last 20 ticks that held rows.

    Host clocks may differ from the bus's clock by hours; the smallest lag is what the wire, the agents and the bus
    always take. now = bus time − lag is then a time that some probe has certainly reached. A minimum over two seconds
    follows a bus clock that runs at another rate.
    """

    def __init__(self) -> None:
        self._past: list[float] = []
        self._stretches: list[float] = []
        """Smallest lag of each stretch of 20 ticks with rows; the last one is not over."""
        self._ticks = 0
        """In the last stretch."""
        self._reported: list[float] = []

    def add(self, lag_ns: float) -> None:
        """Take in a process's smallest lag of this tick (`NewestLag`); infinite: it had no rows."""
        if lag_ns < math.inf:
            self._reported.append(lag_ns)

    def end_tick(self) -> None:
        """A tick passes. A lag further than `NEAR_NS` from that so far counts where no process reports a nearer one."""
        reported, self._reported = self._reported, []
        if not reported:
            return
        near = [lag for lag in reported if abs(lag - self.value) < NEAR_NS]
        if self._past and not near:
            self._past = []
        lag_ns = min(near or reported)
        self._past = [*self._past[1 - _TICKS :], lag_ns]
        if self._ticks == 0:
            self._stretches = [*self._stretches[1 - _STRETCHES :], lag_ns]
        else:
            self._stretches[-1] = min(self._stretches[-1], lag_ns)
        self._ticks = (self._ticks + 1) % _TICKS

    @property
    def value(self) -> float:
        """The lag in ns as of the last tick; 0 before anything was seen."""
        return min(self._past, default=0.0)

    @property
    def earliest(self) -> float:
        """The smallest lag of the last minute, ns: by so much evidence is late when nothing is wrong."""
        return min(self._stretches, default=0.0)

    def snapshot(self) -> dict[str, Any]:
        """Everything."""
        return {"past": self._past, "stretches": self._stretches, "ticks": self._ticks, "reported": self._reported}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._past, self._stretches, self._reported = (
            [float(lag) for lag in state[name]] for name in ("past", "stretches", "reported")
        )
        self._ticks = int(state["ticks"])


_STRAGGLERS = 0.01


class Spread:
    """The largest lag that rows usually have: once it has passed, a window will hardly get another row.

    Of every tick the oldest row of all messages, but for the slowest ones with up to a hundredth of the rows (one agent
    of many that is late must not hold up all); of those the largest over the last 20 ticks that held rows. It is as
    long as agents gather and the follow-up takes, whatever their settings.
    """

    def __init__(self) -> None:
        self._past: list[float] = []
        self._seen: list[tuple[float, int]] = []
        """Of this tick's messages: lag of the oldest row, rows."""

    def add(self, lag_ns: Float64s, message: Int64s) -> None:
        """Take in the lags of answered rows; `message`: number of each one's message, ascending."""
        if not lag_ns.size:
            return
        start, rows, _ = runs(message)
        self._seen += zip(np.maximum.reduceat(lag_ns, start).tolist(), rows.tolist(), strict=True)

    def end_tick(self) -> None:
        """A tick passes."""
        if not self._seen:
            return
        slowest = sorted(self._seen, reverse=True)
        spare = _STRAGGLERS * sum(rows for _, rows in slowest)
        usual_ns2 = slowest[0][0]
        for lag_ns, rows in slowest:
            usual_ns2 = lag_ns
            spare -= rows
            if spare < 0:
                break
        self._past = [*self._past[1 - _TICKS :], usual_ns2]
        self._seen = []

    @property
    def value(self) -> float:
        """The lag in ns as of the last tick; infinite until 20 ticks held rows."""
        return max(self._past) if len(self._past) == _TICKS else math.inf

    def snapshot(self) -> dict[str, Any]:
        """Everything."""
        return {"past": self._past, "seen": [list(one) for one in self._seen]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._past = [float(lag) for lag in state["past"]]
        self._seen = [(float(lag), int(rows)) for lag, rows in state["seen"]]


_FEW_LATE_NS: Final = 2.0 * NS_PER_S
"""So long the mesh waits for any process."""
_USUAL_SHARE: Final = 0.5
"""… and longer for those that together report more than this share of the pairs."""


class ReportLateness:
    """How far behind the bus the mesh works when sync is split: as late as reports of a tick usually come.

    Of every tick the latest report, but for those beyond 2 s unless they hold more than half of all rows; at most
    10 s (`NEAR_NS`); of those the largest over the last 20 ticks in which reports came. One process that is late for
    long holds up the others by 2 s at most, and is carried on by its last rows (`gather`).
    """

    def __init__(self) -> None:
        self._past: list[float] = []
        self._seen: list[tuple[float, int]] = []
        """Of this tick's messages: lateness, rows."""

    def add(self, late_ns: float, rows: int) -> None:
        """A message came `late_ns` after the tick that it reports."""
        self._seen.append((late_ns, rows))

    def end_tick(self) -> None:
        """A tick passes."""
        if not self._seen:
            return
        latest = max(late_ns for late_ns, _ in self._seen)
        spare, usual_ns = _USUAL_SHARE * sum(rows for _, rows in self._seen), latest
        for late_ns, rows in sorted(self._seen, reverse=True):
            usual_ns = late_ns
            spare -= rows
            if spare < 0:
                break
        self._past = [*self._past[1 - _TICKS :], max(min(latest, _FEW_LATE_NS), min(usual_ns, NEAR_NS))]
        self._seen = []

    @property
    def ticks(self) -> int:
        """Whole ticks, one at least: so many after its end a tick is worked on."""
        return max(1, math.ceil(max(self._past, default=0.0) / TICK_NS))

    def snapshot(self) -> dict[str, Any]:
        """Everything."""
        return {"past": self._past, "seen": [list(one) for one in self._seen]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._past = [float(late_ns) for late_ns in state["past"]]
        self._seen = [(float(late_ns), int(rows)) for late_ns, rows in state["seen"]]
