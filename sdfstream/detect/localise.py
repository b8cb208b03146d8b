"""From sick and healthy paths to the element that is at fault: link, direction, NIC or switch, with rivals.

The maximum-likelihood search itself is `sdfstream.numeric.blame`; here paths become observations, elements become
subjects, and rivals that fit the evidence as well are named. Every observation also crosses an element of its own, far
less likely than any cable, so that a fault that only one path sees (its hash bucket, its class) blames that path and
nothing that healthy paths cross.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import FWD, REV, Cabling
from sdfstream.detect.inferred.hidden import HiddenElement, hidden_elements
from sdfstream.detect.inferred.nic_or_link import takes_nic
from sdfstream.detect.one_cable import cable_instead
from sdfstream.detect.problem import Observations, Problem, log_priors, pose
from sdfstream.detect.root.whole import whole_hosts, whole_switches
from sdfstream.numeric.blame import Culprit, blame
from sdfstream.records.finding import Subject

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_OWN_PRIOR = float(np.log(1e-7))
_CLEAR = 0.7
"""A suspect is named when it is at least this likely."""
_LIKELIER = 0.5
_JOINT = 0.02
"""Two culprits are one subject when the product of its probabilities for each is above this."""
_INCUMBENT = 2.0
"""Nats in favour of an element that is blamed already: near ties must not make a finding jump between subjects."""
_LASTS = -1.0
"""Log odds that an element that is blamed already is faulty still while nothing more falls silent. Paths that come back
one by one leave sets that other elements explain as well, and another fault would have silenced others. Not of a
switch: one is blamed by mistake for a moment more often than it is dead, and that moment must not last."""


@dataclass(slots=True, eq=False)
class Location:
    """One subject that explains some of the sick paths."""

    subject: Subject
    directions: list[str]
    """``a->b`` of the sick directions; both when both are, or when the evidence fits either."""
    direction_known: bool
    share: float
    """Estimated share of trials it fails."""
    slots: Ints
    """Sessions it explains."""
    suspects: list[tuple[str, float]]
    """(id of an element, probability), most likely first."""
    probability: float
    """That the subject is right, given that one of the suspects is."""
    path_directions: list[str] = field(default_factory=list)
    """Direction in which each of `slots` is sick: ``fwd``, ``rev`` or ``both``."""
    members: tuple[str, ...] = ()
    """Of a host: its NICs, all of them sick."""
    beside: tuple[str, ...] = ()
    """Of an inferred link: the NICs that share the switch at its end."""
    alive: int = 0
    """Of a link that drops some flows alone (`gray.black_holes`): paths over it that are well; 0: nothing passes."""
    stated: float | None = None
    """That probability as evidence alone has it, where one that was named before is favoured."""

    def directed_paths(self) -> Ints:
        """Number of each sick directed path: 2·session + (0 fwd or both, 1 rev)."""
        pairs = zip(self.slots.tolist(), self.path_directions, strict=True)
        return np.array([2 * slot + (name == "rev") for slot, name in pairs], np.int64)

    @property
    def nics(self) -> tuple[str, ...]:
        """NICs that are blamed."""
        return (self.subject.id,) if self.subject.type == "nic" else self.members


def locate(
    cabling: Cabling,
    seen: Observations,
    *,
    noise: float,
    least_share: float = 0.0,
    kind: str = "",
    incumbents: frozenset[str] = frozenset(),
    nothing_new: bool = False,
    most: int = 16,
    infer: bool = True,
) -> list[Location]:
    """Subjects that together explain the failed trials in `seen`, the most telling first.

    Parameters
    ----------
    cabling : Cabling
        Brought up to date by this call.
    seen : Observations
        Sick *and* healthy paths; without the healthy ones everything upstream stays suspect.
    noise : float
        Share of trials that fails in a healthy fabric.
    least_share : float
        A sick element fails at least this share of the trials that cross it.
    kind : str
        ``silence``, ``queue`` or ``loss``, which makes some elements likelier than others (`log_priors`).
    incumbents : frozenset of str
        Subject ids blamed at the last call.
    nothing_new : bool
        Whether no path is sick that was not at the last call.
    most : int
        Most subjects to name.
    infer : bool
        Whether paths of unknown routes may be laid to an inferred place.
    """
    cabling.refresh()
    if not seen.failed.any():
        return []
    posed = pose(cabling, seen)
    log_prior, favour = _priors(cabling, posed, kind, incumbents, nothing_new=nothing_new)
    culprits = blame(
        posed.trials, log_prior, noise=noise, least_share=least_share, favour=favour, own=posed.own, most=most
    )
    merged = [x for x in _merge(cabling, posed, culprits, ports=kind == "queue") if x.slots.size]
    if kind == "silence":
        merged = [_without_switch(cabling, posed, x) for x in merged]
    found = whole_hosts(cabling, whole_switches(cabling, merged, kind))
    if infer:
        found = _with_hidden(cabling, seen, found, _evidence(seen, noise, least_share), holes=kind == "silence")
    return _gather_paths(cabling, found, incumbents)


def _priors(
    cabling: Cabling, posed: Problem, kind: str, incumbents: frozenset[str], *, nothing_new: bool
) -> tuple[Floats, Floats]:
    """Log prior of each element of `posed` and of each path's own fault, and how far incumbents are favoured."""
    log_prior = np.concatenate([log_priors(cabling, kind)[posed.elements], np.full(posed.own.size, _OWN_PRIOR)])
    favour = np.zeros(log_prior.size)
    if incumbents:
        subjects = [cabling.subject(p) for p in posed.elements.tolist()]
        stays = np.array([one.id in incumbents for one in subjects], np.bool_)
        favour[: posed.elements.size] = _INCUMBENT * stays
        if nothing_new:
            rare = np.array([one.type == "switch" for one in subjects], np.bool_)
            log_prior[: posed.elements.size][stays & ~rare] = _LASTS
    return log_prior, favour


