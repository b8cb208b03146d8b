"""The direction in which a NIC or link loses, by what was lost on the way there."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.directed import directed
from sdfstream.detect.inferred.hidden import CORE, leaf_name
from sdfstream.detect.localise import Location
from sdfstream.records.finding import Subject
from tests.unit.detect.inferred.test_hidden import NICS, World

PROBES, NORMAL = 500, 0.0005
NIC = NICS[2]
TX, RX = f"{NIC} tx", f"{NIC} rx"


def at_nic(directions: list[str], *, known: bool) -> Location:
    return Location(Subject("nic", NIC), directions, known, 0.03, np.arange(4), [(d, 0.5) for d in directions], 1.0)


def counts(world: World, sent: float, received: float) -> tuple[np.ndarray, np.ndarray]:
    """Lost there and sent, by session, where a NIC loses these shares of what it sends and of what it receives."""
    table = world.sessions.table
    share = np.where(table["src"] == 2, sent, np.where(table["dst"] == 2, received, 0.0))[: world.sessions.count]
    probes = np.full(world.sessions.count, PROBES)
    return np.round(share * probes).astype(np.int64), probes


@pytest.mark.parametrize(
    ("sent", "received", "directions", "known"),
    [
        (0.03, 0.0, [TX], True),
        (0.0, 0.03, [RX], True),
        (0.03, 0.02, [TX, RX], True),
        (0.0, 0.0, [TX, RX], False),  # answers may have been lost, or nobody numbers them
    ],
)
def test_a_nic_is_told_by_whose_probes_are_lost(
    sent: float, received: float, directions: list[str], known: bool
) -> None:
    world = World(0)
    there, probes = counts(world, sent, received)
    found = directed(Cabling(world.sessions), at_nic([TX, RX], known=False), there, probes, NORMAL)
    assert (sorted(found.directions), found.direction_known) == (sorted(directions), known)
    assert {name for name, _ in found.suspects} == set(directions)
    assert directed(Cabling(world.sessions), found, there, probes, NORMAL) is found


def test_what_paths_say_is_doubted_where_probes_were_lost_the_other_way() -> None:
    world = World(0)
    there, probes = counts(world, 0.0, 0.0)
    there[np.flatnonzero(world.sessions.table["dst"][: world.sessions.count] == 2)[:3]] = 1
    found = directed(Cabling(world.sessions), at_nic([TX], known=True), there, probes, NORMAL / 10)
    assert (set(found.directions), found.direction_known) == ({TX, RX}, False)


def test_losses_of_probes_that_are_not_counted_tell_nothing() -> None:
    """An outage's losses are told apart from gray loss, and of its sessions no probe need be left."""
    world = World(0)
    there, probes = counts(world, 0.03, 0.0)
    found = directed(Cabling(world.sessions), at_nic([TX, RX], known=False), there, np.zeros_like(probes), NORMAL)
    assert (set(found.directions), found.direction_known) == ({TX, RX}, False)


@pytest.mark.parametrize(("lost", "direction"), [("out", 0), ("in", 1)])
def test_an_inferred_link_is_told_by_the_ends_of_its_paths(lost: str, direction: int) -> None:
    world = World(0)
    leaf, table = leaf_name(NIC), world.sessions.table
    names = [f"{leaf}->{CORE}", f"{CORE}->{leaf}"]
    near = (2, 3)
    crossing = np.isin(table["src"], near) != np.isin(table["dst"], near)
    slots = np.flatnonzero(crossing[: world.sessions.count])
    mine = np.isin(table["src" if lost == "out" else "dst"][slots], near)
    there, probes = np.zeros(world.sessions.count, np.int64), np.full(world.sessions.count, PROBES)
    there[slots[mine]] = 15
    link = Location(
        Subject("link", f"{CORE}--{leaf}"), names, False, 0.03, slots, [(n, 0.5) for n in names], 1.0,
        beside=(NICS[2], NICS[3]),
    )  # fmt: skip
    found = directed(Cabling(world.sessions), link, there, probes, NORMAL)
    assert (found.directions, found.direction_known) == ([names[direction]], True)


def test_a_path_or_switch_has_no_direction() -> None:
    world = World(0)
    path = Location(Subject("path", "x"), ["x"], False, 0.1, np.arange(2), [("x", 1.0)], 0.5)
    zero = np.zeros(world.sessions.count, np.int64)
    assert directed(Cabling(world.sessions), path, zero, zero, NORMAL) is path
