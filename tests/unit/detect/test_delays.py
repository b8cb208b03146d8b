"""Baselines of delay where probes are few."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.delays import DelayBaselines, MeasuredWindows
from sdfstream.detect.sessions import Sessions
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

EPOCH = 1_800_000_000 * NS_PER_S
NORMAL_NS, NOISE_NS = 10_000.0, 500.0


class World:
    """One path whose windows lie `every_ms` apart."""

    def __init__(self, every_ms: int) -> None:
        self.delays = DelayBaselines(DetectConfig(excess_us=30.0), Sessions(4), Counters("detect"))
        self.delays.sessions.of_names([("a/0", "b/0", "udp", 50_000, 0)], EPOCH)
        self.every_ns, self.now_ns = every_ms * NS_PER_MS, EPOCH
        self.rng = np.random.default_rng(1)

    def go_on(self, windows: int, excess_ns: list[float] | float = 0.0) -> None:
        for k in range(windows):
            self.now_ns += self.every_ns
            above = excess_ns[k % len(excess_ns)] if isinstance(excess_ns, list) else excess_ns
            start_ns = np.full(2, self.now_ns // (100 * NS_PER_MS) * (100 * NS_PER_MS))
            delay = NORMAL_NS + above + self.rng.normal(0.0, NOISE_NS, 2)
            rows = MeasuredWindows(np.array([0, 1]), start_ns, delay, np.full(2, 10.0))
            self.delays.take(rows, np.zeros(2, np.int64), np.full(2, self.now_ns))
            self.delays.tick()


@pytest.mark.parametrize(("every_ms", "known_ms"), [(100, 500), (200, 500), (1000, 1300)])
def test_a_path_that_is_probed_seldom_is_current_for_longer(every_ms: int, known_ms: int) -> None:
    world = World(every_ms)
    world.go_on(100)
    assert world.delays.current(world.now_ns + known_ms * NS_PER_MS)[:2].all()
    assert not world.delays.current(world.now_ns + (known_ms + 10) * NS_PER_MS)[:2].any()


def test_a_pause_is_no_pace() -> None:
    world = World(100)
    world.go_on(100)
    world.now_ns += 60 * NS_PER_S
    world.go_on(1)
    assert world.delays.table["every_ns"][0] < NS_PER_S


@pytest.mark.parametrize(("every_ms", "low_us", "high_us"), [(100, 199, 201), (1000, 110, 150)])
def test_what_a_single_probe_met_is_not_the_excess_of_a_path(every_ms: int, low_us: float, high_us: float) -> None:
    """Of ten probes a second a window says what they meet now; of one a second it is by chance 200 µs or 60."""
    world = World(every_ms)
    world.go_on(100)
    world.go_on(20, [60e3, 200e3])
    assert low_us * 1e3 - 2000 < world.delays.excess_ns(np.array([0]))[0] < high_us * 1e3 + 2000
