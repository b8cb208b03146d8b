"""NICs that a full port holds up: found by what their packets wait besides, however long they wait in their hosts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.inferred.hidden import evidence_of
from sdfstream.detect.root.held_up import (
    behind_the_core,
    confirmed_by_counters,
    full_port,
    one_of_several,
    under_full_port,
    waiting_for_counters,
)
from sdfstream.detect.stage import DetectStage
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Shape
from tests.unit.detect.root.test_spread import queue

SHAPE = Shape(hosts=8, rails=1, leaves=4, spines=2, ports=6, rate_hz=12.0, peers=5)
FULL = Subject("link", "l0--s1")


@pytest.fixture(scope="module")
def cabling() -> Cabling:
    stage, made = DetectStage(), Fabric(3, [], SHAPE)
    run(stage, made.messages(4))
    return stage._engines.congestion.cabling


def crossing(cabling: Cabling, direction: str) -> np.ndarray:
    """Which directed paths cross it."""
    number = np.arange(2 * cabling.sessions.count)
    element, weight = cabling.element[number // 2, number % 2], cabling.weight[number // 2, number % 2]
    return (np.isin(element, cabling.numbers([direction])) & (weight > 0.9)).any(axis=1)


def slow_paths(cabling: Cabling, nics: list[str], beside: dict[str, float], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Directed paths from `nics`, and what they wait: 8 ms and what stands at the directions `beside`, ns."""
    leaves = {nic: cabling.topology.leaf_of[nic] for nic in nics}
    from_nics = np.logical_or.reduce([crossing(cabling, f"{nic}->{leaf}") for nic, leaf in leaves.items()])
    wait = 8.0 + sum((ms * crossing(cabling, d) for d, ms in beside.items()), np.zeros(from_nics.size))
    slow = np.flatnonzero(from_nics)
    return slow, wait[slow] * NS_PER_MS * np.random.default_rng(seed).normal(1.0, 0.02, slow.size)


@pytest.mark.parametrize("seed", range(6))
def test_the_full_port_is_where_the_ways_of_what_waits_longer_end(cabling: Cabling, seed: int) -> None:
    """l0->s1 is full: both NICs of l0 are paused. s1->l0 is full: so is l1->s1, and the NICs of l1."""
    for nics, beside, expected in (
        (["h00/r0", "h01/r0"], {"l0->s1": 0.8}, "l0->s1"),
        (["h02/r0", "h03/r0"], {"l1->s1": 2.0, "s1->l0": 1.0}, "s1->l0"),
    ):
        if {cabling.topology.leaf_of[nic] for nic in nics} != {"l0" if "h00/r0" in nics else "l1"}:
            pytest.fail("the fixture cables its hosts otherwise")
        slow, wait_ns = slow_paths(cabling, nics, beside, seed)
        found = full_port(cabling, nics, slow, wait_ns)
        assert found is not None and found.subject == FULL and found.directions == [expected]
        assert sorted(found.directed_paths().tolist()) == slow[crossing(cabling, expected)[slow]].tolist()


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_named_where_nics_wait_alike_or_one_alone_is_paused(cabling: Cabling, seed: int) -> None:
    slow, wait_ns = slow_paths(cabling, ["h00/r0", "h01/r0"], {}, seed)
    assert full_port(cabling, ["h00/r0", "h01/r0"], slow, wait_ns) is None
    slow, wait_ns = slow_paths(cabling, ["h00/r0", "h01/r0"], {"l0->s1": 0.8}, seed)
    assert full_port(cabling, ["h00/r0"], slow, wait_ns) is None


def test_unmarked_queues_that_began_with_it_are_its_symptoms() -> None:
    full = queue("l0->s1")
    made, later, marked = queue("h0/r0->l0", 30.5, us=8000.0), queue("h4/r0->l2", 36.0), queue("l2->h5/r0", ce=0.9)
    found = under_full_port([made, full, later, marked], full.subject)
    assert [q.subject.id for q in found] == [full.subject.id, "h4/r0", "h5/r0"]
    assert found[0].attached == 1 and found[0].symptoms[0]["subject"]["id"] == "h0/r0"
    assert under_full_port([made, later], full.subject) == [made, later]


def test_a_queue_that_should_be_marked_and_is_not_waits_for_the_counters() -> None:
    late, marked = replace(queue("h0/r0->l0"), confirm_ns=300), replace(queue("l2->h5/r0", ce=0.9), confirm_ns=300)
    assert confirmed_by_counters(late).confirm_ns > 2 * NS_PER_S
    assert confirmed_by_counters(marked).confirm_ns == 300


