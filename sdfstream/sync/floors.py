"""The delay floor of every path and direction, as the excess column needs it."""

from __future__ import annotations

import numpy as np

from sdfstream.records.units import Float64s, Int64s
from sdfstream.sync.table import Table


def path_table() -> Table:
    """One row per path; wide columns have a lane per direction."""
    return Table(
        {"now": (np.float64, np.inf), "before": (np.float64, np.inf), "since": (np.int64, -(1 << 62))},
        2,
        ("now", "before"),
    )


def excess(
    table: Table, path: Int64s, lane: Int64s, low: Float64s, p50: Float64s, at_ns: int, memory_ns: int
) -> Float64s:
    """Median over the path's remembered floor, after taking in this window's minimum; NaN where there is no delay.

    The floor is the smallest delay of the current and the previous stretch of `memory_ns`: it forgets a shorter route
    after one to two stretches, and no queue that stands for less than one can raise it.
    """
    age_ns = at_ns - table["since"][path]
    due = age_ns >= memory_ns
    if due.any():
        # by path, so that what one path remembers does not depend on when others were heard
        rows, long_ago = path[due], age_ns[due] >= 2 * memory_ns
        table["before"][:, rows] = np.where(long_ago, np.inf, table["now"][:, rows])
        table["now"][:, rows] = np.inf
        table["since"][rows] = at_ns
    has = ~np.isnan(low)
    table["now"][lane[has], path[has]] = np.minimum(table["now"][lane[has], path[has]], low[has])
    floor = np.minimum(table["now"], table["before"])[lane, path]
    result: Float64s = np.where(has, p50 - np.where(np.isfinite(floor), floor, 0.0), np.nan)
    return result
