"""A queue beside quiet siblings is one of flows badly spread only where known flows fill it, and would fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sdfstream.detect.compare.siblings import SiblingComparison
from sdfstream.detect.localise import Location
from sdfstream.detect.stage import DetectStage
from sdfstream.records.finding import Evidence, Subject
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Shape

SHAPE = Shape(hosts=8, rails=1, leaves=4, spines=3, ports=6, rate_hz=12.0, peers=6)
HERE, SIBLINGS = "l0->s0", ("l0->s1", "l0->s2")


@pytest.fixture(scope="module")
def engines() -> Any:
    """Of a stage that knows the fabric's routes."""
    stage = DetectStage()
    run(stage, Fabric(3, [], SHAPE).messages(4))
    return stage._engines


def over(engines: Any, direction: str) -> np.ndarray:
    cabling = engines.cabling
    numbers = np.arange(2 * cabling.sessions.count)
    element, weight = cabling.element[numbers // 2, numbers % 2], cabling.weight[numbers // 2, numbers % 2]
    return numbers[(np.isin(element, cabling.numbers([direction])) & (weight > 0.9)).any(axis=1)]


def told(engines: Any, loads: dict[str, float], slow: tuple[str, ...] = (), **changes: Any) -> dict[str, Evidence]:
    """Evidence by name, when paths over `HERE` and the directions `slow` stand in a queue."""
    share = np.zeros(len(engines.cabling.elements))
    for name, load in loads.items():
        share[engines.cabling.elements.find(name)] = load
    number = over(engines, HERE)
    place = {"subject": Subject("link", "l0--s0"), "directions": [HERE], "direction_known": True, "probability": 1.0}
    place |= changes
    location = Location(share=1.0, slots=number // 2, suspects=[], **place)
    well = np.ones(2 * engines.cabling.sessions.count, np.bool_)
    for name in (HERE, *slow):
        well[over(engines, name)] = False
    compared = SiblingComparison(engines.cabling, engines.delays, SimpleNamespace(carried_share=share))  # type: ignore
    return {e.what: e for e in compared.imbalance(location, number, well, 10**12)}


def test_a_link_full_of_known_flows_beside_quiet_siblings_is_badly_spread(engines: Any) -> None:
    said = told(engines, {HERE: 0.95, SIBLINGS[0]: 0.1, SIBLINGS[1]: 0.2})
    assert said["quiet-siblings"].value == 2
    assert said["quiet-siblings"].where == " ".join(SIBLINGS)
    assert said["sibling-paths"].value >= 6
    assert abs(said["sibling-excess"].value) < 20
    assert (said["known-load"].value, said["known-load"].baseline) == (0.95, pytest.approx(0.15))


def test_of_a_link_that_others_fill_nothing_is_said(engines: Any) -> None:
    assert not told(engines, {HERE: 0.3})
    assert not told(engines, {})


def test_siblings_that_are_full_as_well_have_no_room(engines: Any) -> None:
    assert not told(engines, {HERE: 0.95, SIBLINGS[0]: 0.8, SIBLINGS[1]: 0.8})


def test_most_siblings_must_be_quiet(engines: Any) -> None:
    assert told(engines, {HERE: 0.95}, slow=SIBLINGS[:1])["quiet-siblings"].value == 1
    assert not told(engines, {HERE: 0.95}, slow=SIBLINGS)


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": Subject("switch", "l0")},
        {"direction_known": False},
        {"directions": [HERE, "s0->l0"]},
        {"probability": 0.5},
    ],
)
def test_a_place_in_doubt_is_compared_with_nothing(engines: Any, changes: dict[str, Any]) -> None:
    assert not told(engines, {HERE: 0.95}, **changes)


def test_a_way_down_has_no_equal_ways(engines: Any) -> None:
    """A spine's links to other leaves lead elsewhere."""
    number = over(engines, "s0->l0")
    share = np.zeros(len(engines.cabling.elements))
    share[engines.cabling.elements.find("s0->l0")] = 0.95
    location = Location(Subject("link", "l0--s0"), ["s0->l0"], True, 1.0, number // 2, [], 1.0)
    compared = SiblingComparison(engines.cabling, engines.delays, SimpleNamespace(carried_share=share))  # type: ignore
    assert not compared.imbalance(location, number, np.ones(2 * engines.cabling.sessions.count, np.bool_), 10**12)
