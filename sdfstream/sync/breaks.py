"""Floors that break or get lost: clock steps, and paths that became shorter or longer.

- Packets too fast for the base delay, in both directions on average: a shorter path. The base delay is learned anew.
- Packets too fast in one direction, and as much too slow in the other: a clock stepped. The filter starts again from
  there; the mesh finds the clock (`mesh.stepped`).
- For some 5 to 10 s no packet near the base delay in either direction: a longer path, or queues in both. The base delay
  is raised, which moves no clock since it is symmetric.
- For however long no packet near it in one direction: a queue. The other direction's bound goes on measuring.

A block that breaks a floor is not learned from; a single one has no consequence (a wrong stamp).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, TICK_NS, Bools, Float64s, Int64s
from sdfstream.sync.blocks import FWD, REV
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_filter import Prior, inflate

_LOST: Final = 30.0
"""So many times the scale over the number of blocks: an excess of exponential law lies above it once in 10¹³."""


class Breaks(NamedTuple):
    """Sessions that stepped or were rerouted in a tick."""

    stepped: Int64s
    """Sessions whose clock difference jumped."""
    size_ns: Float64s
    """By how much (absolute)."""
    rerouted: Int64s
    """Sessions whose path got another length."""
    change_ns: Float64s
    """By how much: positive, longer."""


NOTHING: Final = Breaks(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64), np.empty(0))


def count_broken(
    t: Table, i: Int64s, min_delay_ns: Float64s, excess: Float64s, v: Prior, broken: Bools, c: SyncConfig
) -> Breaks:
    """Count broken blocks of the sessions `i`.

    `min_delay_ns` (2, blocks): smallest delays along the line; `excess`: by how much those lie above their bounds.
    """
    count = np.where(broken, t["breached_blocks"][i] + 1, 0)
    t["breached_blocks"][i] = count
    if not broken.any():
        return NOTHING
    # the first broken block may hold packets from before and after
    for direction in (FWD, REV):
        t["breach_min_ns"][direction, i] = np.where(
            count > 1, np.minimum(t["breach_min_ns"][direction, i], excess[direction]), np.inf
        )
    trip = np.flatnonzero((count >= c.breach_blocks) & np.isfinite(min_delay_ns).all(axis=0))
    if not trip.size:
        return NOTHING
    return _decide(t, i[trip], 0.5 * (min_delay_ns[FWD] - min_delay_ns[REV])[trip], v.pick(trip), c)


def _decide(t: Table, i: Int64s, half: Float64s, v: Prior, c: SyncConfig) -> Breaks:
    """`half`: half the difference of the last block's delays, which is where the clock difference is now."""
    nearest = t["breach_min_ns"].take(i, axis=1)
    limit = -c.doubt_sigmas * np.sqrt(v.variance + t["base_delay_var_ns2"][i] + v.soft)
    # a clock makes packets of one direction too fast, a shorter path those of both
    shorter = (nearest < limit).all(axis=0)
    change = 0.5 * nearest.sum(axis=0)
    short, step = i[shorter], i[~shorter]
    t["base_delay_ns"][short] += change[shorter]
    # how far above the new floor these few packets were is not known yet
    t["base_delay_var_ns2"][short] = t["excess_scale_ns"][:, short].max(axis=0) ** 2
    inflate(t, short, np.sqrt(t["base_delay_var_ns2"][short]))
    for name in (
        "offset_slope_cov",
        "base_delay_cov_ns2",
        "reported_var_ns2",
        "disagreement_ns2",
        "bias_ns",
        "bias_var_ns2",
        "assessed_ticks",
    ):
        t[name][step] = 0.0
    by = np.abs(half - v.mean)[~shorter]
    t["offset_ns"][step] = (v.now + half)[~shorter]
    t["offset_var_ns2"][step] = np.maximum(t["excess_scale_ns"][:, step].sum(axis=0), 0.05 * by) ** 2
    # what jumped may as well be running: a daemon slews at up to 500 ppm
    t["slope_var_ppb2"][step] += (by / (c.breach_blocks * TICK_NS / NS_PER_S)) ** 2
    t["breached_blocks"][i] = 0
    _fresh_minima(t, i)
    return Breaks(step, by, short, change[shorter])


def _fresh_minima(t: Table, i: Int64s) -> None:
    for name in ("excess_min_ns", "excess_min_before_ns", "breach_min_ns"):
        t[name][:, i] = np.inf
    t["watched_blocks"][i] = 0


def watch_floors(t: Table, i: Int64s, excess: Float64s, check: bool, c: SyncConfig) -> Breaks:
    """Track how near to their bounds packets came; at a `check` (every `floor_lost_ns`) raise lost base delays.

    `excess` (2, blocks): by how much each direction's smallest delay lay above its bound, ns.
    """
    for direction in (FWD, REV):
        t["excess_min_ns"][direction, i] = np.minimum(t["excess_min_ns"][direction, i], excess[direction])
    t["watched_blocks"][i] += 1
    if not check:
        return NOTHING
    nearest = np.minimum(t["excess_min_ns"], t["excess_min_before_ns"])
    blocks = np.maximum(t["watched_blocks"], 1.0)
    far = _LOST * t["excess_scale_ns"] / blocks + c.breach_sigmas * np.sqrt(
        t["base_delay_var_ns2"] + np.minimum(t["offset_var_ns2"], 1e12)
    )
    lost = np.flatnonzero(
        (np.isfinite(nearest) & (nearest > far)).all(axis=0) & (blocks >= c.floor_lost_blocks) & ~t["quiet"]
    )
    rise = 0.5 * nearest[:, lost].sum(axis=0)
    t["base_delay_ns"][lost] += rise
    t["base_delay_var_ns2"][lost] += (t["excess_scale_ns"][:, lost].max(axis=0) / blocks[lost]) ** 2
    t["excess_min_before_ns"], t["excess_min_ns"] = t["excess_min_ns"].copy(), np.inf
    t["watched_blocks"] = t["watched_blocks"] // 2
    _fresh_minima(t, lost)
    return Breaks(np.empty(0, np.int64), np.empty(0), lost, rise)
