"""Traces of silent paths tell which of two links in a row is dead, where every path crosses both."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.cabling import FWD, REV, Cabling
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.problem import Observations, heeding_traces
from sdfstream.detect.sessions import Sessions
from tests.unit.detect.test_routes import hops
from tests.unit.records.test_routes import declare

LEAF = {"h0/r0": "l0", "h1/r0": "l0", "h2/r0": "l1", "h3/r0": "l1"}
PLAN = declare(*LEAF.items(), *((leaf, spine) for leaf in ("l0", "l1") for spine in ("s0", "s1")))
SINCE_NS, TRACED_NS = 10, 20


class TwoLeaves:
    """Every NIC probes both of the other leaf, there over s0 (even ports) or s1 (odd ones), back over s1."""

    def __init__(self) -> None:
        self.paths = [(a, b, port) for a in LEAF for b in LEAF for port in range(4) if LEAF[a] != LEAF[b]]
        self.sessions = Sessions(100)
        self.sessions.of_names([(a, b, "udp", port, 0) for a, b, port in self.paths], 0)
        self.cabling = Cabling(self.sessions)
        self.cabling.note_new(list(range(len(self.paths))))
        self.cabling.declare(PLAN)
        for slot, (a, b, port) in enumerate(self.paths):
            self.cabling.trace(slot, FWD, hops(a, LEAF[a], f"s{port % 2}", LEAF[b]), 1)
            self.cabling.trace(slot, REV, hops(b, LEAF[b], "s1", LEAF[a]), 1)

    def trace_silent(self, slot: int, reached: int) -> None:
        a, b, port = self.paths[slot]
        whole = hops(a, LEAF[a], f"s{port % 2}", LEAF[b])
        traced = [hop if number < reached else None for number, hop in enumerate(whole)]
        self.cabling.trace_silent(slot, traced, TRACED_NS)

    def silent(self, direction: str, only: str = "") -> Observations:
        """Every path over s0, that begins at leaf `only`."""
        slots = [n for n, (a, _, port) in enumerate(self.paths) if port % 2 == 0 and only in ("", LEAF[a])]
        numbers = np.array(slots)
        return Observations.of(numbers, direction, 8.0, 8.0, np.full(numbers.size, SINCE_NS))

    def located(self, silent: Observations) -> Location:
        well = Observations.of(np.setdiff1d(np.arange(len(self.paths)), silent.slots), "both", 0.0, 8.0)
        seen = Observations.join([silent, well])
        (found,) = locate(self.cabling, seen, noise=1e-3, least_share=0.99, kind="silence")
        return found


def test_without_traces_nothing_tells() -> None:
    found = TwoLeaves().located(TwoLeaves().silent("fwd"))
    assert (found.subject.type, found.subject.id) == ("switch", "s0")


@pytest.mark.parametrize(("dead", "reached"), [("l0", (1, 2)), ("l1", (2, 1))])
@pytest.mark.parametrize("traces", [1, 2])
def test_with_them_the_link_is_named_that_packets_do_not_pass(dead: str, reached: tuple[int, int], traces: int) -> None:
    """Packets of leaf l0 come as far as `reached[0]` routers, those of l1 as far as `reached[1]`."""
    world = TwoLeaves()
    for begin, routers in zip(("l0", "l1"), reached, strict=True):
        for slot in world.silent("fwd", begin).slots[:traces].tolist():
            world.trace_silent(slot, routers)
    found = world.located(world.silent("fwd"))
    assert (found.subject.type, found.subject.id) == ("link", f"{dead}--s0")
    assert found.probability > 0.9


@pytest.mark.parametrize(("reached", "direction"), [(1, "l0->s0"), (2, "s0->l1")])
def test_so_is_the_direction_where_one_alone_is_dead(reached: int, direction: str) -> None:
    world = TwoLeaves()
    assert world.located(world.silent("fwd", "l0")).probability < 0.9
    for slot in world.silent("fwd", "l0").slots[:4].tolist():
        world.trace_silent(slot, reached)
    found = world.located(world.silent("fwd", "l0"))
    assert found.directions == [direction]
    assert found.probability > 0.9


def test_what_was_traced_before_it_fell_silent_and_what_comes_back_counts_for_nothing() -> None:
    world = TwoLeaves()
    silent = world.silent("rev", "l0")
    world.trace_silent(int(silent.slots[0]), 3)
    world.cabling.refresh()

    def entries(seen: Observations) -> int:
        whole = world.cabling.entries(seen.slots, seen.fwd, seen.rev, seen.then_ns)
        return whole[0].size - heeding_traces(world.cabling, seen, *whole)[0].size

    assert entries(silent) == 0
    assert entries(world.silent("fwd", "l0")) == 5, "its NIC's side, two links, and the switches before them"
    later = Observations.of(silent.slots, "fwd", 8.0, 8.0, np.full(silent.slots.size, TRACED_NS))
    assert entries(later) == 0
