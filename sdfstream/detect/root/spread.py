"""Back-pressure: queues that stand because the next one is full, put under the queue at which the spreading begins.

Where pause frames stop a port, packets wait before it unmarked, and the ports that feed it are stopped in turn. So a
queue that is long and hardly marked, and leads to another queue that began with it or before, is a symptom of that one;
the most downstream of them is the root. It is told by where queues stand alone: no counter of pause frames is needed.

What many send to one NIC may meet on a link before its port already: a queue that is shorter and marked far less than a
NIC's, which it may lead to and began with, is a symptom of that one too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.root.storms import CAUSE as STORM
from sdfstream.detect.root.upstream import may_pass
from sdfstream.records.units import NS_PER_S, Bools, Float64s

UNMARKED: Final = 0.3
"""A queue as long as `LONG_US` is marked more than this where marking works: it is beyond any upper threshold."""
LONG_US: Final = 100.0
_HELD_UP_US: Final = 80.0
"""What a port that is paused holds up leads to another queue; it may be as short as this."""
_FAR: Final = 2.0
"""Paths of one queue wait within a fifth of each other; twice as long is another queue's."""
_LEAST: Final = 3
"""Paths that a queue is told apart by."""
_LATER_NS: Final = NS_PER_S
"""Queues of one spreading are told with beginnings this far apart: each is dated by its own windows."""
_MET_LATER_NS: Final = 3 * NS_PER_S
"""And those of what many send to one NIC so far; later than that they begin as"""
_MUCH_SHORTER: Final = 0.5
"""short queues alone, which come and go as senders look for their rates."""
_SEVERAL: Final = 3
"""So many queues that lead to one, begun at once, are no coincidence even where nothing is marked."""
_SHORTER: Final = 0.9
"""What meets before a NIC's port waits for at most this share of the wait there,"""
_LESS_MARKED: Final = 0.5
"""and at most this share of the share that is marked there."""
_FEEDERS: Final = 2
"""So many queues before a NIC's own, none of them marked, are a storm of pauses that the NIC sends."""


def under_the_first(
    queues: list[Detection],
    *,
    marking: bool,
    hidden: Callable[[str, str], bool] = lambda *_: False,
    calm: Callable[[str], bool] = lambda _: False,
    leaves: frozenset[str] = frozenset(),
) -> list[Detection]:
    """`queues` without those that back-pressure explains; their roots with them as symptoms.

    Where the fabric is not known to mark (`marking`) an unmarked queue says nothing: then it takes several that lead to
    one at once. `hidden` says of two nodes whether a queue may stand between them that no path tells apart:
    a queue may lead to another through it. `calm` says of a NIC whether its counters show that it pauses nobody;
    `leaves` are the switches that a map has NICs below.
    Storms that counters of pause frames show have their symptoms already (`root.symptoms`).
    """
    if any(queue.cause == STORM for queue in queues):
        return queues
    root = _roots(queues, hidden, leaves)
    led = Counter(of for i, of in enumerate(root) if of != i)
    root = [of if marking or led[of] >= _SEVERAL else i for i, of in enumerate(root)]
    return [
        _with_feeders(queue, [queues[j] for j, of in enumerate(root) if of == i and j != i], calm)
        for i, queue in enumerate(queues)
        if root[i] == i
    ]


def longest(excess_ns: Float64s) -> Bools:
    """Which of these paths wait far longer than all the others; none, where there is no such gap.

    >>> longest(np.array([100.0, 810.0, 95.0, 790.0, 850.0])).tolist()
    [False, True, False, True, True]
    >>> longest(np.array([100.0, 90.0, 130.0, 70.0])).any()
    np.False_
    """
    falling = np.sort(excess_ns)[::-1]
    gaps = np.flatnonzero(falling[_LEAST - 1 : -1] > _FAR * falling[_LEAST:]) + _LEAST
    if not gaps.size:
        return np.zeros(excess_ns.size, np.bool_)
    result: Bools = excess_ns >= falling[gaps[0] - 1]
    return result


