"""The adjusted Rand index, and groups of NICs by the newest delays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.score.detect.grouping import MeasuredGroups, adjusted_rand
from tests.fixtures import board_messages as bm
from tests.unit.board.test_topology import delays

LABELS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40)


@given(LABELS)
def test_it_is_the_same_whatever_the_names_and_the_order_of_the_two(both: list[tuple[int, int]]) -> None:
    found, true = [a for a, _ in both], [b for _, b in both]
    assert adjusted_rand(found, true) == pytest.approx(adjusted_rand(true, [f"g{7 - a}" for a in found]))
    assert adjusted_rand(found, true) <= 1.0 + 1e-12
    assert adjusted_rand(true, true) == 1.0


def test_a_value_by_hand() -> None:
    """Contingency 2 1 / 0 3: 1 + 3 equal pairs, rows 3 + 3, columns 1 + 6, of 15."""
    assert adjusted_rand([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]) == pytest.approx((4 - 42 / 15) / (6.5 - 42 / 15))


def test_groups_by_measured_delays_agree_with_the_leaves() -> None:
    leaf = [0, 1, 2, 0, 1, 2, 0, 1, 2]
    groups = MeasuredGroups(bm.NOW_NS - 1)
    groups.take(delays(leaf))
    assert groups.against({f"h{i}/r0": f"l{n}" for i, n in enumerate(leaf)}) == 1.0
    assert groups.against({"h99/r0": "l0"}) is None


def test_what_came_before_is_not_looked_at() -> None:
    groups = MeasuredGroups(bm.NOW_NS + 1)
    groups.take(delays([0, 1, 0, 1]))
    assert groups.against({"h0/r0": "l0"}) is None
