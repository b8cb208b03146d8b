"""Floors that break or get lost: clock steps, and paths that became shorter or longer.

- Packets too fast for the level, in both directions on average: a shorter path. The level is learned anew.
- Packets too fast one way, and as much too slow the other way: a clock stepped. The site starts again from there; the
  mesh finds the clock (`mesh.stepped`).
- For some 5 to 10 s no packet near the level either way: a longer path, or a queue both ways. The level is raised,
  which moves no clock since it is symmetric.
- For however long no packet near it in one direction: a queue. That wall is gone, the other one measures.

A block that breaks a floor teaches nothing; one that is alone in it stays without consequence (a stamp gone wrong).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, TICK_NS, Bools, Float64s, Int64s
from sdfstream.sync.blocks import FWD, REV
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_filter import View, doubt

_LOST: Final = 30.0
"""So many times the scale over the number of blocks: an excess of exponential law lies above it once in 10¹³."""


class Breaks(NamedTuple):
    """What happened to sessions this tick."""

    stepped: Int64s
    """Sessions whose clock difference jumped."""
    size_ns: Float64s
    """By how much (absolute)."""
    rerouted: Int64s
    """Sessions whose path got another length."""
    change_ns: Float64s
    """By how much: positive, longer."""


NOTHING: Final = Breaks(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64), np.empty(0))


def see(t: Table, i: Int64s, low: Float64s, excess: Float64s, v: View, broken: Bools, c: SyncConfig) -> Breaks:
    """Count broken blocks of the sessions `i`.

    `low` (2, blocks): their smallest delays along the line; `excess`: by how much those lie above their walls.
    """
    count = np.where(broken, t["breach"][i] + 1, 0)
    t["breach"][i] = count
    if not broken.any():
        return NOTHING
    # the first broken block may hold packets from before and after: it says nothing about either
    for lane in (FWD, REV):
        t["low"][lane, i] = np.where(count > 1, np.minimum(t["low"][lane, i], excess[lane]), np.inf)
    trip = np.flatnonzero((count >= c.breach_blocks) & np.isfinite(low).all(axis=0))
    if not trip.size:
        return NOTHING
    return _decide(t, i[trip], 0.5 * (low[FWD] - low[REV])[trip], v.pick(trip), c)


def _decide(t: Table, i: Int64s, half: Float64s, v: View, c: SyncConfig) -> Breaks:
    """`half`: half the difference of the last block's delays, which is where the clock difference is now."""
    nearest = t["low"].take(i, axis=1)
    limit = -c.doubt_sigmas * np.sqrt(v.variance + t["level_var"][i] + v.soft)
    # a clock makes packets of one direction too fast, a shorter path those of both
    shorter = (nearest < limit).all(axis=0)
    change = 0.5 * nearest.sum(axis=0)
    short, step = i[shorter], i[~shorter]
    t["level"][short] += change[shorter]
    # how far above the new floor these few packets were is not known yet
    t["level_var"][short] = t["scale"][:, short].max(axis=0) ** 2
    doubt(t, short, np.sqrt(t["level_var"][short]))
    for name in ("dg", "level_cov", "told_var", "square", "bias", "settled"):
        t[name][step] = 0.0
    by = np.abs(half - v.mean)[~shorter]
    t["d"][step] = (v.now + half)[~shorter]
    t["dd"][step] = np.maximum(t["scale"][:, step].sum(axis=0), 0.05 * by) ** 2
    # what jumped may as well be running: a daemon slews at up to 500 ppm
    t["gg"][step] += (by / (c.breach_blocks * TICK_NS / NS_PER_S)) ** 2
    t["breach"][i] = 0
    _fresh_minima(t, i)
    return Breaks(step, by, short, change[shorter])


def _fresh_minima(t: Table, i: Int64s) -> None:
    for name in ("lately", "before", "low"):
        t[name][:, i] = np.inf
    t["above"][i] = 0


def watch_floors(t: Table, i: Int64s, excess: Float64s, turn: bool, c: SyncConfig) -> Breaks:
    """Remember how near to their walls packets came; at a `turn` (every `floor_lost_ns`) raise levels that are lost.

    `excess` (2, blocks): by how much each direction's smallest delay lay above its wall's expected place, ns.
    """
    for lane in (FWD, REV):
        t["lately"][lane, i] = np.minimum(t["lately"][lane, i], excess[lane])
    t["above"][i] += 1
    if not turn:
        return NOTHING
    nearest = np.minimum(t["lately"], t["before"])
    blocks = np.maximum(t["above"], 1.0)
    far = _LOST * t["scale"] / blocks + c.breach_sigmas * np.sqrt(t["level_var"] + np.minimum(t["dd"], 1e12))
    lost = np.flatnonzero(
        (np.isfinite(nearest) & (nearest > far)).all(axis=0) & (blocks >= c.floor_lost_blocks) & ~t["quiet"]
    )
    rise = 0.5 * nearest[:, lost].sum(axis=0)
    t["level"][lost] += rise
    t["level_var"][lost] += (t["scale"][:, lost].max(axis=0) / blocks[lost]) ** 2
    t["before"], t["lately"] = t["lately"].copy(), np.inf
    t["above"] = t["above"] // 2
    _fresh_minima(t, lost)
    return Breaks(np.empty(0, np.int64), np.empty(0), lost, rise)
