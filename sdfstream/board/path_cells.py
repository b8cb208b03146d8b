"""Paths summed up by pairs of groups (hosts, or leaves), for maps of many: one figure a cell. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sdfstream.board.path_list import code_of, measures_of
from sdfstream.board.paths import PathFigures
from sdfstream.records.units import Float64s, Int64s

MOST_GROUPS: Final = 200
"""Rows of a map; nobody can tell more of them apart."""
FIGURES: Final = ("owd", "excess", "loss", "ce")


@dataclass(frozen=True, slots=True)
class CellRow:
    """All cells of the packets that leave one group: lists are of one length, an element a destination."""

    origin: str
    dst: list[str]
    values: list[float | None]
    """Percentile over the cell's measured paths; None: nothing is known of any of them."""
    floor_ns: list[float | None]
    """The least delay without queues, by which groups are near or far."""
    paths: list[int]
    """Paths known."""
    measured: list[int]
    """Of them, with the figure now."""
    lost: list[int]
    """Of them, of which every exchange is lost now."""


def rows(
    figures: PathFigures, now_ns: int, group_of: Callable[[str], str], figure: str, percentile: float
) -> tuple[list[CellRow], int]:
    """The map's rows in order of their names, and how many groups were left out beyond `MOST_GROUPS`.

    Parameters
    ----------
    figures : PathFigures
    now_ns : int, bus time
        A path without a row for 5 s before it counts as known and not measured.
    group_of : callable
        Group of a NIC id.
    figure : str
        One of `FIGURES`: delay and excess in ns, loss and CE as shares.
    percentile : float, 0..100
        Over the measured paths of a cell: the smallest value that so many per cent of them do not exceed.
    """
    names = [group_of(nic) for nic in figures.nics]
    groups = sorted(set(names))
    left_out, groups = max(0, len(groups) - MOST_GROUPS), groups[:MOST_GROUPS]
    number = {name: at for at, name in enumerate(groups)}
    group = np.array([number.get(name, -1) for name in names] or [-1], np.int64)
    src, dst = group[code_of(figures.keys, 40, 0xFFFFFF)], group[code_of(figures.keys, 16, 0xFFFFFF)]
    back = np.array([selector[3] == "rev" for selector in figures.selectors] or [False])
    back = back[code_of(figures.keys, 0, 0xFFFF)]  # of a session's way back its reflector is the sender
    src, dst = np.where(back, dst, src), np.where(back, src, dst)
    shown = (src >= 0) & (dst >= 0)
    cell = (src * len(groups) + dst)[shown]
    measures = measures_of(figures, now_ns)
    by_name = {"owd": measures.p50_ns, "excess": measures.excess_ns, "loss": measures.loss, "ce": measures.ce}
    value = np.where(measures.fresh, by_name[figure], np.nan)[shown]
    floor = np.where(measures.fresh, measures.p50_ns - measures.excess_ns, np.nan)[shown]
    lost = (measures.fresh & ~measures.measured)[shown]
    return list(_rows(groups, cell, value, floor, lost, percentile)), left_out


def _rows(
    groups: Sequence[str], cell: Int64s, value: Float64s, floor: Float64s, lost: Any, percentile: float
) -> list[CellRow]:
    count = len(groups)
    known, gone = np.bincount(cell, minlength=count * count), np.bincount(cell[lost], minlength=count * count)
    has = np.isfinite(value)
    measured = np.bincount(cell[has], minlength=count * count)
    figure = _percentiles(cell[has], value[has], measured, percentile)
    near = np.full(count * count, np.inf)
    np.minimum.at(near, cell[np.isfinite(floor)], floor[np.isfinite(floor)])
    made = []
    for at, origin in enumerate(groups):
        cells = np.flatnonzero(known[at * count : (at + 1) * count]) + at * count
        if cells.size:
            made.append(
                CellRow(
                    origin,
                    [groups[c % count] for c in cells.tolist()],
                    [_finite(v) for v in figure[cells].tolist()],
                    [_finite(v) for v in near[cells].tolist()],
                    known[cells].tolist(),
                    measured[cells].tolist(),
                    gone[cells].tolist(),
                )
            )
    return made


def _percentiles(cell: Int64s, value: Float64s, measured: Int64s, percentile: float) -> Float64s:
    """Nearest-rank percentile of every cell, NaN where it has no value."""
    found = np.full(len(measured), np.nan)
    ordered = value[np.lexsort((value, cell))]
    ends = np.cumsum(measured)
    has = measured > 0
    rank = np.maximum(np.ceil(measured[has] * percentile / 100.0).astype(np.int64), 1) - 1
    found[has] = ordered[(ends - measured)[has] + rank]
    return found


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
