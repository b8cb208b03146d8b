"""Growing tables: rows that grow, close up and move, in plain and wide columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.numeric.codec import dump, load
from sdfstream.numeric.table import Table


def filled(rows: int) -> Table:
    t = Table({"x": np.float64(7.0), "k": np.int64(-1)}, {"w": np.full(2, np.inf)})
    t.grow(rows)
    t["x"], t["k"] = np.arange(rows) + 0.5, np.arange(rows)
    t["w"] = np.stack([np.arange(rows), -np.arange(rows)])
    return t


@given(st.integers(0, 60), st.integers(0, 40), st.randoms(use_true_random=False))
def test_scattered_rows_are_where_they_were_sent_and_the_others_are_fresh(old: int, more: int, random: object) -> None:
    t = filled(old)
    at = np.array(sorted(random.sample(range(old + more), old)), dtype=np.int64)  # type: ignore[attr-defined]
    t.scatter(at, old + more)
    assert t.rows == old + more
    np.testing.assert_array_equal(t["k"][at], np.arange(old))
    np.testing.assert_array_equal(t["w"][:, at], np.stack([np.arange(old), -np.arange(old)]))
    fresh = np.setdiff1d(np.arange(old + more), at)
    assert (t["x"][fresh] == 7.0).all() and (t["k"][fresh] == -1).all() and np.isinf(t["w"][:, fresh]).all()


def test_a_scattered_table_grows_like_any_other() -> None:
    t = filled(20)
    t.scatter(np.arange(20, dtype=np.int64) * 2, 40)
    t.grow(30)
    assert t["k"].tolist() == [k // 2 if k % 2 == 0 and k < 40 else -1 for k in range(70)]


def test_rows_that_stay_close_up_and_what_grows_later_is_fresh() -> None:
    t = filled(5)
    t.keep(np.array([True, False, True, False, True]))
    t.grow(1)
    assert t["k"].tolist() == [0, 2, 4, -1]
    assert t["w"][1].tolist() == [0.0, -2.0, -4.0, np.inf]


def test_a_table_comes_back_from_its_bytes() -> None:
    t, other = filled(19), filled(3)
    other.restore(load(dump(t.snapshot())))
    for name, column in t.snapshot().items():
        np.testing.assert_array_equal(other[name], column)
        assert other[name].dtype == column.dtype
