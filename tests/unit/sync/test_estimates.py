"""What is believed of the clocks: carried forward as the clock model says, told as differences, kept as bytes."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric import kalman
from sdfstream.numeric.codec import dump, load
from sdfstream.records.units import NS_PER_S
from sdfstream.sync.estimates import ClockEstimates
from sdfstream.sync.reference import ReferenceState
from sdfstream.sync.sessions import UNKNOWN


def three() -> ClockEstimates:
    b = ClockEstimates()
    b.table.grow(3)
    columns = {
        "offset_ns": [5.0, -40.0, 1e6],
        "skew_ppb": [3.0, -10_000.0, 0.0],
        "offset_var_ns2": [400.0, 25.0, UNKNOWN],
        "offset_skew_cov": [10.0, -2.0, 0.0],
        "skew_var_ppb2": [4.0, 9.0, 2.5e9],
        "freq_walk": [2.0, 0.1, 1.0],
        "phase_walk": [0.09, 1.0, 0.0],
    }
    for name, values in columns.items():
        b.table[name] = values
    return b


@pytest.mark.parametrize("dt_s", [0.1, 3.7])
def test_clocks_are_carried_forward_by_the_clock_model(dt_s: float) -> None:
    b = three()
    t = b.table
    names = ("offset_ns", "skew_ppb", "offset_var_ns2", "offset_skew_cov", "skew_var_ppb2")
    wanted = kalman.predict(
        kalman.ClockState(*(t[n].copy() for n in names)), dt_s, np.sqrt(t["freq_walk"]), np.sqrt(t["phase_walk"])
    )
    b.advance(dt_s * NS_PER_S)
    for name, want in zip(names, wanted, strict=True):
        known = slice(0, 2) if name == "offset_var_ns2" else slice(None)
        np.testing.assert_allclose(t[name][known], want[known], rtol=1e-12)
    assert float(t["offset_var_ns2"][2]) == UNKNOWN
    assert b.at_ns == dt_s * NS_PER_S


def test_time_that_does_not_pass_changes_nothing() -> None:
    b = three()
    before = dump(b.table.snapshot())
    b.advance(0.0)
    b.advance(-5e8)
    assert dump(b.table.snapshot()) == before


def test_a_pair_is_the_difference_of_both_and_the_sum_of_their_doubts() -> None:
    line, variance = three().pair(np.array([0, 1, 0]), np.array([1, 0, 2]))
    assert line.tolist() == [-45.0, 45.0, 1e6 - 5.0]
    assert variance.tolist() == [425.0, 425.0, UNKNOWN]


def test_a_clock_waits_until_its_first_stamp_is_taken_up() -> None:
    b = three()
    assert b.unbased
    b.table["based"] = True
    assert not b.unbased
    assert not ClockEstimates().unbased


def test_estimates_come_back_from_their_bytes() -> None:
    b, other = three(), ClockEstimates()
    b.origin_ns, b.lag_ns, b.reference, b.reference_state = (
        3_600_000_000_000,
        12.5,
        2,
        ReferenceState(1.5, -7, 3.25, 8.0),
    )
    b.advance(1.5e9)
    other.restore(load(dump(b.snapshot())))
    assert dump(other.snapshot()) == dump(b.snapshot())
    assert (other.at_ns, other.reference_state, other.n) == (b.at_ns, b.reference_state, 3)
