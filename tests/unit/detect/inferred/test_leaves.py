"""All NICs of an inferred leaf that fall silent at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.detect.inferred.hidden import leaf_name
from sdfstream.detect.inferred.leaves import whole_leaves
from sdfstream.detect.localise import Location
from sdfstream.detect.sessions import Sessions
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


def silent_at_once(which: tuple[int, ...], without: tuple[tuple[int, int], ...], group: np.ndarray) -> list[str]:
    """Subjects told of NICs that fall silent at once; nobody probes between the pairs `without`."""
    world = World(0, without)

    class Cabled(GroupedCabling):
        def groups(self) -> np.ndarray:
            return group

    since_ns = np.zeros(world.sessions.count, np.int64)
    found = [nic(number, [i]) for i, number in enumerate(which)]
    return [x.subject.id for x in whole_leaves(Cabled(world.sessions), found, since_ns)]


def test_nics_of_which_no_probe_tells_that_they_share_a_switch_may_share_one() -> None:
    group = np.array([0, 0, 2, 3, 4, 4, 6, 6])
    assert silent_at_once((2, 3), ((2, 3),), group) == [leaf_name(NICS[2])]
    assert silent_at_once((2, 3), (), group) == [NICS[2], NICS[3]], "probes tell that they share none"
    assert silent_at_once((0, 2), ((0, 2), (1, 2)), group) == [NICS[0], NICS[2]], "of one's group another works"


def test_where_not_all_of_several_may_share_a_switch_each_stays_what_it_is() -> None:
    group = np.arange(8)
    assert silent_at_once((2, 3, 4), ((2, 3), (3, 4)), group) == [NICS[2], NICS[3], NICS[4]]
    assert silent_at_once((2, 3, 4), ((2, 3), (3, 4), (2, 4)), group) == [leaf_name(NICS[2])]


def test_nics_of_one_host_are_no_leaf() -> None:
    world = World(0)
    names = ("h/r0", "h/r1", "i/r0", "i/r1")
    keys = [(a, b, "udp", 50_000, 0) for a in names for b in names if a[0] != b[0] and a[-1] == b[-1]]
    world.sessions = Sessions(100)
    world.sessions.of_names(keys, 1)

    class Cabled(GroupedCabling):
        def groups(self) -> np.ndarray:
            return np.arange(4)

    subject = [Subject("nic", name) for name in names[:2]]
    found = [replace(nic(0, [i]), subject=one) for i, one in enumerate(subject)]
    made = whole_leaves(Cabled(world.sessions), found, np.zeros(world.sessions.count, np.int64))
    assert [x.subject for x in made] == subject
