"""NICs that switches hold up: where the full port lies beyond them, which their own queues hide.

A port that fills on a lossless fabric pauses the ports that feed it, these those that feed them, and the NICs at last.
Then all that a NIC sends waits in its host, wherever it goes, for many times longer than at the full port; by delay it
is the NICs that are sick. Their counters say that they are paused. Two of them at once are not two faults: what they
have in common is searched for among what their packets wait *besides*. Of the paths that leave one NIC those over the
full port, and over the ports that it has filled, wait longer than the others; taken one after the other, the longest
first, such directions lead to one another, and the full port is where they end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.inferred.hidden import CORE, MEMBERS, is_inferred
from sdfstream.detect.localise import Location
from sdfstream.detect.queues.controlled import LATE_MARKS_US, sent_by_nics
from sdfstream.detect.root.spread import LONG_US, unmarked
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Bools, Float64s

Ints = npt.NDArray[np.int64]

HELD_UP: Final = 2
"""NICs that are paused at once by one full port, not each by its own."""
_PATHS: Final = 3
"""Paths over a direction, and beside it, that a comparison takes."""
_SURE: Final = 5.0
"""Standard errors by which paths over a direction wait longer than those beside it."""
_MOST: Final = 8
_SURELY: Final = 0.9
_PROBABILITY: Final = 0.9
_READ_NS: Final = 2500 * NS_PER_MS
"""Ports are read once a second; a second more tells the full port from those that it has filled."""
_UNKNOWN_NS: Final = 5 * NS_PER_S
"""Queues of one spreading of which none is known to be its root wait for so long: their waits tell it by then."""
_LATER_NS: Final = 2 * NS_PER_S
"""Queues of one spreading begin within this time."""


def full_port(cabling: Cabling, paused: Sequence[str], slow: Ints, excess_ns: Float64s) -> Location | None:
    """The direction that holds up several NICs; None where fewer are paused, or the evidence is too thin.

    Parameters
    ----------
    paused : sequence of str
        NICs whose counters say that their switch pauses them.
    slow : (n,) int
        Directed paths that stand in a queue: 2·session + (0 fwd, 1 rev).
    excess_ns : (n,) float
        What each waits above normal, mean since its queue stands.
    """
    cables = {nic: cabling.nic_element(nic, "tx") for nic in paused}
    surely = cabling.weight[slow // 2, slow % 2] > _SURELY
    element = np.where(surely, cabling.element[slow // 2, slow % 2], -1)
    from_nic = [np.flatnonzero((element == number).any(axis=1)) for number in cables.values() if number >= 0]
    held = [rows for rows in from_nic if rows.size > _PATHS]
    if len(held) < HELD_UP:
        return None
    rows = np.concatenate(held)
    beside = np.concatenate([excess_ns[mine] - np.median(excess_ns[mine]) for mine in held])
    directions = _longer(cabling, element[rows], beside)
    if not directions:
        return None
    last = _end(cabling, directions, element[rows])
    crossing = slow[(element == last).any(axis=1)]
    name = cabling.direction(last)
    return Location(
        cabling.subject(last), [name], True, 1.0, crossing // 2, [(name, _PROBABILITY)], _PROBABILITY,
        ["rev" if number % 2 else "fwd" for number in crossing.tolist()],
    )  # fmt: skip


def _longer(cabling: Cabling, element: Ints, wait_ns: Float64s) -> list[int]:
    """Directions between switches whose paths wait longer than those beside them, the clearest first."""
    between = [e for e in np.unique(element[element >= 0]).tolist() if cabling.subject(e).type == "link"]
    crosses = {e: (element == e).any(axis=1) for e in between}
    left = wait_ns.copy()
    found: list[int] = []
    while len(found) < _MOST:
        rest = {e: _standing(left, over) for e, over in crosses.items() if e not in found}
        best = max(rest, key=lambda e: (rest[e][0], -e), default=-1)
        if best < 0 or rest[best][0] < _SURE:
            return found
        left[crosses[best]] -= rest[best][1]
        found.append(best)
    return found


def _standing(wait_ns: Float64s, over: Bools) -> tuple[float, float]:
    """(standard errors, ns) by which paths over a direction wait longer than the others; zeros: they are too few."""
    mine, others = wait_ns[over], wait_ns[~over]
    if min(mine.size, others.size) < _PATHS:
        return 0.0, 0.0
    longer = float(mine.mean() - others.mean())
    # of both together: that of three paths alone may be next to none
    scatter = np.concatenate([mine - mine.mean(), others - others.mean()])
    error = float(np.sqrt((scatter**2).sum() / (scatter.size - 2) * (1 / mine.size + 1 / others.size)))
    return (longer / error if error else 0.0), longer


def _end(cabling: Cabling, directions: Sequence[int], element: Ints) -> int:
    """Where the clearest of these directions leads: each hands paths on to the next, at which they wait, too."""
    ends = {e: cabling.direction(e).split("->") for e in directions}
    crosses = {e: (element == e).any(axis=1) for e in directions}
    at, seen = directions[0], {directions[0]}
    while following := [
        e for e in directions if e not in seen and ends[e][0] == ends[at][-1] and bool((crosses[e] & crosses[at]).any())
    ]:
        at = following[0]
        seen.add(at)
    return at


def under_full_port(queues: list[Detection], full: Subject | None) -> list[Detection]:
    """`queues` with those that a full port makes as its symptoms: unmarked, and begun with it.

    Short ones too where no cabling is known: what lies between NICs and an inferred port cannot be told apart, and
    drains at other times than it.
    """
    root = next((queue for queue in queues if queue.subject == full), None)
    if root is None:
        return queues
    least_us = 0.0 if is_inferred(root.subject) else LONG_US
    made = [
        queue
        for queue in queues
        if queue.subject != full and unmarked(queue, least_us) and abs(queue.since_ns - root.since_ns) <= _LATER_NS
    ]
    mine = tuple(symptom(queue.kind, queue.subject, queue.since_ns) for queue in made)[:MAX_SYMPTOMS]
    root = replace(root, symptoms=(*mine, *root.symptoms), attached=len(mine))
    return [root, *(queue for queue in queues if queue.subject != full and queue not in made)]


def confirmed_by_counters(queue: Detection) -> Detection:
    """A queue that should be marked and is not waits for the counters that tell whether a pause made it."""
    return _waiting(queue) if unmarked(queue, LATE_MARKS_US) else queue


def behind_the_core(queues: Sequence[Detection], paused: Sequence[str]) -> Subject | None:
    """The full port where cabling is not known: the one queue in the core, on its way into an inferred leaf, or out of
    the leaf that paused NICs share.

    One NIC alone is held up by it where its own queue began with it: what pauses a NIC stands beyond it.
    """
    full = [queue for queue in queues if is_inferred(queue.subject) and unmarked(queue) and _feeds(queue, paused)]
    if len(full) != 1:
        return None
    alone = len(paused) < HELD_UP
    return None if alone and not any(_held_up(queue, paused, full[0]) for queue in queues) else full[0].subject


def _feeds(queue: Detection, paused: Sequence[str]) -> bool:
    """Whether what these NICs send may wait in this inferred queue, as far as that is known."""
    if not queue.directions or _is_in_core(queue):
        return bool(queue.directions)
    beside = next((e.where.split() for e in queue.evidence if e.what == MEMBERS), [])
    return all(name.endswith(f"->{CORE}") for name in queue.directions) and set(paused) <= set(beside) != set()


def _is_in_core(queue: Detection) -> bool:
    """Whether a queue is at the core's own ports."""
    return bool(queue.directions) and all(name.partition("->")[0] == CORE for name in queue.directions)


