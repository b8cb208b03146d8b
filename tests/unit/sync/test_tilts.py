"""Tilts by the shape of a direction's queueing: exponential, three busy hops, mostly idle."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric.table import Table
from sdfstream.sync.sessions import session_table
from sdfstream.sync.tilts import shape, tilts

BASE_DELAY_NS = 10_000.0
NOISE_NS2 = np.full(1, 9.0)


def sessions(n: int, mean_ns: float, deviation_ns: float, lowest_ns: float = 0.0) -> Table:
    """Their delays lie so far above the base delay on average, with such a deviation, and the lowest so far."""
    t = session_table()
    t.grow(n)
    t["base_delay_ns"], t["centre_ns"] = BASE_DELAY_NS, BASE_DELAY_NS - 50.0
    t["moment1_ns"], t["moment2_ns2"] = mean_ns + 50.0, (mean_ns + 50.0) ** 2 + deviation_ns**2
    t["excess_scale_ns"], t["blocks"], t["moment_blocks"], t["excess_min_ns"] = 2000.0, 500.0, 500.0, lowest_ns
    return t


@pytest.mark.parametrize(
    ("what", "mean_ns", "deviation_ns", "lowest_ns", "found"),
    [
        ("exponential", 10_000.0, 10_000.0, 0.0, 1.0),
        ("exponential, by few delays", 10_000.0, 8_800.0, 0.0, 1.0),
        ("mostly idle", 100.0, 1_000.0, 0.0, 1.0),
        ("three busy hops", 32_400.0, 20_700.0, 700.0, 2.1),
        ("without any queue", 0.0, 0.0, 0.0, 1.0),
        ("stamps' noise alone", 16.0, 5.0, 1.0, 1.0),
        ("idle, and the base delay far too low, and lower since", 5_650.0, 70.0, 2_500.0, 1.0),
        ("three busy hops, and the base delay not found yet", 34_400.0, 20_700.0, 3_300.0, 1.85),
        ("a standing queue", 40_000.0, 20_000.0, 20_300.0, 1.0),
        ("exponential, and the base delay far too low", 20_000.0, 10_000.0, 10_100.0, 1.0),
    ],
)
def test_shape_of_the_queueing(what: str, mean_ns: float, deviation_ns: float, lowest_ns: float, found: float) -> None:
    got = shape(sessions(1, mean_ns, deviation_ns, lowest_ns), np.arange(1), NOISE_NS2)
    print(f"{what}: {got[0]:.2f}")
    np.testing.assert_allclose(got, found, rtol=0.05)


def test_one_direction_alone_shows_no_shape() -> None:
    t = sessions(1, 32_400.0, 20_700.0)
    t["moment2_ns2"][1] *= 2.0
    assert shape(t, np.arange(1), NOISE_NS2)[0] < 1.1


def test_moments_that_have_just_begun_tell_no_shape() -> None:
    t = sessions(3, 32_400.0, 20_700.0)
    t["moment_blocks"] = [9.0, 10.0, 65.0]
    np.testing.assert_array_equal(shape(t, np.arange(3), np.full(3, 9.0)) > 1.5, [False, True, False])


def test_a_tilt_is_the_gentler_the_rarer_packets_near_the_floor_are() -> None:
    far, ones, one = np.full((2, 1), 2000.0), np.ones(1), np.arange(1)
    exponential = tilts(sessions(1, 10_000.0, 10_000.0), one, far, ones, ones)
    hops = tilts(sessions(1, 32_400.0, 20_700.0), one, far, ones, ones)
    np.testing.assert_allclose(exponential, 1.0 / (2000.0 * np.exp(0.08)))
    np.testing.assert_allclose(exponential / hops, 1.9, rtol=0.03)


def test_a_direction_without_packets_has_no_tilt_and_keeps_its_scale() -> None:
    t, ones = sessions(1, 10_000.0, 10_000.0), np.ones(1)
    got = tilts(t, np.arange(1), np.array([[np.inf], [100.0]]), ones, ones)
    assert got[0, 0] == 0.0 < got[1, 0]
    assert t["excess_scale_ns"][0, 0] == 2000.0
