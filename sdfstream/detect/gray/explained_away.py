"""Standing lossy elements to which newer ones leave nothing: those take their place, and say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import KnownLosses
from sdfstream.detect.gray.lossy import LossySubject
from sdfstream.detect.gray.spines import is_one_of_spines
from sdfstream.numeric.mixture import fit_shares
from sdfstream.records.finding import Subject
from sdfstream.records.units import Float64s, Int64s

_EXPLAINED_AWAY: Final = 4.0
_MOST_OF_IT: Final = 0.5
_OF_ITS_OWN: Final = 8.0
"""Nats that a standing element adds beside newer ones, and that it added without them: then they take its place."""


def explained_away(
    cabling: Cabling,
    standing: Sequence[Subject],
    pool: Mapping[Subject, Float64s],
    new: Sequence[Subject],
    of: tuple[Float64s, Float64s, Int64s],
    normal: float,
) -> list[Subject]:
    """Standing elements to which the new ones leave nothing of what they explained.

    But not one of the spines: all leaves together, or all spines by name, always explain what that costs.

    Parameters
    ----------
    cabling : Cabling
    standing : sequence of Subject
    pool : mapping
        Exposure of each session to each of all these.
    new : sequence of Subject
    of : events, probes, sessions
        What was lost, of how many, by which sessions.
    normal : float
        Share of probes that is lost without any of them.
    """
    k, n, used = of
    gone: list[Subject] = []

    def reached(subjects: Sequence[Subject]) -> float:
        return fit_shares(k, n, np.array([pool[s][used] for s in subjects]).reshape(-1, used.size), normal)[1]

    for subject in standing:
        if is_one_of_spines(cabling.topology, subject):
            continue
        old = [s for s in standing if s not in gone]
        everyone = [*old, *new]
        alone = reached(old) - reached([s for s in old if s != subject])
        beside = reached(everyone) - reached([s for s in everyone if s != subject])
        if alone > _OF_ITS_OWN and beside < _EXPLAINED_AWAY:
            gone.append(subject)
    return gone


def note_heirs(
    gone: Iterable[LossySubject],
    standing: Mapping[Subject, LossySubject],
    exposures: Mapping[Subject, Float64s],
    seen: KnownLosses,
    normal: float,
    limit: float,
) -> None:
    """What stands no longer, although its paths lose as before, is noted with what stands and costs them most of that.

    Parameters
    ----------
    gone : iterable of LossySubject
        They were not found to have healed.
    standing, exposures : mapping
        What stands now, and its exposure of each session.
    seen : KnownLosses
    normal : float
        Share of probes that is lost without anything that stands.
    limit : float
        Log of how unlikely losses must be to count as such.
    """
    again = {(subject.type, subject.id) for subject in standing}
    for heir in standing.values():
        heir.instead_of = tuple(name for name in heir.instead_of if name not in again)
    for lossy in gone:
        counts, slots = lossy.counts(seen), lossy.slots
        if counts.by_chance(slots, np.full(counts.probes.size, normal)) > limit:
            continue
        costs = {s: x.share * float(counts.probes[slots] @ exposures[s][slots]) for s, x in standing.items()}
        most = max(costs, key=lambda s: costs[s], default=None)
        if most is not None and costs[most] >= _MOST_OF_IT * float(counts.events[slots].sum()):
            heir, subject = standing[most], lossy.location.subject
            heir.instead_of = (*heir.instead_of, (subject.type, subject.id))
