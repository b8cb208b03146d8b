"""Links that drop every packet of some flows and none of others: black holes by five-tuple.

A worn forwarding table or a dead member of a bundle behind one hash drops a share p of all five-tuples [1]_. A path is
one five-tuple, so it is dead or alive for good, and the search for what is dead finds nothing: whatever dead paths have
in common is crossed by living ones, too. Of the n paths that surely cross such an element k are dead, which has the
likelihood p^k (1 − p)^(n − k). With every share as likely as any other that is the beta function B(k + 1, n − k + 1),
beside the prior of an element and against one cause of its own for each path.

.. [1] C. Guo et al., "Pingmesh", SIGCOMM 2015, section 5.1 (black holes of type 2: addresses and ports).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lgamma
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.inferred.hidden import evidence_of
from sdfstream.detect.localise import Location
from sdfstream.detect.problem import Observations, heeding_traces, log_priors
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s

_SURELY: Final = 0.9
"""A path crosses an element when it does so with this probability: a router on its route may have moved flows."""
_OWN: Final = float(np.log(1e-7))
"""Log odds of a fault that one path has for itself, as in `localise`."""
_LEAST: Final = 2
"""Dead and living paths over a link, at least, by which it is named: one of either may have been rerouted."""
_CLEAR: Final = 0.7
_DIRECTION: Final = 0.3
"""A direction of the link is left out when it is less likely than this, given the link."""
_REMEDY: Final = (
    "Compare the forwarding tables and the bundle's members at both ends of {id} for entries that lead nowhere;"
    " drain it meanwhile: other flows pass it, so that its ports count no errors."
)


@dataclass(frozen=True, slots=True)
class _Crossings:
    """Which elements the dead paths cross, and how many living ones do."""

    elements: Int64s
    dead: Bools
    """(elements, dead paths) this path surely crosses that element."""
    alive: Int64s
    """(elements,) living paths that surely cross it."""
    log_prior: Float64s
    switch: Bools
    """(elements,) which are switches: one fits the sum of several links badly, but better than any of them alone."""

    def scores(self, left: Bools) -> Float64s:
        """(elements,) log-likelihood that this element explains what it can of the paths `left`, prior included."""
        k = self.dead[:, left].sum(axis=1)
        fits = [lgamma(d + 1) + lgamma(a + 1) - lgamma(d + a + 2) for d, a in zip(k, self.alive, strict=True)]
        result: Float64s = self.log_prior + np.array(fits) + _OWN * (int(left.sum()) - k)
        return result

    def with_other_directions(self, cabling: Cabling, named: int) -> _Crossings:
        """The same once the element `named` is at fault: the link's other direction is then no second fault."""
        subjects = [cabling.subject(number) for number in self.elements.tolist()]
        its = np.array([one == subjects[named] for one in subjects])
        return replace(self, log_prior=np.where(its, 0.0, self.log_prior))


def with_black_holes(cabling: Cabling, seen: Observations, located: list[Location]) -> list[Location]:
    """`located`, with single paths that a link has in common which others pass laid to that link (`Location.alive`).

    Parameters
    ----------
    cabling : Cabling
    seen : Observations
        Dead and living paths, as they were located.
    """
    found: list[Location] = []
    none = np.empty(0, np.int64)
    others = np.concatenate([none, *(x.slots for x in located if x.subject.type != "path")])
    for location in located:
        if location.subject.type != "path" or location.slots.size < _LEAST:
            found.append(location)
            continue
        holes, suspects = _holes(cabling, seen, location, others)
        location = replace(location, suspects=suspects or location.suspects)
        laid = np.concatenate([none, *(hole.slots for hole in holes)])
        found += holes + _without(cabling, location, laid)
    return found


def _holes(
    cabling: Cabling, seen: Observations, paths: Location, others: Int64s
) -> tuple[list[Location], list[tuple[str, float]]]:
    """Links that explain several of these dead paths, the likeliest first; suspects, where one does that is not clear.

    `others` are dead for other causes.
    """
    mine = np.isin(seen.slots, paths.slots) & (seen.failed > 0)
    # the search names so many paths at most; here all count that are as surely dead
    sick = seen.only(mine | ((seen.failed >= seen.failed[mine].min()) & ~np.isin(seen.slots, others)))
    crossings = _crossings(cabling, sick, seen.only(seen.failed == 0))
    left, total = np.ones(sick.slots.size, np.bool_), 0.0
    found: list[Location] = []
    unclear: list[tuple[Bools, float]] = []
    suspects: list[tuple[str, float]] = []
    while crossings.elements.size and left.any():
        score = np.where(crossings.switch, -np.inf, crossings.scores(left))
        best = int(np.argmax(score))
        mine = left & crossings.dead[best]
        least = 1 if any(cabling.subject(int(crossings.elements[best])) == x.subject for x in found) else _LEAST
        if int(mine.sum()) < least or score[best] <= _OWN * int(left.sum()):
            break
        hole = _link(cabling, crossings, best, mine)
        is_clear = hole.probability >= _CLEAR and hole.alive >= _LEAST
        if mine.all() and not is_clear:
            suspects = hole.suspects
        left &= ~mine
        gain = float(score[best]) - _OWN * int(left.sum())
        if hole.subject.type != "link" or not is_clear:
            unclear.append((mine, gain))
            continue
        slots, crossed = sick.slots[mine], [sick.direction(row) for row in np.flatnonzero(mine).tolist()]
        _add(found, replace(hole, slots=slots, path_directions=crossed))
        crossings = crossings.with_other_directions(cabling, best)
        total += gain
        for rows, _ in unclear:  # they may cross its other direction
            left |= rows
        unclear.clear()
    total += sum(gain for _, gain in unclear)
    whole = crossings.scores(np.ones(sick.slots.size, np.bool_))[crossings.switch]
    return (found if total + _OWN * int(left.sum()) > whole.max(initial=-np.inf) else []), suspects


