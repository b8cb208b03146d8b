"""All NICs of an inferred leaf that fall silent at once."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.inferred.hidden import leaf_name
from sdfstream.detect.inferred.leaves import whole_leaves
from sdfstream.detect.localise import Location
from sdfstream.records.finding import Subject
from tests.unit.detect.gray.test_behind import GroupedCabling
from tests.unit.detect.inferred.test_hidden import NICS, World

S = 1_000_000_000


def nic(number: int, slots: list[int]) -> Location:
    name = NICS[number]
    return Location(Subject("nic", name), [f"{name} tx"], True, 1.0, np.array(slots), [(name, 1.0)], 0.9, ["fwd"])


@pytest.mark.parametrize(
    ("which", "apart_s", "whole"),
    [((2, 3), 0.3, True), ((2, 3), 5.0, False), ((2,), 0.0, False), ((2, 4), 0.0, False)],
)
def test_a_leaf_is_dead_where_all_its_nics_fell_silent_together(
    which: tuple[int, ...], apart_s: float, whole: bool
) -> None:
    world = World(0)
    since_ns = np.zeros(world.sessions.count, np.int64)
    since_ns[1] = round(apart_s * S)
    found = [nic(number, [i]) for i, number in enumerate(which)]
    made = whole_leaves(GroupedCabling(world.sessions), found, since_ns)
    if not whole:
        assert made == found
        return
    (leaf,) = made
    assert leaf.subject == Subject("switch", leaf_name(NICS[2]))
    assert leaf.members == leaf.beside == (NICS[2], NICS[3])
    assert leaf.slots.tolist() == [0, 1]
    assert leaf.path_directions == ["fwd", "fwd"]
