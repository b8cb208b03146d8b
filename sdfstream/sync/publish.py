"""Clock states and closed windows of one-way delay as record batches of their topics."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sdfstream.records import arrow, columns
from sdfstream.records.fabric import host_of
from sdfstream.records.joins import JOINS
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK, OWD
from sdfstream.records.units import Float64s, Int64s

STATUSES = ("synced", "holdover", "unsynced", "faulty")
KINDS = ("causal", "smoothed")
CAUSAL, SMOOTHED = 0, 1


@functools.lru_cache(maxsize=4)
def _dictionary(names: tuple[str, ...]) -> pa.Array:
    """The same names are written at every tick."""
    return arrow.text(names)


class ClockRows(NamedTuple):
    """Published states, one element per row; `clock` is an index into the names."""

    clock: Int64s
    at_ns: Int64s
    offset_ns: Float64s
    skew_ppb: Float64s
    err_ns: Float64s
    n: Int64s
    status: Int64s
    """Index into `STATUSES`."""


def clock_rows(names: Sequence[str], rows: ClockRows, kind: int) -> pa.RecordBatch:
    """A batch of ``sdf.state.clock.v1``; `kind`: index into `KINDS`."""
    assert CLOCK.columns is not None
    return columns.build(
        CLOCK.columns,
        {
            "clock": columns.name_column(rows.clock, _dictionary(tuple(names))),
            "at_ns": rows.at_ns,
            "offset_ns": rows.offset_ns,
            "skew_ppb": rows.skew_ppb,
            "err_ns": rows.err_ns,
            "n": rows.n.astype(np.uint32),
            "status": columns.name_column(rows.status, _dictionary(STATUSES)),
            "kind": columns.name_column(np.full(rows.at_ns.size, kind), _dictionary(KINDS)),
        },
    )


class ClosedWindow(NamedTuple):
    """Figures of one closed window, one element per (path, dir); NaN where there is no delay."""

    window: int
    path: Int64s
    dir: Int64s
    n: Int64s
    lost: Int64s
    ce: Int64s
    min_ns: Float64s
    p50_ns: Float64s
    p99_ns: Float64s
    max_ns: Float64s
    err_ns: Float64s


_DIRS: Final = ("fwd", "rev")
_HOSTS_PER_BUILD: Final = 32
"""Hosts whose batches are built in one go; they share dictionaries, so more would make messages large."""


class _NameColumns(NamedTuple):
    """The naming columns of one build."""

    path_dir: Int64s
    """Path · 2 + direction of each row."""
    columns: dict[str, Any]


class DelayRows:
    """Makes the rows of ``sdf.derived.owd.v1``."""

    def __init__(self) -> None:
        self._keys: Int64s | None = None
        """Of all paths, as the registry had them when `_rank` and `_host` were made; it makes a new array of them
        whenever paths come or go."""
        self._rank = np.empty(0, dtype=np.int64)
        """Each path's rank among all paths."""
        self._host = np.empty(0, dtype=np.int64)
        """Each path's sending host, numbered in order of names."""
        self._hosts: list[str] = []
        self._ends: tuple[tuple[Int64s, pa.Array], ...] = ()
        """Of source, destination and transport: each path's number, and the names by number."""
        self._builds: dict[int, _NameColumns] = {}
        self._ordered: tuple[Int64s, Int64s] | None = None
        """The last window's paths with their directions (path · 2 + direction), and their order."""

    def outputs(
        self,
        closed: ClosedWindow,
        excess: Float64s,
        endpoints: Sequence[tuple[str, str, str]],
        path_keys: Int64s,
        window_ns: int,
    ) -> list[Output]:
        """One batch per sending host, hosts and rows in order of their names."""
        if path_keys is not self._keys:
            self._sort_paths(endpoints, path_keys)
        order = self._order(closed.path * 2 + closed.dir)
        host = self._host[closed.path[order]]
        first = np.flatnonzero(np.diff(host, prepend=-1))
        cuts = [*first.tolist(), host.size]
        hosts = [self._hosts[h] for h in host[first].tolist()]
        out = []
        for low in range(0, len(hosts), _HOSTS_PER_BUILD):
            high = min(low + _HOSTS_PER_BUILD, len(hosts))
            pick = order[cuts[low] : cuts[high]]
            names = self._name_columns(low, closed.path[pick] * 2 + closed.dir[pick])
            rows = _rows(closed, excess, pick, window_ns, names)
            bodies = [rows.slice(cuts[i] - cuts[low], cuts[i + 1] - cuts[i]) for i in range(low, high)]
            JOINS.remember(bodies, rows)
            out += [Output(OWD.name, hosts[low + k], body) for k, body in enumerate(bodies)]
        return out

    def _order(self, path_dir: Int64s) -> Int64s:
        """The order of rows `path_dir`, each of which occurs once; as a rule that of the last window."""
        if self._ordered is None or not np.array_equal(self._ordered[0], path_dir):
            self._ordered = path_dir, np.argsort(self._rank[path_dir >> 1] * 2 + (path_dir & 1))
        return self._ordered[1]

    def _sort_paths(self, endpoints: Sequence[tuple[str, str, str]], path_keys: Int64s) -> None:
        """Put all paths in order: by sending host, route, class and path selector."""
        host = [host_of(ends[0]) for ends in endpoints]
        ranked = sorted(range(len(endpoints)), key=lambda r: (host[r], endpoints[r]))
        rank = np.empty(len(endpoints), dtype=np.int64)
        rank[ranked] = np.arange(len(ranked))
        ends = path_keys >> 40
        self._rank = np.empty(path_keys.size, dtype=np.int64)
        self._rank[np.lexsort((path_keys & 0xFFFFFFFFFF, rank[ends]))] = np.arange(path_keys.size)
        self._hosts = sorted(set(host))
        number = {name: i for i, name in enumerate(self._hosts)}
        self._host = np.array([number[h] for h in host], dtype=np.int64)[ends]
        numbered = (_numbered([names[end] for names in endpoints]) for end in range(3))
        self._ends = tuple((codes[ends], arrow.text(names)) for codes, names in numbered)
        self._keys = path_keys
        self._builds.clear()
        self._ordered = None

    def _name_columns(self, build: int, path_dir: Int64s) -> dict[str, Any]:
        """The naming columns of rows `path_dir`; those of the last window again, when they are the same."""
        known = self._builds.get(build)
        if known is None or not np.array_equal(known.path_dir, path_dir):
            known = self._builds[build] = _NameColumns(path_dir, self._built_names(path_dir))
        return known.columns

    def _built_names(self, path_dir: Int64s) -> dict[str, Any]:
        assert self._keys is not None
        path = path_dir >> 1
        key = self._keys[path]
        src, dst, transport = (_used(codes[path], names) for codes, names in self._ends)
        return {
            "src": src,
            "dst": dst,
            "transport": transport,
            "path": (key & 0xFFFFFFFF).astype(np.uint32),
            "dscp": ((key >> 32) & 0xFF).astype(np.uint8),
            "dir": columns.name_column(path_dir & 1, _DIRS),
        }


