"""How late rows usually come: windows close once it has passed."""

from __future__ import annotations

import math

import numpy as np

from sdfstream.sync.bustime import Spread

MS = 1e6


def reported(spread: Spread, *messages: tuple[float, int]) -> None:
    """One tick of messages: lag of the oldest row in ms, rows."""
    for oldest_ms, rows in messages:
        spread.add(np.linspace(60.0, oldest_ms, rows) * MS)
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
    spread.add(np.array([130.0, 61.0]) * MS)
    again.restore(spread.snapshot())
    for one in (spread, again):
        one.end_tick()
    assert again.snapshot() == spread.snapshot() and again.value == spread.value == 130 * MS
