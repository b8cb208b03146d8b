"""States and windows as record batches of their topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK, OWD
from sdfstream.records.units import Float64s, Int64s
from sdfstream.sync.owd import Closed

STATUSES = ("synced", "holdover", "unsynced", "faulty")
KINDS = ("causal", "smoothed")
CAUSAL, SMOOTHED = 0, 1
_DIRS = ("fwd", "rev")
_HOSTS_PER_BUILD = 32
"""Hosts whose batches are built in one go; they share dictionaries, so more would make messages large."""


def clock_rows(
    names: Sequence[str],
    clock: Int64s,
    at_ns: Int64s,
    offset_ns: Float64s,
    skew_ppb: Float64s,
    err_ns: Float64s,
    n: Int64s,
    status: Int64s,
    kind: int,
) -> pa.RecordBatch:
    """A batch of ``sdf.state.clock.v1``: a row for each of `clock` (into `names`); `status`, `kind`: indices."""
    assert CLOCK.columns is not None
    return columns.build(
        CLOCK.columns,
        {
            "clock": columns.name_column(clock, names),
            "at_ns": at_ns,
            "offset_ns": offset_ns,
            "skew_ppb": skew_ppb,
            "err_ns": err_ns,
            "n": n.astype(np.uint32),
            "status": columns.name_column(status, STATUSES),
            "kind": columns.name_column(np.full(at_ns.size, kind), KINDS),
        },
    )


def owd_outputs(
    closed: Closed,
    excess: Float64s,
    routes: Sequence[tuple[str, str, str]],
    path_keys: Int64s,
    window_ns: int,
) -> list[Output]:
    """One batch of ``sdf.derived.owd.v1`` per sending host, hosts and rows in order of their names."""
    keys = path_keys[closed.path]
    route = keys >> 40
    used = np.unique(route)
    ranked = sorted(used.tolist(), key=lambda r: (host_of(routes[r][0]), routes[r]))
    rank = np.zeros(len(routes), dtype=np.int64)
    rank[ranked] = np.arange(len(ranked))
    order = np.lexsort((closed.dir, keys & 0xFFFFFFFFFF, rank[route]))
    hosts = [host_of(routes[r][0]) for r in ranked]
    first = [i for i in range(len(hosts)) if i == 0 or hosts[i] != hosts[i - 1]]
    cuts = np.searchsorted(rank[route][order], [*first, len(hosts)]).tolist()
    out = []
    for low in range(0, len(first), _HOSTS_PER_BUILD):
        high = min(low + _HOSTS_PER_BUILD, len(first))
        rows = _owd_rows(closed, excess, routes, keys, order[cuts[low] : cuts[high]], window_ns)
        out += [
            Output(OWD.name, hosts[first[i]], rows.slice(cuts[i] - cuts[low], cuts[i + 1] - cuts[i]))
            for i in range(low, high)
        ]
    return out


def _owd_rows(
    c: Closed,
    excess: Float64s,
    routes: Sequence[tuple[str, str, str]],
    keys: Int64s,
    pick: Int64s,
    window_ns: int,
) -> pa.RecordBatch:
    assert OWD.columns is not None
    key = keys[pick]
    used, inverse = np.unique(key >> 40, return_inverse=True)
    names = [_numbered([routes[r][part] for r in used.tolist()]) for part in range(3)]
    parts: list[Any] = [columns.name_column(codes[inverse], dictionary) for codes, dictionary in names]
    rows = pick.size
    return columns.build(
        OWD.columns,
        {
            "at_ns": np.full(rows, c.window * window_ns, dtype=np.int64),
            "window_ns": np.full(rows, window_ns, dtype=np.int64),
            "src": parts[0],
            "dst": parts[1],
            "transport": parts[2],
            "path": (key & 0xFFFFFFFF).astype(np.uint32),
            "dscp": ((key >> 32) & 0xFF).astype(np.uint8),
            "dir": columns.name_column(c.dir[pick], _DIRS),
            "n": c.n[pick].astype(np.uint32),
            "lost": c.lost[pick].astype(np.uint32),
            "ce": c.ce[pick].astype(np.uint32),
            "owd_min_ns": c.low[pick],
            "owd_p50_ns": c.p50[pick],
            "owd_p99_ns": c.p99[pick],
            "owd_max_ns": c.high[pick],
            "excess_p50_ns": excess[pick],
            "err_ns": c.err[pick],
        },
    )


def _numbered(names: list[str]) -> tuple[Int64s, list[str]]:
    """Codes into the distinct names, in order of first appearance."""
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], dtype=np.int64), list(number)
