"""Speed and memory of sync: ``python -m tests.bench.clock_speed``; exchanges per second of CPU time, bytes a session.

A mesh of 64 clocks of degree 10, four paths an edge, 64 exchanges/s, in messages of about 8,000 rows; and the network
step alone on 100,000 clocks with ten neighbours each, warm.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.numeric.graph import components
from sdfstream.records.message import Message
from sdfstream.score.clock_sim import Session, mesh, seeded
from sdfstream.sync import SyncStage
from sdfstream.sync.reduce import Edges
from sdfstream.sync.solve import solve

_ROWS = 8_000


def main() -> int:
    result = {**_replay(16.0), **_solve(100_000, 10)}
    print(json.dumps(result))
    return 0


def _replay(seconds: float) -> dict[str, Any]:
    world = mesh(64, 10, "B", 64, 1)
    world.sessions = [Session(s.src, s.dst, 64, s.forward, path=49152 + k) for s in world.sessions for k in range(4)]
    messages, waiting = [], []
    for m in world.messages(seconds):
        waiting.append(m)
        if sum(w.rows for w in waiting) >= _ROWS:
            table = pa.Table.from_batches([w.body for w in waiting]).unify_dictionaries().combine_chunks()
            messages.append(Message(m.topic, "all", table.to_batches()[0], m.bus_at_ns, len(messages)))
            waiting = []
    stage = SyncStage()
    # while sessions are young they are looked at every tick; what counts in the long run is the second half
    half = len(messages) // 2
    for m in messages[:half]:
        stage.step([m], m.bus_at_ns)
    rows = sum(m.rows for m in messages[half:])
    began = time.process_time()
    for m in messages[half:]:
        stage.step([m], m.bus_at_ns)
    cpu = time.process_time() - began
    sessions = stage._line._hosts._roster.sessions
    width = sum(a.nbytes for a in sessions.state().values()) / sessions.n
    return {
        "rows_per_message": rows // (len(messages) - half),
        "exchanges_per_cpu_s": round(rows / cpu),
        "bytes_per_session": round(width + 512),
    }


def _solve(clocks: int, neighbours: int) -> dict[str, Any]:
    """The network step (offsets and rates) from the solution of the tick before, on edges moved by fresh noise."""
    g = seeded(1)
    src = np.repeat(np.arange(clocks), neighbours // 2)
    dst = (src + 1 + g.integers(0, clocks - 1, src.size)) % clocks
    order = np.lexsort((dst, src))
    src, dst = src[order], dst[order]
    truth, rate = g.standard_normal(clocks) * 1e3, g.standard_normal(clocks) * 10.0
    zero, one = np.zeros(src.size), np.ones(src.size)
    weight = np.exp(g.standard_normal(src.size)) / 400.0
    e = Edges(
        src=src, dst=dst, weight=weight, skew_weight=weight,
        offset=truth[dst] - truth[src] + 20.0 * g.standard_normal(src.size),
        skew=rate[dst] - rate[src] + 20.0 * g.standard_normal(src.size),
        ixx=weight, ixg=zero, igg=weight, square=one, rest=400.0 * one, sessions=4.0 * one, bad=zero, heard=one > 0.0,
        blocks=4.0 * one, tripped=zero, step=zero, alarm=zero,
    )  # fmt: skip
    label = components(clocks, src, dst)
    state = solve(e, truth, rate, np.full(clocks, 80.0), label)
    wall, cpu = [], []
    for _ in range(5):
        e = e._replace(offset=e.offset + 2.0 * g.standard_normal(src.size), skew=e.skew + g.standard_normal(src.size))
        began = time.perf_counter(), time.process_time()
        state = solve(e, state.offset, state.skew, state.xx, label)
        wall.append(time.perf_counter() - began[0])
        cpu.append(time.process_time() - began[1])
    return {
        "solve_clocks": clocks,
        "solve_edges": int(src.size),
        "solve_warm_s": round(float(np.median(wall)), 3),
        "solve_warm_cpu_s": round(float(np.median(cpu)), 3),
    }


if __name__ == "__main__":
    sys.exit(main())
