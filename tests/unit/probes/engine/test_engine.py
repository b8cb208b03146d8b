"""The packet engine's sending half: what the laws of `tests/property/test_engine_*.py` seldom or never reach."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sdfstream.errors import ConfigError
from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig, VirtualClock
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.engine_io import BusyEngineError, PacketEngine, Room, exchanges_of
from sdfstream.probes.stamp import packet
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.probes.virtual_clock import KNOT_NS, Clock
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.fixtures.engine_sender import EngineSender, SplitMix
from tests.fixtures.engine_wire import echo
from tests.wire import EPOCH, B

PERIOD_NS = 10 * NS_PER_MS
LIMIT_NS = 40 * NS_PER_MS
ROOM = Room(
    paths=8, exchanges=8 * 256, rows=64, events=16, hosts=2, nics=2, segments=8, routes=4, links=32, orders=4,
    command_words=4_096, width_bytes=200,
)  # fmt: skip
START_NS = 10**12


def record(path: int, **more: object) -> np.void:
    made = np.zeros(1, dtype=layouts.PATH)
    made["interval_ns"], made["liveness_ns"] = PERIOD_NS, LIMIT_NS
    made["socket"], made["ssid"], made["length_octets"], made["port"] = path, path + 1, 80, 862
    for name, value in more.items():
        made[name] = value
    return made[0]


def engine_of(*paths: int, room: Room = ROOM, **more: object) -> PacketEngine:
    engine = PacketEngine(room, error=packet.error_estimate(1e6), seed=1)
    for path in paths:
        engine.begin(path, record(path, **more))
    engine.apply(START_NS)
    return engine


def turn(engine: PacketEngine, now_ns: int, answered: tuple[int, ...] = ()) -> int:
    """A turn in which some paths are answered at once; how many probes were sent."""
    engine.apply(now_ns)
    out, data = engine.due(now_ns, now_ns)
    echo(engine, out, data, answered, now_ns)
    engine.assess(now_ns, now_ns)
    return len(out)


def run(engine: PacketEngine, now_ns: int, for_ns: int, answered: tuple[int, ...] = ()) -> int:
    """Turns whenever something is due; the time after the last."""
    until_ns = now_ns + for_ns
    while (now_ns := max(now_ns + 1, min(engine.next_due_ns(), engine.next_assess_ns()))) < until_ns:
        turn(engine, now_ns, answered)
    return until_ns


class TestPacing:
    def test_a_probe_leaves_early_and_the_next_is_due_as_if_it_had_not(self) -> None:
        engine = engine_of(0)
        planned_ns = engine.next_due_ns()
        now_ns = planned_ns - 3 * NS_PER_MS
        assert not len(engine.due(now_ns, EPOCH, ahead_ns=2 * NS_PER_MS)[0])
        assert len(engine.due(now_ns, EPOCH, ahead_ns=3 * NS_PER_MS)[0]) == 1
        assert 0.75 * PERIOD_NS <= engine.next_due_ns() - planned_ns <= 1.25 * PERIOD_NS

    def test_the_shortest_interval_is_of_paths_that_are_probed(self) -> None:
        engine = engine_of()
        assert engine.shortest_interval_ns() == layouts.NEVER_NS
        engine = engine_of(0)
        engine.begin(1, record(1, interval_ns=PERIOD_NS // 2))
        engine.apply(START_NS)
        assert engine.shortest_interval_ns() == PERIOD_NS // 2
        engine.end(1)
        engine.apply(START_NS)
        assert engine.shortest_interval_ns() == PERIOD_NS

    def test_many_paths_leave_as_the_numpy_senders_do(self) -> None:
        rates = (7.0, 16.0, 33.3, 100.0, 450.0)
        sessions = tuple(
            SessionConfig("ha/r0", "hb/r0", B, source_ports=tuple(range(50_000, 50_020)), rate_hz=rate, dscp=dscp)
            for dscp, rate in enumerate(rates)
        )
        host = HostConfig("ha", (NicConfig("ha/r0", "r0", "10.0.0.1"),), sessions)
        sockets = {("ha/r0", port): 70 - port % 50 for port in range(50_000, 50_020)}
        one, other = SessionSender(host, sockets, SplitMix(5), 0), EngineSender(host, sockets, 5, 0)  # type: ignore[arg-type]
        now = sent = 0
        rng = np.random.default_rng(1)
        while now < NS_PER_S:
            expected, got = one.due(now, EPOCH + now), other.due(now, EPOCH + now)
            assert expected.data.tobytes() == got.data.tobytes()
            assert np.array_equal(expected.socket, got.socket)
            assert one.next_due_ns() == other.next_due_ns()
            sent += len(got.token)
            now = max(now + 1, one.next_due_ns()) + int(rng.integers(0, 5) == 0) * int(rng.integers(0, 90_000_000))
        assert sent > 2_000

    def test_exchanges_that_are_pushed_out_are_counted_as_the_numpy_sender_does(self) -> None:
        session = SessionConfig("ha/r0", "hb/r0", B, source_ports=(50_001,), rate_hz=100.0)
        host = HostConfig("ha", (NicConfig("ha/r0", "r0", "10.0.0.1"),), (session,))
        one = SessionSender(host, {("ha/r0", 50_001): 0}, SplitMix(2), 0)  # type: ignore[arg-type]
        other = EngineSender(host, {("ha/r0", 50_001): 0}, 2, 0)
        while (now := one.next_due_ns()) < 4 * NS_PER_S:
            assert len(one.due(now, EPOCH).token) == len(other.due(now, EPOCH).token) == 1
        assert one.counters.get("shed", "ring") == other.counters["shed.ring"] > 100
        expected, got = one.rows(now), other.rows(now)
        assert expected is not None
        assert expected.equals(got)

    def test_a_stall_is_not_made_up_for(self) -> None:
        engine = engine_of(0, 1)
        assert turn(engine, START_NS + 5 * NS_PER_S) == 2
        assert turn(engine, START_NS + 5 * NS_PER_S + 1) == 0
        assert engine.next_due_ns() - START_NS - 5 * NS_PER_S == PERIOD_NS // 2

    def test_nothing_to_do(self) -> None:
        engine = engine_of()
        assert engine.next_due_ns() == engine.next_assess_ns() == layouts.NEVER_NS
        assert turn(engine, START_NS) == engine.finish(START_NS) == 0

    def test_the_clock_of_the_host_is_shown(self) -> None:
        settings = VirtualClock(
            offset_ns=7_000, skew_ppb=1_234.5, wander_ns_per_sqrt_s=900.0, seed=3, epoch_at_ns=EPOCH - 10**12
        )
        clock = Clock(settings)
        engine = engine_of(0, 1)
        first = (EPOCH - settings.epoch_at_ns) // KNOT_NS
        knots = [clock._knot(first + i) for i in range(600)]
        engine.set_clock(1, 7_000, 1_234_500_000, settings.epoch_at_ns, first, knots)
        engine.begin(1, record(1, host=1))
        engine.apply(START_NS)
        for ms in (0, 333, 17_777):
            system_ns = EPOCH + ms * NS_PER_MS + 77
            out, data = engine.due(START_NS + (ms + 100) * NS_PER_MS, system_ns)
            head = packet.fields(np.ascontiguousarray(data[:, :44]), packet.OPEN.probe)
            shown = dict(zip(out["path"].tolist(), packet.ns_of_ntp(head["t1"]).tolist(), strict=True))
            assert shown == {0: system_ns, 1: clock.at(system_ns)}


class TestPaths:
    def test_what_cannot_be_is_refused(self) -> None:
        engine = engine_of()
        wrong = [
            {"interval_ns": 0},
            {"host": 2},
            {"nic": 2},
            {"ssid": 0},
            {"length_octets": 79},
            {"length_octets": 201},
        ]
        for values in (*wrong, {"length_octets": 82}, {"liveness_ns": -1}, {"interval_ns": 10**15}):
            with pytest.raises(ConfigError):
                engine.begin(0, record(0, **values))
        with pytest.raises(ConfigError):
            engine.begin(8, record(0))
        with pytest.raises(ConfigError):
            engine.end(8)

    @pytest.mark.parametrize("wrong", [{"rows": 63}, {"events": 0}, {"paths": 0}, {"command_words": 5_000}])
    def test_room_that_is_none(self, wrong: dict[str, int]) -> None:
        with pytest.raises(ConfigError):
            PacketEngine(dataclasses.replace(ROOM, **wrong), error=1)

    def test_a_path_without_room_is_reported_and_another_may_have_what_one_gave_back(self) -> None:
        depth = exchanges_of(PERIOD_NS)
        engine = engine_of(
            0, 1, 2, room=dataclasses.replace(ROOM, rows=512, exchanges=2 * depth + exchanges_of(NS_PER_S))
        )
        events = engine.take_events()
        assert [(e["kind"], e["path"]) for e in events] == [(layouts.EVENT_NO_ROOM, 2)]
        assert engine.counters() == {"shed.paths": 1}
        engine.begin(0, record(0, interval_ns=NS_PER_S))  # gives its deeper ring back
        engine.begin(2, record(2))
        engine.apply(START_NS)
        assert len(engine.take_events()) == 0
        now_ns = run(engine, START_NS, NS_PER_S, (0, 1, 2))
        engine.finish(now_ns + 2 * NS_PER_S)
        engine.finish(now_ns + 2 * NS_PER_S)
        (rows, _), upto = engine.rows()
        assert set(rows["path"].tolist()) == {0, 1, 2}
        engine.release_rows(upto)

    def test_a_path_that_begins_while_its_nic_is_away_waits_for_it(self) -> None:
        engine = engine_of()
        engine.nic_usable(1, False)
        engine.begin(0, record(0, nic=1))
        now_ns = run(engine, START_NS, NS_PER_S)
        assert engine.counters() == {}
        engine.nic_usable(1, True)
        engine.apply(now_ns)
        run(engine, now_ns, NS_PER_S, (0,))
        assert engine.reports["state"][0] == 1

    def test_without_ssid_only_a_path_that_goes_alone_is_found(self) -> None:
        engine = engine_of(0, 1, 2)
        engine.begin(1, record(1, socket=0))
        engine.apply(START_NS)
        out, data = engine.due(START_NS + NS_PER_S, START_NS)
        data = data.copy()
        data[:, 14:16] = 0
        assert echo(engine, out, data, (0, 1, 2), START_NS + NS_PER_S) == [4, 4, 0]  # unknown session, or taken

    def test_a_full_command_ring_says_so(self) -> None:
        engine = engine_of()
        with pytest.raises(BusyEngineError):
            for i in range(1_000):
                engine.begin(i % 8, record(i % 8))
        for i in range(1_000):  # many times round
            engine.apply(START_NS)
            engine.begin(i % 8, record(i % 8, interval_ns=PERIOD_NS + i))
        engine.apply(START_NS)
        engine.begin(3, record(3, socket=9))
        engine.apply(START_NS)
        out, _ = engine.due(START_NS + NS_PER_S, START_NS)
        assert out["socket"].tolist() == [0, 1, 2, 4, 5, 6, 7, 9]


class TestRings:
    def test_rows_wrap_and_a_full_ring_drops_and_counts(self) -> None:
        engine = engine_of(0, 1)
        now_ns, seen = START_NS, []
        for _ in range(5):
            now_ns = run(engine, now_ns, 300 * NS_PER_MS, (0, 1))
            engine.finish(now_ns)
            views, upto = engine.rows()
            seen += [(int(r["path"]), int(r["seq"])) for view in views for r in view]
            engine.release_rows(upto + 1)  # never taken: ignored
            engine.release_rows(upto)
        counted = engine.counters()
        assert counted["rows.written"] == len(seen) == len(set(seen)) > 200
        assert "shed.rows" not in counted
        now_ns = run(engine, now_ns, NS_PER_S, (0, 1))
        engine.finish(now_ns)
        engine.finish(now_ns)
        views, upto = engine.rows()
        assert sum(len(view) for view in views) == ROOM.rows
        assert engine.counters()["shed.rows"] > 50
        engine.release_rows(upto)
        assert sum(len(view) for view in engine.rows()[0]) == 0

    def test_a_change_that_found_no_room_is_reported_later(self) -> None:
        paths = tuple(range(6))
        engine = engine_of(*paths, room=dataclasses.replace(ROOM, events=4))
        now_ns = run(engine, START_NS, 100 * NS_PER_MS, paths)
        assert engine.counters()["shed.events"] > 0
        first = engine.take_events()
        assert len(first) == 4
        assert engine.next_assess_ns() <= now_ns + 10 * NS_PER_MS
        run(engine, now_ns, 20 * NS_PER_MS, paths)
        assert sorted([*first["path"].tolist(), *engine.take_events()["path"].tolist()]) == list(paths)

    def test_all_paths_are_reported_on_request(self) -> None:
        engine = engine_of(0, 1, 2)
        now_ns = run(engine, START_NS, 100 * NS_PER_MS, (0, 1))
        engine.take_events()
        engine.end(1)
        engine.report_all()
        engine.apply(now_ns)
        assert engine.next_assess_ns() == now_ns
        engine.assess(now_ns, EPOCH)
        events = engine.take_events()
        assert [(e["path"], e["state"]) for e in events] == [(0, 1), (1, 0), (2, 2)]
        assert events["at_ns"].tolist() == [EPOCH] * 3
        engine.assess(now_ns, EPOCH)
        assert len(engine.take_events()) == 0


class TestLiveness:
    def test_silence_is_decided_at_the_limit_with_few_assessments(self) -> None:
        engine = engine_of(0)
        now_ns = run(engine, START_NS, NS_PER_S, (0,))
        last_ns = int(engine.reports["last_received_ns"][0])
        assessed = 0
        while engine.reports["state"][0] != 2:
            now_ns = min(engine.next_due_ns(), engine.next_assess_ns())
            assessed += now_ns == engine.next_assess_ns()
            turn(engine, now_ns)
        assert now_ns - last_ns == LIMIT_NS
        assert assessed <= 12
        assert engine.reports["since_ns"][0] == last_ns

    def test_a_stall_counts_as_a_quarter_of_the_limit(self) -> None:
        engine = engine_of(0)
        now_ns = run(engine, START_NS, NS_PER_S, (0,))
        for stalls in range(1, 6):
            now_ns += 10 * NS_PER_S
            turn(engine, now_ns)
            assert (engine.reports["state"][0] == 2) == (stalls >= 4)


class TestOrders:
    def engine(self) -> PacketEngine:
        """Route 0 over path 0, route 1 over path 1; all alive."""
        engine = engine_of(0, 1)
        engine.watch([[0], [1]], [(0, [0]), (1, [1])])
        self.given: list[tuple[int, int, int]] = []
        engine.on_order(lambda *order: self.given.append(order) or 5)
        self.now_ns = run(engine, START_NS, 100 * NS_PER_MS, (0, 1))
        assert engine.route_reports["verdict"].tolist() == [1, 1, 0, 0]
        engine.take_events()
        return engine

    def test_an_order_is_given_in_the_assessment_that_finds_its_route_dead(self) -> None:
        engine = self.engine()
        engine.arm(3, 0, [2, 1])
        self.now_ns = run(engine, self.now_ns, 100 * NS_PER_MS, (1,))
        ((order, alternate, at_ns),) = self.given
        assert (order, alternate) == (3, 1)
        assert at_ns == int(engine.reports["since_ns"][0]) + LIMIT_NS
        events = engine.take_events()
        order = events[events["kind"] == layouts.EVENT_ORDER]
        assert order[["path", "state", "missed"]].tolist() == [(3, 5, 1)]
        assert engine.reports["state"][0] == 2

    def test_an_order_without_a_clean_alternate_is_reported_once_and_waits(self) -> None:
        engine = self.engine()
        engine.arm(0, 0, [1])
        self.now_ns = run(engine, self.now_ns, 100 * NS_PER_MS, (0,))
        self.now_ns = run(engine, self.now_ns, 100 * NS_PER_MS)
        assert self.given == []
        kinds = engine.take_events()["kind"].tolist()
        assert kinds.count(layouts.EVENT_STRANDED) == 1
        run(engine, self.now_ns, 200 * NS_PER_MS, (1,))
        assert [order[:2] for order in self.given] == [(0, 0)]

    def test_disarmed_and_armed_again(self) -> None:
        engine = self.engine()
        engine.arm(0, 0)
        engine.arm(1, 0)
        engine.disarm(0)
        self.now_ns = run(engine, self.now_ns, 200 * NS_PER_MS, (1,))
        assert [order[:2] for order in self.given] == [(1, layouts.NONE)]
        engine.arm(0, 0)
        self.now_ns = run(engine, self.now_ns, 20 * NS_PER_MS, (1,))
        assert [order[:2] for order in self.given[1:]] == [(0, layouts.NONE)]

    def test_what_cannot_be_is_refused(self) -> None:
        engine = engine_of()
        for segments, routes in (([[8]], []), ([], [(0, [0])]), ([[0]], [(4, [0])]), ([[0] * 33], []), ([[]] * 9, [])):
            with pytest.raises(ConfigError):
                engine.watch(segments, routes)  # type: ignore[arg-type]
        for order, route, alternates in ((4, 0, []), (0, 4, []), (0, 0, [4]), (0, 0, [0] * 9)):
            with pytest.raises(ConfigError):
                engine.arm(order, route, alternates)

    def test_crossings_take_effect_at_once_or_not_at_all(self) -> None:
        engine = self.engine()
        with pytest.raises(ConfigError):
            engine.watch([[0]], [(0, [0]), (1, [1])])
        run(engine, self.now_ns, 100 * NS_PER_MS, (0,))
        assert engine.route_reports["verdict"].tolist() == [1, 2, 0, 0]
