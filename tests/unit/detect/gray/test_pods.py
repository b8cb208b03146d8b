"""Losses on the way out of a pod."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.behind import links_instead
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.gray.pods import Pod
from sdfstream.detect.inferred.hidden import CORE, leaf_name
from sdfstream.detect.localise import Location
from sdfstream.records.finding import Subject
from tests.unit.detect.inferred.test_hidden import GROUP, LEAF, NICS, World

PROBES, SHARE = 64, 0.03
POD = LEAF // 2


class GroupedCabling(Cabling):
    """NICs are known to share switches; of pods nothing is known."""

    def groups(self) -> np.ndarray:
        return GROUP


def losses(world: World, crossed: np.ndarray, seed: int) -> LossCounts:
    counts = [np.zeros(world.sessions.count, np.int64) for _ in range(2)]
    counts[0][world.slots] = np.random.default_rng(seed).poisson(PROBES * (3e-4 + SHARE * crossed))
    counts[1][world.slots] = PROBES
    return LossCounts(*counts)


def at(subject: Subject) -> Location:
    return Location(subject, [], False, SHARE, np.empty(0, np.int64), [], 1.0)


def instead(world: World, counts: LossCounts, nics: list[int], standing: list[Location]) -> list[Location]:
    found, others = [at(Subject("nic", NICS[nic])) for nic in nics], np.full(world.sessions.count, 1e-3)
    return list(links_instead(GroupedCabling(world.sessions), found, standing, counts, others).values())


def over_pods(world: World, seed: int) -> np.ndarray:
    """Of paths between the pods each direction crosses one link of a core with a probability of a quarter."""
    far = POD[world.sessions.table["src"][world.slots]] != POD[world.sessions.table["dst"][world.slots]]
    crossed: np.ndarray = np.where(far, np.random.default_rng(seed).binomial(2, 0.25, far.size), 0)
    return crossed


@pytest.mark.parametrize("seed", range(6))
def test_a_link_above_the_leaves_is_one_place_whatever_seems_to_lose(seed: int) -> None:
    world = World(seed)
    crossed = over_pods(world, seed)
    counts = losses(world, crossed, seed)
    (found,) = instead(world, counts, [0, 3, 6], [])
    assert (found.subject, found.direction_known) == (Subject("switch", CORE), True)
    assert set(found.beside) in ({*NICS[:4]}, {*NICS[4:8]})
    assert np.isin(found.slots, world.slots[crossed > 0]).mean() > 0.9
    assert not instead(world, counts, [1, 5], [found]), "it stands already"


@pytest.mark.parametrize("seed", range(6))
def test_a_link_of_a_leaf_and_a_nic_are_no_pods(seed: int) -> None:
    world = World(seed)
    leaves = (world.src == 1) != (world.dst == 1)
    by_link = losses(world, np.random.default_rng(seed).binomial(2, 0.5, world.slots.size) * leaves, seed)
    assert {x.subject.id for x in instead(world, by_link, [2, 3], [])} == {f"{CORE}--{leaf_name(NICS[2])}"}
    table = world.sessions.table
    mine = (table["src"][world.slots] == 5) | (table["dst"][world.slots] == 5)
    assert {x.subject.id for x in instead(world, losses(world, mine, seed), [5], [])} == {NICS[5]}


@pytest.mark.parametrize("seed", range(6))
def test_a_nic_that_loses_inside_the_pod_as_well_is_not_explained_by_its_way_out(seed: int) -> None:
    world = World(seed)
    table, crossed = world.sessions.table, over_pods(world, seed)
    mine = (table["src"][world.slots] == 1) | (table["dst"][world.slots] == 1)
    counts, others = losses(world, crossed + 2 * mine, seed), np.full(world.sessions.count, 1e-3)
    core = Location(Subject("switch", CORE), [CORE], True, SHARE, np.empty(0, np.int64), [], 1.0, beside=(*NICS[:4],))
    nics = [at(Subject("nic", NICS[nic])) for nic in (1, 6)]
    pod = Pod.of(GroupedCabling(world.sessions), nics, [core], counts, others)
    assert pod is not None
    assert [pod.explains(nic) for nic in nics] == [False, True]
