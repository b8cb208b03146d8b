"""Sick paths of unknown routes, laid to what lies between."""

import numpy as np
import pytest

from sdfstream.detect.inferred.hidden import CORE, HiddenElement, hidden_elements, leaf_name
from sdfstream.detect.problem import Observations
from sdfstream.detect.sessions import Sessions

NICS = [f"h{i:02d}/r0" for i in range(12)]
LEAF = np.arange(8) // 2
GROUP = 2 * LEAF
SPINES, PORTS = 4, 4


class World:
    """Every NIC probes every other from `PORTS` ports; each direction of a path takes a spine drawn by `seed`."""

    def __init__(self, seed: int, without: tuple[tuple[int, int], ...] = (), leaf: np.ndarray = LEAF) -> None:
        rng = np.random.default_rng(seed)
        keys = [
            (NICS[a], NICS[b], "udp", 50_000 + port, 0)
            for a in range(leaf.size) for b in range(leaf.size) for port in range(PORTS)
            if a != b and (min(a, b), max(a, b)) not in without
        ]  # fmt: skip
        self.sessions = Sessions(10_000)
        self.slots = self.sessions.of_names(keys, 1)
        self.there, self.back = rng.integers(0, SPINES, (2, self.slots.size))
        table = self.sessions.table
        self.src, self.dst = leaf[table["src"][self.slots]], leaf[table["dst"][self.slots]]

    def directed(self, up: set[tuple[int, int]], down: set[tuple[int, int]]) -> tuple[Observations, np.ndarray]:
        """Paths by direction, and which of them cross a sick uplink or downlink (leaf, spine)."""
        seen = Observations.join([Observations.of(self.slots, way, 0.0, 8.0) for way in ("fwd", "rev")])
        sick = [
            from_ != to and ((from_, spine) in up or (to, spine) in down)
            for from_, to, spine in [
                *zip(self.src.tolist(), self.dst.tolist(), self.there.tolist(), strict=True),
                *zip(self.dst.tolist(), self.src.tolist(), self.back.tolist(), strict=True),
            ]
        ]
        return seen, np.array(sick)

    def round_trips(self, up: set[tuple[int, int]], down: set[tuple[int, int]]) -> tuple[Observations, np.ndarray]:
        _, sick = self.directed(up, down)
        n = self.slots.size
        return Observations.of(self.slots, "both", 0.0, 8.0), sick[:n] | sick[n:]

    def places(self, seen: Observations, sick: np.ndarray, group: np.ndarray = GROUP) -> list[HiddenElement]:
        return hidden_elements(self.sessions, group, seen, sick)


def link(leaf: int) -> str:
    return f"{CORE}--{leaf_name(NICS[2 * leaf])}"


@pytest.mark.parametrize("seed", range(8))
def test_a_link_is_laid_to_the_switch_of_its_nics_with_its_direction(seed: int) -> None:
    world, bad = World(seed), {(1, 2)}
    up, down = f"{leaf_name(NICS[2])}->{CORE}", f"{CORE}->{leaf_name(NICS[2])}"
    for ups, downs, directions in ((bad, bad, {up, down}), (bad, set(), {up}), (set(), bad, {down})):
        seen, sick = world.directed(ups, downs)
        (place,) = world.places(seen, sick)
        assert (place.subject.type, place.subject.id, place.nics) == ("link", link(1), (NICS[2], NICS[3]))
        assert set(place.directions) == directions
        assert place.direction_known == (len(directions) == 1)
        assert place.probability > 0.9
        assert np.array_equal(np.flatnonzero(sick), place.rows)


@pytest.mark.parametrize("seed", range(8))
def test_round_trips_name_the_link_but_no_direction(seed: int) -> None:
    world = World(seed)
    (place,) = world.places(*world.round_trips({(3, 0)}, {(3, 0)}))
    assert (place.subject.id, place.direction_known) == (link(3), False)


@pytest.mark.parametrize("seed", range(8))
def test_round_trips_that_work_show_which_direction_of_a_link_does(seed: int) -> None:
    world = World(seed)
    seen, sick = world.directed({(1, 2)}, set())
    n = world.slots.size
    lost = sick[:n] | sick[n:]
    well = Observations.of(world.slots[~lost], "both", 0.0, 8.0)
    paths = Observations.join([seen.only(sick), well])
    (place,) = world.places(paths, np.arange(paths.slots.size) < sick.sum())
    assert place.directions == [f"{leaf_name(NICS[2])}->{CORE}"]
    assert place.direction_known
    assert place.rows.tolist() == list(range(int(sick.sum())))