def _held_up(queue: Detection, paused: Sequence[str], full: Detection) -> bool:
    """Whether this is what a paused NIC sends, and began with the queue `full`."""
    return _is_sent(queue, paused) and unmarked(queue) and abs(queue.since_ns - full.since_ns) <= _LATER_NS


def waiting_for_counters(queues: Sequence[Detection], paused: Sequence[str]) -> list[Detection]:
    """`queues` of which those wait that a full port may make: what NICs send, of one that is paused or of several; and
    all that is inferred, while several NICs are paused.

    Two of them at once are not two faults; the counters of pauses tell, and what holds them up is found by then. Where
    the cabling is not known that takes longer, and what is paused is never what holds up others.
    """
    sending = [queue for queue in queues if queue.subject.type == "nic" and sent_by_nics(queue.directions)]
    held = sending if len(sending) >= HELD_UP else [queue for queue in sending if queue.subject.id in paused]
    if len(paused) >= HELD_UP:
        held = [*held, *(queue for queue in queues if _is_somewhere_inferred(queue))]
    victims = set(paused) if len(paused) >= HELD_UP else set()
    return [_waiting(q, _UNKNOWN_NS if q.subject.id in victims else _READ_NS) if q in held else q for q in queues]


def one_of_several(queues: list[Detection], paused: Sequence[str], reported: frozenset[str]) -> list[Detection]:
    """`queues` of which long unmarked ones at inferred places, begun at once while several NICs are paused, are one.

    They have one root, and which of them leads to it the evidence does not say. So one is told, later than others, with
    the rest as its symptoms: one that was told already, else one in the core, which lies behind the others.
    """
    long = [queue for queue in queues if unmarked(queue) and (_is_somewhere_inferred(queue) or _is_sent(queue, paused))]
    if len(paused) < HELD_UP or len(long) < HELD_UP or not any(map(_is_somewhere_inferred, long)):
        return queues
    first = min(long, key=lambda queue: (queue.subject.id not in reported, not _is_in_core(queue), queue.subject.id))
    found = under_full_port(queues, first.subject)
    return [replace(q, confirm_ns=max(q.confirm_ns, _UNKNOWN_NS)) if q.subject == first.subject else q for q in found]


def _is_sent(queue: Detection, paused: Sequence[str]) -> bool:
    """Whether this is what a paused NIC sends."""
    return queue.subject.type == "nic" and queue.subject.id in paused and sent_by_nics(queue.directions)


def _is_somewhere_inferred(queue: Detection) -> bool:
    """Whether a queue is at a link, a core or a leaf that no map names."""
    return queue.subject.id.startswith("~") or is_inferred(queue.subject)


def _waiting(queue: Detection, wait_ns: int = _READ_NS) -> Detection:
    return replace(queue, confirm_ns=max(queue.confirm_ns, wait_ns))
