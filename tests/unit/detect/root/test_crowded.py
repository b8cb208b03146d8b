"""Queues at all ways out of a switch: one finding about it, also when one of them remains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sdfstream.detect.detections import Detection
from sdfstream.detect.root.crowded import CrowdedSwitches
from sdfstream.numeric import codec
from tests.unit.detect.root.test_spread import queue

S = 1_000_000_000
WAYS = [queue(f"l1->s{n}", 30.0 + n / 10, us=60.0 + 10 * n, ce=0.2) for n in range(4)]
NOBODY: frozenset[str] = frozenset()


def named(queues: list[Detection]) -> list[tuple[str, str, str]]:
    return [(q.subject.type, q.subject.id, q.cause) for q in queues]


def test_queues_that_begin_at_once_at_most_ways_out_are_the_switch_s() -> None:
    other = queue("s2->l0", 30.0)
    found = CrowdedSwitches().gather([*WAYS, other], NOBODY)
    assert named(found) == [("switch", "l1", "queueing"), ("link", "l0--s2", "queueing")]
    assert found[0].since_ns == 30 * S and not found[0].direction
    assert found[0].suspects == tuple((f"l1->s{n}", 0.25) for n in range(4))


def test_once_routes_are_traced_the_switch_s_finding_names_the_link_that_has_the_queue() -> None:
    crowded = CrowdedSwitches()
    crowded.gather(WAYS, NOBODY)
    last = replace(WAYS[2], cause="ecmp-imbalance", suspects=(("l1->s2", 0.9),))
    saved, later = codec.dump(crowded.snapshot()), CrowdedSwitches()
    later.restore(codec.load(saved))
    for one in (crowded, later):
        (found,) = one.gather([last], frozenset({"l1"}))
        assert named([found]) == [("switch", "l1", "ecmp-imbalance")]
        assert found.suspects == (("l1->s2", 0.9),) and found.detail == "queue l1->s2"


@pytest.mark.parametrize(
    "queues",
    [WAYS[:2], [*WAYS[:2], queue("l1->s3", 32.0)], [*WAYS[:2], queue("l1->s3", 30.0, us=400.0)]],
    ids=["two", "one later", "one far longer"],
)
def test_queues_that_are_few_or_unlike_are_their_links(queues: list[Detection]) -> None:
    assert named(CrowdedSwitches().gather(queues, NOBODY)) == named(queues)


def test_a_queue_after_the_switch_s_finding_is_over_is_its_link_s() -> None:
    crowded = CrowdedSwitches()
    crowded.gather(WAYS, NOBODY)
    assert named(crowded.gather(WAYS[:1], NOBODY)) == named(WAYS[:1])


BELOW = [queue(f"h{n}/r0->l1", 30.0 + n / 10, us=60.0 + 10 * n, cause="slow-nic") for n in range(4)]


def test_nics_below_a_switch_that_are_slow_at_once_wait_for_it() -> None:
    (found,) = CrowdedSwitches().gather(BELOW, NOBODY)
    assert named([found]) == [("switch", "l1", "queueing")] and not found.direction
    mixed = CrowdedSwitches().gather([*BELOW[:2], WAYS[0]], NOBODY)
    assert named(mixed) == [("switch", "l1", "queueing")]


def test_nics_that_are_told_to_pause_or_are_two_are_slow_themselves() -> None:
    paused = frozenset(q.subject.id for q in BELOW[1:])
    assert named(CrowdedSwitches().gather(BELOW, NOBODY, paused)) == named(BELOW)
    assert named(CrowdedSwitches().gather(BELOW[:2], NOBODY)) == named(BELOW[:2])


def test_a_nic_slow_since_the_switch_crowds_is_its_too() -> None:
    crowded = CrowdedSwitches()
    crowded.gather(WAYS, NOBODY)
    late = queue("h9/r0->l1", 33.0, cause="slow-nic")
    assert named(crowded.gather([BELOW[0], late], frozenset({"l1"}))) == [
        ("switch", "l1", "queueing"),
        ("nic", "h9/r0", "slow-nic"),
    ]


def test_all_but_one_of_few_ways_out_are_enough() -> None:
    few = {"l1": ["s0", "s1", "s2"]}
    assert named(CrowdedSwitches().gather(WAYS[:2], NOBODY, neighbours=few)) == [("switch", "l1", "queueing")]
    assert named(CrowdedSwitches().gather(WAYS[:1], NOBODY, neighbours=few)) == named(WAYS[:1])
    many = {"l1": ["s0", "s1", "s2", "s3"]}
    assert named(CrowdedSwitches().gather(WAYS[:2], NOBODY, neighbours=many)) == named(WAYS[:2])
    assert named(CrowdedSwitches().gather(BELOW[:2], NOBODY, neighbours=few)) == named(BELOW[:2])
