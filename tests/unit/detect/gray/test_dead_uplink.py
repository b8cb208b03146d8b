"""A dead uplink of several that packets are sprayed over, by the share that its leaf loses."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.gray.dead_uplink import as_if_dead, event_share, uplinks_of_one_dead
from sdfstream.detect.runs import LONG_RUN
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Subject


def leaf_spine(spines: int) -> Topology:
    names = [f"s{i}" for i in range(spines)]
    links = [{"id": f"l0--{s}", "a": {"node": "l0"}, "b": {"node": s}} for s in names]
    links.append({"id": "h0/r0--l0", "a": {"node": "h0/r0"}, "b": {"node": "l0"}})
    nodes = [{"id": s, "kind": "spine"} for s in names] + [{"id": "l0", "kind": "leaf"}]
    topology = Topology({"nodes": nodes, "nics": [{"id": "h0/r0"}], "links": links})
    assert not topology.faults and topology.leaves == {"l0"}
    return topology


LEAF = Subject("switch", "l0")


def counted(share: float, sent: int = 80_000) -> tuple[int, int]:
    """Loss events and probes as `LossRuns` counts them, of round trips each of which fails with this probability."""
    lost = np.random.default_rng(1).uniform(size=sent) < share
    ends = np.flatnonzero(np.diff(np.r_[False, lost, False].astype(int)))
    events = int(np.count_nonzero(ends[1::2] - ends[::2] < LONG_RUN))
    return events, int(np.count_nonzero(~lost)) + events


@pytest.mark.parametrize("spines", [3, 4, 8])
def test_what_one_uplink_is_given_is_lost_one_way_or_both_ways(spines: int) -> None:
    fabric = leaf_spine(spines)
    for share in (1 / spines, 1 - (1 - 1 / spines) ** 2):
        assert uplinks_of_one_dead(fabric, LEAF, *counted(share)) == spines
    for share in (0.5 / spines, 0.02):
        assert not uplinks_of_one_dead(fabric, LEAF, *counted(share))


def test_one_of_the_spines_is_dead_where_it_loses_what_one_is_given() -> None:
    fabric, core = leaf_spine(4), Subject("switch", "~core")
    assert uplinks_of_one_dead(fabric, core, *counted(7 / 16)) == 4
    assert not uplinks_of_one_dead(fabric, core, *counted(0.05))
    assert not uplinks_of_one_dead(Topology(), core, *counted(7 / 16)), "no spine is known"
    assert as_if_dead(fabric, core, 4) == ", as if one of the 4 spines passed nothing"
    assert as_if_dead(fabric, LEAF, 4) == ", as if one of its 4 uplinks passed nothing"


@pytest.mark.parametrize("share", [0.02, 0.25, 0.4375, 0.6])
def test_events_are_fewer_than_losses(share: float) -> None:
    events, probes = counted(share)
    assert events / probes == pytest.approx(event_share(share), rel=0.03)


def test_few_probes_two_uplinks_or_many_and_other_places_say_nothing() -> None:
    fabric = leaf_spine(4)
    assert not uplinks_of_one_dead(fabric, LEAF, 0, 0)
    assert not uplinks_of_one_dead(fabric, LEAF, 10, 40), "known to 20 % of all at best"
    assert not uplinks_of_one_dead(leaf_spine(2), LEAF, 20_000, 40_000)
    assert not uplinks_of_one_dead(leaf_spine(16), LEAF, 2_500, 40_000), "6 % may be gray loss of the whole leaf"
    for subject in (Subject("switch", "s0"), Subject("link", "l0--s0"), Subject("switch", "l9")):
        assert not uplinks_of_one_dead(fabric, subject, 10_000, 40_000)
