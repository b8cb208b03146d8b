"""A NIC waits alone, or with those that share its switch."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.inferred.beside import neighbours_wait
from sdfstream.detect.root.port_rates import Side
from sdfstream.records.units import Bools
from tests.unit.detect.gray.test_behind import GroupedCabling
from tests.unit.detect.inferred.test_hidden import LEAF, NICS, World


class Waiting:
    """Which directed paths stand in a queue; of all it is known."""

    def __init__(self, slow: Bools) -> None:
        self._slow = slow

    def slow(self, _: int) -> Bools:
        return self._slow

    def current(self, _: int) -> Bools:
        return np.ones_like(self._slow)


def asked(world: World, slow: Bools, nic: int, side: Side) -> bool:
    cabling = GroupedCabling(world.sessions)
    return neighbours_wait(cabling, cast(DelayBaselines, cast(Any, Waiting(slow))), NICS[nic], side, 0)


def ends(world: World) -> tuple[np.ndarray, np.ndarray]:
    """NICs at which directed paths begin and end, each (2·sessions,)."""
    table, n = world.sessions.table, world.sessions.count
    src, dst = table["src"][:n], table["dst"][:n]
    return np.stack([src, dst], axis=1).reshape(-1), np.stack([dst, src], axis=1).reshape(-1)


@pytest.mark.parametrize("seed", range(4))
def test_all_paths_of_one_nic_are_its_own(seed: int) -> None:
    world = World(seed)
    start, stop = ends(world)
    assert not asked(world, start == 2, 2, "tx")
    assert not asked(world, stop == 2, 2, "rx")
    assert not asked(world, (start == 2) | (stop == 2), 2, "busier")


@pytest.mark.parametrize("seed", range(4))
def test_full_uplinks_hold_up_the_neighbours_on_their_way_out_alone(seed: int) -> None:
    world = World(seed)
    start, stop = ends(world)
    rng = np.random.default_rng(seed)
    out = (LEAF[start] == 1) & (LEAF[stop] != 1) & (rng.random(start.size) < 0.7)
    assert asked(world, out, 2, "tx") and asked(world, out, 3, "tx")
    assert not asked(world, out, 2, "rx")
    assert not asked(world, out, 4, "tx")
