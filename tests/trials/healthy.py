"""Hours of heavy load on a healthy fabric, simulated: nobody should be woken.

``python -m tests.trials.healthy [--hours N] [--first N] [--minutes N] [--hosts N] [--json]``. 64 NICs probe ten others
once a second while NICs send 60 % of what they can; every few minutes a benign event: processors taken by others for
half a minute, a leaf that hashes anew, a surge of load. Each hour is a fabric and a world of its own (seed `first` and
following), from the first probe on. A run goes through sync, workload and detect with the shipped settings.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Final

import numpy as np

from sdfstream.score.detect.run import statements
from sdfstream.settings import Settings
from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin

_QUIET_S: Final = 60.0
"""Before the first event, and after the last."""
_APART_S: Final = (100.0, 300.0)
"""From one event to the next."""


def events(rng: np.random.Generator, seconds: float) -> list[dict[str, Any]]:
    """Benign events, in order of time."""
    made, at = [], _QUIET_S
    while at < seconds - _QUIET_S:
        kind = str(rng.choice(["busy-cpu", "reroute", "load-surge"]))
        lasts = {"busy-cpu": 30.0, "load-surge": 20.0}.get(kind)
        event: dict[str, Any] = {"kind": kind, "at": round(at, 1)}
        if lasts is not None:
            event["lasts"] = lasts
        if kind == "load-surge":
            event["share"] = 1.4
        made.append(event)
        at += float(rng.uniform(*_APART_S))
    return made


def world(seed: int, seconds: float, hosts: int = 64) -> Twin:
    """The fabric of a seed, with its load and events."""
    data = {
        "about": "heavy healthy load",
        "fabric": {"kind": "leaf-spine", "hosts": hosts, "leaves": 8, "spines": 8},
        "probes": {"peers": 10, "ports": 1, "hz": 1, "flush_ms": 1000},
        "load": {"utilisation": 0.6, "flows_per_nic": 16},
        "seconds": seconds,
        "faults": events(np.random.default_rng([seed, 24]), seconds),
    }
    return Twin(parse(data, "healthy", "healthy"), seed, "healthy")


def opened(seed: int, seconds: float, hosts: int = 64) -> list[tuple[float, str, str, str]]:
    """Findings of one world that were above info at any time: seconds, kind, subject, detail; each once."""
    twin, first = world(seed, seconds, hosts), {}
    for data in statements(twin, Settings()):
        if data["severity"] != "info":
            at_s = round((data["seen_at_ns"] - twin.start_ns) / 1e9, 1)
            first.setdefault(data["id"], (at_s, data["kind"], data["subject"]["id"], data.get("detail", "")))
    return list(first.values())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.healthy", description=__doc__)
    parser.add_argument("--hours", type=int, default=24, help="worlds (default 24)")
    parser.add_argument("--first", type=int, default=1, help="seed of the first")
    parser.add_argument("--minutes", type=float, default=60.0, help="of each")
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    alarms = 0
    for seed in range(args.first, args.first + args.hours):
        began_s = time.process_time()
        found = opened(seed, 60.0 * args.minutes, args.hosts)
        alarms += len(found)
        print(f"seed {seed}: {len(found)} false {found}, {time.process_time() - began_s:.0f} s of CPU", flush=True)
    told = {"hours": round(args.hours * args.minutes / 60.0, 2), "false_alarms": alarms}
    print(json.dumps(told) if args.json else f"{told['hours']} hours, {alarms} false alarms")


if __name__ == "__main__":
    main()
