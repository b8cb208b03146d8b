"""A rise of load everywhere: delays of paths that have nothing to do with a queue are longer, too.

Where all load grows, queues of some tens of microseconds come and go at whatever link takes most of it, and congestion
control deals with them. What tells that from a link that something has filled are the other paths: each is a little
longer than normal, hardly any by as much as makes a queue, but nearly all of them at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.queues.shifts import MEAN_OF_NOISE
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s

SURGE_NS: Final = 15 * NS_PER_S
"""What a surge makes of queues and marks is no trouble for so long."""
_LEAST_PATHS: Final = 16
"""Directed paths beside the queue that say whether load has grown."""
_LASTING: Final = 3.0 * MEAN_OF_NOISE
"""Half of the others are longer by more than this share of their scatter, in the mean over some seconds: three standard
deviations of a quiet path's mean; …"""
_NOW: Final = 1.0
"""… or by more than this in their last window, before such means have followed: paths that are probed once a second
need ten for that. Of sixteen quiet paths half are never longer by so much."""
_KNOWN: Final = 30
"""Windows after which a path's scatter is known well enough for that."""


def load_has_grown(delays: DelayBaselines, crossing: Int64s, fresh: Bools) -> bool:
    """Whether paths other than `crossing`, the directed paths of a queue, are longer than normal, most of them.

    Parameters
    ----------
    delays : DelayBaselines
    crossing : (n,) int64
        Numbers of directed paths: 2·session + (0 fwd, 1 rev).
    fresh : (paths,) bool
        Directed paths of which something was received a moment ago.
    """
    others = fresh & (delays.moments.count >= _KNOWN)
    others[crossing[crossing < others.size]] = False
    number, settled = np.flatnonzero(others), np.flatnonzero(others & delays.settled())
    if settled.size >= _LEAST_PATHS and _median(delays, settled, delays.shifts.table["mean_ns"]) > _LASTING:
        return True
    return number.size >= _LEAST_PATHS and _median(delays, number, delays.last_excess_ns()) > _NOW


def _median(delays: DelayBaselines, number: Int64s, excess_ns: Float64s) -> float:
    """Of these paths' excess, each in what it scatters by when quiet."""
    return float(np.median(excess_ns[number] / np.maximum(np.sqrt(delays.moments.variance[number]), 1.0)))
