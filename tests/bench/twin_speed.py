"""``python -m tests.bench.twin_speed``: 1,024 NICs × 20 peers × 100 Hz, processor time per simulated second."""

from __future__ import annotations

import time

from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin

SCENARIO = {
    "fabric": {"kind": "rail", "hosts": 128, "rails": 8, "leaves": 32, "spines": 16, "gbps": 400},
    "probes": {"peers": 20, "ports": 1, "hz": 100},
    "known": {"traces": False},
    "seconds": 5,
}


def main() -> None:
    twin = Twin(parse(SCENARIO, "bench"), 1)
    began_s = time.process_time()
    rows = sum(message.rows for message in twin.messages())
    took_s = time.process_time() - began_s
    each = took_s / twin.seconds
    print(
        f"{len(twin.sessions):,} paths, {rows / twin.seconds:,.0f} rows per simulated second: {each:.2f} s of one core"
    )


if __name__ == "__main__":
    main()