def _merge(cabling: Cabling, posed: Problem, culprits: list[Culprit], *, ports: bool) -> list[Location]:
    """One `Location` per subject.

    Two culprits that could be two directions of one cable (or sides of one NIC) are taken for that one: a cable that
    fails in both directions is far likelier than two cables that fail in one each (not so of `ports`, hence queues).
    Where several cables qualify, each is as likely as the product of its two directions.
    """
    groups: list[_Group] = []
    for culprit in culprits:
        names: dict[Subject, list[tuple[str, float]]] = {}
        for element, probability in culprit.rivals:
            subject, name = _named(cabling, posed, element)
            names.setdefault(subject, []).append((name, probability))
        new = _Group([names], {s: sum(p for _, p in elements) for s, elements in names.items()}, [culprit])
        first = _named(cabling, posed, culprit.element)[0]
        if first in new.odds:
            new.odds[first] += 1e-9  # the search's own choice settles a tie
        host = next((g for g in groups if (g.best == new.best if ports else g.joins(new))), None)
        if host is None:
            groups.append(new)
        else:
            host.join(new)
    return [_contained(cabling, g.locations(posed.sick)) for g in groups]


def _without_switch(cabling: Cabling, posed: Problem, found: Location) -> Location:
    """The cable of a switch in its place, where that explains the same silence (`one_cable`)."""
    simpler = cable_instead(cabling, posed, found.subject.id, found.slots) if found.subject.type == "switch" else None
    if simpler is None:
        return found
    subject, directions = simpler
    suspects = [(name, found.probability / len(directions)) for name in directions]
    known = len(directions) == 1
    return replace(found, subject=subject, directions=directions, direction_known=known, suspects=suspects)


def _contained(cabling: Cabling, found: Location) -> Location:
    """Where no suspect is clear, the one switch at which all of them end; or the paths themselves, with suspects."""
    if found.probability >= _CLEAR or found.subject.type == "path" or not found.slots.size:
        return found
    weight = {name: sum(p for s, p in found.suspects if name in _nodes(s)) for name in cabling.topology.neighbours}
    total = sum(p for _, p in found.suspects)
    around = [name for name, p in sorted(weight.items()) if p >= 0.9 * total]
    found.direction_known = False
    found.directions = [name for name, p in found.suspects if p >= 0.5 * found.suspects[0][1]]
    if around:
        found.subject = Subject("switch", min(around, key=lambda name: len(cabling.topology.neighbours[name])))
    else:
        direction = "rev" if found.path_directions[0] == "rev" else "fwd"
        found.subject = Subject("path", str(cabling.sessions.path_id(int(found.slots[0]), direction)))
    return found


