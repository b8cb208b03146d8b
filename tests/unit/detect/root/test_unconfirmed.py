"""Outages that ended before their place was sure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.localise import Location
from sdfstream.detect.root.unconfirmed import UnconfirmedSilences
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_MS

PATHS, DOWN_NS, BACK_NS = 8, 6_000 * NS_PER_MS, 7_000 * NS_PER_MS
SPINE, LINK = Subject("switch", "s0"), Subject("link", "l0--s0")


def place(subject: Subject, slots: list[int], probability: float = 0.5) -> Location:
    return Location(subject, [subject.id], False, 1.0, np.array(slots), [(subject.id, probability)], probability)


def at(silent: list[int], *located: Location, told: frozenset[Subject] = frozenset(), late: bool = False) -> Any:
    """An instant at which these paths are silent, laid to these places; findings of those `told` are open."""
    mask = np.isin(np.arange(PATHS), silent)
    seen = SimpleNamespace(silent=mask, since_ns=np.full(PATHS, DOWN_NS), back_ns=np.full(PATHS, BACK_NS))
    findings = SimpleNamespace(is_open=lambda _, subject: subject in told)
    silence = SimpleNamespace(sightings=seen, locations=list(located))
    return SimpleNamespace(silence=silence, findings=findings, late=np.full(PATHS, late))


def fresh() -> UnconfirmedSilences:
    sessions = SimpleNamespace(path_id=lambda slot, direction: f"p{slot} {direction}")
    return UnconfirmedSilences(cast(Cabling, SimpleNamespace(sessions=sessions)))


def test_an_outage_in_doubt_is_told_once_most_of_its_paths_are_back() -> None:
    mine, all_of_it = fresh(), place(SPINE, list(range(6)))
    assert mine.ended(at([0, 1, 2, 3, 4, 5], all_of_it)) == []
    again = fresh()
    again.restore(mine.snapshot())
    (gap,) = again.ended(at([]))
    assert (gap.subject, gap.down_ns, gap.up_ns, len(gap.paths)) == (SPINE, DOWN_NS, BACK_NS, 6)
    assert again.ended(at([])) == []


def test_the_last_paths_that_come_back_are_no_outage_of_another_place() -> None:
    mine = fresh()
    mine.ended(at([0, 1, 2, 3, 4, 5], place(SPINE, list(range(6)))))
    (gap,) = mine.ended(at([5], place(LINK, [5])))
    assert gap.subject == SPINE
    assert mine.ended(at([])) == []


def test_what_is_told_sure_or_late_is_no_such_outage() -> None:
    for told, probability, late in (
        (frozenset({LINK}), 0.5, False),
        (frozenset(), 0.95, False),
        (frozenset(), 0.5, True),
    ):
        mine = fresh()
        mine.ended(at([0, 1, 2], place(LINK, [0, 1, 2], probability), told=told))
        assert mine.ended(at([], late=late)) == []
