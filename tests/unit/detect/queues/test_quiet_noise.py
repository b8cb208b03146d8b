"""What quiet paths scatter: a busy port's paths do not decide for all, and no queue becomes noise."""

from __future__ import annotations

import numpy as np

from sdfstream.detect.queues.quiet_noise import QuietNoise

_PATHS = 600


def _learnt(ticks: int, busy: int, seed: int = 1) -> QuietNoise:
    """Noise of paths that scatter by 2 µs, `busy` of them by 40."""
    rng, noise = np.random.default_rng(seed), QuietNoise()
    spread = np.full(_PATHS, 2e3)
    spread[:busy] = 40e3
    for _ in range(ticks):
        noise.learn(np.abs(rng.normal(0.0, spread)), spread)
    return noise


def test_one_busy_port_is_not_the_noise_of_all() -> None:
    noise = _learnt(300, busy=60)
    assert noise.threshold_ns == 20e3
    assert noise.rough_threshold_ns > 150e3


def test_paths_that_all_scatter_are_the_noise_of_all() -> None:
    noise = _learnt(400, busy=_PATHS)
    assert 250e3 < noise.threshold_ns < 400e3  # three 99th percentiles of 40 µs


def test_half_of_all_paths_are_usual() -> None:
    assert _learnt(400, busy=_PATHS // 2).threshold_ns > 200e3


def test_a_state_of_a_release_before_has_one_percentile() -> None:
    noise = QuietNoise()
    noise.restore([30e3, 400])
    assert noise.threshold_ns == noise.rough_threshold_ns == 90e3
    again = QuietNoise()
    again.restore(noise.snapshot())
    assert again.snapshot() == noise.snapshot()
