"""A queue in one class only is seen by the sessions of that class and by no other.

Every leaf-spine queue of the lab has a class of its own for DSCP 46 (HTB), beside one for all other packets. Each pair
of NICs probes in both classes over the same source ports, thus the same paths. Cross traffic at 1.3 × the class's
rate fills the queue of one class on one direction; from ``sdf.derived.owd.v1``, both classes' excess over their own
floor on exactly the paths that cross it (by the lab's oracle). Then the same with the classes' parts exchanged.
"""

from __future__ import annotations

import asyncio
import time

import numpy as np

from sdfstream.lab import FabricSpec, MeshSpec
from sdfstream.records import columns
from sdfstream.records.message import Message
from sdfstream.records.topics import OWD
from tests.bench.harness import Result, main
from tests.bench.lab_run import LabRun, lab_run

CLASS = 46
SPEC = FabricSpec(hosts=4, rails=1, leaves=2, spines=2, rate_bps=16_000_000, queue_bytes=60_000,
                  class_dscp=CLASS, class_rate_bps=8_000_000)  # fmt: skip
MESH = MeshSpec(peers_per_nic=3, ports_per_peer=6, dscps=(0, CLASS), rate_hz=16.0, trace_interval_s=0.0)
LOADED = "l0->s1"
SETTLE_S = 1.5
"""Until the queue stands (after the start) or is empty and its last windows are closed (after the end)."""


def measure(result: Result, quick: bool) -> None:
    asyncio.run(_measure(result, 1.0 if quick else 6.0))


async def _measure(result: Result, seconds: float) -> None:
    async with lab_run(SPEC, MESH, (OWD.name,)) as lab:
        await lab.ready()
        await asyncio.sleep(3.0)  # every path's floor is learnt
        for dscp in (CLASS, 0):
            fault = lab.fabric.congest(LOADED, 1.3, dscp=dscp)
            await asyncio.sleep(SETTLE_S)
            start_ns = time.time_ns()
            await asyncio.sleep(seconds)
            end_ns = time.time_ns()
            lab.fabric.heal(fault.id)
            await asyncio.sleep(SETTLE_S)
            _say(result, dscp, excess(lab, start_ns, end_ns))


def excess(lab: LabRun, start_ns: int, end_ns: int) -> dict[tuple[int, bool], np.ndarray]:
    """Excess in µs of every window in the interval, by (class, whether the path crosses the loaded direction)."""
    found: dict[tuple[int, bool], list[float]] = {}
    crossing: dict[tuple[str, str, int], bool] = {}
    for message in lab.messages:
        for at_ns, src, dst, port, dscp, way, value in _rows(message):
            if not start_ns <= at_ns < end_ns or np.isnan(value):
                continue
            key = (src, dst, port)
            if way == "fwd":
                crosses = crossing.get(key)
                if crosses is None:
                    crosses = crossing[key] = LOADED in lab.fabric.path(src, dst, port)
                found.setdefault((dscp, crosses), []).append(value / 1e3)
    return {key: np.array(values) for key, values in found.items()}


def _rows(message: Message) -> list[tuple[int, str, str, int, int, str, float]]:
    body = message.body
    names = [body.column(name).to_pylist() for name in ("src", "dst", "dir")]
    numbers = [columns.values(body, name).tolist() for name in ("at_ns", "path", "dscp")]
    values = columns.filled(body, "excess_p50_ns", np.nan).tolist()
    at, path, dscp = numbers
    src, dst, way = names
    return list(zip(at, src, dst, path, dscp, way, values, strict=True))


def _say(result: Result, loaded: int, found: dict[tuple[int, bool], np.ndarray]) -> None:
    other = 0 if loaded == CLASS else CLASS
    own, unloaded = found[loaded, True], found[other, True]
    elsewhere = found[loaded, False]
    figures = {}
    result.say(f"queue in DSCP {loaded} on {LOADED}: excess of windows of the paths that cross it")
    for name, values in (
        (f"DSCP {loaded}", own),
        (f"DSCP {other}", unloaded),
        (f"DSCP {loaded}, elsewhere", elsewhere),
    ):
        p1, p50, p99 = (float(v) for v in np.percentile(values, [1, 50, 99]))
        result.say(f"  {name:<19} p1 {p1:8,.0f} µs, p50 {p50:8,.0f}, p99 {p99:8,.0f}  ({values.size:,} windows)")
        figures[name] = {"p1_us": round(p1, 1), "p50_us": round(p50, 1), "p99_us": round(p99, 1), "n": int(values.size)}
    apart = float(np.percentile(own, 1)) > float(np.percentile(unloaded, 99))
    seen = "seen by that class and by no other" if apart else "NOT told apart: the spreads overlap"
    result.say(
        f"  {seen} (p1 of one above p99 of the other); medians {np.median(own) / max(np.median(unloaded), 1):,.0f} ×"
    )
    result.figures[f"queue_in_{loaded}"] = figures | {"apart": apart}


if __name__ == "__main__":
    main("class_queue", measure)