@pytest.mark.parametrize("seed", range(8))
def test_a_switch_beyond_is_no_link_and_two_links_are_no_switch(seed: int) -> None:
    world = World(seed)
    whole = {(leaf, 1) for leaf in range(4)}
    (place,) = world.places(*world.directed(whole, whole))
    assert (place.subject.type, place.subject.id, place.nics) == ("switch", CORE, ())
    two = {(0, 1), (2, 3)}
    found = world.places(*world.directed(two, two))
    assert {p.subject.id for p in found} == {link(0), link(2)}


@pytest.mark.parametrize("seed", range(8))
def test_neighbours_that_nobody_probes_between_are_found_by_what_they_share(seed: int) -> None:
    world = World(seed, without=((2, 3),))
    apart = np.array([0, 0, 2, 3, 4, 4, 6, 6])
    (place,) = world.places(*world.directed({(1, 2)}, {(1, 2)}), group=apart)
    assert (place.subject.id, place.nics) == (link(1), (NICS[2], NICS[3]))
    probed = World(seed)
    assert all(len(p.nics) < 2 or p.nics != (NICS[2], NICS[3]) for p in probed.places(
        *probed.directed({(1, 2)}, {(1, 2)}), group=apart
    ))  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("down", [set(), {(1, 2)}])
def test_so_are_three_of_a_leaf_and_no_other_link_is_named_beside(seed: int, down: set[tuple[int, int]]) -> None:
    """Each alone, or two together, leaves sick paths over: they were laid to links of invented switches."""
    leaf = np.arange(12) // 3
    world = World(seed, without=((3, 4), (3, 5), (4, 5), (9, 10), (9, 11)), leaf=leaf)
    apart = np.array([0, 0, 0, 3, 4, 5, 6, 6, 6, 9, 10, 10])
    (place,) = world.places(*world.directed({(1, 2)}, down), group=apart)
    assert (place.subject.id, place.nics) == (f"{CORE}--{leaf_name(NICS[3])}", tuple(NICS[3:6]))
    assert place.direction_known == (not down)


def test_what_cannot_be_told_apart_stays_with_the_paths() -> None:
    world = World(1)
    seen, _ = world.directed(set(), set())
    between = (world.src == 0) & (world.dst == 1)
    sick = np.concatenate([between & (world.there == 0), np.zeros(between.size, bool)])
    assert sick.sum() > 1
    assert world.places(seen, sick) == [], "the uplink of one leaf or the downlink of the other"
    one = np.zeros(sick.size, bool)
    one[np.flatnonzero(sick)[0]] = True
    assert world.places(seen, one) == []
    assert world.places(seen, np.zeros(sick.size, bool)) == []
    assert world.places(seen, sick, group=np.full(8, -1)) == []


def test_paths_within_a_leaf_are_nobodys() -> None:
    world = World(2)
    seen, _ = world.directed(set(), set())
    within = np.concatenate([world.src == world.dst] * 2)
    assert world.places(seen, within) == []


@pytest.mark.parametrize("seed", range(8))
def test_of_a_link_with_a_known_direction_it_is_known_whether_it_drops_some_flows_or_all(seed: int) -> None:
    world, bad = World(seed), {(1, 2)}
    for ups, downs in ((bad, set()), (set(), bad)):
        seen, sick = world.directed(ups, downs)
        (place,) = world.places(seen, sick)
        assert place.drops_some < 0.5
        some = sick & (np.cumsum(sick) % 4 == 0)
        (place,) = world.places(seen, some)
        assert place.direction_known and place.rows.size == some.sum()
        assert place.drops_some > 0.5
        assert place.alive + place.rows.size == 6 * 2 * PORTS * 2
    (place,) = world.places(*world.directed(bad, bad))
    assert (place.direction_known, place.alive, place.drops_some) == (False, 0, 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_between_two_switches_alone_it_is_what_joins_them_with_a_link_of_each_as_suspects(seed: int) -> None:
    leaf = np.arange(8) // 4
    world = World(seed, leaf=leaf)
    for ways in (world.directed({(0, 2)}, set()), world.round_trips({(1, 2)}, {(1, 2)})):
        (place,) = world.places(*ways, group=2 * leaf)
        assert (place.subject.type, place.subject.id, place.direction_known) == ("switch", CORE, False)
        near, far = leaf_name(NICS[0]), leaf_name(NICS[4])
        assert {end for name in place.directions for end in name.split("->")} == {near, far, CORE}
        assert 0.4 < place.probability < 0.6
        assert place.nics in (tuple(NICS[:4]), tuple(NICS[4:8]))
