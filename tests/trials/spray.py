"""One lossy link of a fabric that sprays packets over many spines: what is named, and how soon.

``python -m tests.trials.spray [--spines N] [--share X] [--seconds S] [--seeds N] [--first N] [--hz N] [--json]``. 64
hosts on eight leaves, ten peers a NIC, one port, 16 probes a second on each: agents' default mesh. Cabling is known;
traces show that packets are sprayed, so that no path tells one uplink of a leaf from another. The n-th part of what a
leaf sends and receives crosses the link, n its spines. Silence and loss need no clocks: detect alone.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass

from sdfstream import pipeline
from sdfstream.records.message import Event
from sdfstream.records.topics import FINDING, LIVENESS, PROBE, TOPOLOGY
from sdfstream.runtime.replay import replay
from sdfstream.settings import Settings
from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin

AT_S = 200.0
"""The link begins to lose, after the first probe; by then each path was traced four times, which shows spraying."""


@dataclass(frozen=True)
class Told:
    """What was said of one run."""

    link: str
    as_link_s: float | None
    """Seconds from the fault until the link was named."""
    as_leaf_s: float | None
    """Until its leaf, spine or the link was."""
    others: tuple[str, ...]
    """Every other subject above info."""


def play(seed: int, spines: int, share: float, seconds: float, hz: int = 16, at_s: float = AT_S) -> Told:
    """One run; `seconds` after the fault."""
    data = {
        "about": "spray", "fabric": {"kind": "leaf-spine", "hosts": 64, "leaves": 8, "spines": spines,
                                     "hash": "spray"},
        "probes": {"peers": 10, "ports": 1, "hz": hz, "flush_ms": 200}, "load": {"utilisation": 0.3},
        "seconds": at_s + seconds, "faults": [{"kind": "gray-loss", "at": at_s, "share": share}],
    }  # fmt: skip
    twin = Twin(parse(data, "spray", "spray"), seed, "spray")
    (detect,) = [stage for stage in pipeline.stages(Settings()) if stage.name == "detect"]
    wanted = {PROBE.name, LIVENESS.name, TOPOLOGY.name}
    given = (message for message in twin.messages() if message.topic in wanted)
    link, at_ns = str(twin.faults[0].truth(twin.start_ns, twin.seconds, twin.fabric.names)["target"]), at_s * 1e9
    first: dict[str, float] = {}
    for message in replay(given, [detect], twin.start_ns, twin.start_ns + round(twin.seconds * 1e9)):
        if message.topic == FINDING.name and isinstance(message.body, Event):
            said = message.body.data
            if said["severity"] != "info":
                first.setdefault(str(said["subject"]["id"]), (said["seen_at_ns"] - twin.start_ns - at_ns) / 1e9)
    near = [first[name] for name in (link, *link.split("--")) if name in first]
    others = tuple(sorted(set(first) - {link, *link.split("--")}))
    return Told(link, first.get(link), min(near, default=None), others)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.spray", description=__doc__)
    parser.add_argument("--spines", type=int, default=16)
    parser.add_argument("--share", type=float, default=0.015, help="of what crosses the link (default 0.015)")
    parser.add_argument("--seconds", type=float, default=30.0, help="watched after the fault")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--hz", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    runs = []
    for seed in range(args.first, args.first + args.seeds):
        began_s = time.process_time()
        told = play(seed, args.spines, args.share, args.seconds, args.hz)
        runs.append(told)
        print(f"seed {seed}: {told}, {time.process_time() - began_s:.0f} s of CPU", flush=True)
    figures = {
        "spines": args.spines, "share": args.share, "runs": len(runs),
        "link_named": sum(x.as_link_s is not None for x in runs),
        "leaf_or_link_s": [None if x.as_leaf_s is None else round(x.as_leaf_s, 1) for x in runs],
        "others": sum(len(x.others) for x in runs),
    }  # fmt: skip
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
