"""Queues that one class of paths cannot place, laid to those that another class, or a moment ago this one, has placed.

Of two links in a row few paths of a class may cross only one, and then it is a guess which of them has the queue.
Another class whose paths part there knows. A class's paths are looked at by themselves: a burst of another class at the
wrong one of the two links must not keep them there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.localise import Location
from sdfstream.records.finding import Subject
from sdfstream.records.units import Bools, Float64s, Int64s

Located: TypeAlias = tuple[Location, Int64s]
"""A queue's place, and the directed paths that wait there."""
SURELY: Final = 0.9
"""A path crosses an element when it does so with this probability; so probable is a place that is not in doubt."""
UNPLACED: Final = {"switch": 1, "path": 2}
"""Subjects that stand for a place which is not known, the vaguest last."""


def in_doubt(location: Location) -> bool:
    """Whether paths of one class do not say by themselves where their queue stands."""
    return location.subject.type in UNPLACED or location.probability < SURELY


def settled(cabling: Cabling, found: Iterable[Located], before: Mapping[Subject, Location]) -> dict[Subject, Located]:
    """What each class found, by place, each path where the queue that explains it stands.

    Parameters
    ----------
    found : iterable of (Location, directed paths)
        Of every class apart; several may have one subject.
    before : mapping
        Places of queues whose findings are open.

    Notes
    -----
    Paths that one class alone cannot place are those of a queue that all of them cross and that another class has
    placed, or more paths than report now: few of a class may be laid to a switch, or to the first of the links in a
    row. Of paths without any place each is looked at alone.
    """
    found = list(found)
    placed = dict(before)
    for location, _ in found:
        former = placed.get(location.subject)
        if former is None or location.probability >= former.probability:
            placed[location.subject] = location
    result: dict[Subject, Located] = {}
    for location, number in found:
        shared = _shared_out(cabling, location, number, placed)
        for where, theirs in shared:
            _add(result, where, theirs)
        left = number[:0] if shared else number
        for where in placed.values():
            theirs = left[_crosses(cabling, left, where) | _cross_alike(cabling, left, where, location)]
            if where.subject != location.subject and theirs.size and _explains(where, location, left, theirs):
                _add(result, where, theirs)
                left = np.setdiff1d(left, theirs)
        if left.size:
            _add(result, location if left.size == number.size else _only(cabling, location, left), left)
    return result


def _shared_out(
    cabling: Cabling, location: Location, number: Int64s, placed: Mapping[Subject, Location]
) -> list[Located]:
    """Paths laid to a switch, at queues of its ports whose places are known; nothing if these do not explain all.

    Either one queue that is among the suspects, if the paths cross it about as likely as any of them, or several of
    which each path surely crosses one.
    """
    if location.subject.type != "switch":
        return []
    known = [x for x in placed.values() if x.subject.type not in UNPLACED and x.probability >= SURELY]
    suspects = replace(location, directions=[name for name, _ in location.suspects])
    likely = crossing(cabling, number, suspects).sum()
    for where in known:
        suspected = not set(where.directions).isdisjoint(suspects.directions)
        if suspected and crossing(cabling, number, where).sum() >= SURELY * likely:
            return [(where, number)]
    result, left = [], number
    for where in known:
        theirs = left[_crosses(cabling, left, where)]
        result += [(where, theirs)] if theirs.size else []
        left = np.setdiff1d(left, theirs)
    return [] if left.size else result


def _add(result: dict[Subject, Located], location: Location, number: Int64s) -> None:
    """Lay more paths to a place; of what two classes know of it the clearer stays."""
    if location.subject in result:
        known, before = result[location.subject]
        location = known if known.probability > location.probability else location
        number = np.concatenate([before, number])
    result[location.subject] = location, number


def _explains(where: Location, location: Location, number: Int64s, theirs: Int64s) -> bool:
    """Whether a queue that is placed explains those of the paths `number`, laid elsewhere, that are `theirs`."""
    if location.subject.type == "path":
        return where.subject.type != "path"
    return theirs.size == number.size and in_doubt(location) and _clearer(where, location)


def _clearer(known: Location, doubtful: Location) -> bool:
    """Whether a queue's place is known better than a doubtful one, and may be that one's."""
    vague, vaguer = UNPLACED.get(known.subject.type, 0), UNPLACED.get(doubtful.subject.type, 0)
    if vaguer:
        return vague < vaguer
    suspects = {name for name, _ in doubtful.suspects}
    return not vague and known.probability >= SURELY and not suspects.isdisjoint(known.directions)


def _crosses(cabling: Cabling, number: Int64s, location: Location) -> Bools:
    """Which of these directed paths surely cross one of the directions of a location."""
    surely: Bools = crossing(cabling, number, location) > SURELY
    return surely


def _cross_alike(cabling: Cabling, number: Int64s, where: Location, location: Location) -> Bools:
    """Which of these directed paths, whose routes may be in doubt, cross a place as likely as the link blamed."""
    if location.subject.type != "link":
        return np.zeros(number.size, dtype=np.bool_)
    mine, theirs = crossing(cabling, number, location), crossing(cabling, number, where)
    alike: Bools = (theirs > 0) & (theirs >= SURELY * mine)
    return alike


def crossing(cabling: Cabling, number: Int64s, location: Location) -> Float64s:
    """(n,) how probably each of these directed paths crosses the likeliest of the directions of a location."""
    element, weight = cabling.element[number // 2, number % 2], cabling.weight[number // 2, number % 2]
    over = np.isin(element, cabling.numbers(location.directions))
    crossed: Float64s = np.where(over, weight, 0.0).max(axis=1, initial=0.0)
    return crossed


def _only(cabling: Cabling, location: Location, number: Int64s) -> Location:
    """A location without place, of these of its paths."""
    names = {str(cabling.sessions.path_id(n // 2, "rev" if n % 2 else "fwd")) for n in number.tolist()}
    suspects = [(name, p) for name, p in location.suspects if name in names]
    sides = ["rev" if n % 2 else "fwd" for n in number.tolist()]
    subject = location.subject if location.subject.id in names or not suspects else Subject("path", suspects[0][0])
    return replace(location, subject=subject, slots=number // 2, path_directions=sides, suspects=suspects)
