"""Dead paths that cross a link with living ones: the link drops some flows alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from sdfstream.detect.cabling import FWD, REV, Cabling
from sdfstream.detect.gray.black_holes import detection, with_black_holes
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.problem import Observations
from sdfstream.detect.sessions import Sessions
from tests.unit.detect.test_routes import hops
from tests.unit.records.test_routes import declare

LEAF = {"h0/r0": "l0", "h1/r0": "l0", "h2/r0": "l1", "h3/r0": "l1", "h4/r0": "l2", "h5/r0": "l2"}
SPINES, PORTS = ("s0", "s1"), range(4)
PLAN = declare(*LEAF.items(), *((leaf, spine) for leaf in ("l0", "l1", "l2") for spine in SPINES))


class World:
    """Every NIC probes those on other leaves from four ports: even ones there over s0, odd ones over s1; back by s1."""

    def __init__(self, *, traced: bool = True) -> None:
        pairs = [(a, b) for a, b in product(LEAF, LEAF) if LEAF[a] != LEAF[b]]
        self.paths = [(a, b, port) for (a, b), port in product(pairs, PORTS)]
        self.sessions = Sessions(1000)
        self.sessions.of_names([(a, b, "udp", port, 0) for a, b, port in self.paths], 0)
        self.cabling = Cabling(self.sessions)
        self.cabling.note_new(list(range(len(self.paths))))
        self.cabling.declare(PLAN)
        for slot, (a, b, port) in enumerate(self.paths if traced else ()):
            self.cabling.trace(slot, FWD, hops(a, LEAF[a], SPINES[port % 2], LEAF[b]), 1)
            self.cabling.trace(slot, REV, hops(b, LEAF[b], "s1", LEAF[a]), 1)
        self.cabling.refresh()

    def located(self, *dead: tuple[str, str, int], since_ns: int = 10) -> list[Location]:
        """Where the silence of these paths, there, is laid while all others are well."""
        slots = np.array([self.paths.index(path) for path in dead])
        well = np.setdiff1d(np.arange(len(self.paths)), slots)
        seen = Observations.join(
            [
                Observations.of(slots, "fwd", 8.0, 8.0, np.full(slots.size, since_ns)),
                Observations.of(well, "both", 0.0, 8.0),
            ],
        )
        found = locate(self.cabling, seen, noise=1e-3, least_share=0.99, kind="silence")
        return with_black_holes(self.cabling, seen, found)


HASHED = (("h0/r0", "h2/r0", 0), ("h0/r0", "h5/r0", 2), ("h1/r0", "h4/r0", 0))
"""What l0->s0 drops: nothing else is common to these."""


def test_a_link_that_drops_some_flows_is_named_with_its_direction() -> None:
    world = World()
    (found,) = world.located(*HASHED)
    assert (found.subject.type, found.subject.id, found.directions) == ("link", "l0--s0", ["l0->s0"])
    assert found.direction_known and found.probability > 0.9
    assert (found.slots.size, found.alive) == (3, 13)
    since_ns = np.full(len(world.paths), 5)
    told = detection(found, world.cabling, since_ns, 10, 1)
    assert (told.kind, told.cause, told.direction) == ("loss", "gray-failure", "l0->s0")
    assert len(told.symptoms) == 3 and "forwarding tables" in told.remedy


def test_a_path_with_a_cause_of_its_own_stays_one_beside_it() -> None:
    alone = ("h4/r0", "h3/r0", 1)
    link, path = World().located(*HASHED, alone)
    assert (link.subject.id, link.slots.size) == ("l0--s0", 3)
    assert (path.subject.id, path.slots.size) == ("h4/r0>h3/r0 udp:1 dscp0 fwd", 1)
    assert [name for name, _ in path.suspects] == [path.subject.id]


@pytest.mark.parametrize(
    ("dead", "why"),
    [
        ([("h0/r0", "h2/r0", port) for port in PORTS], "a pair of NICs has its two cables in common, and no link"),
        ([("h0/r0", "h2/r0", 0), ("h1/r0", "h3/r0", 0)], "two links in a row have as many living paths"),
        ([("h0/r0", "h2/r0", 0)], "one path proves nothing"),
        ([("h0/r0", "h2/r0", 0), ("h4/r0", "h0/r0", 1)], "nothing is common to both"),
    ],
)
def test_what_no_link_explains_clearly_stays_with_the_paths(dead: list[tuple[str, str, int]], why: str) -> None:
    assert [x.subject.type for x in World().located(*dead)] == ["path"], why


def test_links_that_nothing_tells_apart_are_suspects() -> None:
    (path,) = World().located(("h0/r0", "h2/r0", 0), ("h1/r0", "h3/r0", 0))
    assert path.subject.type == "path"
    assert {name for name, _ in path.suspects[:2]} == {"l0->s0", "s0->l1"}
    assert 0.3 < path.suspects[1][1] <= path.suspects[0][1] < 0.7


def test_traces_of_the_silent_paths_tell_links_in_a_row_apart() -> None:
    dead = [("h0/r0", "h2/r0", 0), ("h1/r0", "h3/r0", 0)]
    for reached, link in ((1, "l0--s0"), (2, "l1--s0")):
        world = World()
        for path in dead:
            whole = hops(path[0], "l0", "s0", "l1")
            traced = [hop if number < reached else None for number, hop in enumerate(whole)]
            world.cabling.trace_silent(world.paths.index(path), traced, 3)
        (found,) = world.located(*dead, since_ns=2)
        assert (found.subject.id, found.alive > 0) == (link, True)


def test_both_directions_of_a_link_that_drops_some_flows_are_one_fault() -> None:
    """A switch that drops some flows would explain them too; a link is likelier."""
    world = World()
    into = [("h2/r0", "h1/r0", 0), ("h4/r0", "h0/r0", 2), ("h5/r0", "h1/r0", 2)]
    (found,) = world.located(*HASHED, *into)
    assert (found.subject.id, sorted(found.directions)) == ("l0--s0", ["l0->s0", "s0->l0"])
    assert found.slots.size == 6 == len(found.path_directions)
    assert sum(p for _, p in found.suspects) == pytest.approx(found.probability)
    (one_more,) = world.located(*HASHED, into[0])
    assert one_more.slots.size == 4, "one path is enough where the other direction is known"


def test_of_links_in_a_row_that_nothing_tells_apart_no_direction_tells_the_other() -> None:
    there = [("h0/r0", "h2/r0", 0), ("h1/r0", "h3/r0", 0)]
    back = [("h2/r0", "h0/r0", 0), ("h3/r0", "h1/r0", 0)]
    assert [x.alive for x in World().located(*there, *back)] == [0]


def test_a_link_that_passes_nothing_is_down() -> None:
    over = [(a, b, port) for a, b, port in World().paths if LEAF[a] == "l0" and port % 2 == 0]
    (found,) = World().located(*over)
    assert (found.subject.id, found.alive) == ("l0--s0", 0)


def test_where_routes_are_not_known_no_link_is_named() -> None:
    assert {x.alive for x in World(traced=False).located(*HASHED)} == {0}


def test_two_links_of_one_switch_are_two_and_all_their_dead_paths_count() -> None:
    """The search for what is dead names sixteen causes at most."""
    world = World()
    first = [path for path in world.paths if LEAF[path[0]] == "l0" and path[2] == 0]
    first += [("h0/r0", "h2/r0", 2), ("h1/r0", "h4/r0", 2)]
    second = [path for path in world.paths if LEAF[path[0]] == "l1" and path[2] == 2]
    found = [(x.subject.id, x.slots.size, x.alive) for x in world.located(*first, *second)]
    assert found == [("l0--s0", 10, 6), ("l1--s0", 8, 8)]


def test_a_switch_that_drops_some_flows_is_not_laid_to_its_links() -> None:
    world = World()
    dead = [("h0/r0", "h2/r0", 0), ("h2/r0", "h4/r0", 0), ("h4/r0", "h1/r0", 2), ("h3/r0", "h0/r0", 2)]
    assert [x.alive for x in world.located(*dead)] == [0]
