"""Size of sync in parts: ``python -m tests.bench.clock_scale [SESSIONS]``; memory and CPU time per session and clock.

One `sync-edge` and one `sync-mesh` on simulated exchanges: hosts that probe ten others over ten paths each, one
exchange per session and second, delays 5 µs and an exponential of 200 ns, clocks up to 1 ms and 1 ppm off. Bytes are
those of the real tables, and the growth of the process's resident memory. What is said of 1,000,000 sessions and of
100,000 clocks is the measured figure times the ratio, and is called so; the mesh's own tick is measured at 20,000.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sdfstream.records import columns
from sdfstream.records.message import Message
from sdfstream.records.topics import EDGE, ESTIMATE, PROBE
from sdfstream.records.units import TICK_NS
from sdfstream.sync import SyncEdgeStage, SyncMeshStage
from sdfstream.sync.estimates import ClockEstimates
from sdfstream.sync.reduce import ReducedEdges
from sdfstream.sync.wire import edge_batches
from sdfstream.twin.clock_model import START_NS, seeded

PEERS, PATHS = 10, 10
_SECONDS = 8
_MILLION = 1_000_000


def main() -> int:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    print(json.dumps({**_edge(sessions // (PEERS * PATHS)), **_mesh(20_000, PEERS)}))
    return 0


def _edge(hosts: int) -> dict[str, Any]:
    """Some seconds of all sessions through one edge part and the mesh; figures of the last three."""
    began_rss = _rss()
    edge, mesh = SyncEdgeStage(), SyncMeshStage()
    spent, rows, ticks = {"tick": 0.0, "rows": 0.0, "mesh": 0.0}, 0, 0
    for k, probes in enumerate(_probes(hosts, _SECONDS)):
        at, late = START_NS + (k + 1) * TICK_NS, k >= 10 * (_SECONDS - 3)
        t = [time.process_time()]
        said = edge.step([], at)
        t.append(time.process_time())
        reported = mesh.step([], at)
        reported += mesh.step([Message(o.topic, o.key, o.body, at, k) for o in said if o.topic == EDGE.name], at)
        t.append(time.process_time())
        edge.step([Message(o.topic, o.key, o.body, at, k) for o in reported if o.topic == ESTIMATE.name], at)
        edge.step([probes], probes.bus_at_ns)
        t.append(time.process_time())
        if late:
            for name, cpu in zip(("tick", "mesh", "rows"), np.diff(t).tolist(), strict=True):
                spent[name] += cpu
            rows, ticks = rows + probes.rows, ticks + 1
    table = edge._hosts._roster.sessions
    sessions, pairs = table.rows, len(edge._hosts._roster.registry.pairs)
    grown = _rss() - began_rss
    tick_s = spent["tick"] / ticks
    exact = _bytes(edge)
    return {
        "sessions": sessions,
        "clocks": hosts,
        "bytes_per_session": {name: round(size / sessions, 1) for name, size in exact.items()},
        "bytes_per_session_total": round(sum(exact.values()) / sessions),
        "rss_grown_mb": round(grown / 1e6),
        "rss_per_session_b": round(grown / sessions),
        "pairs": pairs,
        "edge_tick_cpu_s": round(tick_s, 4),
        "edge_rows_per_cpu_s": round(rows / spent["rows"]),
        "mesh_tick_cpu_s": round(spent["mesh"] / ticks, 4),
        "extrapolated_1m_sessions": {
            "rss_gb": round(grown * _MILLION / sessions / 1e9, 2),
            "cores_for_ticks": round(10 * tick_s * _MILLION / sessions, 2),
            "cores_for_rows_at_1_per_s": round(_MILLION * spent["rows"] / rows, 2),
        },
    }


def _bytes(edge: SyncEdgeStage) -> dict[str, int]:
    """What is kept per session, as it is allocated (tables grow by doubling)."""
    roster = edge._hosts._roster
    seen, registry = roster._duplicates, roster.registry
    directories = (registry.sessions, registry.paths)
    return {
        "edge_filters": sum(a.nbytes for a in roster.sessions._columns.values()),
        "paths": sum(a.nbytes for a in roster.paths._columns.values()),
        "seen": seen._marks.nbytes + seen._owner.nbytes,
        "keys": sum(d.keys.nbytes + d._sorted.nbytes + d._slot.nbytes for d in directories),
        "pairs": sum(sys.getsizeof(p) for p in registry.pairs) + sys.getsizeof(registry._pair),
    }


def _probes(hosts: int, seconds: int) -> Iterator[Message]:
    """A message per tick with a tenth of all sessions, one exchange each."""
    assert PROBE.columns is not None
    g = seeded(1)
    src = np.repeat(np.arange(hosts), PEERS * PATHS)
    step = np.tile(np.repeat(np.arange(1, PEERS + 1), PATHS), hosts)
    dst = (src + step * max(hosts // (2 * PEERS), 1) + step) % hosts
    path = np.tile(49152 + np.arange(PATHS), hosts * PEERS)
    off, rate = g.uniform(-1e6, 1e6, hosts), g.uniform(-1e-6, 1e-6, hosts)
    names = [f"h{k:05d}" for k in range(hosts)]
    nics = [f"{name}/r0" for name in names]
    for k in range(10 * seconds):
        mine = np.flatnonzero(np.arange(src.size) % 10 == k % 10)
        a, b, n = src[mine], dst[mine], mine.size
        sent = k * 1e8 + np.sort(g.uniform(0, 9e7, n))
        fwd, rev = (5000.0 + g.exponential(200.0, n) for _ in range(2))

        def read(clock: Any, t: Any) -> Any:
            return START_NS + np.rint(t + off[clock] + rate[clock] * t).astype(np.int64)

        body = columns.build(
            PROBE.columns,
            {
                **{end: columns.name_column(c, nics) for end, c in (("src", a), ("dst", b))},
                **{f"clock_{end}": columns.name_column(c, names) for end, c in (("src", a), ("dst", b))},
                "transport": columns.name_column(np.zeros(n, dtype=np.int64), ["udp"]),
                "path": path[mine].astype(np.uint32),
                "seq": np.full(n, k // 10, dtype=np.uint32),
                "t1_ns": read(a, sent),
                "t2_ns": read(b, sent + fwd),
                "t3_ns": read(b, sent + fwd + 2e4),
                "t4_ns": read(a, sent + fwd + 2e4 + rev),
                **{f"t{i}_kind": np.full(n, 1, dtype=np.uint8) for i in (1, 2, 3, 4)},
                "dscp_sent": np.full(n, 46, dtype=np.uint8),
                "ecn_sent": np.full(n, 2, dtype=np.uint8),
                "size_bytes": np.full(n, 128, dtype=np.uint16),
            },
        )
        yield Message(PROBE.name, "all", body, START_NS + (k + 1) * TICK_NS + 1_000_000, k)


def _mesh(clocks: int, peers: int) -> dict[str, Any]:
    """The mesh stage alone on made-up edges: CPU time of a tick, and bytes per clock and per directed pair."""
    g = seeded(1)
    src = np.repeat(np.arange(clocks), peers)
    dst = (src + 1 + g.integers(0, clocks - 1, src.size)) % clocks
    pair = np.unique((src << 32) | dst)
    src, dst = pair >> 32, pair & 0xFFFFFFFF
    truth, one = 1e3 * g.standard_normal(clocks), np.ones(src.size)
    weight = one / 400.0
    rows = ReducedEdges(
        src, dst, weight, truth[dst] - truth[src], weight, 0.0 * one, weight, 0.0 * one, weight, 4.0 * one, 100.0 * one,
        10.0 * one, 0.0 * one, one > 0.0, 10.0 * one, 0.0 * one, 0.0 * one, 0.0 * one, 0.0 * one, 0.0 * one,
    )  # fmt: skip
    names, bases = [f"h{k:06d}" for k in range(clocks)], np.zeros(clocks, dtype=np.int64)
    stage, sent, spent = SyncMeshStage(), 0, []
    for k in range(12):
        at = START_NS + k * TICK_NS
        e = rows._replace(offset_ns=rows.offset_ns + g.standard_normal(src.size))
        batches = list(edge_batches(at, START_NS, 0.0, names, e, bases, bases == 0, np.zeros((2, len(names)))))
        sent = sum(batch.nbytes for batch in batches)
        t = time.process_time()
        out = stage.step([Message(EDGE.name, "part", batch, at, k) for batch in batches], at)
        spent.append(time.process_time() - t)
    state = stage._mesh.snapshot()
    estimates = sum(o.body.nbytes for o in out if o.topic == ESTIMATE.name)  # type: ignore[union-attr]
    return {
        "mesh_clocks": clocks,
        "mesh_pairs": int(src.size),
        "mesh_own_tick_cpu_s": round(float(np.median(spent[3:])), 4),
        "edge_row_bytes": round(sent / src.size),
        "belief_row_bytes": round(estimates / clocks),
        "state_bytes_per_clock": round(_size(state) / clocks),
        "belief_table_bytes_per_clock": _width(stage._mesh.clocks.estimates),
    }


def _width(b: ClockEstimates) -> int:
    return round(sum(a.nbytes for a in b.table.snapshot().values()) / b.n)


def _size(state: Any) -> int:
    """Bytes of all arrays in a nested state."""
    if isinstance(state, np.ndarray):
        return state.nbytes
    if isinstance(state, dict):
        return sum(_size(value) for value in state.values())
    return sum(_size(value) for value in state) if isinstance(state, list | tuple) else 0


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
