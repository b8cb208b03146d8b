"""Laws that hold whatever happens: what a command always has, what it may name, and that no input is an exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.guard import RULES, check
from sdfstream.actuate.stage import ActuateStage
from sdfstream.bus import cloudevents
from sdfstream.records.command import command
from sdfstream.records.fabric import FLOW_TYPE
from sdfstream.records.message import Event, Message
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.records.topics import COMMAND, FINDING, JOB, LIVENESS, OUTCOME, OVERRIDE, TOPOLOGY
from sdfstream.records.units import NS_PER_S
from tests.fixtures.plant import CONTROLLER, EPOCH, OPERATOR, Plan, Plant
from tests.unit.actuate import test_guard as rules

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
NOW = rules.NOW
SPOILERS: list[Callable[[Any], None]] = [
    rules.open_breaker,
    rules.hold_job,
    rules.maintain_spine,
    rules.opt_out,
    rules.never_received,
    rules.received_long_ago,
    rules.nothing_traced,
    rules.contest,
    rules.another_path_seen,
    rules.full,
    rules.ban,
    rules.steer_just_now,
    rules.steer_another,
    rules.other_rail,
    rules.empty_bucket,
]


@given(
    st.lists(st.sampled_from(SPOILERS), max_size=4),
    st.sampled_from(["steer", "failover", "throttle"]),
    st.booleans(),
    st.sampled_from([None, 1e3, 9e9]),
)
def test_the_guard_never_passes_what_a_rule_refuses(
    spoilers: list[Callable[[Any], None]], action: str, renewal: bool, err_ns: float | None
) -> None:
    f = rules.facts()
    for spoil in spoilers:
        spoil(f)
    p = rules.proposal(f, action=action, renewal=renewal, err_ns=err_ns)
    refusing = [rule.name for rule in RULES if rule.check(p, f, NOW)]
    doubt = check(p, f, NOW)
    assert (doubt is None) == (not refusing)
    assert doubt is None or doubt.rule == refusing[0]


def troubled(seed: int) -> Plant:
    """Jobs, and at random: links that die and heal, other traffic, agents that fall silent, findings, overrides."""
    rng = np.random.default_rng(seed)
    plan = Plan(hosts=4, spines=3, probe_ports=tuple(range(50_000, 50_010)), trace_s=2.0)
    plant = Plant(plan, ActuateConfig(mode="enforce", hold_down_ms=1_000, dwell_s=3.0), seed=seed)
    plant.run(3)
    for i in range(3):
        src, dst = f"h0{rng.integers(2)}", f"h0{2 + rng.integers(2)}"
        plant.job(f"j{i}", [plant.qp(src, dst, i, 51_000 + i, tuple(range(52_001, 52_007)))])
    links = [f"l0->s{i}" for i in range(3)] + [f"s{i}->l0" for i in range(3)]
    for _ in range(8):
        what = int(rng.integers(6))
        if what == 0:
            plant.dead.add(links[int(rng.integers(6))])
        elif what == 1:
            plant.dead.clear()
            plant.deaf.clear()
        elif what == 2:
            plant.cross[links[int(rng.integers(3))]] = 80e6
        elif what == 3:
            plant.deaf.add(f"h0{rng.integers(2)}")
        elif what == 4:
            plant.finding("congestion", links[int(rng.integers(3))])
        else:
            plant.override("hold", target={"type": "job", "id": "j0"}, for_s=2)
        plant.run(2)
    return plant


@pytest.fixture(scope="module", params=[1, 2, 3])
def plant(request: pytest.FixtureRequest) -> Plant:
    return troubled(request.param)


def test_no_command_without_lease_undo_and_signature(plant: Plant) -> None:
    assert plant.commands
    last: dict[str, int] = {}
    for data in plant.commands:
        read = command(data)
        assert not plant.keys.refuses(data)
        assert 0 < read.expires_at_ns - read.issued_at_ns <= 30 * NS_PER_S
        assert read.undo, "no lease without an undo"
        assert read.epoch == EPOCH and read.target["host"] and read.target["id"]
        assert read.issued_at_ns > last.get(read.id, 0), "a renewal is later than what it renews"
        last[read.id] = read.issued_at_ns
        if read.action in ("steer", "failover"):
            assert read.undo == read.expected, "it goes back to where it came from"


def test_watches_name_only_probe_paths_that_exist(plant: Plant) -> None:
    exists = {(src, dst, port) for (src, dst, port), _ in plant.sessions()}
    seen = 0
    for data in plant.commands:
        set_ = data["set"]
        watches = [set_.get("watch", []), set_.get("former_watch", [])]
        watches += [alternate["watch"] for alternate in set_.get("alternates", ())]
        nic = data["target"]["id"].partition("#")[0]
        for segment in (shard for watch in watches for shard in watch):
            assert 1 <= len(segment["paths"]) <= 8
            for dst, port, dscp in segment["paths"]:
                assert (nic, dst, port) in exists and dscp == 0
                seen += 1
    assert seen


def test_moves_are_bounded_and_only_to_what_was_offered(plant: Plant) -> None:
    steers = [m for m in plant.moves if m.why == "steer"]
    for earlier, later in pairwise(steers):
        assert earlier.qp != later.qp or later.at_ns - earlier.at_ns >= 3 * NS_PER_S
    offered = {p for q in plant.pairs() for p in q.alternates} | {51_000, 51_001, 51_002}
    assert {m.path for m in plant.moves} <= offered


def test_all_events_in_and_out_fit_their_schemas(plant: Plant) -> None:
    validators = {
        topic: jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{topic}.schema.json").read_text()))
        for topic in (COMMAND.name, OUTCOME.name, OVERRIDE.name, FINDING.name, JOB.name, LIVENESS.name, TOPOLOGY.name)
    }
    taken: dict[str, int] = {}
    for message in [*plant.messages, *(Message(o.topic, o.key, o.body, at, 0) for at, o in plant.outputs)]:
        if isinstance(message.body, Event):
            taken[message.body.type] = taken.get(message.body.type, 0) + 1
            if taken[message.body.type] <= 60:
                said = json.loads(cloudevents.encode_event(message.body, message.key))
                validators[message.topic].validate(said)
    assert {COMMAND.name, OUTCOME.name, JOB.name, LIVENESS.name, FLOW_TYPE} <= taken.keys()


# --- what comes in may be anything ---------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    *("id", "job", "host", "state", "qps", "ranks", "src", "dst", "path", "dscp", "dir", "hops", "complete", "kind"),
    *("status", "subject", "suspects", "confidence", "changes", "role", "interval_ns", "command", "why", "at_ns"),
    *("after", "target", "what", "set", "key_id", "signature", "issued_at_ns", "expires_at_ns", "operator", "links"),
)
TYPES = {
    TOPOLOGY.name: (FLOW_TYPE, "sdf.state.topology.path.v1", "sdf.state.topology.declared.v1", "odd"),
    JOB.name: (JOB.name,),
    LIVENESS.name: (LIVENESS.name,),
    FINDING.name: (FINDING.name,),
    OUTCOME.name: (OUTCOME.name,),
    OVERRIDE.name: (OVERRIDE.name,),
}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(TYPES)), st.integers(0, 3), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=12))
def test_no_event_is_an_exception(topic: str, kind: int, data: dict[str, Any]) -> None:
    stage = ActuateStage()
    event = Event(TYPES[topic][kind % len(TYPES[topic])], "x", "1", EPOCH, data)
    stage.step([Message(topic, "k", event, EPOCH, 0)], EPOCH)
    stage.step([], EPOCH + 3 * NS_PER_S)
    assert stage.counters.get("received", topic) == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_an_event_with_one_field_spoilt_is_refused_and_nothing_else_is_lost(data: st.DataObject) -> None:
    plant = _small()
    events = [m for m in plant.messages if isinstance(m.body, Event) and m.topic in TYPES]
    at = data.draw(st.integers(0, len(events) - 1))
    body = events[at].body
    assert isinstance(body, Event)
    field = data.draw(st.sampled_from(sorted(body.data)))
    spoilt = dict(body.data) | {field: data.draw(JSON)}
    stage = ActuateStage()
    messages = list(plant.messages)
    location = messages.index(events[at])
    extra = Message(events[at].topic, "k", Event(body.type, "x", "1", EPOCH, spoilt), events[at].bus_at_ns, 0)
    stage.step([*messages[: location + 1], extra, *messages[location + 1 :]], plant.now)
    assert stage.counters.total("received") == len(messages) + 1
    assert stage.snapshot()


_RETAINED: list[Plant] = []


def _small() -> Plant:
    if not _RETAINED:
        plant = Plant(Plan(hosts=2, probe_ports=(50_000, 50_001, 50_002), trace_s=1.0))
        plant.job("j", [plant.qp("h00", "h01", 1, 51_000, (52_001, 52_002))])
        plant.finding("congestion", "l0->s0")
        plant.run(3)
        _RETAINED.append(plant)
    return _RETAINED[0]


# --- overrides -----------------------------------------------------------------------------------------------------


def test_none_of_a_thousand_false_overrides_has_an_effect() -> None:
    plant = Plant(Plan(hosts=2, probe_ports=(50_000,)))
    plant.run(1)
    plant.override("mode", set={"mode": "enforce"}, id="true")
    good = next(dict(m.body.data) for m in plant.messages if m.topic == OVERRIDE.name)  # type: ignore[union-attr]
    stranger, rng = Signer(b"s" * 32), np.random.default_rng(4)
    kinds = ("forged", "unknown-key", "expired", "replayed", "no-signature")
    for i in range(1_000):
        kind = kinds[i % len(kinds)]
        data = {**good, "id": f"x{i}", "set": {"mode": "observe"}}
        if kind == "forged":
            data["signature"] = OPERATOR.sign({**data, "set": {"mode": "enforce"}})["signature"]
        elif kind == "unknown-key":
            data = stranger.sign(data)
        elif kind == "expired":
            data = OPERATOR.sign({**data, "expires_at_ns": plant.now - int(rng.integers(1, 10**9))})
        elif kind == "replayed":
            data = OPERATOR.sign({**data, "id": "true"})
        else:
            data["signature"] = ""
        plant.put(OVERRIDE.name, "ann", OVERRIDE.name, "ann", data)
    plant.run(1)
    assert plant.stage.mode == "enforce"
    counters = plant.stage.counters
    assert sum(counters.get("refused", f"override-{kind}") for kind in kinds) == 1_000
    assert {o["why"].partition(":")[0] for o in plant.outcomes} >= {"forged", "unknown-key", "expired", "replayed"}
    assert not KeyRing([CONTROLLER.public]).refuses(CONTROLLER.sign({}))
