"""A way that became longer is followed; a queue, which scatters, and a buffer that is full are not."""

import numpy as np
import pytest

from sdfstream.detect.queues.shifts import DelayShifts

QUIET_NS = 2_000.0
PATHS = np.arange(200)


def followed(excess_ns: float, scatter_ns: float, seed: int, windows: int = 300) -> np.ndarray:
    """(paths,) what baselines were moved by, within half a minute."""
    shifts, rng, total = DelayShifts(), np.random.default_rng(seed), np.zeros(PATHS.size)
    shifts.ensure(PATHS.size)
    for _ in range(windows):
        above_ns = excess_ns - total + rng.normal(0.0, scatter_ns, PATHS.size)
        moved, by_ns = shifts.take(PATHS, above_ns, np.full(PATHS.size, QUIET_NS))
        total[moved] += by_ns
    return total


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("excess_ns", [20e3, -20e3, 45e3])
def test_a_way_of_another_length_is_followed_within_half_a_minute(excess_ns: float, seed: int) -> None:
    by_ns = followed(excess_ns, QUIET_NS, seed)
    assert (np.abs(by_ns - excess_ns) < 3e3).mean() > 0.99


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("excess_ns", "scatter_ns"), [(30e3, 9e3), (55e3, 18e3), (36e6, 5e5), (80e3, QUIET_NS), (0.0, QUIET_NS)]
)
def test_a_queue_a_full_buffer_and_a_quiet_path_are_not(excess_ns: float, scatter_ns: float, seed: int) -> None:
    assert not followed(excess_ns, scatter_ns, seed).any()


def test_it_takes_seconds_so_that_a_queue_of_steady_depth_is_reported_first() -> None:
    assert not followed(30e3, QUIET_NS, 1, windows=50).any()


@pytest.mark.parametrize("seed", range(10))
def test_a_few_windows_far_off_as_any_path_has_do_not_keep_it_from_being_followed(seed: int) -> None:
    """One window in twenty met a burst, which is in the quiet path's spread for a few spreads at most."""
    shifts, rng = DelayShifts(), np.random.default_rng(seed)
    shifts.ensure(PATHS.size)
    total = np.zeros(PATHS.size)
    for _ in range(300):
        burst_ns = np.where(rng.uniform(size=PATHS.size) < 0.05, 25e3, 0.0)
        above_ns = 20e3 - total + rng.normal(0.0, QUIET_NS, PATHS.size) + burst_ns
        moved, by_ns = shifts.take(PATHS, above_ns, np.full(PATHS.size, QUIET_NS))
        total[moved] += by_ns
    assert (np.abs(total - 20e3) < 5e3).mean() > 0.85
