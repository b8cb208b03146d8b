"""Baselines of queue pairs: what a message brings waits for the tick, and may be asked for before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sdfstream.detect.inband import InBand
from sdfstream.stats import Counters
from tests.fixtures.job_messages import NOW_NS, World


def test_jobs_whose_windows_still_wait_for_the_tick_are_not_slow() -> None:
    inband = InBand(Counters("detect"))
    world = World()
    for message in world.windows("train-7", 0, 1, 1e9):
        inband.take(inband.read(message.body), np.full(message.rows, message.bus_at_ns))
    assert inband.slow_jobs(NOW_NS) == []


def test_a_window_of_no_length_is_refused() -> None:
    """Its rate is infinite, and so was the mean of all rates from then on."""
    inband = InBand(Counters("detect"))
    (message,) = World().windows("train-7", 0, 1, 1e9)
    at = message.body.schema.get_field_index("window_ns")
    spoilt = message.body.set_column(at, message.body.schema.field(at), pa.array([0, -1, 10**9, 10**9]))
    inband.take(inband.read(spoilt), np.full(message.rows, message.bus_at_ns))
    inband.tick()
    assert inband.counters.get("refused", "qp-row") == 2
    assert np.isfinite(inband.moments.mean).all()
