"""Medians and distinct keys: numpy's own answers, cheaper."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.numeric.group import Distinct, median

_VALUES = st.lists(st.floats(-1e18, 1e18) | st.just(float("nan")) | st.just(float("inf")), min_size=1, max_size=30)


@given(_VALUES)
def test_a_median_is_numpys_to_the_bit(values: list[float]) -> None:
    with np.errstate(invalid="ignore"):
        wanted, found = np.median(np.array(values)), median(np.array(values))
    assert np.float64(found).tobytes() == np.float64(wanted).tobytes() or np.isnan([found, wanted]).all()


@given(st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=6))
def test_distinct_keys_are_numpys_whatever_was_asked_before(calls: list[list[int]]) -> None:
    distinct = Distinct()
    for keys in (np.array(call, dtype=np.int64) for call in calls for _ in range(2)):
        for found, wanted in zip(distinct.of(keys), np.unique(keys, return_inverse=True), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_keys_that_their_owner_changes_afterwards_are_looked_at_anew() -> None:
    distinct, keys = Distinct(), np.array([4, 4, 2])
    distinct.of(keys)
    keys[0] = 9
    assert distinct.of(keys)[0].tolist() == [2, 4, 9]
