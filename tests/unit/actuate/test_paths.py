"""Probe paths and clocks, as reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.jobs import RunningJobs
from sdfstream.actuate.paths import UNKNOWN_NS, ClockErrors, MappedPath, Mapper, Probing
from sdfstream.actuate.refusals import Doubt
from sdfstream.actuate.routes import Directed, ProbeKey, Routes
from sdfstream.records import columns
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import NS_PER_MS, NS_PER_S

S = NS_PER_S


def test_clocks_that_are_not_known_have_the_widest_bar() -> None:
    clocks = ClockErrors()
    row = {
        "at_ns": np.zeros(3, np.int64),
        "offset_ns": np.zeros(3),
        "skew_ppb": np.zeros(3),
        "n": np.ones(3, np.uint32),
    }
    clocks.take(
        columns.build(
            CLOCK.columns,
            {
                **row,
                "clock": ["h0", "h1", "h2"],
                "err_ns": np.array([5.0, 6.0, 7.0]),
                "status": ["synced", "unsynced", "holdover"],
                "kind": ["causal", "causal", "smoothed"],
            },
        ),
        S,
    )
    assert clocks.err_ns("h0/r0", 2 * S) == 5.0
    assert clocks.err_ns("h1/r0", 2 * S) == clocks.err_ns("h2/r0", 2 * S) == clocks.err_ns("h0/r0", 9 * S) == UNKNOWN_NS


def test_paths_that_are_gone_from_a_complete_list_are_gone() -> None:
    probing = Probing()
    entry = {"role": "sender", "src": "a/0", "dst": "b/0", "path": 1, "dscp": 0, "state": "alive", "interval_ns": 5}
    assert probing.take({"host": "a", "complete": True, "changes": [entry]}) == ({"a/0"}, False)
    assert probing.take({"host": "a", "complete": False, "changes": [entry | {"state": "silent"}]}) == (set(), True)
    key = ProbeKey("a/0", "b/0", 1, 0)
    assert probing.interval_ns(key) == 5 and not probing.alive(key)
    assert probing.take({"host": "a", "complete": True, "changes": []}) == ({"a/0"}, False)
    assert probing.interval_ns(key) is None
    with pytest.raises(ValueError, match="no state"):
        probing.take({"host": "a", "complete": False, "changes": [entry | {"state": "odd"}]})


def test_a_watch_names_fast_probe_paths_and_the_slowest_which_the_agent_can_make_fast() -> None:
    """Eight at most; to the same far NIC before others, whatever their pace."""
    routes, probing = Routes(300 * S), Probing()
    paces_ms = {"b/0": {1: 20, 2: 20, 10: 100, 11: 100, 20: 1000, 21: 1000, 22: 1000}, "c/0": {1: 20, 20: 1000}}
    listed = []
    for dst, ports in paces_ms.items():
        for port, ms in ports.items():
            key = ProbeKey("a/0", dst, port, 0)
            routes.take_probe(Directed(key, "fwd"), ("cable", "up"), True, S)
            listed.append(
                {**key._asdict(), "role": "sender", "state": "alive", "interval_ns": ms * NS_PER_MS},
            )
    probing.take({"host": "a", "complete": True, "changes": listed})
    mapper = Mapper(ActuateConfig(), RunningJobs(), routes, probing)
    chosen = [(key.dst, key.path) for key in mapper._probes("a/0", "b/0", "up", S)]
    assert chosen == [
        ("b/0", 1), ("b/0", 2), ("c/0", 1), ("b/0", 20), ("b/0", 21), ("b/0", 22), ("b/0", 10), ("b/0", 11)
    ]  # fmt: skip
    mapper.config = ActuateConfig(most_watch_paths=4)
    mapper._found_at = (-1, -1, -1)
    chosen = [(key.dst, key.path) for key in mapper._probes("a/0", "b/0", "up", S)]
    assert chosen == [("b/0", 1), ("b/0", 2), ("b/0", 20), ("b/0", 21)]


NEAR = QueuePair(
    "a/0#1", 0, 1, "a/0", "b/0", "10.0.0.2", 7, 4791, answer_path=9, steering="socket", alternates=(8,), peer_qp="b/0#2"
)
FAR = QueuePair("b/0#2", 1, 0, "b/0", "a/0", "10.0.0.1", 9, 4791, steering="socket", alternates=(8,), peer_qp="a/0#1")


def mapped(far: QueuePair | None, answers: int) -> MappedPath | Doubt:
    """NEAR on its present path; known are the routes of its data, and of answers from source port `answers`."""
    jobs, routes, probing = RunningJobs(), Routes(300 * S), Probing()
    jobs.take(JobShard("j", "a", qps=(NEAR,)), S)
    if far is not None:
        jobs.take(JobShard("j", "b", qps=(far,)), S)
    routes.take_flow(NEAR.flow(), ("cable", "up", "down"), True, S)
    routes.take_flow(replace(NEAR, answer_path=answers).answers(), ("wire", "back"), True, S)
    key = ProbeKey("a/0", "b/0", 1, 0)
    routes.take_probe(Directed(key, "fwd"), ("cable", "up", "down"), True, S)
    routes.take_probe(Directed(key, "rev"), ("wire", "back"), True, S)
    probing.take({"host": "a", "complete": True, "changes": [
        {**key._asdict(), "role": "sender", "state": "alive", "interval_ns": 10 * NS_PER_MS}
    ]})  # fmt: skip
    owned = jobs.get("a/0#1")
    assert owned is not None
    return Mapper(ActuateConfig(), jobs, routes, probing).path(owned, 7, S)


def test_answers_belong_to_a_path_unless_the_far_end_is_moved_for_itself() -> None:
    alone, fixed, apart = mapped(None, 9), mapped(replace(FAR, steering="none"), 9), mapped(FAR, 5)
    assert isinstance(alone, MappedPath) and alone.segments == ("up", "down", "back")
    assert isinstance(fixed, MappedPath) and fixed.segments == alone.segments
    assert isinstance(apart, MappedPath) and apart.segments == ("up", "down"), "its answers' route need not be known"
    lost = mapped(None, 5)
    assert isinstance(lost, Doubt) and lost.rule == "unknown-way"


def test_answers_of_a_far_end_that_was_moved_go_by_its_present_path() -> None:
    moved = mapped(replace(FAR, steering="none", path=5), 5)
    assert isinstance(moved, MappedPath) and moved.segments == ("up", "down", "back")
