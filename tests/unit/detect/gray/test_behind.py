"""Losses of a NIC's paths that a link behind it brings."""

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.behind import grown, links_instead, lossy_link_behind
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.gray.neighbours import Neighbours
from sdfstream.detect.inferred.hidden import CORE, leaf_name
from sdfstream.detect.localise import Location
from sdfstream.records.finding import Subject
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


def at_nic(nic: str) -> Location:
    return Location(Subject("nic", nic), [], False, 0.03, np.empty(0, np.int64), [], 1.0)


def thinly(world: World, share: np.ndarray, seed: int) -> LossCounts:
    """Losses that no single path shows."""
    counts = [np.zeros(world.sessions.count, np.int64) for _ in range(2)]
    counts[0][world.slots], counts[1][world.slots] = np.random.default_rng(seed).binomial(40, share), 40
    return LossCounts(*counts)


def instead(world: World, counts: LossCounts, nic: int, standing: tuple[Location, ...] = ()) -> list[Location]:
    others = np.full(world.sessions.count, 0.001)
    found = links_instead(GroupedCabling(world.sessions), [at_nic(NICS[nic])], standing, counts, others)
    return list(found.values())


@pytest.mark.parametrize("seed", range(6))
def test_losses_that_no_path_shows_are_the_link_where_the_neighbours_lose_as_well(seed: int) -> None:
    world = World(seed)
    _, crossed = world.round_trips({(1, 2), (1, 3)}, {(1, 2), (1, 3)})
    (found,) = instead(world, thinly(world, np.where(crossed, 0.04, 0.0005), seed), 2)
    assert (found.subject.id, found.beside) == (f"{CORE}--{leaf_name(NICS[2])}", (NICS[2], NICS[3]))
    alone = np.isin(world.sessions.table["src"][world.slots], [2]) | (world.sessions.table["dst"][world.slots] == 2)
    (nic,) = instead(world, thinly(world, np.where(alone, 0.04, 0.0005), seed), 2)
    assert nic.subject.id == NICS[2]


@pytest.mark.parametrize("lossy_nics", [(2,), (2, 3)])
@pytest.mark.parametrize("seed", range(6))
def test_where_nobody_knows_who_shares_a_switch_two_lossy_nics_are_their_paths(
    seed: int, lossy_nics: tuple[int, ...]
) -> None:
    world = World(seed)
    src, dst = (world.sessions.table[name][: world.sessions.count] for name in ("src", "dst"))
    over = np.isin(src, lossy_nics) ^ np.isin(dst, lossy_nics)
    counts = losses(world, over[world.slots], seed)
    others = np.full(world.sessions.count, 0.002)
    (found,) = links_instead(Cabling(world.sessions), [at_nic(NICS[2])], (), counts, others).values()
    assert found.subject.type == ("nic" if lossy_nics == (2,) else "path")
    if found.subject.type == "path":
        assert set(np.flatnonzero(over & (counts.events > 1)).tolist()) <= set(found.slots.tolist())
        assert links_instead(Cabling(world.sessions), [at_nic(NICS[3])], (found,), counts, others) == {}, "one finding"


@pytest.mark.parametrize("seed", range(6))
def test_sprayed_packets_are_lost_on_all_paths_that_leave_the_switch(seed: int) -> None:
    """So both NICs behind a lossy link seem to lose, and no path crosses it more than others."""
    world = World(seed)
    leaves = (world.src == 1) != (world.dst == 1)
    counts = losses(world, np.zeros(world.slots.size, np.bool_), seed)
    counts.events[world.slots] = np.random.default_rng(seed).binomial(PROBES, np.where(leaves, 0.05, 0.0005))
    (found,) = instead(world, counts, 2)
    assert found.beside == (NICS[2], NICS[3])
    assert sorted(found.slots.tolist()) == sorted(world.slots[leaves].tolist())
    assert 0.04 < found.share < 0.06
    assert not instead(world, counts, 3, (found,)), "the other NIC is behind it as well"