def _nodes(suspect: str) -> tuple[str, ...]:
    """Nodes at which a direction ends; a switch is its own."""
    a, arrow, b = suspect.partition("->")
    return (a, b) if arrow else (a,)


@dataclass(slots=True)
class _Group:
    """Culprits that are taken for one subject."""

    names: list[dict[Subject, list[tuple[str, float]]]]
    """Per culprit: subjects that may stand for it, with their elements' names and probabilities."""
    odds: dict[Subject, float]
    """Joint weight of the subjects that may stand for all of them."""
    culprits: list[Culprit]

    @property
    def best(self) -> Subject:
        return max(self.odds, key=lambda s: self.odds[s])

    def joins(self, other: _Group) -> bool:
        common = [s for s in self.odds if s in other.odds]
        return max((self.odds[s] * other.odds[s] for s in common), default=0.0) > _JOINT

    def join(self, other: _Group) -> None:
        self.odds = {s: p * other.odds[s] for s, p in self.odds.items() if s in other.odds}
        self.names += other.names
        self.culprits += other.culprits

    def locations(self, seen: Observations) -> Location:
        total, subject = sum(self.odds.values()), self.best
        suspects: dict[str, float] = {}
        for names in self.names:
            for its, elements in names.items():
                within = sum(p for _, p in elements)
                for name, probability in elements:
                    weight = self.odds.get(its, 0.0) / total * probability / within
                    suspects[name] = max(suspects.get(name, 0.0), weight)
        ordered = sorted(((n, p) for n, p in suspects.items() if p >= 0.01), key=lambda s: (-round(s[1], 6), s[0]))
        own = [name for names in self.names for name, _ in names.get(subject, ())]
        rows = np.concatenate([c.rows for c in self.culprits])
        return Location(
            subject,
            list(dict.fromkeys(own)),
            all(len(names.get(subject, ())) <= 1 for names in self.names),
            max(c.share for c in self.culprits),
            seen.slots[rows],
            ordered,
            min(1.0, self.odds[subject] / total),
            [seen.direction(r) for r in rows.tolist()],
        )


def _named(cabling: Cabling, posed: Problem, element: int) -> tuple[Subject, str]:
    if element < posed.elements.size:
        number = int(posed.elements[element])
        return cabling.subject(number), cabling.direction(number)
    row = element - posed.elements.size
    direction = "rev" if posed.sick.direction(row) == "rev" else "fwd"
    name = str(cabling.sessions.path_id(int(posed.sick.slots[row]), direction))
    return Subject("path", name), name


def _evidence(seen: Observations, noise: float, least_share: float) -> Floats:
    """(rows,) nats by which each path's own trials speak for a fault of at least `least_share` on it."""
    share = np.clip(np.maximum(seen.failed / np.maximum(seen.tried, 1e-9), least_share), noise, 1 - 1e-6)
    passed = seen.tried - seen.failed
    result: Floats = seen.failed * np.log(share / noise) + passed * np.log((1 - share) / (1 - noise))
    return result


def _with_hidden(
    cabling: Cabling, seen: Observations, found: list[Location], evidence: Floats, *, holes: bool
) -> list[Location]:
    """Single paths of unknown routes laid to what must lie on their way (`inferred.hidden`), where that is clear.

    The search names so many paths at most; here all count that are as surely sick. Of what failed a little nothing is
    known. `holes`: of dead paths, a link may drop some flows alone.
    """
    lone = [x for x in found if x.subject.type == "path" and not _mapped(cabling, x)]
    if sum(x.slots.size for x in lone) < 2 or cabling.topology.leaf_of:
        return found
    code = _codes(seen.slots, [seen.direction(row) for row in range(seen.slots.size)])
    named = [_codes(x.slots, x.path_directions) for x in found if x not in lone]
    mine = np.isin(code, np.concatenate([_codes(x.slots, x.path_directions) for x in lone]))
    sick = (mine | (evidence > -_OWN_PRIOR)) & ~np.isin(code, np.concatenate([np.empty(0, np.int64), *named]))
    behind, rest = _hidden(cabling, seen, sick)
    if not behind:
        return found
    beside = {name for link in behind for name in link.nics}
    for nic in [x for x in found if x.subject.type == "nic" and x.subject.id in beside]:
        more = sick | np.isin(code, _codes(nic.slots, nic.path_directions))
        with_it, all_rest = _hidden(cabling, seen, more)
        if takes_nic(nic.subject.id, nic.slots.size, behind, with_it):
            sick, behind, rest = more, with_it, all_rest
            found = [x for x in found if x is not nic]
    paths, code = seen.only(rest), code[rest]
    share = max(x.share for x in lone)
    explained = np.concatenate([code[hidden.rows] for hidden in behind])
    left = [x for x in lone if not np.isin(_codes(x.slots, x.path_directions), explained).all()]
    others = [x for x in found if x not in lone or x in left]
    at = (at_element(hidden, paths, share) for hidden in behind)
    return [*others, *(_dropping_some(x, hidden) if holes else x for x, hidden in zip(at, behind, strict=True))]


