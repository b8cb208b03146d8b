"""Routes that are confirmed, move, or come into doubt; evidence counts over the route that held when it was made."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.cabling import FWD, REV, Cabling
from sdfstream.detect.routes import LinkEnds, TracedRoute
from sdfstream.detect.sessions import Sessions
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Subject
from tests.unit.records.test_routes import address, declare

LEAVES, SPINES = ("l0", "l1", "l2"), ("s0", "s1")
PLAN = declare(
    ("h0/r0", "l0"), ("h1/r0", "l0"), ("h2/r0", "l1"), ("h3/r0", "l2"),
    *((leaf, spine) for leaf in LEAVES for spine in SPINES),
)  # fmt: skip
S = 1_000_000_000


def hops(src: str, a: str, spine: str, b: str) -> list[str | None]:
    return [address(src, a), address(a, spine), address(spine, b)]


class World:
    """Sessions h0>h2 (0), h1>h2 (1), h2>h0 (2), h0>h3 (3) on a declared fabric."""

    def __init__(self, plan: Topology = PLAN) -> None:
        self.sessions = Sessions(100)
        keys = [("h0/r0", "h2/r0"), ("h1/r0", "h2/r0"), ("h2/r0", "h0/r0"), ("h0/r0", "h3/r0")]
        self.sessions.of_names([(a, b, "udp", 50000, 0) for a, b in keys], 0)
        self.cabling = Cabling(self.sessions)
        self.cabling.note_new([0, 1, 2, 3])
        self.cabling.declare(plan)

    def crossed(self, slot: int, direction: int = FWD, then_ns: int | None = None) -> dict[str, float]:
        self.cabling.refresh()
        then = None if then_ns is None else np.array([then_ns])
        one = np.array([slot]), np.array([direction == FWD]), np.array([direction == REV])
        _, element, weight = self.cabling.entries(*one, then)
        names = self.cabling.elements.list
        return {names[p]: w for p, w in zip(element.tolist(), weight.tolist(), strict=True) if "->" in names[p]}


def test_a_path_that_moved_counts_over_either_route_by_the_time_of_the_evidence() -> None:
    w = World()
    assert not w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), 10 * S)
    assert w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s1", "l1"), 20 * S)
    assert w.crossed(0) == {"l0->s1": 1.0, "s1->l1": 1.0}
    assert w.crossed(0, then_ns=15 * S) == {"l0->s0": 1.0, "s0->l1": 1.0}
    assert w.crossed(0, then_ns=25 * S) == {"l0->s1": 1.0, "s1->l1": 1.0}


def test_others_through_the_router_that_moved_flows_are_in_doubt_until_traced_anew() -> None:
    w = World()
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), 10 * S)
    w.cabling.trace(1, FWD, hops("h1/r0", "l0", "s0", "l1"), 11 * S)
    w.cabling.trace(2, FWD, hops("h2/r0", "l1", "s0", "l0"), 12 * S)
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s1", "l1"), 20 * S)
    assert w.crossed(1) == {"l0->s0": 0.75, "s0->l1": 0.75, "l0->s1": 0.25, "s1->l1": 0.25}
    assert w.crossed(1, then_ns=15 * S) == {"l0->s0": 1.0, "s0->l1": 1.0}  # before l0 moved anything
    assert w.crossed(2) == {"l1->s0": 1.0, "s0->l0": 1.0}  # from s0 on there is but one way
    w.cabling.trace(1, FWD, hops("h1/r0", "l0", "s0", "l1"), 21 * S)
    assert w.crossed(1) == {"l0->s0": 1.0, "s0->l1": 1.0}


def test_forward_and_reverse_have_their_own_routes() -> None:
    w = World()
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), 10 * S)
    w.cabling.trace(0, REV, hops("h2/r0", "l1", "s1", "l0"), 10 * S)
    assert w.crossed(0, FWD) == {"l0->s0": 1.0, "s0->l1": 1.0}
    assert w.crossed(0, REV) == {"l1->s1": 1.0, "s1->l0": 1.0}


def test_a_trace_with_gaps_fills_in_and_takes_nothing_away() -> None:
    w = World()
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), 10 * S)
    assert not w.cabling.trace(0, FWD, [None, None, None], 20 * S)
    assert w.crossed(0) == {"l0->s0": 1.0, "s0->l1": 1.0}
    w.cabling.trace(1, FWD, [None, None, None], 10 * S)
    assert w.crossed(1) == {"l0->s0": 0.5, "l0->s1": 0.5, "s0->l1": 0.5, "s1->l1": 0.5}
    w.cabling.trace(1, FWD, [None, None, address("s1", "l1")], 11 * S)
    assert w.crossed(1) == {"l0->s1": 1.0, "s1->l1": 1.0}


def test_a_path_that_is_elsewhere_at_every_trace_is_no_single_route() -> None:
    w = World()
    for i in range(5):
        w.cabling.trace(0, FWD, hops("h0/r0", "l0", f"s{i % 2}", "l1"), (10 + i) * S)
    crossed = w.crossed(0)
    assert set(crossed) == {"l0->s0", "l0->s1", "s0->l1", "s1->l1"} and max(crossed.values()) < 0.9


def test_a_path_that_is_sprayed_does_not_move() -> None:
    """What it lost so far was not lost on a former route."""
    w = World()
    moved = [
        w.cabling.trace(0, FWD, hops("h0/r0", "l0", spine, "l1"), at_s * S)
        for at_s, spine in ((60, "s0"), (120, "s1"), (180, "s0"), (240, "s1"), (300, "s0"))
    ]
    assert moved == [False, True, True, False, False]


def sprayed(first: str, second: str) -> list[str | None]:
    """A trace whose second and third packet took these spines."""
    return [address("h0/r0", "l0"), address("l0", first), address(second, "l1")]


def test_where_traces_contradict_themselves_no_trace_shows_a_route() -> None:
    """Each of its packets took a way of its own: all paths of the class may cross any spine, traced or not."""
    w = World()
    for i in range(8):
        w.cabling.trace(i % 2, FWD, sprayed("s0", f"s{i % 2}"), i * S)
    spread = {"l0->s0": 0.5, "l0->s1": 0.5, "s0->l1": 0.5, "s1->l1": 0.5}
    assert w.crossed(0) == w.crossed(1) == spread
    again = World()
    again.cabling.restore(w.cabling.snapshot())
    assert again.crossed(0) == spread
    last = {name: times[-1] for name, times in again.cabling.traced.passed_ns.items()}
    assert last == {"h0/r0->l0": 7 * S, "l0->s0": 7 * S, "s0->l1": 6 * S, "s1->l1": 7 * S}


def test_few_that_contradict_themselves_have_met_a_route_that_moved() -> None:
    w = World()
    for i in range(8):
        w.cabling.trace(0, FWD, sprayed("s0", "s0" if i % 4 else "s1"), i * S)
    assert not w.cabling.traced.is_sprayed(0)


def test_a_nic_on_another_leaf_than_declared_sprays_nothing() -> None:
    """Its traces contradict the cabling at the first router alone."""
    w = World()
    for i in range(8):
        w.cabling.trace(0, FWD, [address("h0/r0", "l0"), address("l2", "s0"), address("s0", "l1")], i * S)
    assert not w.cabling.traced.is_sprayed(0)


def test_of_a_silent_path_it_is_known_what_its_packets_pass_and_what_lies_beyond() -> None:
    w = World()
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), 10 * S)
    w.cabling.trace_silent(0, [*hops("h0/r0", "l0", "s0", "l1")[:2], None], 20 * S)
    w.cabling.refresh()
    names = w.cabling.elements.list

    def reached(then_ns: int) -> tuple[set[str], set[str]]:
        passed, beyond = w.cabling.reached_since(0, then_ns)
        return {names[n] for n in passed}, {names[n] for n in beyond}

    assert reached(15 * S) == ({"tx h0/r0", "node l0", "l0->s0"}, {"rx h2/r0"})
    assert reached(20 * S) == (set(), set()), "made before it fell silent"
    assert w.crossed(0) == {"l0->s0": 1.0, "s0->l1": 1.0}, "its route is what it was"
    w.cabling.trace_silent(0, [hops("h0/r0", "l0", "s0", "l1")[0], None, None], 21 * S)
    assert reached(15 * S) == ({"tx h0/r0"}, {"s0->l1", "node l1", "rx h2/r0"})
    w.cabling.trace_silent(0, [None, None, None], 22 * S)
    assert reached(15 * S)[0] == set()
    w.cabling.trace_silent(0, hops("h0/r0", "l0", "s0", "l1"), 23 * S)
    assert reached(15 * S) == ({"tx h0/r0", "node l0", "l0->s0", "node s0", "s0->l1"}, set())
    w.cabling.trace(1, FWD, hops("h1/r0", "l0", "s0", "l1"), 24 * S)
    assert w.cabling.reached_since(1, 15 * S) == ([], []), "it was not silent"
    w.cabling.trace_silent(0, [hops("h0/r0", "l0", "s1", "l1")[0], address("l0", "s1"), None], 25 * S)
    w.cabling.refresh()
    assert reached(15 * S) == ({"tx h0/r0", "node l0", "l0->s1"}, {"rx h2/r0"}), "it has moved"
    w.cabling.forget(np.array([0]))
    assert reached(15 * S) == (set(), set())


def test_the_trace_of_a_silent_path_whose_packets_are_sprayed_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World()
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), 10 * S)
    w.cabling.trace_silent(0, hops("h0/r0", "l0", "s0", "l1"), 20 * S)
    w.cabling.refresh()
    assert w.cabling.reached_since(0, 15 * S)[0] and w.cabling.is_traced(np.array([0, 1]))
    monkeypatch.setattr(w.cabling.traced, "is_sprayed", lambda dscp: True)
    assert w.cabling.reached_since(0, 15 * S) == ([], []) and not w.cabling.is_traced(np.array([0, 1]))
    monkeypatch.undo()
    assert not w.cabling.is_traced(np.array([1, 2]))


def test_an_older_trace_that_comes_late_changes_nothing() -> None:
    route = TracedRoute(["a", "b"], 10)
    assert route.take(["a", "c"], 5) is None and route.hops == ["a", "b"]


def test_routers_that_are_seen_to_have_moved_flows_off_a_dead_link() -> None:
    w = World()
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), 10 * S)
    w.cabling.refresh()
    elements, none = w.cabling.numbers(["l0->s0", "s0->l0"]), np.zeros(4, np.bool_)
    works = np.array([True, False, False, False])
    assert w.cabling.moved_off(elements, (works, none)) == ["l0"] and w.cabling.moved_off(elements, (none, works)) == []


@pytest.mark.parametrize(("base", "partner"), [("172.16.0.2", "172.16.0.3"), ("fd00:ffff:1:2::", "fd00:ffff:1:2::1")])
def test_without_a_declaration_a_link_is_named_by_the_addresses_of_its_ends(base: str, partner: str) -> None:
    w = World(Topology())
    w.cabling.trace(0, FWD, ["10.0.0.1", base], 10 * S)
    w.cabling.refresh()
    number = w.cabling.elements.find(f"->{base}")
    assert w.cabling.subject(number) == Subject("link", f"->{base}")
    w.cabling.trace(2, FWD, ["10.0.9.1", partner], 10 * S)
    assert w.cabling.subject(number) == Subject("link", f"{base}--{partner}")
    assert w.cabling.direction(number) == f"{partner}->{base}"
    assert w.cabling.numbers([f"{partner}->{base}"]) == [number]


def test_ends_of_a_slash_30_are_joined_only_where_slash_30s_are_in_use() -> None:
    ends = LinkEnds(["10.1.0.1", "10.1.0.2", "10.1.0.5", "10.1.0.6"])
    assert ends.opposite("10.1.0.1") == "10.1.0.2" and ends.opposite("10.1.0.6") == "10.1.0.5"
    ends.note(["10.1.0.8"])  # no host of a /30
    assert ends.opposite("10.1.0.1") is None
    assert LinkEnds().opposite("no address") is None


def test_a_saved_cabling_goes_on_alike() -> None:
    w = World()
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), 10 * S)
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s1", "l1"), 20 * S)
    w.cabling.trace_silent(0, hops("h0/r0", "l0", "s1", "l1"), 30 * S)
    w.cabling.refresh()
    again = Cabling(w.sessions)
    again.restore(w.cabling.snapshot())
    assert again.reached_since(0, 25 * S) == w.cabling.reached_since(0, 25 * S) != ([], [])
    before, w.cabling = w.crossed(0, then_ns=15 * S), again
    assert w.crossed(0, then_ns=15 * S) == before
