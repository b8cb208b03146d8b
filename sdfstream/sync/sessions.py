"""The table of sessions: what each edge filter holds, and how it begins.

Columns are those of `edge_filter` (state), `blocks` (moments), `breaks` (floors) and `reduce` (agreement).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.records.units import Float64s, Int64s

UNKNOWN: Final = 1e18
"""ns²: a clock or session of which nothing is known."""
LEAST_SPREAD_NS2: Final = 1e4
"""ns²: half a round trip says no more than this of a clock difference."""


def session_table() -> Table:
    """One row per session; wide columns have a value per direction (0 forward, 1 reverse)."""
    none, never = np.zeros(2), np.full(2, np.inf)
    return Table(
        {
            "pair": np.int64(0),
            "path": np.int64(0),
            "clock_src": np.int64(0),
            "clock_dst": np.int64(0),
            "seen_at_ns": np.float64(-1e18),
            "received_at_ns": np.float64(-1e18),
            "began_at_ns": np.float64(0.0),
            # offset and slope, reflector − sender
            "offset_ns": np.float64(0.0),
            "slope_ppb": np.float64(0.0),
            "offset_var_ns2": np.float64(UNKNOWN),
            "offset_slope_cov": np.float64(0.0),
            "slope_var_ppb2": np.float64(0.0),
            # base delay of the path, and its covariance to the mesh's offset
            "base_delay_ns": np.float64(0.0),
            "base_delay_var_ns2": np.float64(UNKNOWN),
            "base_delay_cov_ns2": np.float64(0.0),
            # what was last reported to the mesh: offset, variance, instant
            "reported_mean_ns": np.float64(0.0),
            "reported_var_ns2": np.float64(0.0),
            "reported_at_ns": np.float64(0.0),
            # blocks so far; queueing above the floor is in `excess_scale_ns`
            "blocks": np.float64(0.0),
            # moments of the delays about a centre (`blocks`)
            "centre_ns": np.float64(0.0),
            "moment_blocks": np.float64(0.0),
            "quiet": np.bool_(False),
            # half round trips near the floor, and e-foldings of the noise in use over `jitter_ns` (`stamp_noise`)
            "at_floor": np.bool_(False),
            "floor_blocks": np.float64(0.0),
            "floor_ns": np.float64(0.0),
            "floor_var_ns2": np.float64(0.0),
            "floor_share": np.float64(0.0),
            "floor_deep_share": np.float64(0.0),
            "stamp_noise_log": np.float64(0.0),
            # broken and lost floors (`breaks`)
            "breached_blocks": np.int64(0),
            "watched_blocks": np.int64(0),
            # agreement with the mesh (`reduce`)
            "disagreement_ns2": np.float64(0.0),
            "bias_ns": np.float64(0.0),
            "bias_var_ns2": np.float64(0.0),
            "assessed_ticks": np.float64(0.0),
        },
        {
            "excess_scale_ns": none,
            "moment1_ns": none,
            "moment2_ns2": none,
            "moment3_ns3": none,
            "breach_min_ns": never,
            "excess_min_ns": never,
            "excess_min_before_ns": never,
        },
    )


class FirstBlock(NamedTuple):
    """What a session begins with; all (sessions,)."""

    offset_ns: Float64s
    """Reflector − sender, carried from when the packets passed to now along the mesh's slope."""
    slope_ppb: Float64s
    """The mesh's."""
    age_s: Float64s
    """How long ago the packets passed."""
    base_delay_ns: Float64s
    """Half the round trip."""


def start(t: Table, i: Int64s, first: FirstBlock, skew_limit_ppb: float) -> None:
    """Begin with a first block: offset and base delay are off by half the base delay at most, the slope is any.

    The packets passed a while ago. An offset that was taken for the present one would, with the same block's bounds
    of back then, pass for two measurements a while apart, and so for a slope: of rows a second late, one of 12 ppm
    between two readings of one clock, with a bound that held a tenth of what came of it.
    """
    base_delay_ns, slope_var = first.base_delay_ns, skew_limit_ppb**2
    spread = np.maximum(base_delay_ns * base_delay_ns, LEAST_SPREAD_NS2)
    t["offset_ns"][i], t["slope_ppb"][i] = first.offset_ns, first.slope_ppb
    t["offset_var_ns2"][i] = spread + slope_var * first.age_s**2
    t["offset_slope_cov"][i], t["slope_var_ppb2"][i] = slope_var * first.age_s, slope_var
    # nothing says yet how much of the smallest delay was queue
    t["base_delay_ns"][i] = 0.75 * base_delay_ns
    t["base_delay_var_ns2"][i], t["base_delay_cov_ns2"][i] = spread, 0.0
    t["centre_ns"][i] = base_delay_ns
    t["excess_scale_ns"][:, i] = np.maximum(0.25 * base_delay_ns, 10.0)
    t["reported_var_ns2"][i] = 0.0
    for name in (
        "blocks",
        "moment_blocks",
        "breached_blocks",
        "watched_blocks",
        "assessed_ticks",
        "disagreement_ns2",
        "bias_ns",
        "bias_var_ns2",
        "at_floor",
        "floor_share",
        "floor_deep_share",
        "stamp_noise_log",
    ):
        t[name][i] = 0
    t["quiet"][i] = False
