"""The rest of an outage: an outage has ended when the first path over what was at fault works again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sdfstream.detect.cabling import FWD, REV
from sdfstream.detect.localise import Location
from sdfstream.detect.one_cable import over_one_cable
from sdfstream.detect.recent import AFTERMATH_NS, RecentFaults, came_back
from sdfstream.records.finding import Subject
from sdfstream.records.units import ABSENT_NS
from tests.unit.detect.test_routes import World, hops

S = 1_000_000_000
DOWN = Location(Subject("link", "l0--s0"), ["l0->s0"], True, 1.0, np.array([0]), [("l0->s0", 1.0)], 1.0, ["fwd"])


def world() -> World:
    """Sessions 0 and 1 over l0->s0, session 3 over l0->s1; of session 2 nothing is known."""
    w = World()
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), S)
    w.cabling.trace(1, FWD, hops("h1/r0", "l0", "s0", "l1"), S)
    w.cabling.trace(3, FWD, hops("h0/r0", "l0", "s1", "l2"), S)
    w.cabling.refresh()
    return w


@pytest.mark.parametrize(
    ("session", "back_s", "is_over"),
    [(1, 16, True), (1, 9, False), (3, 16, False), (2, 16, False)],
    ids=("over the link", "before it went down", "over another link", "of unknown route"),
)
def test_an_outage_is_over_once_a_path_that_surely_crosses_the_link_works_again(
    session: int, back_s: float, is_over: bool
) -> None:
    back_ns = np.full(4, ABSENT_NS)
    back_ns[session] = back_s * S
    seen: Any = SimpleNamespace(since_ns=np.full(4, 10 * S), back_ns=back_ns)
    assert came_back(world().cabling, DOWN, seen) is is_over


@pytest.mark.parametrize(
    ("slots", "one_cable"),
    [([0, 1], True), ([0, 1, 2], True), ([0, 3], False)],
    ids=("known routes", "and an unknown one", "and one over another cable"),
)
def test_paths_of_unknown_routes_do_not_show_that_more_than_one_cable_is_silent(
    slots: list[int], one_cable: bool
) -> None:
    w = world()
    w.cabling.trace(3, REV, hops("h3/r0", "l2", "s1", "l0"), S)
    w.cabling.refresh()
    assert over_one_cable(w.cabling, "s0", np.array(slots)) is one_cable


def test_only_what_was_reported_takes_losses_from_the_paths_over_it() -> None:
    w = world()
    recent, slots = RecentFaults(w.cabling), np.arange(4)
    recent.note("l0--s0", S)
    assert recent.touched(slots, 2 * S)[:2].all() and not recent.down(slots, 2 * S).any()
    recent.note("l0--s0", 2 * S, reported=True)
    assert recent.down(slots, 3 * S).tolist() == [True, True, False, False]
    again = RecentFaults(w.cabling)
    again.restore(recent.snapshot())
    assert again.down(slots, 3 * S).tolist() == [True, True, False, False]
    assert not again.down(slots, 3 * S + AFTERMATH_NS).any()


def test_a_snapshot_of_the_release_before_counts_all_as_reported() -> None:
    w = world()
    recent = RecentFaults(w.cabling)
    recent.restore({"l0--s0": S})
    assert recent.down(np.arange(4), 2 * S)[:2].all() and recent.holds("l0--s0", 2 * S)


def test_what_was_found_lately_is_known_by_its_name_a_place_without_a_map_too() -> None:
    recent = RecentFaults(world().cabling)
    recent.note("~core--~leaf(h0:r0)", S)
    assert not recent.was_found("~core--~leaf(h0:r0)", S)
    recent.note("~core--~leaf(h0:r0)", S, reported=True)
    assert recent.was_found("~core--~leaf(h0:r0)", S + AFTERMATH_NS)
    assert not recent.was_found("~core--~leaf(h0:r0)", S + AFTERMATH_NS + 1)
