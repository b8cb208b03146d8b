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

from sdfstream.numeric.graph import Edges, conjugate_gradient
from sdfstream.records.message import Message
from sdfstream.score.clock_sim import Session, mesh, seeded
from sdfstream.sync import SyncStage
from sdfstream.sync.blocks import blocks

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
    roster = stage._line._hosts._roster
    width = sum(a.nbytes for a in roster.sessions.state().values()) / roster.sessions.n
    directory = roster.registry.sessions
    width += roster._seen.state(roster.sessions.n).nbytes / roster.sessions.n
    width += (3 * directory.keys.nbytes + directory._guess.nbytes) / roster.sessions.n
    return {
        "rows_per_message": rows // (len(messages) - half),
        "exchanges_per_cpu_s": sorted(rates),
        "bytes_per_session": round(width),
    }


def _blocks(rows: int, sessions: int) -> dict[str, Any]:
    g = seeded(1)
    session = np.sort(g.integers(0, sessions, rows))
    at, fwd, rev = g.uniform(0, 1e8, rows), g.exponential(1e3, rows), g.exponential(1e3, rows)
    level, third = np.full(sessions, 1e3), np.zeros(sessions, dtype=np.bool_)
    mixed = g.permutation(rows)
    result = {}
    for name, order in (("sorted", np.arange(rows)), ("mixed", mixed)):
        columns = [c[order] for c in (session, at, fwd, rev)]
        best = np.inf
        for _ in range(20):
            began = time.process_time()
            for _ in range(50):
                blocks(*columns, level, third)
            best = min(best, (time.process_time() - began) / 50)
        result[f"block_points_per_cpu_s_{name}"] = round(2 * rows / best)
    return result


def _solve(clocks: int, neighbours: int) -> dict[str, Any]:
    g = seeded(1)
    a = np.repeat(np.arange(clocks), neighbours // 2)
    b = (a + 1 + g.integers(0, clocks - 1, a.size)) % clocks
    truth = g.standard_normal(clocks) * 1e3
    precision = np.full(a.size, 1.0 / 400.0)
    prior = np.full(clocks, 1e-6)
    z = truth[b] - truth[a] + 20.0 * g.standard_normal(a.size)

    def right(shift: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.bincount(b, shift, clocks) - np.bincount(a, shift, clocks)

    x = conjugate_gradient(Edges(a, b, precision, precision * z), prior, right(precision * z))
    z = z + 5.0 * g.standard_normal(a.size)
    began = time.perf_counter()
    conjugate_gradient(Edges(a, b, precision, precision * z), prior, right(precision * z), start=x)
    return {"solve_clocks": clocks, "solve_edges": int(a.size), "solve_warm_s": round(time.perf_counter() - began, 3)}


if __name__ == "__main__":
    sys.exit(main())
