"""Readings of clocks hours apart, in messages that wait, on the bus's time line."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.records.bustime import BusTime, as_of_ns

MS, S = 1_000_000, 1_000_000_000
T0 = 1_800_000_000 * S
CLOCK = 7_200 * S
"""The agent's clock is ahead of the bus by this."""


def feed(bus: BusTime, at_ns: int, late_ns: int) -> int:
    """One message about `at_ns` - `late_ns`; its dated instant."""
    reading = np.array([at_ns - late_ns + CLOCK])
    bus.note("a", int(reading[0]), at_ns)
    return int(bus.of("a", reading, at_ns)[0])


def test_what_waited_is_dated_back_once_a_fast_message_was_seen() -> None:
    bus = BusTime()
    assert feed(bus, T0, 300 * MS) == T0  # nothing is known yet
    feed(bus, T0 + S, 2 * MS)
    assert feed(bus, T0 + 2 * S, 2 * MS) == T0 + 2 * S
    assert feed(bus, T0 + 14 * S, 10 * S) == T0 + 4 * S + 2 * MS
    assert BusTime().of("b", np.array([5]), T0).tolist() == [T0]


def test_what_one_instant_teaches_counts_from_the_next() -> None:
    bus = BusTime()
    feed(bus, T0, 500 * MS)
    feed(bus, T0 + S, 500 * MS)
    first, second = feed(bus, T0 + 2 * S, 0), feed(bus, T0 + 2 * S, 400 * MS)
    assert (first, second) == (T0 + 2 * S, T0 + 2 * S)
    assert feed(bus, T0 + 3 * S, 400 * MS) == T0 + 3 * S - 400 * MS


def test_a_clock_that_steps_or_drifts_is_followed() -> None:
    bus = BusTime()
    for i in range(5):
        feed(bus, T0 + i * S, 0)
    back = np.array([T0 + 10 * S + CLOCK - 3600 * S])
    bus.note("a", int(back[0]), T0 + 10 * S)
    assert bus.of("a", back, T0 + 10 * S)[0] == T0 + 10 * S - 60 * S  # bounded, and only once
    assert bus.of("a", back + S, T0 + 11 * S)[0] == T0 + 11 * S
    slow = BusTime()
    for i in range(2000):
        assert abs(feed(slow, T0 + i * S, i * 50_000) - (T0 + i * S)) < MS  # 50 ppm slow


@given(st.lists(st.tuples(st.integers(0, 5 * S), st.integers(0, 20 * S)), max_size=30), st.integers(0, 29))
def test_dates_never_lie_ahead_and_state_can_be_taken_up_anywhere(steps: list[tuple[int, int]], cut: int) -> None:
    one, two, at = BusTime(), BusTime(), T0
    for i, (passed, late) in enumerate(steps):
        at += passed
        dated = feed(one, at, late)
        assert at - 60 * S <= dated <= at
        if i == cut:
            again = BusTime()
            again.restore(two.snapshot())
            two = again
        assert feed(two, at, late) == dated


def test_no_reading_is_too_wild() -> None:
    """Any agent may write any number; a stage must not stop for it."""
    for wild in (2**63 - 1, -(2**63), 2**64, -(2**70), 10**400):
        bus = BusTime()
        bus.note("h00", wild, T0)
        for reading in (0, T0, 2**63 - 1, -(2**63), 10**400):
            assert T0 - 61 * S <= bus.of_one("h00", reading, T0 + 1) <= T0 + 1


def test_a_clock_set_back_by_seconds_is_no_lateness_and_a_late_row_between_is() -> None:
    bus = BusTime()
    for i in range(20):
        feed(bus, T0 + i * S // 10, 0)
    for i in range(20, 60):  # set back by 10 s: readings stay behind
        dated = feed(bus, T0 + i * S // 10, 10 * S)
    assert dated == T0 + 59 * S // 10
    bus = BusTime()
    for i in range(60):  # rows kept over an outage come between newer ones
        dated = feed(bus, T0 + i * S // 10, 10 * S if i > 20 and i % 2 else 0)
    assert dated == T0 + 59 * S // 10 - 10 * S


def test_only_what_is_late_is_dated_back() -> None:
    assert [as_of_ns(T0, T0 + late) - T0 for late in (0, S, S + 1)] == [0, S, 0]
