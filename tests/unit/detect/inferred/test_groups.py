"""NICs that share a switch: what differs for a moment changes nothing."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from sdfstream.detect.inferred.floors import RoundTripFloors
from sdfstream.detect.inferred.groups import LeafGroups

NONE, TWO, THREE = ([-1] * 6, [0, 0, 0, 3, 3, 3], [0, 0, 2, 2, 4, 4])


class Floors:
    """Floors whose groups are given."""

    def __init__(self) -> None:
        self.group = NONE

    def pairs(self) -> tuple[list[int]]:
        return (self.group,)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> tuple[Floors, LeafGroups]:
    monkeypatch.setattr("sdfstream.detect.inferred.groups.leaf_groups", lambda nics, group: np.array(group[:nics]))
    floors = Floors()
    return floors, LeafGroups(cast("RoundTripFloors", floors))


def asked(world: tuple[Floors, LeafGroups], tick: int, group: list[int], nics: int = 6) -> list[int]:
    world[0].group = group
    world[1].begin(tick)
    said: list[Any] = world[1].of(nics).tolist()
    return said


def test_the_first_that_are_known_count_at_once(world: tuple[Floors, LeafGroups]) -> None:
    assert asked(world, 1, NONE) == NONE
    assert asked(world, 2, TWO) == TWO


def test_others_count_once_they_have_stayed_for_a_second(world: tuple[Floors, LeafGroups]) -> None:
    asked(world, 1, TWO)
    for tick in range(2, 8):
        assert asked(world, tick, THREE) == TWO
    assert asked(world, 8, TWO) == TWO
    for tick in range(9, 19):
        assert asked(world, tick, THREE) == TWO, "they begin anew"
    saved = world[1].snapshot()
    assert asked(world, 19, THREE) == THREE
    world[1].restore(saved)
    assert asked(world, 19, THREE) == THREE
    assert asked(world, 20, NONE) == THREE


def test_with_another_nic_all_are_asked_anew(world: tuple[Floors, LeafGroups]) -> None:
    asked(world, 1, THREE[:4], nics=4)
    assert asked(world, 2, TWO) == TWO
