"""Which losses are a standing queue's: those that began with it and that nothing else shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sdfstream.detect.cabling import FWD, REV
from sdfstream.detect.detections import Detection
from sdfstream.detect.root.queues import drops
from sdfstream.records.finding import Subject
from tests.unit.detect.test_routes import World, hops

S = 1_000_000_000
QUEUE = Detection("congestion", Subject("link", "l1--s0"), 10 * S, "queueing", 1.0, (), directions=("s0->l1",))
BEFORE_IT = Detection(
    "loss", Subject("link", "l0--s0"), 12 * S, "gray-failure", 1.0, (), suspects=(("s0->l0", 0.97), ("l0->s0", 0.03))
)
"""Loss at the link before the queue's, over which the same paths pass."""


@pytest.fixture(scope="module")
def world() -> World:
    """Sessions 0 and 1 go over s0, where the queue stands; 3 goes over s1."""
    made = World()
    for slot, nic, spine in ((0, "h0/r0", "s0"), (1, "h1/r0", "s0"), (3, "h0/r0", "s1")):
        made.cabling.trace(slot, FWD, hops(nic, "l0", spine, "l1"), 1)
        made.cabling.trace(slot, REV, hops("h2/r0", "l1", spine, "l0"), 1)
    made.cabling.refresh()
    return made


@pytest.mark.parametrize(("lost", "since_s", "expected"), [
    ((0, 1), 12, True),
    ((0, 1, 3), 12, False),
    ((0, 1), 7, False),
    ((), 12, False),
])  # fmt: skip
def test_of_links_in_a_row_loss_is_the_queues_at_whichever_it_is_named(
    world: World, lost: tuple[int, ...], since_s: int, expected: bool
) -> None:
    """Unless another path loses there too, or it lost before the queue began."""
    loss = replace(BEFORE_IT, sessions=lost, since_ns=since_s * S)
    assert drops(QUEUE, loss, world.cabling) == expected