def _add(found: list[Location], hole: Location) -> None:
    """Take a hole; a link whose other direction is found already is one with it."""
    for number, other in enumerate(found):
        if other.subject == hole.subject:
            directions = list(dict.fromkeys(other.directions + hole.directions))
            suspects = [(name, other.probability / len(directions)) for name in directions]
            found[number] = replace(
                other,
                directions=directions,
                direction_known=other.direction_known and hole.direction_known,
                slots=np.append(other.slots, hole.slots),
                path_directions=other.path_directions + hole.path_directions,
                suspects=suspects,
                alive=min(other.alive, hole.alive),
            )
            return
    found.append(hole)


def _crossings(cabling: Cabling, sick: Observations, well: Observations) -> _Crossings:
    entries = cabling.entries(sick.slots, sick.fwd, sick.rev, sick.then_ns)
    row, element, weight = heeding_traces(cabling, sick, *entries)
    row, element = row[weight > _SURELY], element[weight > _SURELY]
    elements, number = np.unique(element, return_inverse=True)
    dead = np.zeros((elements.size, sick.slots.size), np.bool_)
    dead[number, row] = True
    _, passed, weight = cabling.entries(well.slots, well.fwd, well.rev, well.then_ns)
    alive = np.bincount(passed[weight > _SURELY], minlength=len(cabling.elements))
    switch = np.array([cabling.subject(number).type == "switch" for number in elements.tolist()], np.bool_)
    return _Crossings(elements, dead, alive[elements], log_priors(cabling)[elements], switch)


def _link(cabling: Cabling, crossings: _Crossings, best: int, mine: Bools) -> Location:
    """The link or NIC that the element `best` belongs to, as the cause of the dead paths `mine`."""
    weight = crossings.scores(mine)
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    subjects = [cabling.subject(number) for number in crossings.elements.tolist()]
    subject = subjects[best]
    its = np.array([one == subject for one in subjects])
    probability = float(weight[its].sum())
    sick = its & (weight >= _DIRECTION * probability)
    alive = int(crossings.alive[sick].min())
    named = [cabling.direction(number) for number in crossings.elements.tolist()]
    suspects = [(named[i], float(weight[i])) for i in np.argsort(-weight, kind="stable").tolist() if weight[i] >= 0.01]
    directions = [named[i] for i in np.flatnonzero(sick).tolist()]
    share = float(mine.sum() / (mine.sum() + alive))
    none = np.empty(0, np.int64)
    return Location(subject, directions, len(directions) == 1, share, none, suspects, probability, alive=alive)


def _without(cabling: Cabling, paths: Location, laid: Int64s) -> list[Location]:
    """The single paths of a statement that were not laid to a link; none, where all were."""
    rest = ~np.isin(paths.slots, laid)
    if rest.all() or not rest.any():
        return [paths] if rest.all() else []
    slots = paths.slots[rest]
    directions_of = [name for name, yes in zip(paths.path_directions, rest.tolist(), strict=True) if yes]
    pairs = zip(slots.tolist(), directions_of, strict=True)
    names = [str(cabling.sessions.path_id(slot, "rev" if name == "rev" else "fwd")) for slot, name in pairs]
    suspects = [s for s in paths.suspects if s[0] in names]
    subject = Subject("path", min(names))
    return [
        replace(
            paths,
            subject=subject,
            directions=[subject.id],
            slots=slots,
            suspects=suspects,
            path_directions=directions_of,
        )
    ]


def detection(found: Location, cabling: Cabling, since_ns: Int64s, now_ns: int, hold_ns: int) -> Detection:
    """What is said of a link that drops all packets of some flows; `since_ns`: of each session, of its silence."""
    first_ns = int(since_ns[found.slots].min())
    where, dead = " ".join(found.directions), int(found.slots.size)
    evidence = (
        Evidence("silent-paths", float(dead), "paths", where, 0.0),
        Evidence("paths-alive", float(found.alive), "paths", where, float(found.alive)),
        Evidence("silent-for", round((now_ns - first_ns) / NS_PER_S, 1), "s", where, 0.0),
        *evidence_of(found.beside),
    )
    pairs = list(zip(found.slots.tolist(), found.path_directions, strict=True))[:MAX_SYMPTOMS]
    paths = [(cabling.sessions.path_id(s, "rev" if name == "rev" else "fwd"), since_ns[s]) for s, name in pairs]
    return Detection(
        "loss",
        found.subject,
        first_ns,
        "gray-failure",
        found.probability,
        evidence,
        suspects=tuple(found.suspects),
        symptoms=tuple(symptom("path-down", Subject("path", str(path)), ns) for path, ns in paths),
        confirm_ns=NS_PER_S,
        hold_ns=hold_ns,
        detail=f"drops all packets of some flows {where}, and none of others"
        + ("" if found.direction_known else " (direction not known)"),
        directions=tuple(found.directions),
        direction_known=found.direction_known,
        sessions=tuple(found.slots.tolist()[:MAX_SYMPTOMS]),
        remedy=_REMEDY.format(id=found.subject.id),
    )