def _hidden(cabling: Cabling, seen: Observations, sick: Bools) -> tuple[list[HiddenElement], Bools]:
    """What explains the `sick` paths beside those that are surely well, and which paths both are."""
    rest = sick | (seen.failed == 0)
    return hidden_elements(cabling.sessions, cabling.groups(), seen.only(rest), sick[rest]), rest


def _codes(slots: Ints, directions: list[str]) -> Ints:
    """A number for each path and direction."""
    order = {"fwd": 0, "rev": 1, "both": 2}
    return np.array([3 * slot + order[name] for slot, name in zip(slots.tolist(), directions, strict=True)], np.int64)


def at_element(hidden: HiddenElement, paths: Observations, share: float) -> Location:
    """The location that an inferred place among `paths` stands for."""
    crossed = [paths.direction(row) for row in hidden.rows.tolist()]
    return Location(
        hidden.subject, hidden.directions, hidden.direction_known, share, paths.slots[hidden.rows], hidden.suspects,
        hidden.probability, crossed, beside=hidden.nics,
    )  # fmt: skip


def _dropping_some(found: Location, hidden: HiddenElement) -> Location:
    """What was found as a link that drops some flows alone, where that is likelier than one that passes nothing."""
    if hidden.drops_some <= _LIKELIER:
        return found
    return replace(found, alive=hidden.alive, probability=found.probability * hidden.drops_some)


def _gather_paths(cabling: Cabling, locations: list[Location], incumbents: frozenset[str]) -> list[Location]:
    """What only single paths seem to suffer becomes one statement; without a map one fault looks like many.

    Paths whose route is not known join the link or switch that was found beside them; the rest are reported under one
    of them, the one reported before if it is still among them.
    """
    lone = [x for x in locations if x.subject.type == "path"]
    named = [x for x in locations if x.subject.type != "path"]
    shared = next((x for x in named if x.subject.type in ("link", "switch")), None)
    if shared is not None:
        lone = _without_unmapped(cabling, lone, shared)
    if len(lone) < 2:
        return named + lone
    first = min(lone, key=lambda x: (x.subject.id not in incumbents, x.subject.id))
    suspects = sorted({s for x in lone for s in x.suspects}, key=lambda s: (-s[1], s[0]))[:16]
    group = Location(
        first.subject,
        first.directions,
        False,
        max(x.share for x in lone),
        np.concatenate([x.slots for x in lone]),
        suspects,
        min(x.probability for x in lone),
        [w for x in lone for w in x.path_directions],
    )
    return [*named, group]


def _without_unmapped(cabling: Cabling, lone: list[Location], shared: Location) -> list[Location]:
    """The single paths whose route is known; the others join `shared`."""
    mapped = [x for x in lone if _mapped(cabling, x)]
    for path in (x for x in lone if x not in mapped):
        shared.slots = np.concatenate([shared.slots, path.slots])
        shared.path_directions += path.path_directions
    return mapped


def _mapped(cabling: Cabling, found: Location) -> bool:
    """Whether more than the two NICs is known of the routes of these paths."""
    crossed = {"fwd": (FWD,), "rev": (REV,), "both": (FWD, REV)}
    return all(
        (cabling.element[slot, direction] >= 0).sum() > 2
        for slot, name in zip(found.slots.tolist(), found.path_directions, strict=True)
        for direction in crossed[name]
    )
