"""What a standing queue brings about: packets that it drops, where it overflows, and clocks that nothing holds.

A queue that overflows loses packets of all paths over it, which looks like a gray loss there. What told the two apart
would be gone with the packets; so loss that began with a queue or later, on its way, is the queue's. Loss that was
there before it is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import Detection
from sdfstream.records.units import NS_PER_S

_BEFORE_NS = 2 * NS_PER_S
"""Loss is dated by its bins, a queue by its windows."""
_LIKELY = 0.25
"""Suspects of a loss that are so likely, compared with its first, are places where it may be."""
_SURELY = 0.9
_UNSETTLING_US = 1000.0


def drops(queue: Detection, loss: Detection, cabling: Cabling) -> bool:
    """Whether a loss may be the overflow of a queue."""
    if queue.kind != "congestion" or loss.kind != "loss" or loss.since_ns < queue.since_ns - _BEFORE_NS:
        return False
    if queue.subject == loss.subject:
        return True
    if all_cross(queue.directions, loss.sessions, cabling):
        return True  # nothing that lost went another way: of links in a row that the same paths cross any may be named
    if loss.subject.type == "path":
        return False
    most = max((p for _, p in loss.suspects), default=0.0)
    return not {name for name, p in loss.suspects if p >= _LIKELY * most}.isdisjoint(queue.directions)


def unsettles(queue: Detection, clock: Detection) -> bool:
    """Whether a clock may have lost its bound since packets wait for milliseconds.

    Where ports pause each other in turn no path is left by which clocks could be compared, and once all have been
    longer for ten seconds that is what they are taken for.
    """
    waits_us = next((e.value for e in queue.evidence if e.what == "delay-excess"), 0.0)
    return queue.kind == "congestion" and clock.kind == "clock-unsynced" and waits_us >= _UNSETTLING_US


def all_cross(directions: Sequence[str], sessions: Sequence[int], cabling: Cabling) -> bool:
    """Whether all of these sessions surely cross one of the directions, on either way of their round trips."""
    slots = np.array(sessions, np.int64)
    over = np.isin(cabling.element[slots], cabling.numbers(directions)) & (cabling.weight[slots] > _SURELY)
    return bool(slots.size) and bool(over.any(axis=(1, 2)).all())
