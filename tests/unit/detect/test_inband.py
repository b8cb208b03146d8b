"""Baselines of queue pairs: what a message brings waits for the tick, and may be asked for before."""

from __future__ import annotations

from sdfstream.detect.inband import InBand
from sdfstream.stats import Counters
from tests.fixtures.job_messages import NOW_NS, World


def test_jobs_whose_windows_still_wait_for_the_tick_are_not_slow() -> None:
    inband = InBand(Counters("detect"))
    world = World()
    for message in world.windows("train-7", 0, 1, 1e9):
        inband.take(message.body, message.bus_at_ns)
    assert inband.slow_jobs(NOW_NS) == []
