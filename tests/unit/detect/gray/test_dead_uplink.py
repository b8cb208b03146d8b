"""A dead uplink of several that packets are sprayed over, by the share that its leaf loses."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.dead_uplink import (
    MOST_UPLINKS,
    SPRAYED,
    as_if_dead,
    event_share,
    share_evidence,
    the_dead_one,
    uplinks_of_one_dead,
    which_is_dead,
)
from sdfstream.detect.gray.known import KnownLosses, LossCounts
from sdfstream.detect.gray.lossy import LossySubject
from sdfstream.detect.localise import Location
from sdfstream.detect.runs import LONG_RUN
from sdfstream.detect.sessions import Sessions
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Subject
from tests.unit.records.test_routes import declare


def leaf_spine(spines: int) -> Topology:
    names = [f"s{i}" for i in range(spines)]
    links = [{"id": f"l0--{s}", "a": {"node": "l0"}, "b": {"node": s}} for s in names]
    links.append({"id": "h0/r0--l0", "a": {"node": "h0/r0"}, "b": {"node": "l0"}})
    nodes = [{"id": s, "kind": "spine"} for s in names] + [{"id": "l0", "kind": "leaf"}]
    topology = Topology({"nodes": nodes, "nics": [{"id": "h0/r0"}], "links": links})
    assert not topology.faults and topology.leaves == {"l0"}
    return topology


LEAF = Subject("switch", "l0")
S = 1_000_000_000


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


BOTH, ONE_WAY = event_share(7 / 16), event_share(1 / 4)
UP, DOWN = ({f"s{i}": name.format(f"s{i}") for i in range(4)} for name in ("l0->{}", "{}->l0"))


def located(subject: Subject) -> Location:
    return Location(subject, [subject.id], True, 0.4, np.empty(0, np.int64), [(subject.id, 1.0)], 1.0)


@pytest.mark.parametrize(
    ("share", "unseen", "directions", "known"),
    [
        (BOTH, {"l0->s2", "s2->l0"}, ["l0->s2", "s2->l0"], True),
        (BOTH, {"l0->s2", "s2->l0", "l0->s1"}, ["l0->s2", "s2->l0"], True),  # s1 was seen the other way
        (BOTH, {"l0->s2", "s2->l0", "l0->s1", "s1->l0"}, None, True),
        (BOTH, {"l0->s2"}, None, True),
        (ONE_WAY, {"l0->s2"}, ["l0->s2"], True),
        (ONE_WAY, {"s2->l0"}, ["s2->l0"], True),
        (ONE_WAY, {"l0->s2", "s2->l0"}, ["l0->s2", "s2->l0"], False),  # what it answers is lost as well
        (ONE_WAY, {"l0->s2", "s1->l0"}, None, True),
        (BOTH, set(), None, True),
    ],
)
def test_the_dead_uplink_is_the_one_by_which_no_trace_came(
    share: float, unseen: set[str], directions: list[str] | None, known: bool
) -> None:
    passed_ns = {name: [10 * S] for name in (*UP.values(), *DOWN.values()) if name not in unseen}
    found = the_dead_one(leaf_spine(4), located(LEAF), passed_ns, 5 * S, share)
    if directions is None:
        assert found is None
    else:
        assert found is not None
        assert (found.subject, found.directions) == (Subject("link", "l0--s2"), directions)
        assert found.direction_known == known


def test_traces_that_may_have_been_made_before_it_died_say_nothing() -> None:
    passed_ns = {name: [10 * S] for name in (*UP.values(), *DOWN.values())}
    passed_ns |= {UP["s2"]: [9 * S], DOWN["s2"]: [9 * S]}
    assert the_dead_one(leaf_spine(4), located(LEAF), passed_ns, 7 * S, BOTH) is None
    found = the_dead_one(leaf_spine(4), located(LEAF), passed_ns, 6 * S + S // 2, BOTH)
    assert found is not None and found.subject.id == "l0--s2"


def test_the_dead_spine_is_the_one_that_no_trace_passed() -> None:
    passed_ns = {UP[s]: [10 * S] for s in ("s0", "s1", "s3")}
    found = the_dead_one(leaf_spine(4), located(Subject("switch", "~core")), passed_ns, 5 * S, BOTH)
    assert found is not None
    assert (found.subject, found.directions) == (Subject("switch", "s2"), ["l0->s2", "s2->l0"])


@pytest.mark.parametrize(("times", "named"), [(5, False), (7, True)])
def test_of_many_uplinks_the_dead_one_is_told_once_none_by_it_is_no_chance(times: int, named: bool) -> None:
    fabric = leaf_spine(16)
    passed_ns = {f"l0->s{i}": [10 * S] * times for i in range(16) if i != 7}
    assert not uplinks_of_one_dead(fabric, LEAF, *counted(1 - (15 / 16) ** 2))
    assert uplinks_of_one_dead(fabric, LEAF, *counted(1 - (15 / 16) ** 2), MOST_UPLINKS) == 16
    found = the_dead_one(fabric, located(LEAF), passed_ns, 5 * S, event_share(1 - (15 / 16) ** 2))
    assert (None if found is None else found.subject.id) == ("l0--s7" if named else None)


@pytest.mark.parametrize("sprayed", [True, False])
def test_it_is_named_where_packets_are_sprayed_by_what_leaves_the_leaf(
    sprayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside one session to another leaf one stays within it and loses nothing: of both together too little is lost."""
    leaves = declare(
        ("a/0", "l0"), ("b/0", "l0"), ("c/0", "l1"), *((leaf, f"s{i}") for leaf in ("l0", "l1") for i in range(4))
    )  # fmt: skip
    sessions = Sessions(10)
    sessions.of_names([("a/0", "c/0", "udp", 50000, 0), ("a/0", "b/0", "udp", 50000, 0)], 0)
    cabling = Cabling(sessions)
    cabling.declare(leaves)
    monkeypatch.setattr(cabling.traced, "is_sprayed", lambda dscp: sprayed)
    cabling.traced.passed_ns = {f"l0->s{i}": [10 * S] for i in (0, 1, 3)}
    lossy = LossySubject(located(LEAF), 5 * S, slots=np.array([0, 1]))
    events, probes = counted(7 / 16)
    counts = LossCounts(np.array([events, 0]), np.array([probes, probes]))
    monkeypatch.setattr(LossySubject, "counts", lambda self, seen: counts)
    assert which_is_dead(cabling, lossy, cast(KnownLosses, None)) == (0 if sprayed else 4)
    assert (None if lossy.dead is None else lossy.dead.subject.id) == ("l0--s2" if sprayed else None)


def test_of_the_dead_one_all_is_lost_and_what_its_leaf_loses_is_said_beside() -> None:
    lossy = LossySubject(located(LEAF), 5 * S, events=3000, probes=10_000, share=0.3)
    leaf = {e.what: (e.value, e.where) for e in share_evidence(lossy, "l0", 0.0002)}
    assert set(leaf) == {"loss-share", "loss-share-low", "loss-share-high"}
    lossy.dead = located(Subject("link", "l0--s2"))
    link = {e.what: (e.value, e.where) for e in share_evidence(lossy, "l0->s2", 0.0002)}
    assert link["loss-share"] == link["loss-share-high"] == (1.0, "l0->s2")
    assert 0.9 < link["loss-share-low"][0] < 1.0
    assert link[SPRAYED] == leaf["loss-share"] == (leaf["loss-share"][0], "l0")
    assert link[f"{SPRAYED}-high"] == leaf["loss-share-high"]
