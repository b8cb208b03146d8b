"""The watermark: how far agents' reports have come together, and what of it counts as progress."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.detect.watermark import Watermark
from sdfstream.records.units import ABSENT_NS

MS, S = 1_000_000, 1_000_000_000
T0 = 1_800_000_000 * S
TICK = 100 * MS


def run(mark: Watermark, reported_s: list[list[float]], first: int = 0) -> int:
    """One boundary for each list of hosts' reports, seconds since T0; the last boundary."""
    for i, row in enumerate(reported_s, first):
        mark.advance(np.array([T0 + round(x * S) for x in row]), T0 + i * TICK)
    return T0 + (first + len(reported_s) - 1) * TICK


def test_on_time_it_goes_with_the_bus_and_lags_nothing() -> None:
    mark = Watermark()
    now = run(mark, [[i / 10] * 4 for i in range(50)])
    assert mark.lag_ns(now) == 0 and not mark.stands(now)
    assert mark.progress_ns == 49 * TICK


def test_one_silent_host_of_many_does_not_hold_it() -> None:
    mark = Watermark()
    now = run(mark, [[i / 10] * 7 + [0.0] for i in range(50)])
    assert mark.lag_ns(now) == 0 and mark.progress_ns == 49 * TICK


def test_a_backlog_read_in_one_is_no_progress_of_its_length() -> None:
    mark = Watermark()
    run(mark, [[i / 10] * 4 for i in range(10)])
    now = run(mark, [[0.9] * 4] * 50, 10)
    assert mark.stands(now) and mark.lag_ns(now) == 5 * S
    assert mark.progress_ns == 9 * TICK
    now = run(mark, [[6.0, 0.9, 0.9, 0.9]], 60)
    assert not mark.stands(now) and mark.lag_ns(now) == 0
    assert mark.progress_ns == 10 * TICK
    assert mark.excused_ns() == 5 * S


def test_a_constant_lag_is_progress_at_full_pace() -> None:
    mark = Watermark()
    now = run(mark, [[i / 10 - 4.0] * 4 for i in range(50)])
    assert mark.lag_ns(now) == 4 * S and mark.progress_ns == 49 * TICK


def test_nobody_has_reported() -> None:
    mark = Watermark()
    mark.advance(np.full(3, ABSENT_NS), T0)
    assert (mark.lag_ns(T0 + S), mark.stands(T0 + 9 * S), mark.progress_ns) == (0, False, 0)


@given(st.lists(st.lists(st.integers(0, 20_000), min_size=5, max_size=5), min_size=2, max_size=40), st.integers(0, 39))
def test_progress_is_no_faster_than_the_bus_and_state_can_be_taken_up_anywhere(rows: list[list[int]], cut: int) -> None:
    one, two, last = Watermark(), Watermark(), 0
    for i, row in enumerate(rows):
        reported = np.array([T0 + x * MS for x in row])
        one.advance(reported, T0 + i * TICK)
        two.advance(reported, T0 + i * TICK)
        assert 0 <= one.progress_ns - last <= TICK
        last = one.progress_ns
        if i == cut:
            saved, two = two.snapshot(), Watermark()
            two.restore(saved)
    assert one == two
    assert one.reported_ns.tolist() == two.reported_ns.tolist()
    assert one.passed_over.tolist() == two.passed_over.tolist()


def test_names_that_spoke_once_do_not_make_it_stand() -> None:
    mark = Watermark()
    run(mark, [[i / 10] * 4 for i in range(10)])
    once = [1.0 + x / 10 for x in range(40)]  # a new name with each boundary, never heard again
    now = run(mark, [[i / 10] * 4 + once[: i - 9] for i in range(10, 120)], 10)
    assert mark.lag_ns(now) == 0 and not mark.stands(now)
    assert mark.excused_ns() < 4 * S


def test_that_all_are_gone_is_no_progress() -> None:
    mark = Watermark()
    run(mark, [[i / 10] * 4 for i in range(10)])
    now = run(mark, [[0.9] * 4] * 300, 10)
    assert mark.stands(now) and mark.progress_ns == 9 * TICK
