"""Which queues lie on the way to a NIC's port: by the map, by what is right before it, by inferred switches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sdfstream.detect.inferred.hidden import evidence_of
from sdfstream.detect.root.upstream import may_pass
from sdfstream.records.finding import Subject
from tests.unit.detect.root.test_spread import queue

LEAVES = frozenset({"l0", "l1", "l2"})
PORT = queue("l2->h4/r0")
UNMAPPED = replace(PORT, directions=("h4/r0 rx",))


def inferred(direction: str, *below: str):
    return replace(
        queue("a->b"),
        subject=Subject("link", "~core--~leaf(h0:r0)"),
        directions=(direction,),
        evidence=evidence_of(below),
    )


@pytest.mark.parametrize(
    ("direction", "leaves", "may"),
    [
        ("l0->s0", LEAVES, True),
        ("s0->c0", LEAVES, True),
        ("s0->l2", LEAVES, True),
        ("s0->l1", LEAVES, False),
        ("l2->s0", LEAVES, False),
        ("h0/r0->l0", LEAVES, False),
        ("s0->l2", frozenset(), True),
        ("l0->s0", frozenset(), False),
    ],
)
def test_queues_of_a_map(direction: str, leaves: frozenset[str], *, may: bool) -> None:
    assert may_pass(queue(direction), PORT, leaves) is may


def test_inferred_queues() -> None:
    out, into = "~leaf(h0:r0)->~core", "~core->~leaf(h0:r0)"
    nobody: frozenset[str] = frozenset()
    assert may_pass(inferred(into, "h4/r0", "h5/r0"), UNMAPPED, nobody)
    assert may_pass(inferred(out, "h0/r0", "h1/r0"), UNMAPPED, nobody)
    assert not may_pass(inferred(into, "h0/r0", "h1/r0"), UNMAPPED, nobody)
    assert not may_pass(inferred(out, "h4/r0", "h5/r0"), UNMAPPED, nobody)


def test_what_a_nic_sends_is_no_end_of_a_way() -> None:
    assert not may_pass(queue("s0->l2"), queue("h4/r0->l2"), LEAVES)
