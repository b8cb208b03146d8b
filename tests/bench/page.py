"""The page over 4,000 NICs for a while: how far it is behind the stream, and what its heap does.

``python -m tests.bench.page [--minutes M]``: every second a NIC changes; the time from there to the legend's new
count is taken, and every half minute the heap after a collection.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.fixtures import board_messages as bm
from tests.fixtures.pages import Served, chromium
from tests.integration.test_page_scale import fabric

HEAP_EVERY_S = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    given = parser.parse_args()
    with TemporaryDirectory() as folder, chromium() as browser:
        served = Served(Path(folder), bm.NOW_NS)
        served.take(fabric())
        served.start()
        delays, heaps = watched(served, browser.new_page(), given.minutes * 60)
        served.stop()
    worst = np.percentile(delays, [50, 90, 99, 100])
    print(
        f"behind the stream: median {worst[0]:.2f}, p90 {worst[1]:.2f}, p99 {worst[2]:.2f}, worst {worst[3]:.2f} s",
        end="",
    )
    print(f", {len(delays)} changes; heap {', '.join(f'{mb:.1f}' for mb in heaps)} MB")


def watched(served: Served, page: Any, seconds: float) -> tuple[list[float], list[float]]:
    """Delays [s] of the changes, and the heap [MB] along the run."""
    tools = page.context.new_cdp_session(page)

    def heap() -> float:
        tools.send("HeapProfiler.collectGarbage")
        return float(tools.send("Runtime.getHeapUsage")["usedSize"]) / 1e6

    page.goto(f"{served.url}/#/fleet")
    page.wait_for_selector("text=3999 healthy")
    page.wait_for_timeout(5000)
    delays, heaps = [], [heap()]
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        nic = f"h{len(delays) // 2 % 300:03d}/r0"
        state, left = ("healthy", 3999) if len(delays) % 2 else ("unhealthy", 3998)
        began_s = time.perf_counter()
        served.take([bm.nic_state(nic, "tx", state)])
        page.wait_for_selector(f"text={left} healthy", timeout=15_000)
        delays.append(time.perf_counter() - began_s)
        page.wait_for_timeout(700)
        if time.monotonic() > end_s - seconds + len(heaps) * HEAP_EVERY_S:
            heaps.append(heap())
    return delays, [*heaps, heap()]


if __name__ == "__main__":
    main()