@pytest.mark.parametrize("seed", range(6))
def test_what_a_switch_loses_altogether_is_no_link(seed: int) -> None:
    world = World(seed)
    counts = thinly(world, np.where((world.src == 1) | (world.dst == 1), 0.05, 0.0005), seed)
    assert all(found.subject.type == "nic" for found in instead(world, counts, 2))


@pytest.mark.parametrize("seed", range(6))
def test_a_link_grows_by_the_paths_that_lose_later_and_by_no_others(seed: int) -> None:
    """What they lost would be laid to something else once the link has healed."""
    world = World(seed)
    _, lossy = world.round_trips({(1, 2)}, {(1, 2)})
    counts, others = losses(world, lossy, seed), np.full(world.sessions.count, 0.001)
    (found,) = instead(world, counts, 2)
    early = replace(found, slots=found.slots[:3], path_directions=["both"] * 3)
    later = grown(GroupedCabling(world.sessions), early, counts, others[counts.used])
    assert set(later.slots.tolist()) <= set(world.slots[lossy].tolist())
    assert later.slots.size == len(later.path_directions) > 0.9 * lossy.sum()
    assert grown(GroupedCabling(world.sessions), later, counts, others[counts.used]) is later


@pytest.mark.parametrize("seed", range(4))
def test_between_two_switches_alone_nothing_shows_whose_link_loses(seed: int) -> None:
    leaf = np.arange(8) // 4
    world = World(seed, leaf=leaf)
    leaves = leaf[world.sessions.table["src"][world.slots]] != leaf[world.sessions.table["dst"][world.slots]]
    counts = thinly(world, np.where(leaves, 0.02, 0.0005), seed)

    class Two(Cabling):
        def groups(self) -> np.ndarray:
            return leaf

    near = Neighbours.of(Two(world.sessions), NICS[1], counts)
    assert near is not None and near.opposite == tuple(NICS[4:8])
    found = near.link()
    assert (found.subject.type, found.subject.id, found.probability) == ("switch", CORE, 0.5)
    assert found.beside == tuple(NICS[:4]) and len(found.suspects) == 4
    four = World(seed)
    of_four = Neighbours.of(GroupedCabling(four.sessions), NICS[2], thinly(four, np.full(four.slots.size, 0.01), seed))
    assert of_four is not None and of_four.opposite == () and of_four.link().subject.type == "link"


@pytest.mark.parametrize("seed", range(6))
def test_a_link_whose_lossy_paths_all_lead_to_a_switch_that_loses_elsewhere_too_is_not_named(seed: int) -> None:
    """By chance the first losses of a link meet paths to one other switch, which seem to share a link there."""
    world = World(seed)
    table = world.sessions.table
    others = np.full(world.sessions.count, 0.0005)
    between = world.slots[np.isin(world.src, [0, 1]) & np.isin(world.dst, [0, 1]) & (world.src != world.dst)]
    elsewhere = world.slots[(world.src == 1) & np.isin(world.dst, [2, 3])]
    counts = LossCounts(np.zeros(world.sessions.count, np.int64), np.zeros(world.sessions.count, np.int64))
    counts.probes[world.slots] = PROBES
    counts.events[between[:4]] = 2
    nics = tuple(sorted({NICS[int(n)] for slot in between for n in (table["src"][slot], table["dst"][slot]) if n < 2}))
    leaf = leaf_name(nics[0])
    names = [f"{leaf}->{CORE}", f"{CORE}->{leaf}"]
    subject = Subject("link", f"{CORE}--{leaf}")
    link = Location(subject, names, False, 0.01, between[:4], [(x, 0.5) for x in names], 1.0, beside=nics)

    def named(link: Location = link) -> list[Subject]:
        return list(links_instead(GroupedCabling(world.sessions), [link], (), counts, others))

    assert named() == [subject]
    counts.events[elsewhere[:16]] = 2
    assert named() == []
    assert links_instead(GroupedCabling(world.sessions), [link], (), counts, np.full(others.size, 0.02)) != {}
    more = world.slots[(world.src == 0) & (world.dst == 3)][:2]
    counts.events[more] = 2
    assert named(replace(link, slots=np.union1d(link.slots, more))) == [subject], "it loses on its way to others too"
