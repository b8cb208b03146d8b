"""Paths known for seconds: a small queue is told soon, and jitter is not."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Fault, Shape

SMALL = Shape(hosts=4, leaves=4, ports=2)
SEEDS = int(os.environ.get("SDFSTREAM_SEEDS", "2"))


@pytest.mark.parametrize("seed", range(1, 1 + SEEDS))
@pytest.mark.parametrize(("queue_us", "at_s"), [(30, 20.5), (80, 8.0)])
def test_a_small_queue_on_young_paths_is_told_within_two_seconds(seed: int, queue_us: float, at_s: float) -> None:
    queue = [Fault(tuple(f"s1->l{i}" for i in range(4)), at_s, delay_us=queue_us)]
    reported = run(DetectStage(), Fabric(seed, queue, SMALL).messages(at_s + 3))
    ((told_s, kind, subject),) = reported.opened()
    assert (kind, subject) == ("congestion", "s1") and told_s - at_s < 2.0


@pytest.mark.parametrize("seed", range(20, 20 + SEEDS))
def test_heavy_jitter_on_young_paths_is_no_queue(seed: int) -> None:
    """Delays of 30 µs median with a tail to 100 µs, and stalls of milliseconds."""
    assert run(DetectStage(), Fabric(seed, [], replace(SMALL, noise_us=30.0)).messages(25)).opened() == []
