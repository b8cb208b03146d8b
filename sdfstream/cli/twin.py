"""``sdfstream twin SCENARIO --out DIR``: a simulated fabric with known truth, as a recording."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdfstream.cli import edge_io
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit, progress

HELP = "simulate a fabric with faults, clocks and load of your own into a recording whose truth is known"
EXAMPLE = "sdfstream twin link-down --out sdfstream-data/twin --seed 7"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SCENARIO, --out, --seed."""
    parser.add_argument(
        "scenario", metavar="SCENARIO", help="a YAML file (docs/twin.md), or the name of one that is shipped"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder for the recording")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all draws (default 1)")


def run(args: argparse.Namespace) -> int:
    """Simulate and write."""
    from sdfstream.twin import recording_io, shipped_io
    from sdfstream.twin.scenario import read
    from sdfstream.twin.simulation import Twin

    if args.seed < 0:
        raise ConfigError(f"--seed must not be negative, not {args.seed}")
    path = shipped_io.find(args.scenario)
    twin = Twin(read(path), args.seed, str(path))
    began_s = edge_io.steady_s()
    rows = recording_io.write(twin, args.out, progress)
    took_s = edge_io.steady_s() - began_s
    faults = [f.truth(twin.start_ns, twin.seconds) for f in twin.faults]
    lines = [
        f"{args.out}: {twin.seconds:,.0f} s of {len(twin.fabric.nics):,} NICs and {len(twin.sessions):,} probe paths "
        f"in {took_s:.1f} s",
        *(f"  {topic:<28}{n:>12,} rows" for topic, n in sorted(rows.items())),
        *(f"  truth: {f['kind']} on {f['target']} from {_second(f['at_ns'], twin.start_ns)} s" for f in faults),
        f"go on: sdfstream replay {args.out} --out {args.out}-replayed",
    ]
    emit(
        args.json, {"out": str(args.out), "rows": rows, "seconds": round(took_s, 3), "faults": faults}, "\n".join(lines)
    )
    return 0


def _second(at_ns: int, start_ns: int) -> str:
    return f"{(at_ns - start_ns) / 1e9:g}"
