"""A NIC that nothing reaches beside a link of its switch."""

import numpy as np
import pytest

from sdfstream.detect.inferred.hidden import HiddenElement
from sdfstream.detect.inferred.nic_or_link import takes_nic
from sdfstream.detect.problem import Observations
from tests.unit.detect.inferred.test_hidden import GROUP, NICS, World

NIC, NEIGHBOUR = 2, 3


class OneCase(World):
    """NICs of leaf 1 of which one has paths over spine 0 alone, and probes its neighbour perhaps."""

    def __init__(self, seed: int, *, neighbours: bool) -> None:
        super().__init__(seed, () if neighbours else ((NIC, NEIGHBOUR),))
        table = self.sessions.table
        self.own = (table["src"][self.slots] == NIC) | (table["dst"][self.slots] == NIC)
        self.inside = self.own & (self.src == self.dst)
        few = self.own & np.isin(np.arange(self.own.size), np.flatnonzero(self.own)[::6])
        self.there[self.own], self.back[self.own] = 0, 0
        self.kept = ~self.own | few | self.inside

    def found(self, sick: np.ndarray, *, nic: bool) -> list[HiddenElement]:
        sick = sick & self.kept & (nic | ~self.own)
        kept = self.kept & (sick | ~self.own)
        return self.places(Observations.of(self.slots[kept], "both", 0.0, 8.0), sick[kept], GROUP)


@pytest.mark.parametrize("seed", range(8))
def test_one_link_explains_the_nic_as_well_where_all_its_paths_may_cross_it(seed: int) -> None:
    world = OneCase(seed, neighbours=False)
    _, sick = world.round_trips({(1, 0)}, {(1, 0)})
    without, with_it = world.found(sick, nic=False), world.found(sick, nic=True)
    paths = int((sick & world.own & world.kept).sum())
    assert takes_nic(NICS[NIC], paths, without, with_it)
    assert not takes_nic(NICS[5], paths, without, with_it), "at another switch"


@pytest.mark.parametrize("seed", range(8))
def test_a_nic_that_is_cut_off_from_its_neighbour_is_dead_itself(seed: int) -> None:
    world = OneCase(seed, neighbours=True)
    _, sick = world.round_trips({(1, 0)}, {(1, 0)})
    sick |= world.inside
    paths = int((sick & world.own & world.kept).sum())
    assert not takes_nic(NICS[NIC], paths, world.found(sick, nic=False), world.found(sick, nic=True))


@pytest.mark.parametrize("seed", range(8))
def test_a_dead_nic_beside_a_link_that_few_paths_cross_is_dead_itself(seed: int) -> None:
    """Were it the link, many more of the neighbours' paths would be silent."""
    world = OneCase(seed, neighbours=False)
    world.kept |= world.own
    _, sick = world.round_trips({(1, 1)}, {(1, 1)})
    paths = int(world.own.sum())
    assert not takes_nic(NICS[NIC], paths, world.found(sick, nic=False), world.found(sick | world.own, nic=True))
