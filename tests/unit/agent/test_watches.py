"""Watch sessions: which run, and that they come and go without touching what else is under way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.agent.config_file import read_agent
from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.quick_paths import watch_ports
from sdfstream.agent.slots import DRAIN_NS
from sdfstream.agent.watches import WatchChange, WatchSessions, most_sessions
from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, SessionConfig
from sdfstream.probes.stamp.datagrams import Received
from sdfstream.probes.stamp.liveness import ALIVE, SILENT, UNKNOWN
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters
from tests.wire import EPOCH, SOCKET_A, B, Wire, host_a, host_b, reflector_of

S, MS = NS_PER_S, NS_PER_MS
CONFIG = AgentConfig(hosts=(), watch_ports=2, watch_first_port=49_600)


def take(dst: str = "h1/r0", src: str = "h0/r0", address: str = "10.0.0.2", dscp: int = 26) -> WatchRequest:
    return WatchRequest(src, dst, address, dscp)


def watches(config: AgentConfig = CONFIG) -> WatchSessions:
    return WatchSessions(config, ["h0/r0", "h0/r1"], {"h9/r0": 8620}, Counters("io"))


def ends(change: WatchChange) -> list[int]:
    return sorted([*change.quick.end, *change.candidates.end])


def begins(change: WatchChange) -> dict[int, SessionConfig]:
    return {**change.quick.begin, **change.candidates.begin}


class TestRequests:
    def test_a_request_is_a_session_for_each_port_once(self) -> None:
        found = watches()
        found.take([take(), take()])
        change = found.change(0)
        assert list(change.quick.begin) == [0, 1]
        session = change.quick.begin[0]
        assert (session.src, session.dst, session.dst_port, session.dscp) == ("h0/r0", "h1/r0", 862, 26)
        assert [(s.source_ports, s.rate_hz) for s in change.quick.begin.values()] == [
            ((49_600,), 100),
            ((49_601,), 100),
        ]
        assert not found.change(1)
        found.take([take()])
        assert not found.change(2)

    def test_of_many_ports_a_few_are_quick_until_more_is_known_and_the_others_are_candidates(self) -> None:
        found = watches(replace(CONFIG, watch_ports=16))
        found.take([take()])
        change = found.change(0)
        assert [s.source_ports[0] - 49_600 for s in change.quick.begin.values()] == [0, 4, 8, 12]
        assert [s.rate_hz for s in change.candidates.begin.values()] == [1.0] * 12
        assert [s.prompt for s in begins(change).values()] == [False] * 4 + [True] * 12
        probed = sorted(s.source_ports for s in begins(change).values())
        assert probed == [(port,) for port in range(49_600, 49_616)], "each port once"

    def test_where_only_answers_come_from_here_no_probe_need_be_quick(self) -> None:
        found = watches()
        found.take([replace(take(), quick=False)])
        change = found.change(0)
        assert (len(change.quick.begin), len(change.candidates.begin)) == (0, 2)
        found.take([replace(take(), quick=False), take()])  # a queue pair of the same NIC pair
        change = found.change(1)
        assert (len(change.quick.begin), len(change.candidates.end)) == (2, 2)
        found.take([take(), replace(take(), dst_address="10.0.0.9")])
        assert not found.change(2)
        assert found._counters.get("refused", "watch-twice") == 1

    def test_a_known_reflector_keeps_its_port(self) -> None:
        found = watches()
        found.take([take("h9/r0")])
        assert found.change(0).quick.begin[0].dst_port == 8620

    def test_a_session_not_requested_ends_and_its_slot_is_reserved_for_a_while(self) -> None:
        found = watches(replace(CONFIG, watch_ports=1))
        found.take([take("h1/r0"), take("h2/r0")])
        assert list(begins(found.change(0))) == [0, 1]
        found.take([take("h2/r0")])
        assert ends(found.change(S)) == [0]
        found.take([take("h2/r0"), take("h3/r0")])
        assert list(begins(found.change(2 * S))) == [2], "the last rows of the first are not written yet"
        found.take([take("h2/r0"), take("h1/r0")])
        change = found.change(3 * S)
        assert (list(begins(change)), ends(change)) == ([0], [2]), "its own old place, at once"
        found.take([take("h4/r0")])
        assert list(begins(found.change(3 * S + DRAIN_NS))) == [2]

    def test_nonsense_is_counted_and_the_rest_goes_on(self) -> None:
        found = watches()
        bad = [take(src="h7/r0"), take("h0/r1"), take(address="nowhere"), take(dscp=64)]
        found.take([*bad, take()])
        assert len(begins(found.change(0))) == 2
        assert found._counters.total("refused") == len(bad)

    def test_there_is_a_limit_and_a_request_beyond_it_waits(self) -> None:
        config = replace(CONFIG, watch_ports=1, watch_nic_pps=100.0, watch_rate_hz=100.0, watch_candidate_hz=0.5)
        _, candidates = most_sessions(config, 2)
        assert candidates == 128
        found = watches(config)
        found.take([replace(take(f"h{i}/r0", address=f"10.0.1.{i}"), quick=False) for i in range(1, candidates + 3)])
        assert len(begins(found.change(0))) == candidates
        assert found._counters.get("shed", "watch") == 2
        assert not found.change(S)
        found.take([replace(take(f"h{i}/r0", address=f"10.0.1.{i}"), quick=False) for i in range(2, candidates + 3)])
        assert ends(found.change(2 * S)) == [0]
        assert not found.change(3 * S)
        assert list(begins(found.change(2 * S + DRAIN_NS))) == [0]

    def test_one_address_gets_no_more_than_its_rate(self) -> None:
        config = replace(CONFIG, watch_target_pps=310.0)
        found = watches(config)
        found.take([take(f"h{i}/r0") for i in range(1, 101)] + [take("h1/r0")])
        sessions = begins(found.change(0)).values()
        assert 200 < sum(s.rate_hz for s in sessions) <= 310
        assert len({s.dst for s in sessions}) == 310 / 2 // 2, "candidates have half of it"
        assert found._counters.get("refused", "watch-target") == 100 - 77

    @given(
        st.floats(100, 3_000),
        st.floats(50, 5_000),
        st.integers(1, 16),
        st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.integers(0, 1), st.integers(1, 3)), max_size=40),
    )
    @settings(max_examples=50, deadline=None)
    def test_no_nic_and_no_address_gets_more_than_its_budget(
        self, nic_pps: float, target_pps: float, ports: int, wanted: list[tuple[int, bool, int, int]]
    ) -> None:
        config = replace(CONFIG, watch_ports=ports, watch_nic_pps=nic_pps, watch_target_pps=target_pps)
        found = watches(config)
        for now_ns in (0, S, 30 * S):
            found.take(
                [
                    WatchRequest(f"h0/r{nic}", f"h{dst}/r0", f"10.0.0.{address}", 0, quick=quick)
                    for dst, quick, nic, address in wanted[: len(wanted) * (1 + now_ns // S) // 2]
                ]
            )
            found.change(now_ns)
            running = found.sessions
            assert len({(s.src, s.dst, s.source_ports, s.dscp) for s in running}) == len(running), "none twice"
            for key, most in ((lambda s: s.src, nic_pps), (lambda s: s.dst_address, target_pps)):
                sums: dict[str, float] = {}
                for session in running:
                    sums[key(session)] = sums.get(key(session), 0.0) + session.rate_hz
                assert max(sums.values(), default=0.0) <= most + 1e-6


def watching() -> SessionSender:
    host = host_a(ports=(49_500,))
    pairs = [("ha/r0", 49_500), *(("ha/r0", port) for port in watch_ports(CONFIG))]
    sockets = {pair: SOCKET_A + i for i, pair in enumerate(pairs)}
    return SessionSender(host, sockets, np.random.default_rng(1), 0, liveness_ms=1000)


def session(dst: str = "hb/r0", address: str = B) -> SessionConfig:
    return SessionConfig("ha/r0", dst, address, source_ports=watch_ports(CONFIG), rate_hz=100.0)


def run(wire: Wire, start_ns: int, stop_ns: int, step_ns: int = 5 * MS) -> None:
    """Probe and judge."""
    for now_ns in range(start_ns, stop_ns, step_ns):
        wire.run(now_ns + step_ns, now_ns)
        wire.sender.liveness(now_ns + step_ns, EPOCH + now_ns + step_ns)


def test_a_watch_session_begins_falls_silent_and_ends_beside_the_mesh() -> None:
    sender = watching()
    wire = Wire(sender, reflector_of(host_b()))
    run(wire, 0, S)
    sender.change_sessions({0: session()}, (), S, liveness_ms=50)
    assert list(sender.probed()) == [("ha/r0", "hb/r0", port, 0) for port in (49_500, 49_600, 49_601)]
    assert sender.path_liveness.state.tolist() == [ALIVE, UNKNOWN, UNKNOWN]
    run(wire, S, 2 * S)
    assert sender.path_liveness.state.tolist() == [ALIVE] * 3
    wire.drop_forward = lambda s: s.socket == SOCKET_A + 2
    run(wire, 2 * S, 2 * S + 80 * MS)
    assert sender.path_liveness.state.tolist() == [ALIVE, ALIVE, SILENT]
    wire.drop_forward = lambda s: np.zeros(len(s.token), dtype=bool)
    run(wire, 2 * S + 80 * MS, 3 * S)
    assert sender.path_liveness.state.tolist() == [ALIVE] * 3
    sender.change_sessions({}, [0], 3 * S, liveness_ms=50)
    stated = sender.liveness(3 * S, EPOCH + 3 * S)
    assert [(t["path"], t["state"]) for t in stated] == [(49_600, "unknown"), (49_601, "unknown")]
    assert [t["path"] for t in sender.liveness(3 * S, EPOCH, complete=True)] == [49_500]
    assert list(sender.probed()) == [("ha/r0", "hb/r0", 49_500, 0)]
    run(wire, 3 * S, 5 * S)
    rows = sender.rows(5 * S)
    assert rows is not None
    port, seq = (rows.column(name).to_numpy() for name in ("path", "seq"))
    for each in (49_500, 49_600, 49_601):
        mine = seq[port == each]
        assert mine.tolist() == list(range(mine[0], mine[0] + len(mine))), "every probe has its row"
    assert 140 < (port == 49_600).sum() <= 256, "the ring holds what was sent since the last flush"
    assert sender.counters.get("sent") - sender.counters.get("answered") in (7, 8, 9), "80 ms of one path at 10 ms"


def test_a_slot_goes_to_another_session_and_a_late_answer_of_the_old_one_is_refused() -> None:
    sender = watching()
    wire = Wire(sender, reflector_of(host_b()))
    sender.change_sessions({0: session()}, (), 0, liveness_ms=50)
    run(wire, 0, S)
    late = wire.answers[-1]
    sender.rows(S)
    sender.change_sessions({}, [0], S, liveness_ms=50)
    sender.change_sessions({0: session("hc/r0", "10.0.2.1")}, (), 5 * S, liveness_ms=50)
    assert ("ha/r0", "hc/r0", 49_600, 0) in sender.probed()
    assert ("ha/r0", "hb/r0", 49_600, 0) not in sender.probed()
    assert sender.path_liveness.state[1:].tolist() == [UNKNOWN, UNKNOWN]
    before = sender.counters.total("refused")
    sender.take_answers(late, 5 * S)
    assert sender.counters.total("refused") > before
    assert sender.path_liveness.state[1:].tolist() == [UNKNOWN, UNKNOWN]


def test_sessions_that_stay_keep_number_and_state_when_others_come() -> None:
    sender = watching()
    wire = Wire(sender, reflector_of(host_b()))
    sender.change_sessions({0: session()}, (), 0, liveness_ms=50)
    run(wire, 0, S)
    numbers, since = sender.probed(), sender.path_liveness.since_at.copy()
    sender.change_sessions({1: session("hc/r0", "10.0.2.1")}, (), S, liveness_ms=50)
    assert {who: n for who, n in sender.probed().items() if who in numbers} == numbers
    assert sender.path_liveness.state.tolist() == [ALIVE, ALIVE, ALIVE, UNKNOWN, UNKNOWN]
    assert (sender.path_liveness.since_at[:3] == since).all()
    run(wire, S, 2 * S)
    assert sender.path_liveness.state[:3].tolist() == [ALIVE] * 3
    batch = sender.due(2 * S + 20 * MS, EPOCH)
    assert (np.diff(batch.socket) >= 0).all(), "a batch is sorted by socket"


def test_a_session_on_a_nic_that_is_away_is_unknown_until_it_is_back() -> None:
    sender = watching()
    sender.nic_usable("ha/r0", False, 0)
    sender.change_sessions({0: session()}, (), 0, liveness_ms=50)
    assert len(sender.due(S, EPOCH).token) == 0
    sender.nic_usable("ha/r0", True, S)
    assert len(sender.due(2 * S, EPOCH).token) == 3


def held_back(wire: Wire) -> list[Received]:
    """Let answers wait in this list from now on, instead of being read."""
    waiting: list[Received] = []
    wire.sender.take_answers = lambda batch, now_ns, due_at_ns=0: waiting.append(batch)  # type: ignore[method-assign]
    return waiting


def test_a_late_answer_is_a_sign_of_life_but_no_row() -> None:
    sender = watching()
    wire = Wire(sender, reflector_of(host_b()))
    sender.change_sessions({0: session()}, (), 0, liveness_ms=50)
    waiting = held_back(wire)
    run(wire, 0, 30 * MS)
    del sender.take_answers  # type: ignore[attr-defined]
    assert sender.rows(100 * MS) is not None
    for batch in waiting:
        sender.take_answers(batch, 200 * MS)
    assert sender.counters.get("answered") == 0
    assert sender.counters.get("refused", "late") >= 4
    assert sender.path_liveness.state[1:].tolist() == [ALIVE, ALIVE]


@pytest.mark.parametrize(("turn_ms", "forward_ms", "answered"), [(200, 0, True), (0, 200, False)])
def test_a_stay_at_a_stalled_reflector_makes_no_answer_late(turn_ms: int, forward_ms: int, answered: bool) -> None:
    sender = watching()
    wire = Wire(sender, reflector_of(host_b()), turn_ns=40_000 + turn_ms * MS, forward_ns=10_000 + forward_ms * MS)
    sender.change_sessions({0: session()}, (), 0, liveness_ms=50)
    waiting = held_back(wire)
    run(wire, 0, 30 * MS)
    del sender.take_answers  # type: ignore[attr-defined]
    for batch in waiting:
        sender.take_answers(batch, 300 * MS)
    assert (sender.counters.get("answered") > 0) == answered
    assert (sender.counters.get("refused", "late") == 0) == answered


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("watch_rate_hz", 0, "watch_rate_hz must lie within"),
        ("watch_ports", 0, "watch_ports must lie within"),
        ("watch_candidate_hz", 0, "watch_candidate_hz must lie within"),
        ("watch_nic_pps", 99, "watch_nic_pps must lie within"),
        ("watch_first_port", 65_530, "watch_first_port must lie within"),
        ("watch_liveness_ms", 1, "watch_liveness_ms must lie within"),
        ("watch_first_port", 860, "port 862 is the reflector's own"),
        ("watch_first_port", 49_150, "hosts.0.sessions.0.source_ports.0: 49152 is one of the watch ports"),
    ],
)
def test_what_cannot_work_is_a_sentence(key: str, value: int, sentence: str) -> None:
    nic = {"nic": "a/0", "device": "lo", "address": "127.0.0.1"}
    probing = {"src": "a/0", "dst": "b/0", "dst_address": "127.0.0.2"}
    hosts = [{"host": "a", "nics": [nic], "sessions": [probing]}]
    assert read_agent({"hosts": hosts}).watch_ports == 16
    with pytest.raises(ConfigError, match=sentence):
        read_agent({"hosts": hosts, key: value})
