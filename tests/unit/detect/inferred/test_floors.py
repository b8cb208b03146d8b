"""The least round trip of every session."""

import numpy as np
import pyarrow as pa

from sdfstream.detect.inferred.floors import RoundTripFloors
from sdfstream.detect.sessions import Sessions

S = 1_000_000_000
T0 = 1_800_000_000 * S


def rows(*stamps: tuple[int, int | None, int | None, int | None]) -> pa.RecordBatch:
    columns = [
        pa.array([None if t is None else T0 + t for t in column], pa.int64()) for column in zip(*stamps, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=["t1_ns", "t2_ns", "t3_ns", "t4_ns"])


def make() -> tuple[RoundTripFloors, np.ndarray]:
    sessions = Sessions(100)
    keys = [("a/0", "b/0", "udp", 1, 0), ("b/0", "a/0", "udp", 1, 0), ("a/0", "c/0", "udp", 1, 0)]
    slots = sessions.of_names(keys, T0)
    return RoundTripFloors(sessions), slots


def pairs(floors: RoundTripFloors) -> list[tuple[int, int, float]]:
    return list(zip(*(column.tolist() for column in floors.pairs()), strict=True))


def test_it_is_the_least_of_a_pair_in_either_sense_without_the_turn_round() -> None:
    floors, (there, back, other) = make()
    assert pairs(floors) == []
    wild = 77 * S  # the other clock may read anything
    floors.take(rows((0, wild, wild + 500, 1_500), (0, wild, wild + 100, 900)), np.array([there, back]), T0)
    floors.take(rows((0, wild, wild + 500, 9_000), (0, wild, wild, 4_000)), np.array([there, other]), T0)
    assert pairs(floors) == [(0, 1, 800.0), (0, 2, 4_000.0)]


def test_rows_without_an_answer_or_over_a_clock_step_are_left_out() -> None:
    floors, (there, back, _) = make()
    floors.take(rows((0, None, None, None), (0, 5, None, 900), (900, 5, 5, 100)), np.array([there, back, there]), T0)
    floors.take(rows((0, 5, 6, 400)), np.array([-1]), T0)
    assert pairs(floors) == []


def test_a_floor_is_forgotten_after_twenty_minutes_and_with_its_session() -> None:
    floors, (there, _, other) = make()
    start = T0 // (600 * S) * 600 * S
    floors.take(rows((0, 0, 0, 100), (0, 0, 0, 100)), np.array([there, other]), start)
    floors.take(rows((0, 0, 0, 300)), np.array([there]), start + 600 * S)
    assert pairs(floors)[0] == (0, 1, 100.0)
    floors.take(rows((0, 0, 0, 200)), np.array([there]), start + 1200 * S)
    assert pairs(floors)[0] == (0, 1, 200.0)
    again = RoundTripFloors(floors.sessions)
    again.restore(floors.snapshot())
    assert pairs(again) == pairs(floors)
    floors.forget(np.array([there]))
    assert [p[:2] for p in pairs(floors)] == [(0, 2)]
