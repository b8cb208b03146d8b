"""Queues that one class of few paths cannot place, and queues whose paths fall late."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sdfstream.detect.localise import Location
from sdfstream.detect.queues import placed
from sdfstream.detect.queues.placed import settled
from sdfstream.detect.stage import DetectStage
from sdfstream.records.finding import Subject
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Shape

SHAPE = Shape(hosts=8, rails=1, leaves=4, spines=2, ports=3, rate_hz=12.0, peers=4)
LINK, SWITCH, PATH = Subject("link", "l0--s0"), Subject("switch", "s0"), Subject("path", "p")
FIRST = replace(LINK, id="h00/r0--l0")


@pytest.fixture(scope="module")
def fabric() -> tuple[Any, np.ndarray, np.ndarray]:
    """The cabling of a fabric whose routes are known; directed paths over l0->s0, and others."""
    stage, made = DetectStage(), Fabric(3, [], SHAPE)
    run(stage, made.messages(4))
    cabling = stage._engines.congestion.cabling
    numbers = np.arange(2 * cabling.sessions.count)
    element, weight = cabling.element[numbers // 2, numbers % 2], cabling.weight[numbers // 2, numbers % 2]
    over = (np.isin(element, cabling.numbers(["l0->s0"])) & (weight > 0.9)).any(axis=1)
    assert over.sum() >= 4 and (~over).sum() >= 4
    return cabling, numbers[over], numbers[~over]


def location(subject: Subject, number: np.ndarray, directions: list[str], sure: float = 0.7) -> Any:
    names = ["rev" if n % 2 else "fwd" for n in number.tolist()]
    found = Location(subject, directions, True, 1.0, number // 2, [(directions[0], sure)], sure, names)
    return found, number


def doubtful(number: np.ndarray) -> Any:
    """All of these paths cross l0->s2 and then s2->l2, as it were: it may be the other link."""
    found, _ = location(FIRST, number, ["h00/r0->l0"])
    return replace(found, suspects=[("h00/r0->l0", 0.75), ("l0->s0", 0.25)], probability=0.75), number


@pytest.mark.parametrize("vague", [SWITCH, PATH])
def test_paths_that_all_cross_a_queue_that_is_placed_are_its_own(fabric: Any, vague: Subject) -> None:
    cabling, over, _ = fabric
    found = settled(cabling, [location(LINK, over[2:], ["l0->s0"]), location(vague, over[:2], ["l0->s0"])], {})
    assert set(found) == {LINK}
    assert sorted(found[LINK][1].tolist()) == over.tolist()


@pytest.mark.parametrize("vague", [SWITCH, PATH])
def test_where_its_other_paths_fell_late_the_queue_stands_where_it_stood(fabric: Any, vague: Subject) -> None:
    cabling, over, _ = fabric
    before = {LINK: location(LINK, over, ["l0->s0"])[0]}
    found = settled(cabling, [location(vague, over[:2], ["l0->s0"])], before)
    assert {subject: number.tolist() for subject, (_, number) in found.items()} == {LINK: over[:2].tolist()}


def test_paths_beside_the_queue_are_not_laid_to_it(fabric: Any) -> None:
    cabling, over, beside = fabric
    mixed = np.concatenate([over[:2], beside[:1]])
    found = settled(cabling, [location(LINK, over[2:], ["l0->s0"]), location(SWITCH, mixed, ["l0->s0"])], {})
    assert set(found) == {LINK, SWITCH}


def test_paths_laid_to_a_switch_are_those_of_the_queues_at_its_ports_that_they_cross(fabric: Any) -> None:
    """Two queues stand there; a class whose paths cross one of them each cannot tell them from the switch."""
    cabling, over, beside = fabric
    element, weight = cabling.element[beside // 2, beside % 2], cabling.weight[beside // 2, beside % 2]
    others = beside[(np.isin(element, cabling.numbers(["l1->s0"])) & (weight > 0.9)).any(axis=1)]
    second = replace(LINK, id="l1--s0")
    known = [location(LINK, over[1:], ["l0->s0"], 1.0), location(second, others[1:], ["l1->s0"], 1.0)]
    both = np.concatenate([over[:1], others[:1]])
    found = settled(cabling, [*known, location(SWITCH, both, ["s0"])], {})
    assert {subject: sorted(number.tolist()) for subject, (_, number) in found.items()} == {
        LINK: over.tolist(),
        second: others.tolist(),
    }
    unsure = [known[0], location(second, others[1:], ["l1->s0"], 0.7)]
    assert SWITCH in settled(cabling, [*unsure, location(SWITCH, both, ["s0"])], {}), "where the second is not known"


@pytest.mark.parametrize(("there", "taken"), [(0.5, True), (0.3, False)])
def test_a_switch_for_links_in_a_row_gives_way_to_the_one_that_is_known_to_queue(
    fabric: Any, monkeypatch: pytest.MonkeyPatch, there: float, taken: bool
) -> None:
    """Its paths' routes are in doubt: none surely crosses the queue, but all cross it as likely as the other link."""
    cabling, over, _ = fabric
    unsure = {"l0->s0": there, "s0->l2": 0.5}
    monkeypatch.setattr(
        placed,
        "crossing",
        lambda _, n, where: np.where(n < 0, 1.0, max(unsure.get(d, 0.0) for d in where.directions)),
    )
    vague, number = location(SWITCH, over[:2], ["l0->s0", "s0->l2"])
    vague = replace(vague, suspects=[("l0->s0", 0.6), ("s0->l2", 0.4)], probability=0.6)
    found = settled(cabling, [location(LINK, over[2:], ["l0->s0"], 1.0), (vague, number)], {})
    assert (set(found) == {LINK}) == taken


