"""How late rows and reports usually come: where the present is, when windows close, which tick the mesh works on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sdfstream.numeric.codec import dump, load
from sdfstream.stats import Counters
from sdfstream.sync.bustime import Lag, NewestLag, ReportLateness, Spread, Ticks

MS, S = 1e6, 1e9


def test_every_end_of_a_slice_comes_once_whoever_told_of_the_time() -> None:
    ends = [(at, at % 100 == 0) for at in range(50, 1000, 50)]
    for cut in ([999], [50, 99, 100, 380, 999], list(range(1000))):
        ticks, after, found = Ticks(1000, Counters("x")), 7, []
        assert not list(ticks.slices(after, 500)), "not begun"
        ticks.begin(7 * 10**6)
        for now in cut:
            for at_ns, is_tick in ticks.slices(after * 10**6, now * 10**6):
                after = at_ns // 10**6
                found.append((after, is_tick))
        assert found == ends


def test_of_a_jump_only_the_newest_ticks_are_left() -> None:
    ticks = Ticks(2, Counters("x"))
    ticks.begin(0)
    found = [(at_ns // 10**6, is_tick) for at_ns, is_tick in ticks.slices(0, 10_060 * 10**6)]
    assert found[-5:] == [(9850, False), (9900, True), (9950, False), (10_000, True), (10_050, False)]
    assert [at for at, is_tick in found if is_tick] == [9800, 9900, 10_000]


def reported(spread: Spread, *messages: tuple[float, int]) -> None:
    """One tick of messages: lag of the oldest row in ms, rows."""
    for oldest_ms, rows in messages:
        spread.add(np.linspace(60.0, oldest_ms, rows) * MS, np.zeros(rows, np.int64))
    spread.end_tick()


def test_nothing_is_promised_before_twenty_ticks_held_rows() -> None:
    spread = Spread()
    for _ in range(19):
        reported(spread, (110, 50))
        assert spread.value == math.inf
    reported(spread, (112, 50))
    assert spread.value == 112 * MS


def test_one_slow_agent_of_two_hundred_holds_nobody_up_and_one_of_three_does() -> None:
    many, few = Spread(), Spread()
    for _ in range(20):
        reported(many, *[(110, 50)] * 199, (900, 50))
        reported(few, *[(110, 50)] * 2, (900, 50))
    assert many.value == 110 * MS and few.value == 900 * MS


def test_what_was_slow_for_a_moment_counts_for_two_seconds_and_no_longer() -> None:
    spread = Spread()
    for _ in range(20):
        reported(spread, (110, 50))
    reported(spread, (160, 50))
    spread.end_tick()  # a tick without rows tells nothing
    for _ in range(19):
        assert spread.value == 160 * MS
        reported(spread, (110, 50))
    assert spread.value == 160 * MS
    reported(spread, (110, 50))
    assert spread.value == 110 * MS


def test_it_goes_on_from_a_snapshot_in_mid_tick() -> None:
    spread, again = Spread(), Spread()
    for n in range(25):
        reported(spread, (100 + n % 7, 40))
    spread.add(np.array([130.0, 61.0]) * MS, np.zeros(2, np.int64))
    again.restore(spread.snapshot())
    for one in (spread, again):
        one.end_tick()
    assert again.snapshot() == spread.snapshot() and again.value == spread.value == 130 * MS


def of_rows(newest: NewestLag, usual_s: float, *lags_s: float) -> float:
    """One tick of rows with these lags; the smallest one, s."""
    newest.add(np.array(lags_s) * S, usual_s * S)
    return newest.end_tick() / S


def test_rows_far_from_the_usual_lag_do_not_count_while_others_are_near() -> None:
    newest = NewestLag()
    for _ in range(60):
        assert of_rows(newest, 0.0, 0.2, 0.1, np.nan, 0.3, -30.0, 20.0) == 0.1


@pytest.mark.parametrize("away_s", [-30.0, 12.0, 30.0])
def test_a_lag_that_most_rows_contradict_for_two_seconds_is_given_up(away_s: float) -> None:
    newest = NewestLag()
    for _ in range(19):
        assert of_rows(newest, 0.0, 0.1, away_s, away_s + 0.1, away_s + 0.2) == 0.1
    newest.end_tick()  # a tick without rows tells nothing
    assert of_rows(newest, 0.0, 0.1, away_s, away_s + 0.1, away_s + 0.2) == pytest.approx(away_s + 0.1)


def test_a_clock_set_by_an_hour_is_no_lag() -> None:
    newest = NewestLag()
    assert all(of_rows(newest, 0.0, 3600.0, -3600.0) == math.inf for _ in range(50))


def test_the_lag_is_the_smallest_of_two_seconds_and_remembers_the_earliest_of_a_minute() -> None:
    lag = Lag()
    for tick in range(100):
        lag.add(0.1 * S if tick == 10 else 0.2 * S)
        lag.add(math.inf)
        lag.end_tick()
        lag.end_tick()  # a tick without rows tells nothing
        assert lag.value == (0.1 * S if 10 <= tick < 30 else 0.2 * S)
    assert lag.earliest == 0.1 * S
    for _ in range(600):
        lag.add(0.2 * S)
        lag.end_tick()
    assert lag.earliest == 0.2 * S


def test_a_far_lag_counts_at_once_where_no_process_tells_a_nearer_one() -> None:
    lag = Lag()
    for reported_s in ((0.1, 0.1), (30.0, 0.2), (30.0, 30.1)):
        for one in reported_s:
            lag.add(one * S)
        lag.end_tick()
    assert lag.value == 30.0 * S


def reports(lateness: ReportLateness, *messages: tuple[float, int]) -> int:
    """One tick of messages: lateness in s, rows; the ticks that the mesh is behind then."""
    for late_s, rows in messages:
        lateness.add(late_s * S, rows)
    lateness.end_tick()
    return lateness.ticks


def test_the_mesh_is_as_far_behind_as_reports_come_and_no_further() -> None:
    lateness = ReportLateness()
    assert reports(lateness) == reports(lateness, (0.0, 5)) == reports(lateness, (0.1, 5)) == 1
    assert reports(lateness, (0.1, 5), (0.15, 5)) == 2
    assert [reports(lateness, (0.0, 5)) for _ in range(20)] == [2] * 19 + [1]


def test_one_late_process_of_many_holds_the_mesh_up_by_two_seconds_at_most_and_most_of_them_by_ten() -> None:
    assert reports(ReportLateness(), (0.05, 9), (1.5, 1)) == 15
    assert reports(ReportLateness(), (0.05, 9), (60.0, 1)) == 20
    assert reports(ReportLateness(), (0.05, 4), (5.0, 3), (6.0, 3)) == 50
    assert reports(ReportLateness(), (60.0, 9), (0.05, 1)) == 100


@pytest.mark.parametrize("make", [NewestLag, Lag, ReportLateness])
def test_each_goes_on_from_a_snapshot(make: Callable[[], Any]) -> None:
    one, again = make(), make()
    for k in range(30):
        if make is NewestLag:
            one.add(np.array([0.1, 40.0 + k, 41.0]) * S, 0.0)
        else:
            one.add(0.1 * k * S, 3) if make is ReportLateness else one.add(0.1 * k * S)
        if k < 29:
            one.end_tick()
    again.restore(load(dump(one.snapshot())))
    assert again.end_tick() == one.end_tick()
    assert dump(again.snapshot()) == dump(one.snapshot())
