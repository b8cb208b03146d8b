"""A lossy link behind a NIC: where routes are not known, the paths that lose are laid to what some NICs share.

Of the paths that a NIC sends or receives, those over one lossy link lose, so that the NIC seems to lose a small share
of all. What tells them apart are its neighbours' paths over the same link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import LossCounts
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


def links_instead(
    cabling: Cabling, found: Sequence[Location], counts: LossCounts, others: Float64s
) -> dict[Subject, Location]:
    """What was `found`, by subject; in place of a NIC the inferred link behind it and others, where one is clear.

    `others` is the share of probes of each session that all but these lose: two NICs that one link makes lose would
    explain each other's losses away.
    """
    result = {}
    for location in found:
        is_nic = location.subject.type == "nic"
        link = lossy_link_behind(cabling, location.subject.id, counts, others) if is_nic else None
        result[(link or location).subject] = link or location
    return result


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
            return at_element(hidden, paths, share)
    return None


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
