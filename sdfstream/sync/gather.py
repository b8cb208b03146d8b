"""The mesh's side of the edges: the last row of every directed clock pair.

A tick uses the rows of that tick. A pair whose row has not come (its process is late, or down) is not removed at once,
or the mesh would fall apart and grow together again with every late message: its last row goes on for two seconds,
moved along by the clocks' rates, with fading weight. Then it is gone, and its clocks hold over unless others
have sessions with them. Nothing waits for a row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync.clocks import MeshClocks
from sdfstream.sync.meshwork import TickReport
from sdfstream.sync.reduce import ReducedEdges, empty, restored
from sdfstream.sync.wire import EdgeRows

KEEP_NS: Final = 2 * NS_PER_S
_FADE_NS: Final = NS_PER_S / 2
"""A row that was not renewed counts for 1/e after so long."""
_SPARE_NAMES: Final = 1024


class Gather:
    """Rows of all `sync-edge` processes, in numbers of its own for the clocks."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._number: dict[str, int] = {}
        self._base_ns: Int64s = np.empty(0, dtype=np.int64)
        self._based: Bools = np.empty(0, dtype=np.bool_)
        self._drifted: Float64s = np.empty((2, 0))
        self._arrived: list[tuple[Int64s, ReducedEdges]] = []
        """(tick of each row, rows) since the last tick."""
        self._latest: tuple[Int64s, ReducedEdges] = np.empty(0, dtype=np.int64), empty()
        self._lags: list[tuple[int, float]] = []
        self._known: tuple[list[str], int, Int64s] | None = None

    def take(self, rows: EdgeRows) -> None:
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
            self._based = np.append(self._based, np.zeros(more, dtype=np.bool_))
            self._drifted = np.append(self._drifted, np.zeros((2, more)), axis=1)
        given = of[rows.based]
        base_ns = rows.base_ns[rows.based]
        self._base_ns[given] = np.where(self._based[given], np.maximum(self._base_ns[given], base_ns), base_ns)
        self._based[given] = True
        self._drifted[:, of] = rows.drifted
        e = rows.edges
        self._arrived.append((rows.tick_at_ns, e._replace(src=of[e.src], dst=of[e.dst])))
        if rows.lag_ns < np.inf:
            self._lags.append((int(rows.tick_at_ns.max()), rows.lag_ns))

    def report(self, at_ns: int, clocks: MeshClocks) -> TickReport:
        """What is known about tick `at_ns`; `clocks` are the mesh's, as of the tick before."""
        lag = min((lag for tick, lag in self._lags if tick == at_ns), default=np.inf)
        self._lags = [(tick, lag) for tick, lag in self._lags if tick > at_ns]
        tick_at_ns, e = self._newest(at_ns)
        self._latest = tick_at_ns, e
        of = self._numbers(clocks)
        new_bases_ns = self._new_bases_ns(clocks, of)
        drifted = {name: tuple(self._drifted[:, self._number[name]].tolist()) for name in new_bases_ns}
        if e.src.size and tick_at_ns.min() < at_ns:
            e = _carried(tick_at_ns, e, at_ns, of, clocks)
        return TickReport(self._names, e, new_bases_ns, lag, drifted)

    def _newest(self, at_ns: int) -> tuple[Int64s, ReducedEdges]:
        """The newest row of each pair, not after `at_ns`; what came for later ticks waits."""
        # what came last first: then, as a rule, the newest row of a pair is the first
        pieces, self._arrived = [*reversed(self._arrived), self._latest], []
        tick_at_ns = np.concatenate([p[0] for p in pieces])
        e = ReducedEdges._make(map(np.concatenate, zip(*(p[1] for p in pieces), strict=True)))
        later = tick_at_ns > at_ns
        if later.any():
            self._arrived = [(tick_at_ns[later], ReducedEdges._make(column[later] for column in e))]
        use = np.flatnonzero(~later & (tick_at_ns > at_ns - KEEP_NS))
        key = (e.src[use] << 32) | e.dst[use]
        order = np.argsort(key, kind="stable")
        newer = (key[order][1:] == key[order][:-1]) & (tick_at_ns[use][order][1:] >= tick_at_ns[use][order][:-1])
        if newer.any():
            # a pair that moved between processes is reported by both: the one with recent exchanges counts
            order = np.lexsort((-e.weight[use], ~e.recent[use], -tick_at_ns[use], key))
        use, key = use[order], key[order]
        first = np.ones(use.size, dtype=np.bool_)
        first[1:] = key[1:] != key[:-1]
        use = use[first]
        return tick_at_ns[use], ReducedEdges._make(column[use] for column in e)

    def _numbers(self, clocks: MeshClocks) -> Int64s:
        """The mesh's number of each name here; −1: none."""
        if self._known is None or self._known[0] is not clocks.names or self._known[1] != len(self._names):
            number = {name: k for k, name in enumerate(clocks.names)}
            of = np.array([number.get(name, -1) for name in self._names], dtype=np.int64)
            self._known = clocks.names, len(self._names), of
        return self._known[2]

    def _new_bases_ns(self, clocks: MeshClocks, of: Int64s) -> dict[str, int]:
        """Bases of clocks that the mesh does not know, or not well enough."""
        based = np.zeros(of.size, dtype=np.bool_)
        based[of >= 0] = clocks.estimates.table["based"][of[of >= 0]]
        used = np.zeros(of.size, dtype=np.bool_)
        used[self._latest[1].src] = used[self._latest[1].dst] = True
        fresh = np.flatnonzero(self._based & used & ~based)
        return {self._names[k]: int(self._base_ns[k]) for k in fresh.tolist()}

    def sweep(self) -> None:
        """Forget names that no row uses, once they are many."""
        used = np.zeros(len(self._names), dtype=np.bool_)
        for _, e in (self._latest, *self._arrived):
            used[e.src] = used[e.dst] = True
        if used.sum() * 2 + _SPARE_NAMES > used.size:
            return
        number = np.cumsum(used) - 1
        self._names = [name for name, used_here in zip(self._names, used.tolist(), strict=True) if used_here]
        self._number = {name: k for k, name in enumerate(self._names)}
        self._base_ns, self._based, self._known = self._base_ns[used], self._based[used], None
        self._drifted = self._drifted[:, used]
        self._latest, *self._arrived = (
            (tick_at_ns, e._replace(src=number[e.src], dst=number[e.dst]))
            for tick_at_ns, e in (self._latest, *self._arrived)
        )

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "names": self._names,
            "base_ns": self._base_ns,
            "based": self._based,
            "drifted": self._drifted,
            "came": [[tick_at_ns, list(e)] for tick_at_ns, e in self._arrived],
            "latest": [self._latest[0], list(self._latest[1])],
            "lags": [list(pair) for pair in self._lags],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._names = list(state["names"])
        self._number = {name: k for k, name in enumerate(self._names)}
        self._base_ns, self._based = state["base_ns"], state["based"]
        self._drifted = state.get("drifted", np.zeros((2, len(self._names))))
        self._arrived = [(tick_at_ns, restored(e)) for tick_at_ns, e in state["came"]]
        self._latest = state["latest"][0], restored(state["latest"][1])
        self._lags = [(int(tick), float(lag)) for tick, lag in state["lags"]]
        self._known = None


def _carried(tick_at_ns: Int64s, e: ReducedEdges, at_ns: int, of: Int64s, clocks: MeshClocks) -> ReducedEdges:
    """Older rows moved along to `at_ns` by the clocks' rates, with less weight; nothing of them is news."""
    age_ns = (at_ns - tick_at_ns).astype(np.float64)
    b = clocks.estimates.table
    rate: Float64s = np.append(b["skew_ppb"] - b["drifted_ppb"], 0.0)
    run = (rate[of[e.dst]] - rate[of[e.src]]) * (age_ns / NS_PER_S)
    left = np.where(age_ns > 0.0, np.exp(-age_ns / _FADE_NS), 1.0)
    now = age_ns == 0.0
    faded = {
        name: getattr(e, name) * left for name in ("weight", "skew_weight", "info_offset", "info_cross", "info_skew")
    }
    news = ("blocks", "jumped", "step_ns", "surprise_ns2", "breached", "breach_ns2")
    silent = {name: np.where(now, getattr(e, name), 0.0) for name in news}
    return e._replace(offset_ns=e.offset_ns + np.where(now, 0.0, run), **faded, **silent)