def _used(codes: Int64s, names: pa.Array) -> pa.Array:
    """A name column whose dictionary holds only the names in use."""
    used = np.zeros(len(names), dtype=np.bool_)
    used[codes] = True
    if used.all():
        return columns.name_column(codes, names)
    number = np.cumsum(used) - 1
    return columns.name_column(number[codes], names.take(arrow.column(np.flatnonzero(used), pa.int64())))


def _rows(c: ClosedWindow, excess: Float64s, pick: Int64s, window_ns: int, names: dict[str, Any]) -> pa.RecordBatch:
    assert OWD.columns is not None
    return columns.build(
        OWD.columns,
        {
            **names,
            "at_ns": np.full(pick.size, c.window * window_ns, dtype=np.int64),
            "window_ns": np.full(pick.size, window_ns, dtype=np.int64),
            "n": c.n[pick].astype(np.uint32),
            "lost": c.lost[pick].astype(np.uint32),
            "ce": c.ce[pick].astype(np.uint32),
            "owd_min_ns": c.min_ns[pick],
            "owd_p50_ns": c.p50_ns[pick],
            "owd_p99_ns": c.p99_ns[pick],
            "owd_max_ns": c.max_ns[pick],
            "excess_p50_ns": excess[pick],
            "err_ns": c.err_ns[pick],
        },
    )


def _numbered(names: list[str]) -> tuple[Int64s, list[str]]:
    """Codes into the distinct names, in order of first appearance."""
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], dtype=np.int64), list(number)
