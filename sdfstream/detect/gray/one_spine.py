"""A spine that loses where packets are sprayed: all paths between leaves lose alike, whichever leaves these are.

Each packet takes a spine of its own, so that no path, and no trace of one, tells which spine it is. What tells that it
is one of them: no leaf's paths lose more than the others', paths that do not touch a leaf lose as much, and those that
stay within one leaf lose nothing. A lossy uplink makes the paths of its leaf lose alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.gray.spines import leaves_of, spines
from sdfstream.detect.gray.whole_switch import LESS, all_lose_alike, share_beyond
from sdfstream.detect.inferred.hidden import CORE
from sdfstream.detect.localise import Location
from sdfstream.numeric.binomial import log_tail_bound
from sdfstream.records.finding import Subject
from sdfstream.records.units import Float64s, Int64s

_LEAVES: Final = 3
"""With two, a spine and an uplink of either leaf make the same paths lose."""
_SIGMAS: Final = 3.5
"""By so much, and by `_AS_MUCH` of it, what the paths of a leaf lose may differ from what is expected of them."""
_AS_MUCH: Final = 0.1
_PROBABILITY: Final = 0.95
"""That it is one of the spines, and not several faults that look alike."""


def one_of_spines(cabling: Cabling, counts: LossCounts, others: Float64s, limit: float) -> Location | None:
    """The spines together, as the place of a loss that all paths between leaves share; None: it is not clear.

    Parameters
    ----------
    cabling : Cabling
    counts : LossCounts
    others : (sessions,) float64
        Share of probes that all else loses.
    limit : float
        Log probability that what is lost beside any one leaf is chance, at most.
    """
    names = spines(cabling.topology)
    if len(names) < 2 or len(cabling.topology.leaves) < _LEAVES:
        return None
    used = counts.used
    near, far = leaves_of(cabling, used)
    known = (near >= 0) & (far >= 0)
    between, inside = used[known & (near != far)], used[known & (near == far)]
    ends = near[known & (near != far)], far[known & (near != far)]
    if not all_lose_alike(between, counts, others) or not _of_no_leaf(between, ends, counts, others, limit):
        return None
    share = share_beyond(between, counts, others)
    if share_beyond(inside, counts, others) > LESS * share:
        return None
    suspects = [(name, round(_PROBABILITY / len(names), 6)) for name in names]
    both = ["both"] * between.size
    return Location(Subject("switch", CORE), [CORE], True, share, between, suspects, _PROBABILITY, both)


def _of_no_leaf(slots: Int64s, ends: tuple[Int64s, Int64s], counts: LossCounts, others: Float64s, limit: float) -> bool:
    """Whether these sessions lose as much at every leaf, and surely beside each."""
    events, probes = counts.events[slots].astype(float), counts.probes[slots].astype(float)
    normal = probes * others[slots]
    expected = probes * max(share_beyond(slots, counts, others), 0.0) + normal
    leaves = np.unique(np.concatenate(ends))
    if leaves.size < _LEAVES:
        return False
    for leaf in leaves.tolist():
        at = (ends[0] == leaf) | (ends[1] == leaf)
        mine, beside = float(expected[at].sum()), ~at
        if abs(float(events[at].sum()) - mine) > max(_SIGMAS * np.sqrt(mine), _AS_MUCH * mine):
            return False
        sent, lost = float(probes[beside].sum()), float(events[beside].sum())
        if not sent:
            return False
        usual = float(np.clip(normal[beside].sum() / sent, 1e-9, 0.999))
        if float(log_tail_bound(lost, sent, usual)) > limit:
            return False
    return True
