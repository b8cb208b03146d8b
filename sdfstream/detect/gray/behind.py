"""A lossy link behind a NIC: where routes are not known, the paths that lose are laid to what some NICs share.

Of the paths that a NIC sends or receives, those over one lossy link lose, so that the NIC seems to lose a small share
of all. What tells them apart are its neighbours' paths over the same link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.gray.neighbours import Neighbours
from sdfstream.detect.gray.pods import Pod
from sdfstream.detect.gray.whole_switch import all_lose_alike, share_beyond
from sdfstream.detect.inferred.hidden import hidden_elements
from sdfstream.detect.localise import Location, at_element
from sdfstream.detect.problem import Observations
from sdfstream.numeric.binomial import log_tail_bound
from sdfstream.records.finding import Subject
from sdfstream.records.units import Bools, Float64s, Int64s

_SURELY: Final = float(np.log(1e-4))
_LEAST_EVENTS: Final = 2
_OTHERS: Final = 2
"""Paths of other NICs that lose as well, at least."""
_PERHAPS, _LIKELY = float(np.log(0.05)), float(np.log(0.01))
_LESS: Final = 4.0
"""What loses so many times less than a NIC does not lose by what makes the NIC lose."""


def links_instead(
    cabling: Cabling, found: Sequence[Location], standing: Sequence[Location], counts: LossCounts, others: Float64s
) -> dict[Subject, Location]:
    """What was `found` and is not `standing` yet, by subject; in place of a NIC the inferred link behind it and others.

    `others` is the share of probes of each session that all but these lose: two NICs that one link makes lose would
    explain each other's losses away. A NIC of which that is not clear yet is left out, and so is an inferred link
    whose lossy paths all lead to that NIC's switch, or to one whose other paths lose as well: they may share a link
    there. What is lost on the way out of a pod is of no leaf's link.
    """
    result, unclear = dict[Subject, Location](), list[str]()
    pod = Pod.of(cabling, found, standing, counts, others)
    for location in found:
        better: Location | None = location
        if pod is not None and pod.explains(location):
            better = pod.location
        elif location.subject.type == "nic":
            better = _instead_of_nic(cabling, location, standing, counts, others)
        if better is not None:
            result[better.subject] = better
        elif location.subject.type == "nic":
            unclear.append(location.subject.id)
    for location in standing:
        result.pop(location.subject, None)
    return {s: x for s, x in result.items() if not (x.beside and _is_beyond(cabling, x, unclear, counts, others))}


def _is_beyond(cabling: Cabling, link: Location, nics: Sequence[str], counts: LossCounts, others: Float64s) -> bool:
    """Whether what an inferred `link` loses, one packet aside, may be lost at the one other switch that it leads to.

    It may where that is the switch of one of `nics`, and where that loses on paths to others too.
    """
    group, table = cabling.groups(), cabling.sessions.table
    src, dst = group[table["src"]], group[table["dst"]]
    here = group[cabling.sessions.nics.find(link.beside[0])]
    far, lost = np.where(src == here, dst, src)[link.slots], counts.events[link.slots]
    for there in np.unique(far[far >= 0]).tolist():
        if int(lost[far != there].sum()) >= _LEAST_EVENTS:
            continue
        elsewhere = ((src == there) != (dst == there)) & (src != here) & (dst != here)
        slots = counts.used[elsewhere[counts.used]]
        lossy = int(counts.events[slots].sum()) >= _LEAST_EVENTS and counts.by_chance(slots, others) <= _LIKELY
        if lossy or any(group[cabling.sessions.nics.find(nic)] == there for nic in nics):
            return True
    return False


def _instead_of_nic(
    cabling: Cabling, found: Location, standing: Sequence[Location], counts: LossCounts, others: Float64s
) -> Location | None:
    nic = found.subject.id
    near = Neighbours.of(cabling, nic, counts)
    if near is not None and near.lost(near.inside, others) <= _SURELY:
        return found  # on its way to its neighbours as well
    if (link := lossy_link_behind(cabling, nic, counts, others)) is not None:
        return link
    if near is None:
        doubted = _unless_alone(cabling, found, standing, counts, others)
        return found if doubted is None else paths_instead(cabling, found, *doubted)
    if (known := next((x for x in standing if nic in x.beside), None)) is not None:
        return known
    beside = near.lost(near.beside, others)
    if beside > _PERHAPS or _LESS * counts.share(near.beside) < counts.share(near.own):
        return found  # it loses alone
    if beside > (_LIKELY if near.inside.size else _SURELY) or not near.spared():
        return None
    return _with_all_that_lose(cabling, near.link(), counts, others)


def _unless_alone(
    cabling: Cabling, found: Location, standing: Sequence[Location], counts: LossCounts, others: Float64s
) -> tuple[Int64s, Int64s, frozenset[str]] | None:
    """What `paths_instead` reports, where nobody knows who shares a switch with the NIC `found`, and some other NIC
    loses as well on paths that the first is not on; None: it loses alone.

    One thing behind both is likelier than that two NICs fail at once. Paths that stand are part of that.
    """
    used, table, nics = counts.used, cabling.sessions.table, cabling.sessions.nics
    src, dst, number = table["src"][used], table["dst"][used], nics.find(found.subject.id)
    own = (src == number) | (dst == number)
    if cabling.topology.leaf_of or not own.any() or cabling.is_traced(used[own]):
        return None
    normal, paths = np.array(others), [x for x in standing if x.subject.type == "path"]
    for path in paths:
        normal[path.slots] = others[used].min()
    lossy = counts.events[used] > 0
    least = _PERHAPS - float(np.log(max(1, len(nics) - 1)))  # of so many the luckiest
    share = counts.share(used[own])
    for one in np.unique(np.concatenate([src[lossy & ~own], dst[lossy & ~own]])).tolist():
        beside = used[~own & ((src == one) | (dst == one))]
        if counts.by_chance(beside, normal) <= least and _LESS * counts.share(beside) >= share:
            return used[lossy], counts.events, frozenset(x.subject.id for x in paths)
    return None


def lossy_link_behind(cabling: Cabling, nic: str, counts: LossCounts, others: Float64s) -> Location | None:
    """The inferred place that explains the losses of `nic` and of others beside it; None: nothing clear.

    `others` is the share of probes of each session that all else loses.
    """
    group, used = cabling.groups(), counts.used
    if not (group >= 0).any():
        return None
    events, probes = counts.events[used], counts.probes[used]
    sick = events >= _LEAST_EVENTS
    sick[sick] = log_tail_bound(events[sick], probes[sick], np.clip(others[used][sick], 1e-9, 0.999)) <= _SURELY
    rest = sick | (events == 0)
    paths = Observations.of(used[rest], "both", 0.0, 1.0)
    number, table = cabling.sessions.nics.find(nic), cabling.sessions.table
    for hidden in hidden_elements(cabling.sessions, group, paths, sick[rest]):
        slots = paths.slots[hidden.rows]
        own = (table["src"][slots] == number) | (table["dst"][slots] == number)
        if own.any() and int((~own).sum()) >= _OTHERS:
            share = float(counts.events[slots].sum() / max(1, counts.probes[slots].sum()))
            return _with_all_that_lose(cabling, at_element(hidden, paths, share), counts, others)
    return None


def _with_all_that_lose(cabling: Cabling, link: Location, counts: LossCounts, others: Float64s) -> Location:
    """An inferred `link` with every session that leaves its switch, where these surely lose alike.

    They do where packets are sprayed: each path crosses each link of the switch now and then.
    """
    used = counts.used
    slots = used[leaving(cabling, link, used)]
    if not all_lose_alike(slots, counts, others):
        return link
    share = share_beyond(slots, counts, others)
    return replace(link, slots=slots, path_directions=["both"] * slots.size, share=share)


def grown(cabling: Cabling, link: Location, counts: LossCounts, others: Float64s) -> Location:
    """An inferred `link` with the sessions that leave its switch and have lost something surely since it was found.

    `others` is the share of probes of each session of `counts.used` that all but the link lose.
    """
    used = counts.used
    events, probes = counts.events[used], counts.probes[used]
    more = (events >= _LEAST_EVENTS) & leaving(cabling, link, used) & ~np.isin(used, link.slots)
    more[more] = log_tail_bound(events[more], probes[more], np.clip(others[more], 1e-9, 0.999)) <= _SURELY
    if not more.any():
        return link
    slots = np.union1d(link.slots, used[more])
    return replace(link, slots=slots, path_directions=["both"] * slots.size)


def leaving(cabling: Cabling, link: Location, slots: Int64s) -> Bools:
    """Which of these sessions begin or end at the switch of an inferred `link`, not both: they may cross it."""
    near, table = [cabling.sessions.nics.find(name) for name in link.beside], cabling.sessions.table
    result: Bools = np.isin(table["src"][slots], near) != np.isin(table["dst"][slots], near)
    return result


def paths_instead(
    cabling: Cabling, location: Location, lossy: Int64s, events: Int64s, incumbents: frozenset[str]
) -> Location:
    """The paths that lose, reported under the worst: not `location` loses but something behind it, nobody knows what.

    `lossy` are their sessions, at least one; `events` what each session of all lost; `incumbents` ids of what stands.
    """
    often = lossy[events[lossy] > 1]
    lossy = often if often.size else lossy
    names = {str(cabling.sessions.path_id(s, "fwd")): int(events[s]) for s in lossy.tolist()}
    before = [name for name in names if name in incumbents]
    worst = before[0] if before else max(names, key=lambda name: names[name])
    suspects = [(worst, 0.5), *((name, p / 2) for name, p in location.suspects)]
    return Location(Subject("path", worst), [worst], False, location.share, lossy, suspects, 0.5, ["both"] * lossy.size)