def test_what_nics_send_waits_for_the_counters_where_several_do_or_one_is_paused() -> None:
    one, other, received = queue("h0/r0->l0"), queue("h4/r0->l2"), queue("l1->h2/r0")
    waits = {q.subject.id: q.confirm_ns for q in waiting_for_counters([one, other, received], [])}
    assert min(waits["h0/r0"], waits["h4/r0"]) > 2 * NS_PER_S and waits["h2/r0"] == received.confirm_ns
    assert waiting_for_counters([one, received], []) == [one, received]
    assert waiting_for_counters([one, received], ["h0/r0"])[0].confirm_ns > 2 * NS_PER_S
    waits = {q.subject.id: q.confirm_ns for q in waiting_for_counters([one, other], ["h0/r0", "h1/r0"])}
    assert waits["h0/r0"] > 4 * NS_PER_S > waits["h4/r0"], "what is paused holds up nobody"


def test_without_cabling_the_full_port_is_the_one_queue_that_stands_in_the_core_or_beyond() -> None:
    into, out = queue("~core->~leaf(h4:r0)"), queue("~leaf(h0:r0)->~core")
    paused = ["h0/r0", "h1/r0"]
    assert behind_the_core([queue("h0/r0->l0"), into, out], paused) == into.subject
    core = replace(queue("h0/r0->l0"), subject=Subject("switch", "~core"), directions=("~core",))
    assert behind_the_core([core, out], paused) == core.subject
    assert behind_the_core([into, core], paused) is None  # which of them is not known
    assert behind_the_core([into], paused[:1]) is None
    assert behind_the_core([queue("~core->~leaf(h4:r0)", ce=0.9), queue("s0->l2")], paused) is None


def test_without_cabling_one_nic_is_held_up_by_the_queue_that_its_own_began_with() -> None:
    own, into = queue("h0/r0->l0"), queue("~core->~leaf(h4:r0)")
    assert behind_the_core([own, into], ["h0/r0"]) == into.subject
    assert behind_the_core([own, into], ["h7/r0"]) is None
    assert behind_the_core([own, replace(into, since_ns=20 * NS_PER_S)], ["h0/r0"]) is None
    assert behind_the_core([queue("h0/r0->l0", ce=0.9), into], ["h0/r0"]) is None


def test_without_cabling_the_full_port_may_be_an_uplink_of_the_switch_that_paused_nics_share() -> None:
    own, out = queue("h0/r0->l0"), queue("~leaf(h0:r0)->~core")
    out = replace(out, evidence=(*out.evidence, *evidence_of(("h0/r0", "h1/r0"))))
    assert behind_the_core([own, out], ["h0/r0"]) == out.subject
    assert behind_the_core([own, out], ["h0/r0", "h1/r0"]) == out.subject
    assert behind_the_core([own, out], ["h0/r0", "h4/r0"]) is None


def test_without_cabling_short_queues_that_began_with_the_full_port_are_its_symptoms_too() -> None:
    into, short = queue("~core->~leaf(h4:r0)"), queue("~leaf(h0:r0)->~core", us=60.0)
    assert [q.subject for q in under_full_port([short, into], into.subject)] == [into.subject]
    full = queue("l0->s1")
    assert len(under_full_port([queue("l1->l0", us=60.0), full], full.subject)) == 2


def test_without_cabling_all_that_is_inferred_waits_for_the_counters_while_nics_are_paused() -> None:
    leaf = replace(queue("h0/r0->l0"), subject=Subject("switch", "~leaf(h0:r0)"), directions=("~leaf(h0:r0)",))
    own = replace(queue("l1->s0"), confirm_ns=300)
    for queues, paused, waits in (([leaf, own], ["h0/r0", "h1/r0"], True), ([leaf, own], ["h0/r0"], False)):
        found = waiting_for_counters(queues, paused)
        assert (found[0].confirm_ns > 2 * NS_PER_S) == waits and found[1] == own


def test_several_queues_that_one_root_has_are_told_as_one_where_it_is_not_known() -> None:
    leaves = [
        replace(queue("h0/r0->l0"), subject=Subject("switch", name), directions=(name,))
        for name in ("~leaf(h0:r0)", "~leaf(h4:r0)")
    ]
    into, paused = queue("~core->~leaf(h6:r0)"), ["h0/r0", "h4/r0"]
    (root,) = one_of_several([*leaves, into], paused, frozenset())
    assert (root.subject, root.attached) == (into.subject, 2) and root.confirm_ns > 4 * NS_PER_S
    (root,) = one_of_several([*leaves, into], paused, frozenset({"~leaf(h4:r0)"}))
    assert (root.subject, root.attached) == (leaves[1].subject, 2), "what was told stays"
    assert one_of_several(leaves, paused[:1], frozenset()) == leaves
    later = replace(leaves[1], since_ns=leaves[1].since_ns + 5 * NS_PER_S)
    assert one_of_several([leaves[0], later], paused, frozenset())[1:] == [later]
    nics = [queue("h0/r0->l0"), queue("h4/r0->l2")]
    assert one_of_several(nics, paused, frozenset()) == nics, "known by name: each is told or none"
