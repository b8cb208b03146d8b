"""Clocks whose rate jumps, the reference's too; what warms up, slews a little or has just come is none."""

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.detect.compare.clock_rates import ClockRates
from sdfstream.records import columns
from sdfstream.records.topics import CLOCK

S = 1_000_000_000
T0 = 1_800_000_000 * S
NAMES = ["h0", "h1", "h2", "h3"]
USUAL = np.array([0.0, 4_000.0, -9_000.0, 31_000.0])
"""The first is the reference."""


def rows(skew_ppb: np.ndarray, names: list[str]) -> pa.RecordBatch:
    n = len(names)
    return columns.build(
        CLOCK.columns,
        {
            "clock": names, "at_ns": [T0] * n, "offset_ns": [0.0] * n, "skew_ppb": skew_ppb.tolist(),
            "err_ns": [9.0] * n, "n": [9] * n, "status": ["synced"] * n, "kind": ["causal"] * n,
        },
    )  # fmt: skip


def run(rates: ClockRates, seconds: float, skew: np.ndarray, begun_s: float = 0.0, names: list[str] = NAMES) -> float:
    """Every half second a row of each clock; when it ends."""
    for i in range(round(2 * seconds)):
        at_ns = T0 + round((begun_s + i / 2) * S)
        rates.take(rows(skew[: len(names)], names), at_ns)
        rates.tick(at_ns)
    return begun_s + seconds


def jumped(rates: ClockRates, at_s: float) -> dict[str, tuple[float, float]]:
    return {n: ((t - T0) / S, ppb) for n, (t, ppb) in rates.jumped(T0 + round(at_s * S)).items()}


@pytest.mark.parametrize("by_ppb", [50_000.0, -25_000.0])
def test_a_clock_that_runs_off_is_named_with_its_rate_until_it_comes_back(by_ppb: float) -> None:
    rates = ClockRates()
    now_s = run(rates, 15, USUAL)
    assert jumped(rates, now_s) == {}
    now_s = run(rates, 5, USUAL + np.array([0, 0, by_ppb, 0]), now_s)
    assert jumped(rates, now_s) == {"h2": (15.0, pytest.approx(by_ppb, abs=1))}
    now_s = run(rates, 2, USUAL, now_s)
    assert jumped(rates, now_s) == {}


def test_where_all_others_seem_to_run_off_it_is_the_reference() -> None:
    rates = ClockRates()
    now_s = run(rates, 15, USUAL)
    now_s = run(rates, 5, USUAL - np.array([0, 50_000, 50_000, 50_000]), now_s)
    assert jumped(rates, now_s) == {"h0": (15.0, pytest.approx(50_000.0))}


def test_a_rate_that_is_kept_becomes_the_usual_one() -> None:
    for changed in (np.array([0, 0, 40_000.0, 0]), np.array([0, 40_000.0, 40_000.0, 40_000.0])):
        rates = ClockRates()
        now_s = run(rates, 15, USUAL)
        now_s = run(rates, 150, USUAL + changed, now_s)
        assert jumped(rates, now_s) == {}


def test_a_clock_that_warms_up_or_is_new_or_one_of_two_has_not_jumped() -> None:
    rates = ClockRates()
    now_s = run(rates, 15, USUAL)
    for step in range(60):  # 1 ppm a second
        now_s = run(rates, 0.5, USUAL + np.array([0, 500.0 * step, 0, 0]), now_s)
        assert jumped(rates, now_s) == {}
    for names, skew in ((NAMES[:2], USUAL), (["new", *NAMES[1:]], USUAL + np.array([90_000.0, 0, 0, 0]))):
        rates = ClockRates()
        now_s = run(rates, 5, USUAL, names=NAMES)
        now_s = run(rates, 15, skew, now_s + 5, names=names)
        assert jumped(rates, now_s) == {}


@pytest.mark.parametrize("nonsense", [np.inf, np.nan, 1e308, -1e308])
def test_a_rate_that_is_none_costs_nothing(nonsense: float) -> None:
    """As a mean it would stay, and be every other clock's median."""
    rates = ClockRates()
    now_s = run(rates, 15, USUAL)
    now_s = run(rates, 2, USUAL + np.array([0, nonsense, 0, 0]), now_s)
    now_s = run(rates, 2, USUAL - np.array([0, nonsense, 0, 0]), now_s)
    assert jumped(rates, now_s) == {}
    now_s = run(rates, 3, USUAL + np.array([0, 0, 50_000.0, 0]), now_s)
    assert list(jumped(rates, now_s)) == ["h2"]


def test_a_state_is_taken_up_where_it_was_left() -> None:
    rates, other = ClockRates(), ClockRates()
    now_s = run(rates, 15, USUAL)
    other.restore(rates.snapshot())
    off = USUAL + np.array([0, 50_000.0, 0, 0])
    for one in (rates, other):
        run(one, 3, off, now_s)
    assert jumped(rates, now_s + 3) == jumped(other, now_s + 3) != {}