def test_a_link_is_no_vaguer_than_another(fabric: Any) -> None:
    cabling, over, _ = fabric
    other = replace(LINK, id="l1--s0")
    found = settled(cabling, [location(LINK, over[2:], ["l0->s0"]), location(other, over[:2], ["l0->s0"])], {})
    assert set(found) == {LINK, other}


@pytest.mark.parametrize(("surely", "expected"), [(1.0, {LINK}), (0.7, {LINK, FIRST})])
def test_of_links_in_a_row_the_one_that_another_class_is_sure_of_has_the_queue(
    fabric: Any, surely: float, expected: set[Subject]
) -> None:
    cabling, over, _ = fabric
    assert set(settled(cabling, [location(LINK, over[2:], ["l0->s0"], surely), doubtful(over[:2])], {})) == expected


@pytest.mark.parametrize("first", [True, False])
def test_a_burst_at_the_wrong_one_of_two_links_keeps_no_other_class_there(fabric: Any, first: bool) -> None:
    """As cross traffic begins: for half a second paths waited before the link that then stayed full."""
    cabling, over, beside = fabric
    burst, queue = location(FIRST, beside[:1], ["h00/r0->l0"], 0.99), location(LINK, over[2:], ["l0->s0"], 1.0)
    found = settled(cabling, [burst, queue, doubtful(over[:2])][:: 1 if first else -1], {})
    assert {subject: sorted(number.tolist()) for subject, (_, number) in found.items()} == {
        FIRST: beside[:1].tolist(),
        LINK: over.tolist(),
    }
    assert found[FIRST][0].probability == 0.99


@pytest.mark.parametrize(("there", "taken"), [(1.0, True), (0.5, True), (0.25, False)])
def test_a_path_whose_route_is_in_doubt_waits_where_it_may_cross_as_likely(
    fabric: Any, monkeypatch: pytest.MonkeyPatch, there: float, taken: bool
) -> None:
    """Alternates are traced seldom: whether such a path crosses either of two links in a row is equally likely."""
    cabling, over, _ = fabric
    unsure = {"l0->s0": there, "h00/r0->l0": 0.5}
    monkeypatch.setattr(
        placed, "crossing", lambda _, n, where: np.where(n == over[1], unsure[where.directions[0]], 1.0)
    )
    found = settled(cabling, [location(LINK, over[2:], ["l0->s0"], 1.0), doubtful(over[:2])], {})
    assert (set(found) == {LINK}) == taken
