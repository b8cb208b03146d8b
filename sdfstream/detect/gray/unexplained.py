"""Loss beyond what is normal and what is found already: what is normal, and whether a search is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.gray.known import LossCounts
from sdfstream.numeric.binomial import log_tail_bound
from sdfstream.numeric.mixture import fit_shares, healthy_share
from sdfstream.records.units import Float64s, Int64s

_Z_NORMAL: Final = 2.0
_SPREAD: Final = 1.25
_LEAST_EVENTS: Final = 4
_SUSPICIOUS: Final = float(np.log(1e-4))
"""What an element loses beyond all others by no more chance (log) is no part of what is normal."""
_MOST_OF_ALL: Final = 0.5
"""What is left without it must be so large a share of all probes."""
_WORTH_A_SEARCH: Final = 0.6
"""Of what it takes to name an element: one that loses both ways shows so much in each."""


def normal_share(cabling: Cabling, whole: LossCounts, exposures: Sequence[Float64s], config: DetectConfig) -> float:
    """Share of probes that is lost without a lossy element: the most that it may be by what is seen.

    By paths that cross nothing that stands, some of which may cross what has not been found yet: where one element
    loses more than the rest, by the rest. (Sprayed over many uplinks each path loses next to nothing, and all paths of
    a leaf together make a small fabric's normal loss twice what it is.) Healthy paths differ: `_SPREAD` times what they
    have in common is normal for each. `exposures`, (sessions,) each: `lossy.exposure`.
    """
    clear = np.flatnonzero(np.logical_and.reduce([whole.probes > 0, *(a == 0.0 for a in exposures)]))
    if not clear.size:
        return config.loss_share
    k, n = whole.events[clear].astype(float), whole.probes[clear].astype(float)
    high = _highest(k, n)
    worst = _worst(cabling, clear, k, n)
    if worst >= 0:
        rest = ~(cabling.element[clear] == worst).any(axis=(1, 2))
        if n[rest].sum() >= _MOST_OF_ALL * n.sum():
            high = min(high, _highest(k[rest], n[rest]))
    return float(np.clip(high, config.loss_normal_least, config.loss_share))


def _highest(k: Float64s, n: Float64s) -> float:
    """What healthy paths of these may lose at most, `k` events of `n` probes each."""
    total = float(n.sum())
    share = _SPREAD * healthy_share(k, n)
    return float(share + _Z_NORMAL * np.sqrt(share / total) + _Z_NORMAL**2 / total)


def _worst(cabling: Cabling, slots: Int64s, k: Float64s, n: Float64s) -> int:
    """The element whose paths lose more than all do with the least probability by chance; −1: none is suspicious."""
    events, probes = _by_element(cabling, slots, k, n)
    several = np.flatnonzero(events >= _LEAST_EVENTS)
    if not several.size:
        return -1
    tail = log_tail_bound(events[several], probes[several], np.full(several.size, healthy_share(k, n)))
    least = int(np.argmin(tail))
    return int(several[least]) if tail[least] <= _SUSPICIOUS else -1


def is_unexplained(
    cabling: Cabling, counts: LossCounts, exposures: Sequence[Float64s], normal: float, limit: float
) -> bool:
    """Quick look: does any path or element lose more than standing elements and normal loss explain?"""
    used = counts.used
    events, probes = counts.events[used].astype(float), counts.probes[used].astype(float)
    a = np.array([one[used] for one in exposures]).reshape(len(exposures), used.size)
    share, _ = fit_shares(events, probes, a, normal)
    expected = probes * (normal + share @ a)
    much, lossy = events >= _LEAST_EVENTS, events > 0
    if (log_tail_bound(events[much], probes[much], expected[much] / probes[much]) <= limit).any():
        return True
    (k,) = _by_element(cabling, used[lossy], events[lossy])
    if not (k >= _LEAST_EVENTS).any():
        return False
    n, m = _by_element(cabling, used, probes, expected)
    crossed = k >= _LEAST_EVENTS
    least = m[crossed] / n[crossed]
    return bool((log_tail_bound(k[crossed], n[crossed], least) <= _WORTH_A_SEARCH * limit).any())


def _by_element(cabling: Cabling, slots: Int64s, *each: Float64s) -> list[Float64s]:
    """Sums over the sessions that may cross each element, of values by session of `slots`."""
    element = cabling.element[slots].reshape(slots.size, -1)
    there, size = element >= 0, len(cabling.elements)
    values = [np.broadcast_to(x[:, None], element.shape)[there] for x in each]
    return [np.bincount(element[there], x, size).astype(np.float64) for x in values]
