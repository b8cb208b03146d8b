"""The mesh's side of the edges: what every part last said of every directed clock pair.

A tick uses the rows of that tick. A pair whose row has not come (its part is late, or down) is not taken out at once,
or the mesh would fall apart and grow together again with every late message: its last row goes on for two seconds,
moved along by the clocks' rates, and counts for less and less. Then it is gone, and its clocks hold over unless others
hear them. Nothing waits for a row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync.clocks import Clocks
from sdfstream.sync.meshwork import Report
from sdfstream.sync.reduce import Edges, empty
from sdfstream.sync.wire import EdgeRows

KEEP_NS: Final = 2 * NS_PER_S
_FADE_NS: Final = NS_PER_S / 2
"""A row that was not renewed counts for 1/e after so long."""
_SPARE_NAMES: Final = 1024


class Gather:
    """Rows of all parts, in numbers of its own for the clocks."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._number: dict[str, int] = {}
        self._base_ns: Int64s = np.empty(0, dtype=np.int64)
        self._heard: Bools = np.empty(0, dtype=np.bool_)
        self._came: list[tuple[Int64s, Edges]] = []
        """(tick of each row, rows) since the last tick."""
        self._kept: tuple[Int64s, Edges] = np.empty(0, dtype=np.int64), empty()
        self._lags: list[tuple[int, float]] = []
        self._known: tuple[list[str], int, Int64s] | None = None

    def put(self, rows: EdgeRows) -> None:
        """Take a message's rows."""
        if not rows.edges.src.size:
            return
        for name in rows.names:
            if name not in self._number:
                self._number[name] = len(self._names)
                self._names.append(name)
        of = np.array([self._number[name] for name in rows.names], dtype=np.int64)
        more = len(self._names) - self._base_ns.size
        if more:
            self._base_ns = np.append(self._base_ns, np.zeros(more, dtype=np.int64))
            self._heard = np.append(self._heard, np.zeros(more, dtype=np.bool_))
        told = of[rows.heard]
        base_ns = rows.base_ns[rows.heard]
        self._base_ns[told] = np.where(self._heard[told], np.maximum(self._base_ns[told], base_ns), base_ns)
        self._heard[told] = True
        e = rows.edges
        self._came.append((rows.tick_at_ns, e._replace(src=of[e.src], dst=of[e.dst])))
        if rows.lag_ns < np.inf:
            self._lags.append((int(rows.tick_at_ns.max()), rows.lag_ns))

    def due(self, at_ns: int, clocks: Clocks) -> Report:
        """What is known about tick `at_ns`; `clocks` are the mesh's, as of the tick before."""
        lag = min((lag for tick, lag in self._lags if tick == at_ns), default=np.inf)
        self._lags = [(tick, lag) for tick, lag in self._lags if tick > at_ns]
        label, e = self._newest(at_ns)
        self._kept = label, e
        of = self._numbers(clocks)
        hello = self._hello(clocks, of)
        if e.src.size and label.min() < at_ns:
            e = _carried(label, e, at_ns, of, clocks)
        return Report(self._names, e, hello, lag)

    def _newest(self, at_ns: int) -> tuple[Int64s, Edges]:
        """The newest row of each pair, not after `at_ns`; what came for later ticks waits."""
        # what came last first: then, as a rule, the newest row of a pair is the first
        parts, self._came = [*reversed(self._came), self._kept], []
        label = np.concatenate([p[0] for p in parts])
        e = Edges._make(map(np.concatenate, zip(*(p[1] for p in parts), strict=True)))
        later = label > at_ns
        if later.any():
            self._came = [(label[later], Edges._make(column[later] for column in e))]
        use = np.flatnonzero(~later & (label > at_ns - KEEP_NS))
        key = (e.src[use] << 32) | e.dst[use]
        order = np.argsort(key, kind="stable")
        newer = (key[order][1:] == key[order][:-1]) & (label[use][order][1:] >= label[use][order][:-1])
        if newer.any():
            # a pair that moved from one part to another is told by both: the one that hears it counts
            order = np.lexsort((-e.weight[use], ~e.heard[use], -label[use], key))
        use, key = use[order], key[order]
        first = np.ones(use.size, dtype=np.bool_)
        first[1:] = key[1:] != key[:-1]
        use = use[first]
        return label[use], Edges._make(column[use] for column in e)

    def _numbers(self, clocks: Clocks) -> Int64s:
        """The mesh's number of each name here; −1: none."""
        if self._known is None or self._known[0] is not clocks.names or self._known[1] != len(self._names):
            number = {name: k for k, name in enumerate(clocks.names)}
            of = np.array([number.get(name, -1) for name in self._names], dtype=np.int64)
            self._known = clocks.names, len(self._names), of
        return self._known[2]

    def _hello(self, clocks: Clocks, of: Int64s) -> dict[str, int]:
        """Bases of clocks that the mesh does not know, or not well enough."""
        based = np.zeros(of.size, dtype=np.bool_)
        based[of >= 0] = clocks.beliefs.table["based"][of[of >= 0]]
        used = np.zeros(of.size, dtype=np.bool_)
        used[self._kept[1].src] = used[self._kept[1].dst] = True
        fresh = np.flatnonzero(self._heard & used & ~based)
        return {self._names[k]: int(self._base_ns[k]) for k in fresh.tolist()}

    def sweep(self) -> None:
        """Forget names that no row uses, once they are many."""
        used = np.zeros(len(self._names), dtype=np.bool_)
        for _, e in (self._kept, *self._came):
            used[e.src] = used[e.dst] = True
        if used.sum() * 2 + _SPARE_NAMES > used.size:
            return
        number = np.cumsum(used) - 1
        self._names = [name for name, kept in zip(self._names, used.tolist(), strict=True) if kept]
        self._number = {name: k for k, name in enumerate(self._names)}
        self._base_ns, self._heard, self._known = self._base_ns[used], self._heard[used], None
        self._kept, *self._came = (
            (label, e._replace(src=number[e.src], dst=number[e.dst])) for label, e in (self._kept, *self._came)
        )

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "names": self._names,
            "base_ns": self._base_ns,
            "heard": self._heard,
            "came": [[label, list(e)] for label, e in self._came],
            "kept": [self._kept[0], list(self._kept[1])],
            "lags": [list(pair) for pair in self._lags],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._names = list(state["names"])
        self._number = {name: k for k, name in enumerate(self._names)}
        self._base_ns, self._heard = state["base_ns"], state["heard"]
        self._came = [(label, Edges(*e)) for label, e in state["came"]]
        self._kept = state["kept"][0], Edges(*state["kept"][1])
        self._lags = [(int(tick), float(lag)) for tick, lag in state["lags"]]
        self._known = None


def _carried(label: Int64s, e: Edges, at_ns: int, of: Int64s, clocks: Clocks) -> Edges:
    """Older rows moved along to `at_ns` by the clocks' rates, with less weight; nothing of them is news."""
    age_ns = (at_ns - label).astype(np.float64)
    rate: Float64s = np.append(clocks.beliefs.table["skew"], 0.0)
    run = (rate[of[e.dst]] - rate[of[e.src]]) * (age_ns / NS_PER_S)
    left = np.where(age_ns > 0.0, np.exp(-age_ns / _FADE_NS), 1.0)
    now = age_ns == 0.0
    faded = {name: getattr(e, name) * left for name in ("weight", "skew_weight", "ixx", "ixg", "igg")}
    silent = {name: np.where(now, getattr(e, name), 0.0) for name in ("blocks", "tripped", "step", "alarm")}
    return e._replace(offset=e.offset + np.where(now, 0.0, run), **faded, **silent)
