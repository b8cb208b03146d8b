"""Losses of a NIC's paths that a link behind it brings."""

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.behind import lossy_link_behind
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.inferred.hidden import CORE, leaf_name
from tests.unit.detect.inferred.test_hidden import GROUP, NICS, World

PROBES = 200


class GroupedCabling(Cabling):
    """NICs are known to share switches."""

    def groups(self) -> np.ndarray:
        return GROUP


def losses(world: World, lossy: np.ndarray, seed: int) -> LossCounts:
    rng = np.random.default_rng(seed)
    share = np.where(lossy, 0.1, 0.0005)
    counts = [np.zeros(world.sessions.count, np.int64) for _ in range(2)]
    counts[0][world.slots], counts[1][world.slots] = rng.binomial(PROBES, share), PROBES
    return LossCounts(*counts)


@pytest.mark.parametrize("seed", range(6))
def test_neighbours_that_lose_too_show_the_link(seed: int) -> None:
    world = World(seed)
    _, lossy = world.round_trips({(1, 2)}, {(1, 2)})
    others = np.full(world.sessions.count, 0.002)
    found = lossy_link_behind(GroupedCabling(world.sessions), NICS[2], losses(world, lossy, seed), others)
    assert found is not None
    assert found.subject.id == f"{CORE}--{leaf_name(NICS[2])}"
    assert found.beside == (NICS[2], NICS[3])
    assert 0.05 < found.share < 0.2


@pytest.mark.parametrize("seed", range(6))
def test_a_nic_that_loses_alone_is_the_nic(seed: int) -> None:
    world = World(seed)
    table = world.sessions.table
    lossy = (table["src"][world.slots] == 2) | (table["dst"][world.slots] == 2)
    others = np.full(world.sessions.count, 0.002)
    cabling = GroupedCabling(world.sessions)
    assert lossy_link_behind(cabling, NICS[2], losses(world, lossy, seed), others) is None
    assert lossy_link_behind(Cabling(world.sessions), NICS[2], losses(world, lossy, seed), others) is None
