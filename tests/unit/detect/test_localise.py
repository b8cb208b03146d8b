"""What is located at several elements of one thing is one statement about it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sdfstream.detect.cabling import FWD, REV
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.problem import Observations, log_priors
from sdfstream.detect.root.whole import whole_hosts, whole_switches
from sdfstream.records.finding import Subject
from tests.unit.detect.test_routes import World, hops


def at_nic(nic: str, side: str) -> Location:
    return Location(Subject("nic", nic), [side], True, 1.0, np.array([0]), [(side, 1.0)], 1.0, ["both"])


def subjects(*located: Location) -> list[tuple[str, str, tuple[str, ...]]]:
    nics: Any = SimpleNamespace(sessions=SimpleNamespace(nics=SimpleNamespace(list=["h3/r0", "h3/r1", "h4/r0"])))
    return [(x.subject.type, x.subject.id, x.members) for x in whole_hosts(nics, list(located))]


def test_a_host_is_blamed_where_all_its_nics_are_sick_and_not_for_one_nic_that_was_located_twice() -> None:
    sending, receiving, other = at_nic("h3/r1", "h3/r1->l1"), at_nic("h3/r1", "l1->h3/r1"), at_nic("h3/r0", "l0->h3/r0")
    assert subjects(sending, receiving) == [("nic", "h3/r1", ()), ("nic", "h3/r1", ())]
    assert subjects(sending, other) == [("host", "h3", ("h3/r1", "h3/r0"))]
    assert subjects(sending, receiving, other) == [("host", "h3", ("h3/r1", "h3/r0"))]


def located(silent: dict[int, str], healthy: dict[int, str], **asked: Any) -> list[str]:
    """What is blamed; sessions are h0>h2 (0) and h1>h2 (1), both over s0, and h2>h0 (2) over s1."""
    w = World()
    for slot, near, spine, far in ((0, "l0", "s0", "l1"), (1, "l0", "s0", "l1"), (2, "l1", "s1", "l0")):
        w.cabling.trace(slot, FWD, hops(("h0/r0", "h1/r0", "h2/r0")[slot], near, spine, far), 1)
        w.cabling.trace(slot, REV, hops(("h2/r0", "h2/r0", "h0/r0")[slot], far, spine, near), 1)
    rows = [
        Observations.of(np.array([slot]), direction, failed, 8.0)
        for sessions, failed in ((silent, 8.0), (healthy, 0.0))
        for slot, direction in sessions.items()
    ]
    found = locate(w.cabling, Observations.join(rows), noise=1e-3, least_share=0.99, kind="silence", **asked)
    return [x.subject.id for x in found]


def test_what_is_left_of_an_outage_is_laid_to_what_was_blamed_while_nothing_more_falls_silent() -> None:
    """The last paths to come back may all cross another link, too, that is a priori likelier."""
    left = {"silent": {0: "fwd", 1: "fwd"}, "healthy": {2: "rev"}}
    assert located(**left) == ["l1--s0"], "a downlink is likelier than an uplink"
    assert located(**left, incumbents=frozenset({"l0--s0"}), nothing_new=True) == ["l0--s0"]
    assert located(**left, incumbents=frozenset({"l1--s1"}), nothing_new=True) == ["l1--s0"], "it explains nothing"


def test_a_healthy_path_over_what_was_blamed_speaks_louder() -> None:
    asked = {"incumbents": frozenset({"l0--s0"}), "nothing_new": True}
    assert located({0: "fwd"}, {1: "fwd"}, **asked) == ["h0/r0"]


@pytest.mark.parametrize(("kind", "shares", "told"), [
    ("loss", (0.16, 0.15, 0.17, 0.16), [("switch", "l1")]),
    ("loss", (0.16, 0.15, 0.01, 0.16), [("link", f"l1--s{i}") for i in range(4)]),
    ("loss", (0.16, 0.15, 0.17), [("link", f"l1--s{i}") for i in range(3)]),
])  # fmt: skip
def test_all_uplinks_of_a_leaf_that_lose_alike_are_one_fault(
    kind: str, shares: tuple[float, ...], told: list[tuple[str, str]]
) -> None:
    """Packets are sprayed, and one of four uplinks is dead: every path loses a share, whatever its trace said."""
    ends = {f"s{i}" for i in range(4)} | {"h002/r0", "h003/r0"}
    topology = SimpleNamespace(neighbours={"l1": ends}, leaf_of={"h002/r0": "l1", "h003/r0": "l1"})
    cabling = SimpleNamespace(topology=topology, switches_of=lambda link: set(link.id.split("--")))
    cables = [
        Location(Subject("link", f"l1--s{i}"), [f"l1->s{i}"], True, share, np.array([i]), [(f"l1->s{i}", 1.0)], 1.0)
        for i, share in enumerate(shares)
    ]
    found = whole_switches(cabling, cables, kind)  # type: ignore[arg-type]
    assert [(x.subject.type, x.subject.id) for x in found] == told
    assert sum(x.slots.size for x in found) == len(shares)


@pytest.mark.parametrize(("directions", "told"), [
    (["s0->l1", "s0->l2", "s0->l3"], ["s0"]),
    (["l0->s0", "l1->s0", "l2->s0"], ["s0"]),
    (["l0->s0", "l2->s0", "s0->l3"], ["l0--s0", "l2--s0", "l3--s0"]),
])  # fmt: skip
def test_queues_on_both_sides_of_a_switch_are_none_of_its_own(directions: list[str], told: list[str]) -> None:
    """At a spine's own ports; at its neighbours' to it; one at a port of its own, before which two others fill."""
    topology = SimpleNamespace(neighbours={"s0": {f"l{i}" for i in range(4)}}, leaf_of={})
    cabling: Any = SimpleNamespace(topology=topology, switches_of=lambda link: set(link.id.split("--")))
    links = ["--".join(sorted(direction.split("->"))) for direction in directions]
    queues = [
        Location(Subject("link", link), [direction], True, 1.0, np.array([i]), [(direction, 1.0)], 1.0)
        for i, (link, direction) in enumerate(zip(links, directions, strict=True))
    ]
    assert [x.subject.id for x in whole_switches(cabling, queues, "queue")] == told


def test_two_links_that_queue_are_likelier_than_their_switch_however_many_others_it_has() -> None:
    """Jobs between two leaves fill both ways through a spine; no other path of their class crosses its other links."""
    w = World()
    w.cabling.trace(0, FWD, hops("h0/r0", "l0", "s0", "l1"), 1)
    w.cabling.refresh()
    odds = dict(zip(w.cabling.elements.list, log_priors(w.cabling, "queue").tolist(), strict=True))
    assert odds["node s0"] < odds["l0->s0"] + odds["l1->s0"]
    assert odds["node l0"] < 2 * odds["l0->s0"], "a leaf with NICs besides"
