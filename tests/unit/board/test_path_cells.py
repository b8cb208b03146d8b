"""Cells of the map of paths: a percentile over the paths measured now, and nothing where nothing is known."""

from __future__ import annotations

from typing import Any

from sdfstream.board.board import Board
from sdfstream.board.path_cells import MOST_GROUPS, CellRow, rows
from sdfstream.records.fabric import host_of
from sdfstream.records.units import NS_PER_S
from tests.fixtures import board_messages as bm

LATER_NS = bm.NOW_NS + 60 * NS_PER_S


def paths(*said: dict[str, Any]) -> Board:
    board = Board()
    board.take([bm.owd(said)])
    return board


def cell(found: list[CellRow], src: str, dst: str, name: str = "values") -> Any:
    row = next(row for row in found if row.origin == src)
    return getattr(row, name)[row.dst.index(dst)]


def mapped(board: Board, figure: str = "owd", percentile: float = 50, now_ns: int = bm.NOW_NS) -> list[CellRow]:
    return rows(board.paths.figures(), now_ns, host_of, figure, percentile)[0]


def test_percentiles_are_by_nearest_rank() -> None:
    board = paths(*({"path": 50_000 + i, "owd_p50_ns": 1000.0 * i} for i in range(1, 11)))
    for percentile, expected in ((0, 1000), (50, 5000), (90, 9000), (99, 10_000), (100, 10_000)):
        assert round(cell(mapped(board, percentile=percentile), "h00", "h01")) == expected, percentile
    assert cell(mapped(board), "h00", "h01", "paths") == 10


def test_directions_are_cells_of_their_own() -> None:
    board = paths({}, {"src": "h01/r0", "dst": "h00/r0", "owd_p50_ns": 70_000.0})
    found = mapped(board)
    assert round(cell(found, "h00", "h01")) == 10_000
    assert round(cell(found, "h01", "h00")) == 70_000


def test_what_is_not_measured_has_no_figure() -> None:
    silent = {"n": 0, "lost": 2, "owd_p50_ns": float("nan"), "excess_p50_ns": float("nan")}
    found = mapped(paths(silent))
    assert (cell(found, "h00", "h01"), cell(found, "h00", "h01", "lost")) == (None, 1)
    old = mapped(paths({}), now_ns=LATER_NS)
    assert cell(old, "h00", "h01") is None, "no row for a minute: unknown"
    assert (cell(old, "h00", "h01", "paths"), cell(old, "h00", "h01", "measured")) == (1, 0)


def test_the_way_back_goes_from_the_reflector_to_the_sender_and_has_no_loss() -> None:
    board = paths({"n": 3, "lost": 1}, {"dir": "rev", "owd_p50_ns": 70_000.0})
    assert round(cell(mapped(board), "h01", "h00")) == 70_000
    found = mapped(board, "loss")
    assert cell(found, "h00", "h01") == 0.25
    assert cell(found, "h01", "h00") is None


def test_a_map_is_bounded_and_says_so() -> None:
    board = paths(*({"src": f"h{i:03d}/r0", "dst": "x/r0"} for i in range(MOST_GROUPS + 5)))
    found, left_out = rows(board.paths.figures(), bm.NOW_NS, host_of, "owd", 50)
    assert left_out == 6
    assert len(found) <= MOST_GROUPS


def test_no_path_no_row() -> None:
    assert mapped(Board()) == []
