"""Speed and memory of sync: ``python -m tests.bench.clock_speed``; exchanges per second of CPU time, bytes a session.

* Replay: a mesh of 64 clocks of degree 10, four paths an edge, 64 exchanges/s (82 k/s in all), in messages of 5,000
  rows or a little more, in which sessions are mixed as agents flush them. The second half of 16 s counts: all that the
  stage does in it, ticks, causal and smoothed rows and windows of delay among it. It is run several times from one
  snapshot.
* Blocks: `sync.blocks.blocks` alone (group, minima, sums of e and e²), rows sorted by session and mixed. A point is a
  delay: two for each exchange.
* Solve: the network step alone on 100,000 clocks with ten neighbours each, warm.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.numeric.graph import components
from sdfstream.records.message import Message
from sdfstream.score.clock.sim import Session, mesh, seeded
from sdfstream.sync import SyncStage
from sdfstream.sync.blocks import blocks
from sdfstream.sync.mesh import solve
from sdfstream.sync.reduce import ReducedEdges

_ROWS = 5_000


def main() -> int:
    result = {**_replay(16.0, 5), **_blocks(8_192, 1_280), **_solve(100_000, 10)}
    result["load"] = os.getloadavg()[0]
    print(json.dumps(result))
    return 0


def _messages(seconds: float) -> list[Message]:
    world = mesh(64, 10, "B", 64, 1)
    world.sessions = [Session(s.src, s.dst, 64, s.forward, path=49152 + k) for s in world.sessions for k in range(4)]
    messages: list[Message] = []
    waiting: list[Message] = []
    for m in world.messages(seconds):
        waiting.append(m)
        if sum(w.rows for w in waiting) >= _ROWS:
            table = pa.Table.from_batches([w.body for w in waiting]).unify_dictionaries().combine_chunks()
            messages.append(Message(m.topic, "all", table.to_batches()[0], m.bus_at_ns, len(messages)))
            waiting = []
    return messages


def _replay(seconds: float, runs: int) -> dict[str, Any]:
    messages = _messages(seconds)
    stage = SyncStage()
    # while sessions are young they are looked at every tick; what counts in the long run is the second half
    half = len(messages) // 2
    for m in messages[:half]:
        stage.step([m], m.bus_at_ns)
    rows = sum(m.rows for m in messages[half:])
    grown, rates = stage.snapshot(), []
    for _ in range(runs):
        stage.restore(grown)
        began = time.process_time()
        for m in messages[half:]:
            stage.step([m], m.bus_at_ns)
        rates.append(round(rows / (time.process_time() - began)))
    roster = stage._hosts._roster
    width = sum(a.nbytes for a in roster.sessions.snapshot().values()) / roster.sessions.rows
    directory = roster.registry.sessions
    width += roster._duplicates.snapshot(roster.sessions.rows).nbytes / roster.sessions.rows
    width += (3 * directory.keys.nbytes + directory._guess.nbytes) / roster.sessions.rows
    return {
        "rows_per_message": rows // (len(messages) - half),
        "exchanges_per_cpu_s": sorted(rates),
        "bytes_per_session": round(width),
    }


def _blocks(rows: int, sessions: int) -> dict[str, Any]:
    g = seeded(1)
    session = np.sort(g.integers(0, sessions, rows))
    at, fwd, rev = g.uniform(0, 1e8, rows), g.exponential(1e3, rows), g.exponential(1e3, rows)
    base_delay_ns, third = np.full(sessions, 1e3), np.zeros(sessions, dtype=np.bool_)
    mixed = g.permutation(rows)
    result = {}
    for name, order in (("sorted", np.arange(rows)), ("mixed", mixed)):
        columns = [c[order] for c in (session, at, fwd, rev)]
        best = np.inf
        for _ in range(20):
            began = time.process_time()
            for _ in range(50):
                blocks(*columns, base_delay_ns, third)
            best = min(best, (time.process_time() - began) / 50)
        result[f"block_points_per_cpu_s_{name}"] = round(2 * rows / best)
    return result


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
    e = ReducedEdges(
        src=src, dst=dst, weight=weight, skew_weight=weight,
        offset_ns=truth[dst] - truth[src] + 20.0 * g.standard_normal(src.size),
        skew_ppb=rate[dst] - rate[src] + 20.0 * g.standard_normal(src.size),
        info_offset=weight, info_cross=zero, info_skew=weight, disagreement_ns2=one, residual_ns2=400.0 * one,
        sessions=4.0 * one, disagreeing=zero, recent=one > 0.0,
        blocks=4.0 * one, jumped=zero, step_ns=zero, surprise_ns2=zero, breached=zero, breach_ns2=zero,
    )  # fmt: skip
    label = components(clocks, src, dst)
    state = solve(e, truth, rate, np.full(clocks, 80.0), label)
    wall, cpu = [], []
    for _ in range(5):
        e = e._replace(
            offset_ns=e.offset_ns + 2.0 * g.standard_normal(src.size), skew_ppb=e.skew_ppb + g.standard_normal(src.size)
        )
        began = time.perf_counter(), time.process_time()
        state = solve(e, state.offset_ns, state.skew_ppb, state.offset_var_ns2, label)
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
