"""The plan stage: when it draws, what it says, to whom again; and the battery that every stage passes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from sdfstream.bus import cloudevents
from sdfstream.errors import ConfigError
from sdfstream.pipeline import stages
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.inventory import ProbeRoute
from sdfstream.plan.stage import PlanStage
from sdfstream.records import publish
from sdfstream.records.mesh import HostPlan, host_plan
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.units import NS_PER_S
from sdfstream.settings import Settings
from tests.checks import check_stage, run
from tests.fixtures.mesh_messages import START, alive, cabling, said, trace, word

CONFIG = PlanConfig(mesh="auto", learn_ns=20 * NS_PER_S, leave_ns=35 * NS_PER_S, epoch_ns=600 * NS_PER_S)
HOSTS = [f"h{i}" for i in range(6)]
S = NS_PER_S


def story(
    messages: Sequence[Message], end_s: float, config: PlanConfig = CONFIG
) -> tuple[PlanStage, list[tuple[float, HostPlan]]]:
    """Run a fresh stage; what it said, and when (seconds)."""
    stage = PlanStage(config)
    ordered = sorted(messages, key=lambda m: m.bus_at_ns)
    out = run(stage, ordered, START + round(end_s * S))
    return stage, [((at - START) / S, plan_of(o)) for at, o in out]


def plan_of(output: Output) -> HostPlan:
    assert isinstance(output.body, Event)
    assert output.key == output.body.data["host"]
    return host_plan(output.body.data)


def obeying(at_s: float, plans: list[tuple[float, HostPlan]]) -> list[Message]:
    """The agents say that they took the plan."""
    last = {p.host: p.version for _, p in plans}
    return [word(at_s, host, plan=version) for host, version in last.items()]


def test_it_passes_the_battery() -> None:
    messages = [cabling(0.0, HOSTS), *(word(0.2 + 0.1 * i, h) for i, h in enumerate(HOSTS)), *alive(HOSTS, 1, 12)]
    messages += [*alive(HOSTS[:-1], 12, 60), word(20.03, "h9"), *alive(["h9"], 21, 60), word(30.5, "h0", plan="none")]
    messages += [trace(15.05, ProbeRoute("h0/r0", "h2/r0", 49_160, 0, True, ("a", "b")))]
    config = replace(CONFIG, repeat_ns=7 * S, epoch_ns=25 * S)
    ordered = sorted(messages, key=lambda m: m.bus_at_ns)
    found = check_stage(lambda: PlanStage(config), ordered, end_ns=START + 62 * S)
    assert len(found) > 20


def test_it_waits_until_all_hosts_are_announced_and_then_plans_each_once() -> None:
    messages = [cabling(0, HOSTS), *(word(1 + i, h) for i, h in enumerate(HOSTS)), *alive(HOSTS, 0, 30)]
    stage, plans = story(messages, 30)
    assert {at for at, _ in plans} == {6.1} or min(at for at, _ in plans) > 6.0, "the last host spoke at 6 s"
    assert sorted(p.host for _, p in plans) == HOSTS
    for _, plan in plans:
        assert plan.sessions
        assert {s.src.split("/")[0] for s in plan.sessions} == {plan.host}
        purposes = [s.purpose for s in plan.sessions]
        assert purposes == sorted(purposes), "clocks' sessions first"
        assert plan.send_pps == pytest.approx(sum(s.rate_hz for s in plan.sessions))
        assert plan.send_pps + plan.answer_pps <= plan.budget_pps
        into = {(s.src, p.host) for _, p in plans for s in p.sessions if s.dst.startswith(plan.host + "/")}
        assert set(plan.probers.values()) == {src for src, _ in into}
    total = sum(p.send_pps for _, p in plans), sum(p.answer_pps for _, p in plans)
    assert total[0] == pytest.approx(total[1])
    assert stage.counters.get("drawn") == 1


def test_a_silent_majority_is_waited_for_at_most_so_long() -> None:
    """Hosts that are alive but never say that they want a plan do not stop it for ever."""
    messages = [word(1, "h0"), word(1, "h1"), *alive(HOSTS, 0, 40)]
    _, plans = story(messages, 40)
    assert {p.host for _, p in plans} == {"h0", "h1"}
    assert min(at for at, _ in plans) == pytest.approx(20.0, abs=0.2)


def test_every_event_fits_the_schema() -> None:
    schema = json.loads(publish.files()["sdf.state.mesh.v1.schema.json"])
    topology = json.loads(publish.files()["sdf.state.topology.v1.schema.json"])
    messages = [*(word(1, h) for h in HOSTS), *alive(HOSTS, 0, 10)]
    for _, output in run(PlanStage(CONFIG), sorted(messages, key=lambda m: m.bus_at_ns), START + 10 * S):
        assert isinstance(output.body, Event)
        jsonschema.validate(json.loads(cloudevents.encode_event(output.body, output.key)), schema)
    event = word(1, "h0").body
    assert isinstance(event, Event)
    jsonschema.validate(json.loads(cloudevents.encode_event(event, "host:h0")), topology)


def test_a_join_and_a_leave_change_only_plans_that_they_concern() -> None:
    hosts = [f"h{i}" for i in range(60)]
    start = [*(word(1, h) for h in hosts)]
    base = [*start, *alive(hosts, 0, 100)]
    _, before = story(base, 12)
    later = [*obeying(13, before), *alive(["h70"], 30, 90), word(30, "h70")]
    stage, plans = story([*base, *later], 140)
    joined = [p for at, p in plans if 30 < at < 33]
    assert 10 <= len(joined) <= 40
    assert "h70" in {p.host for p in joined}
    gone = [p for at, p in plans if at > 120]
    assert [p.sessions for p in gone if p.host == "h70"] == [()], "who has left is told to stop"
    assert stage.counters.get("joined") == 61
    assert stage.counters.get("left") >= 1
    assert not any("h70/" in s.dst for p in [x for at, x in plans if at > 126] for s in p.sessions)


def test_a_nic_that_is_away_for_a_moment_changes_nothing_and_for_long_it_leaves() -> None:
    messages = [*(word(1, h) for h in HOSTS), *alive(HOSTS, 0, 100)]
    messages += [word(20, "h2", usable=False), word(25, "h2"), word(40, "h2", usable=False)]
    _, plans = story(messages, 100)
    assert not [p for at, p in plans if 21 < at < 70 and p.drawn_at_ns > START + 20 * S]
    last = {p.host: p for _, p in plans}
    assert last["h2"].sessions == ()
    assert not any(s.dst.startswith("h2/") for p in last.values() for s in p.sessions)


def test_a_new_controller_comes_to_the_same_plan() -> None:
    base = [cabling(0, HOSTS), *(word(1, h) for h in HOSTS), *alive(HOSTS, 0, 30)]
    _, first = story(base, 20)
    _, second = story([replace(m, bus_at_ns=m.bus_at_ns + 100 * S) for m in base], 130)
    versions = [{p.host: p.version for _, p in plans} for plans in (first, second)]
    assert versions[0] == versions[1]


def test_a_plan_is_repeated_to_who_obeys_another_and_to_all_now_and_then() -> None:
    words = [word(1, h) for h in HOSTS]
    base = [*words, *alive(HOSTS, 0, 60)]
    _, plans = story(base, 12)
    good = obeying(13, plans)
    lost = word(50, "h3", plan="")
    _, plans = story([*base, *good, lost], 60)
    again = [(at, p) for at, p in plans if at > 14]
    assert [(p.host, round(at)) for at, p in again] == [("h3", 50)]
    stage, plans = story([*words, *alive(HOSTS, 0, 200), *good], 200, replace(CONFIG, repeat_ns=40 * S))
    hosts = [p.host for at, p in plans if at > 14]
    assert {hosts.count(h) for h in HOSTS} <= {4, 5}
    assert stage.counters.get("drawn") == 1


def test_traces_make_the_plan_smaller_after_a_while() -> None:
    hosts = [f"h{i}" for i in range(8)]
    base = [cabling(0, hosts), *(word(1, h) for h in hosts), *alive(hosts, 0, 100)]
    _, blind = story(base, 10)
    routes = []
    for _, plan in blind:
        for s in plan.sessions:
            near, far = (f"l{int(n[1]) // 2}-{n[-1]}" for n in (s.src, s.dst))
            spine = (s.path + int(s.src[1]) + 3 * int(s.dst[1])) % 2
            if near != far:
                routes.append(ProbeRoute(s.src, s.dst, s.path, s.dscp, True, (f"{near}>{spine}", f"{spine}>{far}")))
                routes.append(ProbeRoute(s.src, s.dst, s.path, s.dscp, False, (f"{far}>{spine}", f"{spine}>{near}")))
    stage, plans = story([*base, *(trace(15, w) for w in routes)], 100)
    counts = [
        {p.host: sum(s.purpose == "coverage" for s in p.sessions) for at, p in plans if at < end} for end in (20, 100)
    ]
    assert sum(counts[1].values()) < sum(counts[0].values())
    assert min(at for at, p in plans if p.drawn_at_ns > START + 10 * S) >= 35, "not at every trace"
    assert stage.figures["pairs_known"] == stage.figures["pairs"] == 12
    assert stage.figures["ways_crossed"] == stage.figures["ways_known"] == 2 * 2 * 12


def bad(**changes: Any) -> Message:
    message = word(2, "h0")
    event = message.body
    assert isinstance(event, Event)
    return replace(message, body=replace(event, data={**event.data, **changes}))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (bad(nics="none"), "mesh-host"),
        (bad(nics=[{"id": "h1/r0", "address": "10.0.0.1", "clock": "h0"}]), "mesh-host"),
        (bad(nics=[{"id": "h0/r0", "address": "10.0.0.1", "clock": "h5"}]), "mesh-host"),
        (bad(nics=[{"id": "h0/r0", "address": "nowhere", "clock": "h0"}]), "mesh-host"),
        (bad(budget_pps=float("nan")), "mesh-host"),
        (bad(budget_pps=0), "mesh-host"),
        (bad(first_port=65_530), "mesh-host"),
        (bad(host="h1"), "mesh-host"),
        (replace(word(2, "h0"), key="host:h1"), "foreign"),
        (said(2, "sdf.state.topology.v1", "k", "sdf.state.topology.path.v1", "h0", {"hops": 3}), "topology-path"),
        (said(2, "sdf.state.topology.v1", "k", "sdf.state.topology.declared.v1", "h0", {"links": [3]}), "topology"),
    ],
)
def test_what_cannot_be_read_is_counted_and_nothing_else_is_lost(message: Message, reason: str) -> None:
    base = [*(word(1, h) for h in HOSTS), *alive(HOSTS, 0, 20)]
    _, good = story(base, 20)
    stage, found = story([*base, message], 20)
    assert stage.counters.get("refused", reason) == 1
    assert [p for _, p in found] == [p for _, p in good]


def test_bounds_are_kept() -> None:
    config = replace(CONFIG, max_hosts=4, max_ways=1)
    routes = [ProbeRoute("h0/r0", "h1/r0", 49_152 + i, 0, True, ("a", "b")) for i in range(3)]
    stage, plans = story(
        [*(word(1, h) for h in HOSTS), *(trace(2, w) for w in routes), *alive(HOSTS, 0, 25)], 25, config
    )
    assert stage.counters.get("refused", "too-many-hosts") == 2
    assert stage.counters.get("refused", "too-many-ways") == 2
    assert len({p.host for _, p in plans}) == 4


def test_it_is_off_by_default_and_on_when_asked_for() -> None:
    assert "plan" not in {s.name for s in stages(Settings())}
    assert "plan" in {s.name for s in stages(Settings(plan=PlanConfig(mesh="auto")))}


@pytest.mark.parametrize(
    ("key", "value"),
    [("mesh", "on"), ("degree", 1), ("clock_rate_hz", 0), ("cover_dscps", (64,)), ("cover_dscps", (1, 1)),
     ("redraw_share", 2), ("cover_probability", 1), ("paths_assumed", 0), ("epoch_ns", 0), ("learn_ns", -1)],
)  # fmt: skip
def test_what_cannot_work_is_a_sentence(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        PlanConfig(**{key: value})
