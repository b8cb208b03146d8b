"""How a session begins: wide, without history, and where its first packets were, not where it is by now."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.sync import edge_filter, sessions


def first_block(offset_ns: float, age_s: float) -> sessions.FirstBlock:
    return sessions.FirstBlock(*(np.array([x]) for x in (offset_ns, 0.0, age_s, 8000.0)))


def test_a_first_block_of_long_ago_says_where_the_line_was_and_nothing_of_its_slope() -> None:
    t = sessions.session_table()
    t.grow(1)
    sessions.start(t, np.array([0]), first_block(250.0, age_s=1.2), 50_000.0)
    then_ns, variance, _, with_slope = edge_filter.state_before(t, np.array([0]), np.array([1.2]))
    assert then_ns[0] == 250.0
    assert variance[0] == pytest.approx(8000.0**2)
    assert abs(with_slope[0]) < 1e-3
    assert float(t["offset_var_ns2"][0]) == pytest.approx(8000.0**2 + (1.2 * 50_000.0) ** 2)


def test_a_filter_that_starts_is_wide_and_has_no_history() -> None:
    t = sessions.session_table()
    t.grow(2)
    past = {"disagreement_ns2": 5.0, "bias_ns": 3.0, "assessed_ticks": 7.0, "blocks": 80.0, "moment_blocks": 9.0}
    past |= {"breached_blocks": 2, "quiet": True}
    for name, value in past.items():
        t[name] = value
    sessions.start(t, np.array([1]), first_block(250.0, age_s=0.0), 50_000.0)
    assert t["offset_ns"].tolist() == [0.0, 250.0]
    assert float(t["offset_var_ns2"][1]) == 8000.0**2
    assert 0.0 < float(t["base_delay_ns"][1]) < 8000.0
    for name in past:
        assert not t[name][1]
        assert t[name][0]
