"""One timeline over virtual clocks on real packets, as an application sees it: pages under a one-way queue."""

from __future__ import annotations

import pytest

from tests.bench.harness import SkippedError
from tests.trials.clock import run

pytestmark = pytest.mark.lab


async def test_pages_hold_the_truth_under_a_one_way_queue() -> None:
    """Clocks ±123 µs, ±10 ppm apart that walk, 40 ms of queue one way: half of that would be an error of 20 ms.

    The limits are loose, for a busy machine that starves the lab; `python -m tests.trials --only clock` has the goals.
    """
    try:
        found = await run(seed=1, quiet_s=9.5, queue_s=6.0, after_s=0.5, settled_s=8.0)
    except SkippedError as why:
        pytest.skip(str(why))
    assert found.queue_ms > 25.0
    for what in ("rows", "pages"):
        facts = found.answers[what].facts()
        assert facts["n"] > 20, (what, facts)
        assert facts["inside"] > 0.9, (what, facts)
        assert facts["worst_ns"] < 1_000_000, (what, facts)
