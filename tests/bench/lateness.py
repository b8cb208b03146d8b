"""How late the packet engine's thread is: probes behind their instants, silence told behind its limit.

64 paths at 100 probes a second over loopback, the engine's shell as an agent runs it: on an idle machine, and beside
four loops that never rest, with real-time priority (SCHED_FIFO) and without. Of probes, the engine's own histogram of
turns behind the instant that they were for; of silence, every path's verdict after the reflector's socket is closed:
from the path's last answer, beyond its limit.
"""

from __future__ import annotations

import contextlib
import time

import numpy as np

from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.shell_layouts import PRIORITIES
from sdfstream.records.units import NS_PER_MS
from tests.bench.harness import Result, SkippedError, against, hogs, main
from tests.fixtures.engine_loopback import REFLECTOR, Loopback

PATHS, RATE_HZ, LIVENESS_MS = 64, 100.0, 50
SILENT = 2
LOADS = {"idle, real-time": (0, True), "4 loops, real-time": (4, True), "4 loops, as any thread": (4, False)}
"""Busy loops beside it, and whether it may ask for real-time priority."""


def measure(result: Result, quick: bool) -> None:
    for name, (loops, realtime) in LOADS.items():
        late, verdicts, priority = [], [], ""
        with hogs(loops) if loops else contextlib.nullcontext():
            for _ in range(2 if quick else 6):
                found, decided_ms, priority = one_round(realtime)
                late.append(found)
                verdicts += decided_ms
        if realtime and priority != PRIORITIES[-1]:
            raise SkippedError(f"real-time priority is not to be had here: {priority}")
        median, p99 = (float(np.median([one[q] for one in late])) / 1e6 for q in (0, 1))
        worst = max(one[1] for one in late) / 1e6
        told_ms, told_worst = float(np.quantile(verdicts, 0.99)), max(verdicts)
        key = name.replace(", ", "_").replace(" ", "_").replace("-", "")
        goals = (p99 <= 1.0, told_ms <= 0.5) if realtime else None
        said = "" if goals is None else f"; {against('≤ 1 and ≤ 0.5 ms', all(goals))}"
        result.say(
            f"{name:<24}probes late by {median:.3f} ms (median), p99 {p99:.3f} (worst round {worst:.3f}); "
            f"silence told {np.median(verdicts):.3f} ms after its limit, p99 {told_ms:.3f}, worst {told_worst:.3f} "
            f"of {len(verdicts)}{said}",
            **{f"{key}_late_p99_ms": round(p99, 3), f"{key}_told_p99_ms": round(told_ms, 3)},
        )


def one_round(realtime: bool) -> tuple[tuple[int, int], list[float], str]:
    """(median and p99 of turns' lateness, ns), each path's verdict after its limit, ms, and the thread's priority."""
    pair = Loopback(PATHS, RATE_HZ, liveness_ms=LIVENESS_MS, realtime=realtime)
    try:
        pair.shell.start()
        pair.run_for(1.0)
        before = pair.shell.bins("late")
        pair.run_for(4.0)
        late = tuple(pair.shell.quantile_ns("late", q, before) for q in (0.5, 0.99))
        priority = pair.shell.report().priority
        pair.events()
        pair.shell.close_socket(REFLECTOR)
        end = time.monotonic() + 5.0
        while (silent := _silent(pair)).size < PATHS and time.monotonic() < end:
            time.sleep(0.01)
        if silent.size < PATHS:
            raise AssertionError(f"{silent.size} of {PATHS} paths fell silent within 5 s")
        return (late[0], late[1]), ((silent - LIVENESS_MS * NS_PER_MS) / 1e6).tolist(), priority
    finally:
        pair.close()


def _silent(pair: Loopback) -> np.ndarray:
    """Of each silent path: from its last answer until it was called silent, ns."""
    events = pair.events()
    silent = events[(events["kind"] == layouts.EVENT_LIVENESS) & (events["state"] == SILENT)]
    result: np.ndarray = silent["at_ns"] - silent["since_ns"]
    return result


if __name__ == "__main__":
    main("lateness", measure)
