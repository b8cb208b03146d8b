"""``make bench``: every measurement in a process of its own, one after the other, with the machine's load.

``python -m tests.bench [--only NAME]… [--quick] [--json]``. Rates are per second of CPU time, not of the wall, and
ratios compare two things measured in the same run. A measurement that this machine cannot make says why. The exit
status is 0 unless a measurement failed; a goal that is not met is said, and is no failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from typing import Any

from sdfstream.runtime.allocators import SETTINGS

NAMES = {
    "shells": 60,
    "stage_cost": 120,
    "pipeline": 300,
    "kafka_pipeline": 300,
    "agent_cost": 120,
    "lateness": 120,
    "engine_loop": 150,
    "reflector": 60,
    "archive_size": 400,
    "freshness": 60,
    "freshness_mesh": 150,
    "class_queue": 60,
    "localise": 420,
    "soak": 1800,
}
"""Measurements in order, and the seconds after which each is ended."""
APART = {"sizing": 2000, "day": 5400}
"""The same, by name only."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*NAMES, *APART], help="this measurement; repeatable")
    parser.add_argument("--quick", action="store_true", help="shorter runs: coarser figures")
    parser.add_argument("--json", action="store_true", help="everything as one JSON object in the last line")
    args = parser.parse_args()
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    load = [round(x, 1) for x in os.getloadavg()]
    print(f"{machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}; load {_loads(load)}")
    began = time.monotonic()
    results = []
    for name in args.only or NAMES:
        print(f"\n{name}", flush=True)
        result = measure(name, args.quick)
        results.append(result)
        for line in result["lines"]:
            print(f"  {line}")
        if result["skipped"]:
            print(f"  skipped: {result['skipped']}")
        print(f"  load {_loads(result['load'])}", flush=True)
    whole = {"machine": machine, "load": load, "seconds": round(time.monotonic() - began, 1), "results": results}
    print(f"\n{whole['seconds']} s")
    if args.json:
        print(json.dumps(whole))
    return int(any("failed" in result for result in results))


def measure(name: str, quick: bool) -> dict[str, Any]:
    """Run one measurement to its end, or until its time is over; what it printed last is its result."""
    limit_s = (NAMES | APART)[name]
    command = [sys.executable, "-m", f"tests.bench.{name}", *(["--quick"] if quick else [])]
    # a session of its own, so that everything a measurement started can be ended, and nothing else
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**SETTINGS, **os.environ},  # as `sdfstream` itself runs
    ) as running:
        try:
            out, err = running.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return _failed(name, f"not done after {limit_s} s")
        finally:
            _end(running)
    if running.returncode:
        return _failed(name, err.strip()[-1500:] or f"ended with {running.returncode}")
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def _end(running: subprocess.Popen[str]) -> None:
    """Let it end what it started, then end whatever of its session is left."""
    if running.poll() is None:
        running.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def _failed(name: str, why: str) -> dict[str, Any]:
    load = [round(x, 1) for x in os.getloadavg()]
    return {"name": name, "lines": [f"FAILED: {why}"], "figures": {}, "skipped": None, "load": load, "failed": why}


def _loads(load: list[float]) -> str:
    return " ".join(f"{x:.1f}" for x in load)


if __name__ == "__main__":
    sys.exit(main())