def value(detection: Detection, what: str) -> float | None:
    """A figure of a detection's evidence."""
    return next((e.value for e in detection.evidence if e.what == what), None)


def unmarked(queue: Detection, long_us: float = LONG_US) -> bool:
    """Whether a queue is as long as this and hardly marked, as far as marks are known."""
    marked = value(queue, "ce-share")
    return (value(queue, "delay-excess") or 0.0) >= long_us and marked is not None and marked < UNMARKED


def _ends(queue: Detection) -> tuple[frozenset[str], frozenset[str]]:
    """Nodes at which its directions start and end; a switch is both of its own."""
    starts, stops = set(), set()
    for direction in queue.directions:
        a, arrow, b = direction.partition("->")
        starts.add(a)
        stops.add(b if arrow else a)
    return frozenset(starts), frozenset(stops)


def _roots(queues: list[Detection], hidden: Callable[[str, str], bool], leaves: frozenset[str]) -> list[int]:
    """For each queue the most downstream one that explains it; itself where none does, or where pauses go in a ring."""
    ends = [_ends(queue) for queue in queues]
    after = [_after(i, queues, ends, hidden, leaves) for i in range(len(queues))]
    found = []
    for i in range(len(queues)):
        at, seen = i, {i}
        while after[at] not in seen:
            at = after[at]
            seen.add(at)
        ring = after[at] != at
        found.append(i if ring else at)
    return found


def _after(
    i: int,
    queues: list[Detection],
    ends: list[tuple[frozenset[str], frozenset[str]]],
    hidden: Callable[[str, str], bool],
    leaves: frozenset[str],
) -> int:
    """The queue that the queue `i` leads to and may be held up by; `i` itself: none."""
    if unmarked(queues[i], _HELD_UP_US):
        early = [j for j in range(len(queues)) if j != i and queues[j].since_ns <= queues[i].since_ns + _LATER_NS]
        beyond = [j for j in early if ends[j][0] & ends[i][1]] or [
            j for j in early if any(hidden(a, b) for a in sorted(ends[i][1]) for b in sorted(ends[j][0]))
        ]
        if beyond:
            return min(beyond, key=lambda j: (queues[j].since_ns, queues[j].subject.id))
    full = [j for j in range(len(queues)) if may_pass(queues[i], queues[j], leaves) and _meets(queues[i], queues[j])]
    return max(full, key=lambda j: (value(queues[j], "delay-excess") or 0.0, queues[j].subject.id), default=i)


def _meets(queue: Detection, further: Detection) -> bool:
    """Whether a queue is as one of what a NIC gets from many, met on the way to its port."""
    (mine, wait_us), (theirs, longer_us) = (
        (value(q, "ce-share"), value(q, "delay-excess") or 0.0) for q in (queue, further)
    )
    later_ns = queue.since_ns - further.since_ns
    if mine is None or theirs is None or later_ns < -_MET_LATER_NS:
        return False
    short = wait_us <= (_SHORTER if later_ns <= _MET_LATER_NS else _MUCH_SHORTER) * longer_us
    return short and theirs >= UNMARKED and mine < _LESS_MARKED * theirs


def _with_feeders(queue: Detection, feeders: list[Detection], calm: Callable[[str], bool]) -> Detection:
    if not feeders:
        return queue
    mine = tuple(symptom(f.kind, f.subject, f.since_ns) for f in feeders)[:MAX_SYMPTOMS]
    found = replace(queue, symptoms=(*mine, *queue.symptoms), attached=len(mine))
    if queue.subject.type == "nic" and len(feeders) >= _FEEDERS and unmarked(queue) and not calm(queue.subject.id):
        detail = f"queues spread from {queue.subject.id} against the traffic, unmarked: it pauses its switch port"
        found = replace(found, cause=STORM, confidence=min(0.8, queue.confidence), severity="urgent", detail=detail)
    return found
