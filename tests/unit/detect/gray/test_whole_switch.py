"""A switch is told from its cables at once where all of its paths lose alike, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.gray.whole_switch import all_lose_alike, is_sprayed, lose_beside_each_cable, says_no_more
from sdfstream.detect.localise import Location
from sdfstream.detect.stage import DetectStage
from sdfstream.records.finding import Subject
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Shape

LIMIT = float(np.log(1e-9))
PROBES = 20


@pytest.fixture(scope="module")
def cabling() -> Cabling:
    stage = DetectStage()
    run(stage, Fabric(3, [], Shape(hosts=8, rails=1, leaves=4, spines=4, ports=4, rate_hz=12.0, peers=5)).messages(4))
    return stage._engines.congestion.cabling


def over(cabling: Cabling, *directions: str) -> np.ndarray:
    """Sessions that surely cross any of these directions, or all that do, of a switch."""
    n = cabling.sessions.count
    hit = np.isin(cabling.element[:n], cabling.numbers(directions)) & (cabling.weight[:n] > 0.5)
    return np.flatnonzero(hit.any(axis=(1, 2)))


def counts(cabling: Cabling, share: np.ndarray, seed: int = 1) -> LossCounts:
    probes = np.full(cabling.sessions.count, PROBES)
    events = np.random.default_rng(seed).binomial(probes, share)
    return LossCounts(events, probes)


def whole(cabling: Cabling) -> tuple[np.ndarray, np.ndarray]:
    uplinks = [f"l0->s{k}" for k in range(4)] + [f"s{k}->l0" for k in range(4)]
    return over(cabling, *uplinks), np.full(cabling.sessions.count, 1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_all_paths_of_a_leaf_lose_alike_where_packets_are_sprayed(cabling: Any, seed: int) -> None:
    slots, others = whole(cabling)
    share = np.zeros(cabling.sessions.count)
    share[slots] = 0.25
    seen = counts(cabling, share, seed)
    assert all_lose_alike(slots, seen, others)
    assert lose_beside_each_cable(cabling, "l0", slots, seen, others, LIMIT)


@pytest.mark.parametrize("seed", range(5))
def test_one_uplink_makes_its_own_paths_lose(cabling: Any, seed: int) -> None:
    slots, others = whole(cabling)
    share = np.zeros(cabling.sessions.count)
    share[over(cabling, "l0->s1", "s1->l0")] = 0.5
    seen = counts(cabling, share, seed)
    assert not all_lose_alike(slots, seen, others)
    assert not lose_beside_each_cable(cabling, "l0", slots, seen, others, LIMIT)


def test_few_losses_are_alike_by_chance_and_count_for_nothing(cabling: Any) -> None:
    slots, others = whole(cabling)
    share = np.zeros(cabling.sessions.count)
    share[slots] = 0.005
    assert not all_lose_alike(slots, counts(cabling, share), others)


def test_of_a_switch_without_declared_cables_nothing_is_shown(cabling: Any) -> None:
    slots, others = whole(cabling)
    seen = counts(cabling, np.full(cabling.sessions.count, 0.25))
    assert not lose_beside_each_cable(cabling, "x9", slots, seen, others, LIMIT)


@pytest.mark.parametrize(("beside", "sprayed"), [(0.0, True), (0.3, False)])
def test_a_leaf_is_not_the_cause_where_paths_beside_it_lose_as_much(cabling: Any, beside: float, sprayed: bool) -> None:
    slots, others = whole(cabling)
    share = np.full(cabling.sessions.count, beside)
    share[slots] = 0.3
    crossing = np.isin(np.arange(share.size), slots).astype(float)
    leaf = Location(Subject("switch", "l0"), ["l0"], True, 0.3, slots, [("l0", 1.0)], 1.0, ["both"] * slots.size)
    seen = counts(cabling, share)
    assert is_sprayed(cabling, leaf, slots, seen, others, crossing, LIMIT) is sprayed
    unclear = replace(leaf, probability=0.8)
    assert not is_sprayed(cabling, unclear, slots, seen, others, crossing, LIMIT)
    cable = replace(leaf, subject=Subject("link", "l0--s0"))
    assert not is_sprayed(cabling, cable, slots, seen, others, crossing, LIMIT)


@pytest.mark.parametrize(
    ("found", "standing", "no_more"),
    [
        (("path", "p", 0.2, ["l0->s0", "s1->l0"]), ("switch", "l0", 1.0), True),
        (("switch", "l0", 0.2, ["l0->s0", "s1->l0"]), ("switch", "l0", 1.0), True),
        (("path", "p", 0.2, ["l0->s0", "s1->l1"]), ("switch", "l0", 1.0), False),
        (("link", "l0--s0", 0.5, ["l0->s0", "s0->l0"]), ("switch", "l0", 1.0), False),  # it names one
        (("path", "p", 0.95, ["l0->s0", "s1->l0"]), ("switch", "l0", 1.0), False),
        (("path", "p", 0.2, ["l0->s0", "s1->l0"]), ("switch", "l0", 0.5), False),
        (("path", "p", 0.2, ["l0->s0", "s1->l0"]), ("link", "l0--s0", 1.0), False),
    ],
)
def test_any_link_of_a_switch_that_stands_is_no_better_answer(found: Any, standing: Any, no_more: bool) -> None:
    def location(kind: Any, name: str, probability: float, directions: list[str]) -> Location:
        slots = np.array([0, 1])
        return Location(Subject(kind, name), directions, False, 0.1, slots, [(name, 1.0)], probability)

    assert says_no_more(location(*found), location(*standing, [standing[1]])) == no_more
