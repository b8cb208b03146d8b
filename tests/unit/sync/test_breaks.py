"""Floors that break or get lost: each cause by itself, as a lone session sees it (6 a tick, queues of 50 ns)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fixtures.sync_edge import Lone

SEEDS = (1, 2)
SETTLED_S = 20.0


def settled(seed: int) -> Lone:
    lone = Lone(seed)
    lone.run(SETTLED_S)
    assert abs(lone["offset_ns"] - 100.0) < 20.0
    assert abs(lone["base_delay_ns"] - 8_000.0) < 20.0
    assert reported(lone) == (0, 0, 0)
    return lone


def reported(lone: Lone) -> tuple[int, int, int]:
    """Steps, shorter paths, longer paths."""
    return lone.count("floors-broken"), lone.count("reroutes", "shorter"), lone.count("reroutes", "longer")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", [250e3, -250e3, 3_000.0, -3_000.0])
def test_too_fast_in_one_direction_and_as_much_too_slow_in_the_other_is_a_step(seed: int, by: float) -> None:
    lone = settled(seed)
    lone.s += by
    lone.run(0.4)
    assert reported(lone) == (1, 0, 0)
    assert lone.edges is not None and lone.edges.jumped.tolist() == [1.0]
    assert float(lone.edges.step_ns[0]) == pytest.approx(abs(by), rel=0.1)
    assert abs(lone["offset_ns"] - lone.s) < 200.0
    for _ in range(20):
        lone.tick()
        # it may as well be a slew: until the slope is known the offset strays, within what it knows of itself
        assert abs(lone["offset_ns"] - lone.s) < 3.4 * lone["offset_var_ns2"] ** 0.5 + 20.0
    lone.run(5.0)
    assert abs(lone["offset_ns"] - lone.s) < 20.0
    assert abs(lone["base_delay_ns"] - lone.base_delay_ns) < 20.0
    assert reported(lone)[1:] == (0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_too_fast_in_both_directions_is_a_shorter_path_and_moves_no_clock(seed: int) -> None:
    lone = settled(seed)
    lone.base_delay_ns -= 3_000.0
    lone.run(1.0)
    assert reported(lone) == (0, 1, 0)
    assert lone["base_delay_ns"] == pytest.approx(lone.base_delay_ns, abs=150.0)
    assert abs(lone["offset_ns"] - lone.s) < 150.0
    lone.run(15.0)
    assert abs(lone["offset_ns"] - lone.s) < 20.0
    assert reported(lone) == (0, 1, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_packet_near_the_base_delay_in_either_direction_is_a_longer_path_after_a_while(seed: int) -> None:
    lone = settled(seed)
    lone.base_delay_ns += 3_000.0
    lone.run(5.0)
    assert reported(lone) == (0, 0, 0), "a queue both ways would look the same so far"
    lone.run(30.0)
    steps, shorter, longer = reported(lone)
    assert (steps, shorter) == (0, 0) and longer >= 1
    assert lone["base_delay_ns"] == pytest.approx(lone.base_delay_ns, abs=50.0)
    assert abs(lone["offset_ns"] - lone.s) < 50.0


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_queue_in_one_direction_for_a_minute_moves_neither_base_delay_nor_clock(seed: int, direction: int) -> None:
    lone = settled(seed)
    lone.queued[direction] = 20_000.0
    worst = 0.0
    for _ in range(60):
        lone.run(1.0)
        worst = max(worst, abs(lone["offset_ns"] - lone.s))
    print(f"seed {seed}, lane {direction}: worst {worst:.1f} ns over a minute of 20 µs one way")
    assert worst < 60.0
    assert abs(lone["base_delay_ns"] - lone.base_delay_ns) < 60.0
    lone.queued[direction] = 0.0
    lone.run(5.0)
    assert abs(lone["offset_ns"] - lone.s) < 30.0
    assert reported(lone) == (0, 0, 0)


@pytest.mark.parametrize("stamp", [-1e9, -5e5, -2e3])
@pytest.mark.parametrize("direction", [0, 1])
def test_a_lone_bad_stamp_is_without_consequence(stamp: float, direction: int) -> None:
    lone = settled(1)
    before = {name: lone[name] for name in ("offset_ns", "base_delay_ns", "offset_var_ns2")}
    delays = [np.full(6, lone.base_delay_ns + lone.s + 30.0), np.full(6, lone.base_delay_ns - lone.s + 30.0)]
    delays[direction][2] += stamp
    lone.tick(*delays)
    assert lone["breached_blocks"] == 1
    assert lone["offset_ns"] == pytest.approx(before["offset_ns"], abs=2.0)
    assert lone["base_delay_ns"] == pytest.approx(before["base_delay_ns"], abs=2.0)
    assert lone["offset_var_ns2"] < 1.2 * before["offset_var_ns2"]
    assert lone.edges is not None and float(lone.edges.weight[0]) > 0.0
    lone.run(3.0)
    assert lone["breached_blocks"] == 0
    assert abs(lone["offset_ns"] - lone.s) < 20.0
    assert reported(lone) == (0, 0, 0)


def test_a_session_whose_floor_is_being_broken_has_no_vote() -> None:
    lone = settled(1)
    lone.s += 250e3
    lone.run(0.2)
    assert lone["breached_blocks"] == 2
    lone.tick()
    assert lone.edges is not None and float(lone.edges.weight[0]) == 0.0


def test_bad_stamps_that_keep_coming_apart_from_each_other_do_not_add_up() -> None:
    lone = settled(2)
    for _ in range(40):
        delays = np.full(6, lone.base_delay_ns + lone.s + 30.0)
        delays[0] -= 4_000.0
        lone.tick(fwd=delays)
        lone.run(0.2)
    assert reported(lone) == (0, 0, 0)
    assert abs(lone["offset_ns"] - lone.s) < 20.0
