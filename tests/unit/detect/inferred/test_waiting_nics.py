"""NICs whose paths wait at an inferred link, and those that wait at their own port."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.inferred.hidden import CORE, leaf_name
from sdfstream.detect.inferred.waiting_nics import under_links
from sdfstream.detect.localise import Location
from sdfstream.records.fabric import link_id
from sdfstream.records.finding import Subject
from sdfstream.records.units import Float64s, Int64s
from tests.unit.detect.gray.test_behind import GroupedCabling
from tests.unit.detect.inferred.test_beside import ends
from tests.unit.detect.inferred.test_hidden import LEAF, NICS, World

LEAFMATES = tuple(NICS[n] for n in np.flatnonzero(LEAF == 1).tolist())
INTO = f"{CORE}->{leaf_name(LEAFMATES[0])}"


def located(subject: Subject, direction: str, number: Int64s, beside: tuple[str, ...] = ()) -> Location:
    ways = ["rev" if n % 2 else "fwd" for n in number.tolist()]
    return Location(subject, [direction], True, 1.0, number // 2, [(direction, 1.0)], 1.0, ways, beside=beside)


def of_link(number: Int64s, direction: str = INTO) -> Location:
    return located(Subject("link", link_id(CORE, leaf_name(LEAFMATES[0]))), direction, number, LEAFMATES)


def of_nic(name: str, number: Int64s, side: str = "rx") -> Location:
    return located(Subject("nic", name), f"{name} {side}", number)


@pytest.mark.parametrize("seed", range(4))
def test_what_reaches_a_nic_through_the_link_and_waits_as_long_waits_there(seed: int) -> None:
    world = World(seed)
    cabling = GroupedCabling(world.sessions)
    start, stop = ends(world)
    nic = int(np.flatnonzero(LEAF == 1)[0])
    from_afar = LEAF[start] != 1
    mine, others = (
        np.flatnonzero(from_afar & (stop == nic)),
        np.flatnonzero(from_afar & (LEAF[stop] == 1) & (stop != nic)),
    )
    found = [of_nic(NICS[nic], mine), of_link(others)]

    def waits(of_mine: float):
        def wait_ns(number: Int64s) -> Float64s:
            return np.where(np.isin(number, mine), of_mine, 100e3)

        return wait_ns

    (link,) = under_links(cabling, found, waits(90e3))
    assert link.subject.type == "link"
    assert set(link.directed_paths().tolist()) == set(mine.tolist()) | set(others.tolist())
    assert under_links(cabling, found, waits(180e3)) == found, "it waits longer than all others"
    assert under_links(cabling, [of_nic(NICS[nic], mine, "tx"), found[1]], waits(90e3))[0].subject.type == "nic"
    elsewhere = of_nic(NICS[int(np.flatnonzero(LEAF != 1)[0])], mine)
    assert under_links(cabling, [elsewhere, found[1]], waits(90e3))[0] == elsewhere


@pytest.mark.parametrize("seed", range(4))
def test_a_nic_that_leafmates_find_slow_too_is(seed: int) -> None:
    world = World(seed)
    start, stop = ends(world)
    nic = int(np.flatnonzero(LEAF == 1)[0])
    others = np.flatnonzero((LEAF[start] != 1) & (LEAF[stop] == 1) & (stop != nic))
    found = [of_nic(NICS[nic], np.flatnonzero(stop == nic)), of_link(others)]
    beside = ((LEAF[start] == 1) & (stop == nic)).any()
    alike = under_links(GroupedCabling(world.sessions), found, lambda number: np.full(number.size, 100e3))
    assert (alike == found) == beside
