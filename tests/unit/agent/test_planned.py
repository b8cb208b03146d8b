"""The agent's side of the mesh plan: what it obeys, what it refuses, what its budget cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.agent.config_file import read_agent
from sdfstream.agent.planned import PlannedSessions, plan_ports
from sdfstream.agent.slots import DRAIN_NS, SessionSlots
from sdfstream.agent.watches import WatchSessions
from sdfstream.errors import ConfigError, FormatError
from sdfstream.probes.config import AgentConfig, SessionConfig
from sdfstream.probes.stamp.known_senders import KnownSender, ReflectorLimits
from sdfstream.probes.stamp.liveness import ALIVE
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.mesh import HostPlan, PlannedSession, host_here, host_plan
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from tests.fixtures.host_plans import CONFIG, NICS, plan, session
from tests.wire import SOCKET_A, SOCKET_B, B, Wire, host_a, host_b, reflector_of

S = NS_PER_S


def engine(config: AgentConfig = CONFIG, configured: Sequence[tuple[str, str, int, int]] = ()) -> PlannedSessions:
    return PlannedSessions("h0", config, NICS, configured, Counters("io"), SessionSlots())


class TestObeying:
    def test_a_plan_is_followed_and_the_next_one_changes_only_what_differs(self) -> None:
        found = engine()
        assert found.take(plan([session("h1/r0"), session("h2/r0")]))
        begun = found.change(0).begin
        assert [(s.dst, s.source_ports, s.rate_hz) for s in begun.values()] == [
            ("h1/r0", (50_000,), 16.0),
            ("h2/r0", (50_000,), 16.0),
        ]
        assert not found.change(1)
        assert found.take(plan([session("h2/r0"), session("h3/r0")], at=2))
        change = found.change(S)
        assert (list(change.end), [s.dst for s in change.begin.values()]) == ([0], ["h3/r0"])
        assert list(change.begin) == [2], "the last rows of the first are not written yet"

    def test_a_slot_goes_to_a_session_of_the_same_rate_only(self) -> None:
        found = engine()
        found.take(plan([session(rate=16.0)]))
        found.change(0)
        found.take(plan([session("h2/r0", rate=8.0)], at=2))
        assert list(found.change(S).begin) == [1]
        found.take(plan([session("h3/r0", rate=16.0), session("h4/r0", rate=8.0)], at=3))
        change = found.change(S + DRAIN_NS)
        assert {change.begin[0].dst, change.begin[2].dst} == {"h3/r0", "h4/r0"}

    def test_an_older_plan_and_the_same_again_change_nothing(self) -> None:
        found = engine()
        assert found.take(plan([session()], at=5))
        found.change(0)
        assert not found.take(plan([], at=4))
        assert not found.take(plan([session()], at=6, version="v5-1"))
        assert not found.change(1)
        assert found._counters.get("refused", "plan-stale") == 1

    def test_an_agent_that_is_late_runs_what_stands_first_in_its_plan(self) -> None:
        found = engine()
        found.take(plan([session(f"h{n}/r0") for n in range(1, 7)]))
        found.change(0)
        found.take_share(0.5)
        assert len(found.change(S).end) == 3
        assert [s.dst for s in found.sessions] == ["h1/r0", "h2/r0", "h3/r0"]
        assert found.beyond == 3, "its planner is told"
        assert not found._counters.troubles.open, "it is not the budget that is short"
        found.take_share(0.5)
        assert not found.change(2 * S)
        found.take_share(1.0)
        assert len(found.change(2 * S + DRAIN_NS).begin) == 3

    def test_a_controller_whose_clock_was_far_ahead_is_obeyed_again(self) -> None:
        found = engine()
        found.take(plan([session()], at=10_000 * S))
        assert found.take(plan([session("h2/r0")], at=5_000 * S))

    def test_a_foreign_plan_changes_nothing(self) -> None:
        found = engine()
        assert not found.take(plan([session()], host="h9"))
        assert found.plan is None
        assert found._counters.get("refused", "plan-foreign") == 1

    @pytest.mark.parametrize(
        ("wrong", "reason"),
        [
            ({"src": "h9/r0"}, "plan-foreign-nic"),
            ({"dst": "h0/r1"}, "plan-own-nic"),
            ({"path": 49_999}, "plan-port"),
            ({"path": 50_008}, "plan-port"),
            ({"address": "224.0.0.1"}, "plan-address"),
            ({"address": "127.0.0.1"}, "plan-address"),
            ({"address": "fd00::1"}, "plan-address"),
            ({"address": "0.0.0.0"}, "plan-address"),
            ({"address": "10.1.0.1"}, "plan-not-allowed"),
        ],
    )
    def test_a_session_that_makes_no_sense_is_left_out_and_the_rest_goes_on(
        self, wrong: dict[str, Any], reason: str
    ) -> None:
        found = engine(replace(CONFIG, mesh_allow=("10.0.0.0/16", "fd00::/8")))
        found.take(plan([session(**wrong), session("h5/r0")]))
        assert [s.dst for s in found.change(0).begin.values()] == ["h5/r0"]
        assert found._counters.get("refused", reason) == 1
        assert found.left_out == 1

    def test_what_is_configured_is_not_probed_twice(self) -> None:
        found = engine(configured=[("h0/r0", "h1/r0", 50_000, 0)])
        found.take(plan([session("h1/r0"), session("h1/r0", dscp=46), session("h1/r0", dscp=46)]))
        assert [s.dscp for s in found.change(0).begin.values()] == [46]
        assert found._counters.get("refused", "plan-twice") == 1


class TestBudget:
    def test_what_goes_beyond_it_is_left_out_and_counted(self) -> None:
        found = engine()
        found.take(plan([session(f"h{i}/r0") for i in range(1, 9)], answer_pps=30.0))
        assert len(found.change(0).begin) == 4, "4 · 16 + 30 ≤ 100"
        assert found.beyond == 4
        assert found._counters.get("shed", "plan-budget") == 4

    def test_what_really_arrives_counts_where_it_is_more_than_planned(self) -> None:
        found = engine()
        found.take(plan([session(f"h{i}/r0") for i in range(1, 9)], answer_pps=10.0), arriving_pps=11.0)
        assert len(found.change(0).begin) == 5
        found.take_arrivals(12.0)
        assert not found.change(1), "jitter"
        found.take_arrivals(60.0)
        assert len(found.change(2).end) == 3
        found.take_arrivals(0.0)
        assert len(found.change(3).begin) == 3

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.tuples(st.integers(1, 30), st.integers(50_000, 50_007), st.sampled_from([0.5, 1.0, 4.0, 16.0, 90.0])),
            max_size=40,
        ),
        st.floats(0, 200),
        st.floats(0, 200),
    )
    def test_it_is_never_exceeded(
        self, requested: list[tuple[int, int, float]], stated: float, arriving: float
    ) -> None:
        found = engine()
        found.take(plan([session(f"h{i}/r0", p, r) for i, p, r in requested], answer_pps=stated), arriving)
        running = found.change(0).begin.values()
        sent = sum(s.rate_hz for s in running)
        assert not running or sent + stated <= 100.0 + 1e-3
        assert len(running) + found.beyond + found.left_out == len(requested)


FIELDS = st.sampled_from(["host", "version", "epoch", "drawn_at_ns", "sessions", "probers", "send_pps"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


class TestReading:
    def test_what_was_said_is_read_back(self) -> None:
        made = plan(
            [session(), session("h2/r1", 50_003, 0.5, purpose="coverage")],
            probers={"10.0.0.2": "h1/r0"},
            shortfall={"x": 1.0},
        )
        assert host_plan(made.as_data()) == made
        assert host_plan({**made.as_data(), "later": 1}) == made

    @settings(max_examples=200, deadline=None)
    @given(FIELDS, JUNK, JUNK)
    def test_junk_is_a_plan_or_a_reason(self, field: str, value: Any, other: Any) -> None:
        good = plan([session()]).as_data()
        for data in (
            {**good, field: value},
            other,
            {**good, "sessions": [{**good["sessions"][0], "rate_hz": value, "dst": other}]},
            {"host": value, "nics": [{"id": other}]},
        ):
            for read, reason in ((host_plan, "mesh-plan"), (host_here, "mesh-host")):
                try:
                    read(data)
                except FormatError as error:
                    assert error.reason == reason


def test_planned_and_watch_sessions_live_side_by_side_in_one_sender() -> None:
    """Both come and go on shared places; a probe that is under way on one is not touched by the other."""
    config = AgentConfig(hosts=(), watch_ports=2, mesh="auto", mesh_first_port=50_000, mesh_ports=4)
    host = host_a(ports=(49_500,))
    pairs = [("ha/r0", p) for p in (49_500, *range(49_600, 49_602), *plan_ports(config))]
    sender = SessionSender(host, {pair: SOCKET_A + i for i, pair in enumerate(pairs)}, np.random.default_rng(1), 0)
    wire = Wire(sender, reflector_of(host_b()))
    slots = SessionSlots()
    nics = {n.nic: n for n in host.nics}
    watches = WatchSessions(config, list(nics), {}, Counters("io"), slots)
    planned = PlannedSessions("ha", config, nics, [], Counters("io"), slots)
    fast = SessionConfig("ha/r0", "hb/r0", B, source_ports=(49_600, 49_601), rate_hz=100.0)

    def go(start: int, stop: int) -> None:
        for now in range(start, stop, 5_000_000):
            wire.run(now + 5_000_000, now)
            sender.liveness(now + 5_000_000, now + 5_000_000)

    sender.change_sessions({slots.take(fast, "watch", 8, 0): fast}, (), 0, liveness_ms=50)
    wanted = [PlannedSession("ha/r0", "hb/r0", B, 862, p, 0, 16.0, "clock") for p in range(50_000, 50_003)]
    planned.take(HostPlan("ha", "1", 0, 1, tuple(wanted)))
    sender.change_sessions(planned.change(0).begin, (), 0, liveness_ms=1000, in_step=False)
    go(0, S)
    assert sender.path_liveness.state.tolist() == [ALIVE] * 6
    due = sender._next_due[[3, 4, 5]]
    assert len(set(due.tolist())) == 3, "planned sessions keep phases of their own"
    assert len(set(sender._next_due[[1, 2]].tolist())) == 1, "watch sessions go in step"
    planned.take(HostPlan("ha", "2", 0, 2, (wanted[0], wanted[2])))
    change = planned.change(S)
    sender.change_sessions({}, change.end, S, liveness_ms=1000, in_step=False)
    assert {k[2] for k in sender.probed()} == {49_500, 49_600, 49_601, 50_000, 50_002}
    go(S, 2 * S)
    assert sender.path_liveness.state.tolist() == [ALIVE, ALIVE, ALIVE, ALIVE, 0, ALIVE]
    rows = sender.rows(2 * S)
    assert rows is not None
    port, seq = (rows.column(name).to_numpy() for name in ("path", "seq"))
    for each in (49_500, 49_600, 50_000, 50_002):
        mine = np.sort(seq[port == each])
        assert (np.diff(mine) == 1).all()
    assert not watches.change(0)


def test_a_reflector_learns_names_from_a_plan() -> None:
    config = host_b()
    sender = SessionSender(host_a(ports=(49_500,)), {("ha/r0", 49_500): SOCKET_A}, np.random.default_rng(1), 0)
    reflector = SessionReflector(config, {SOCKET_B: "hb/r0"}, {}, limits=ReflectorLimits(networks=("10.0.0.0/8",)))
    wire = Wire(sender, reflector)
    for now in range(0, S, 5_000_000):
        wire.run(now + 5_000_000, now)
    assert not reflector.liveness(S, S, complete=True)
    reflector.know("plan", {host_a().nics[0].address: KnownSender("ha/r0")})
    for now in range(S, 2 * S, 5_000_000):
        wire.run(now + 5_000_000, now)
    assert [e["src"] for e in reflector.liveness(2 * S, 2 * S, complete=True)] == ["ha/r0"]
    rate = sender.paths.interval_ns[0]
    assert reflector.arriving_pps(range(49_500, 49_501)) == pytest.approx(S / rate, rel=0.2)
    assert reflector.arriving_pps(range(1, 2)) == 0.0


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("mesh", "maybe", "mesh must be configured or auto"),
        ("mesh_budget_pps", 0, "mesh_budget_pps must lie within"),
        ("mesh_ports", 0, "mesh_ports must lie within"),
        ("mesh_first_port", 65_530, "mesh_first_port must lie within"),
        ("mesh_first_port", 850, "port 862 is the reflector's own"),
        ("mesh_first_port", 49_590, "some of these ports are watch ports"),
        ("mesh_allow", ["10.0.0.1/8"], "mesh_allow.0"),
        ("large_hz", 10.5, "large_hz must lie within 0 and 10"),
        ("large_hz", -1, "large_hz must lie within 0 and 10"),
    ],
)
def test_what_cannot_work_is_a_sentence(key: str, value: Any, sentence: str) -> None:
    hosts = [{"host": "a", "nics": [{"nic": "a/0", "device": "lo", "address": "127.0.0.1"}]}]
    assert read_agent({"hosts": hosts, "mesh": "auto"}).mesh == "auto"
    assert asdict(read_agent({"hosts": hosts}))["mesh"] == "configured"
    with pytest.raises(ConfigError, match=sentence):
        read_agent({"hosts": hosts, "mesh": "auto", key: value})


class TestRocev2:
    BOTH = replace(CONFIG, transports=("udp", "rocev2"))

    def test_sessions_by_rocev2_go_to_queue_pairs_and_count_in_the_budget(self) -> None:
        found = engine(self.BOTH)
        found.take(plan([session(rate=60.0), session(rate=30.0, transport="rocev2"), session("h2/r0", rate=60.0)]))
        begun = list(found.change(0).begin.values())
        assert [(s.dst, s.transport) for s in begun] == [("h1/r0", "udp")]
        assert [(s.dst, s.transport, s.size_bytes) for s in found.rocev2] == [("h1/r0", "rocev2", 160)]
        assert found.beyond == 1

    def test_one_path_by_both_transports_is_no_repeat_and_none_is_taken_that_was_not_offered(self) -> None:
        both = [session(), session(transport="rocev2"), session(transport="rocev2")]
        found = engine(self.BOTH)
        found.take(plan(both))
        assert (len(found.rocev2), found.left_out) == (1, 1)
        refusing = engine()
        refusing.take(plan(both))
        assert (refusing.rocev2, refusing.left_out) == ([], 2)
        assert refusing._counters.get("refused", "plan-transport") == 2

    def test_a_port_that_rocev2_does_not_use_is_refused(self) -> None:
        found = engine(self.BOTH)
        found.take(plan([session(path=49_151, transport="rocev2")]))
        assert found.rocev2 == []
        assert found._counters.get("refused", "plan-port") == 1

    def test_a_plan_says_the_transport_only_where_it_is_not_udp(self) -> None:
        data = plan([session(), session(transport="rocev2")]).as_data()
        assert [s.get("transport") for s in data["sessions"]] == [None, "rocev2"]
        assert [s.transport for s in host_plan(data).sessions] == ["udp", "rocev2"]
        data["sessions"][0]["transport"] = "tcp"
        with pytest.raises(FormatError, match="transport must be one of udp, rocev2"):
            host_plan(data)
