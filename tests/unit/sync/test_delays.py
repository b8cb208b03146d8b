"""What a path remembers of its smallest delays depends on its own windows only."""

from __future__ import annotations

import numpy as np

from sdfstream.sync.delays import excess
from sdfstream.sync.registry import path_table

MEMORY = 100


def run(paths: int, windows: list[tuple[int, list[int], float]]) -> list[list[float]]:
    """Excess of each window's paths; a window is (at, paths heard, their delay)."""
    table = path_table()
    table.grow(paths)
    found = []
    for at, had, delay in windows:
        path, delays = np.array(had), np.full(len(had), delay)
        direction = np.zeros(len(had), dtype=np.int64)
        found.append(excess(table, path, direction, delays, delays + 1.0, at, MEMORY).tolist())
    return found


def test_the_floor_is_remembered_for_one_to_two_stretches() -> None:
    windows = [(at, [0], 5.0 if at == 0 else 9.0) for at in range(0, 300, 10)]
    found = [row[0] for row in run(1, windows)]
    assert found[0] == 1.0
    assert found[19] == 5.0, "the stretch before still counts"
    assert found[20] == 1.0


def test_others_windows_change_nothing() -> None:
    mine = [(0, [0], 5.0), (95, [0], 9.0), (130, [0], 9.0), (240, [0], 9.0)]
    others = [(at, [1], 7.0) for at in range(5, 240, 10)]
    both = sorted([*mine, *others])
    alone = run(2, mine)
    assert [row for row, window in zip(run(2, both), both, strict=True) if window in mine] == alone


def test_a_path_long_silent_begins_anew() -> None:
    assert run(1, [(0, [0], 5.0), (250, [0], 9.0)])[1] == [1.0]
