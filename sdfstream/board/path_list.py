"""Paths one page at a time: chosen by filters, in order of their ids, without a Python object for those not shown."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.board.paths import STALE_NS, PathFigures
from sdfstream.records.fabric import PathId, host_of
from sdfstream.records.units import Bools, Float64s, Int64s

PathKey = tuple[str, str, str, int, int, str]
"""The fields of a path id, which lists are in the order of."""


@dataclass(frozen=True, slots=True)
class PathFilter:
    """Which paths; None: any."""

    src: str | None = None
    """NIC id, or a host with all its NICs."""
    dst: str | None = None
    transport: str | None = None
    dscp: int | None = None
    dir: str | None = None
    state: str | None = None
    """``measured``, ``lost`` or ``unknown``."""
    min_loss: float | None = None
    min_excess_ns: float | None = None


def page(
    figures: PathFigures, now_ns: int, where: PathFilter, after: PathKey | None, most: int
) -> tuple[list[dict[str, Any]], int]:
    """The first `most` chosen paths behind `after`, and how many are chosen in all.

    A path without a row for `STALE_NS` is ``unknown`` and has no figures; one of which every exchange of the last
    seconds was lost is ``lost``.
    """
    measures = measures_of(figures, now_ns)
    chosen = _chosen(figures, measures, where)
    total = int(chosen.sum())
    order, least = _ranks(figures, after)
    rows = np.flatnonzero(chosen & (order > least))
    if rows.size > most:
        rows = rows[np.argpartition(order[rows], most)[:most]]
    rows = rows[np.argsort(order[rows])]
    return [_item(figures, measures, row, now_ns) for row in rows.tolist()], total


@dataclass(frozen=True, slots=True)
class PathMeasures:
    """What each path says now; arrays are (n,), NaN where a figure is not known."""

    fresh: Bools
    p50_ns: Float64s
    excess_ns: Float64s
    loss: Float64s
    ce: Float64s

    @property
    def measured(self) -> Bools:
        """Whether it has a delay now."""
        found: Bools = self.fresh & np.isfinite(self.p50_ns)
        return found


def measures_of(figures: PathFigures, now_ns: int) -> PathMeasures:
    """What each path says at `now_ns`; its figures are of `PathFigures`, fresh or not.

    An exchange that is lost has no direction: it is told of the way out, and the way back has no loss.
    """
    sums = figures.sums
    back = np.array([selector[3] == "rev" for selector in figures.selectors] or [False])
    with np.errstate(invalid="ignore", divide="ignore"):
        return PathMeasures(
            now_ns - figures.seen_at_ns <= STALE_NS,
            sums["p50"] / sums["weight"],
            sums["excess"] / sums["weight"],
            np.where(back[code_of(figures.keys, 0, 0xFFFF)], np.nan, sums["lost"] / (sums["n"] + sums["lost"])),
            sums["ce"] / sums["n"],
        )


def _chosen(figures: PathFigures, measures: PathMeasures, where: PathFilter) -> Bools:
    keys = figures.keys
    chosen = np.ones(len(keys), np.bool_)
    for wanted, shift in ((where.src, 40), (where.dst, 16)):
        if wanted is not None:
            nics = np.array([wanted in (nic, host_of(nic)) for nic in figures.nics] or [False])
            chosen &= nics[code_of(keys, shift, 0xFFFFFF)]
    fields = ((where.transport, 0), (where.dscp, 2), (where.dir, 3))
    wanted_fields = [(wanted, at) for wanted, at in fields if wanted is not None]
    if wanted_fields:
        fits = np.array([all(s[at] == wanted for wanted, at in wanted_fields) for s in figures.selectors] or [False])
        chosen &= fits[code_of(keys, 0, 0xFFFF)]
    if where.state is not None:
        states = {"measured": measures.measured, "unknown": ~measures.fresh}
        chosen &= states.get(where.state, measures.fresh & ~measures.measured)
    with np.errstate(invalid="ignore"):
        if where.min_loss is not None:
            chosen &= measures.fresh & (measures.loss >= where.min_loss)
        if where.min_excess_ns is not None:
            chosen &= measures.fresh & (measures.excess_ns >= where.min_excess_ns)
    return chosen


def _ranks(figures: PathFigures, after: PathKey | None) -> tuple[npt.NDArray[np.uint64], np.uint64]:
    """A number of every path that orders them by their ids, and the number of `after`, which need not be known now."""
    nics, selectors = sorted(figures.nics), sorted(figures.selectors)
    nic_ranks = _rank_of(figures.nics, nics)
    selector_ranks = _rank_of(figures.selectors, selectors)
    keys = figures.keys
    order = (
        nic_ranks[code_of(keys, 40, 0xFFFFFF)] << np.uint64(40)
        | nic_ranks[code_of(keys, 16, 0xFFFFFF)] << np.uint64(16)
        | selector_ranks[code_of(keys, 0, 0xFFFF)]
    )
    if after is None:
        return order, np.uint64(0)
    least = 0
    levels: tuple[tuple[Sequence[Any], Any, int], ...]
    levels = ((nics, after[0], 40), (nics, after[1], 16), (selectors, after[2:], 0))
    for among, value, shift in levels:
        at = bisect.bisect_left(among, value)
        if at < len(among) and among[at] == value:
            least |= at + 1 << shift
        else:  # gone meanwhile: behind all that come before it
            return order, np.uint64(least | at << shift | ((1 << shift) - 1 if at else 0))
    return order, np.uint64(least)


def _rank_of(values: Sequence[Any], ordered: Sequence[Any]) -> npt.NDArray[np.uint64]:
    """Rank of each value, from 1."""
    rank = {value: at + 1 for at, value in enumerate(ordered)}
    return np.array([rank[value] for value in values] or [0], np.uint64)


def code_of(keys: npt.NDArray[np.uint64], shift: int, mask: int) -> Int64s:
    """Some bits of every key of `PathFigures`."""
    return (keys >> np.uint64(shift) & np.uint64(mask)).astype(np.int64)


def _item(figures: PathFigures, measures: PathMeasures, row: int, now_ns: int) -> dict[str, Any]:
    key = int(figures.keys[row])
    transport, path, dscp, direction = figures.selectors[key & 0xFFFF]
    where = PathId(figures.nics[key >> 40], figures.nics[key >> 16 & 0xFFFFFF], transport, path, dscp, direction)
    fresh = bool(measures.fresh[row])
    state = "measured" if bool(measures.measured[row]) else "lost" if fresh else "unknown"
    said: dict[str, Any] = {"id": str(where), **where._asdict(), "state": state}
    for name, values in (
        ("owd_p50_ns", measures.p50_ns), ("excess_p50_ns", measures.excess_ns), ("loss", measures.loss),
        ("ce", measures.ce), ("err_ns", figures.err_ns),
    ):  # fmt: skip
        value = float(values[row])
        said[name] = value if fresh and np.isfinite(value) else None
    return said | {"age_ns": now_ns - int(figures.seen_at_ns[row])}
