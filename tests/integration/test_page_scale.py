"""The page over 4,000 NICs with 20 peers each, in a real Chromium."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sdfstream.records import columns, topics
from tests.fixtures import board_messages as bm

Make = Callable[..., Any]
HOSTS, RAILS, PEERS = 500, 8, 20


def fabric() -> list[Any]:
    """4,000 NICs, of which one is down, and 80,000 paths from each to its peers of the rail."""
    said = []
    for host in range(HOSTS):
        for rail in range(RAILS):
            nic = f"h{host:03d}/r{rail}"
            for direction in ("tx", "rx"):
                state = "unhealthy" if (host, rail) == (321, 5) else "healthy"
                said.append(bm.nic_state(nic, direction, state))
        said.append(bm.ports({f"h{host:03d}/r{rail}": "up" for rail in range(RAILS)}, key=f"h{host:03d}"))
    rng = np.random.default_rng(4)
    n = HOSTS * RAILS * PEERS
    src = np.repeat(np.arange(HOSTS * RAILS), PEERS)
    far = (src // RAILS + np.tile(np.arange(1, PEERS + 1), HOSTS * RAILS) * 7) % HOSTS
    names = [f"h{i // RAILS:03d}/r{i % RAILS}" for i in range(HOSTS * RAILS)]
    owd = rng.uniform(5_000, 20_000, n)
    schema = topics.OWD.columns
    assert schema is not None
    given = {
        "at_ns": [bm.NOW_NS] * n, "window_ns": [100_000_000] * n, "src": [names[i] for i in src],
        "dst": [names[h * RAILS + i % RAILS] for h, i in zip(far.tolist(), src.tolist(), strict=True)],
        "transport": ["udp"] * n, "path": [50_001] * n, "dscp": [46] * n, "dir": ["fwd"] * n, "n": [2] * n,
        "lost": [0] * n, "ce": [0] * n, "owd_min_ns": owd - 100, "owd_p50_ns": owd, "owd_p99_ns": owd + 100,
        "owd_max_ns": owd + 200, "excess_p50_ns": owd - 5_000, "err_ns": np.full(n, 800.0),
    }  # fmt: skip
    return [*said, bm.message(topics.OWD, columns.build(schema, given))]


@pytest.mark.usefixtures("browser")
def test_4000_nics_are_painted_within_two_seconds(served: Make, tab: Make) -> None:
    fleet = served(fabric(), bm.NOW_NS)
    page = tab(fleet).open("nothing")  # the browser itself is warm
    page.wait_for_selector("h1")
    painted = []
    for attempt in range(3):
        page.goto("about:blank")
        began = time.perf_counter()
        page.goto(f"{fleet.url}/?{attempt}#/fleet")
        page.wait_for_selector(".map canvas")
        page.wait_for_selector("text=3999 healthy")
        painted.append(time.perf_counter() - began)
    print(f"4,000 NICs: painted after {', '.join(f'{s:.2f}' for s in painted)} s")
    assert min(painted) <= 2.0, painted
    page.wait_for_selector("h2:has-text('Paths by')")
    frames = page.evaluate(
        """() => new Promise(done => {
            const gaps = []; let last = performance.now(); let left = 60;
            const step = (now) => {
                gaps.push(now - last); last = now; scrollBy(0, left % 2 ? 40 : -30);
                if (left--) requestAnimationFrame(step); else done(gaps.sort((p, q) => p - q)[30]);
            };
            requestAnimationFrame(step);
        })"""
    )
    print(f"scrolling: a frame every {frames:.1f} ms (median)")
    assert frames <= 34, "half of 60 frames a second at least: the machine is shared"
