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
from sdfstream.records.units import NS_PER_S, Bools, Int64s

SURGE_NS: Final = 15 * NS_PER_S
"""What a surge makes of queues and marks is no trouble for so long."""
_LEAST_PATHS: Final = 16
"""Directed paths beside the queue that say whether load has grown."""
_SIGMAS: Final = 3.0
"""Of the mean excess of a quiet path: half of the others are longer by more."""


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
    others = fresh & delays.settled()
    others[crossing[crossing < others.size]] = False
    number = np.flatnonzero(others)
    if number.size < _LEAST_PATHS:
        return False
    noise_ns = MEAN_OF_NOISE * np.sqrt(delays.moments.variance[number])
    return float(np.median(delays.shifts.table["mean_ns"][number] / np.maximum(noise_ns, 1.0))) > _SIGMAS
