"""When a path is called alive, silent or unknown."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.probes.config import VirtualClock
from sdfstream.probes.stamp.known_senders import ReflectorLimits
from sdfstream.probes.stamp.liveness import FORGET_NS, PathLiveness, PathName, event_data
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.wire import EPOCH, SOCKET_B, Wire, host_a, host_b, reflector_of, sender_of

MS = NS_PER_MS
NAMES = [PathName("ha/r0", "ha/r0", f"h{i}/r0", "udp", 50_001, 0) for i in range(3)]


def sender_side(liveness_ms: int = 50, interval_ms: int = 10, n: int = 1) -> PathLiveness:
    watch = PathLiveness("sender", liveness_ms, Clock())
    watch.add(NAMES[:n], np.full(n, interval_ms * MS), 0)
    return watch


def only(n: int = 0) -> np.ndarray:
    return np.array([n])


def assessed(watch: PathLiveness, now_ms: float) -> list[dict]:
    """What is told up to `now_ms` by a caller who judged often enough since the last time."""
    now_ns = int(now_ms * MS)
    before_ns = 0 if watch._assessed_at is None else watch._assessed_at
    entries = watch.assess(before_ns, EPOCH + before_ns)
    for at_ns in np.linspace(before_ns, now_ns, 2 + (now_ns - before_ns) // (5 * MS)).astype(np.int64).tolist():
        entries += watch.assess(at_ns, EPOCH + at_ns)
    return entries


def states(watch: PathLiveness, now_ms: float) -> list[str]:
    return [e["state"] for e in assessed(watch, now_ms)]


@pytest.mark.parametrize(("liveness_ms", "interval_ms", "limit_ms"), [(50, 10, 50), (50, 100, 300), (1000, 62, 1000)])
def test_the_limit_is_the_longer_of_setting_and_three_intervals(liveness_ms, interval_ms, limit_ms) -> None:
    watch = sender_side(liveness_ms, interval_ms)
    watch.received(only(), 0)
    assert states(watch, 0) == ["alive"]
    for k in range(1, 4):
        watch.sent(only(), k * interval_ms * MS)
    assert states(watch, limit_ms - 0.001) == []
    assert states(watch, limit_ms) == ["silent"]
    assert states(watch, limit_ms + 1) == []


def test_a_stopped_process_does_not_take_its_sleep_for_silence() -> None:
    watch = sender_side()
    watch.received(only(), 0)
    watch.sent(only(), 10 * MS)
    watch.sent(only(), 20 * MS)
    assert [e["state"] for e in watch.assess(25 * MS, EPOCH)] == ["alive"]
    # it only ever gets a moment in ten seconds, and judges before it has read its sockets
    for k in range(1, 4):
        watch.sent(only(), 10_000 * k * MS)
        assert watch.assess(10_000 * k * MS, EPOCH) == []
    watch.received(only(), 30_001 * MS)
    assert states(watch, 30_002) == []


def test_one_missed_probe_proves_nothing() -> None:
    watch = sender_side()
    watch.received(only(), 0)
    watch.sent(only(), 10 * MS)
    assert states(watch, 10_000) == ["alive"]
    watch.sent(only(), 10_001 * MS)
    assert states(watch, 10_002) == ["silent"]


def test_a_path_without_any_answer_is_unknown_and_then_silent_since_the_first_probe() -> None:
    watch = sender_side()
    assert states(watch, 1_000) == []
    watch.sent(only(), 1_000 * MS)
    watch.sent(only(), 1_010 * MS)
    assert states(watch, 1_049) == []
    (entry,) = assessed(watch, 1_050)
    assert (entry["state"], entry["since_at_ns"], entry["missed"]) == ("silent", EPOCH + 1_000 * MS, 2)


def test_an_outage_between_two_assessments_is_not_seen_but_a_new_since_is_reported() -> None:
    watch = sender_side()
    watch.received(only(), 0)
    assert states(watch, 1) == ["alive"]
    watch.set_usable(only(), False, 2 * MS)
    watch.set_usable(only(), True, 3 * MS)
    watch.received(only(), 4 * MS)
    (entry,) = watch.assess(5 * MS, EPOCH + 5 * MS)
    assert (entry["state"], entry["since_at_ns"]) == ("alive", EPOCH + 4 * MS)


def test_probes_that_never_left_do_not_count() -> None:
    watch = sender_side()
    watch.received(only(), 0)
    for k in range(1, 4):
        watch.sent(only(), k * 10 * MS)
        watch.unsent(only())
    assert states(watch, 500) == ["alive"]


def test_a_complete_list_names_every_path() -> None:
    watch = sender_side(n=3)
    watch.received(only(1), 0)
    entries = watch.assess(0, EPOCH, complete=True)
    assert [e["state"] for e in entries] == ["unknown", "alive", "unknown"]
    assert [e["dst"] for e in entries] == ["h0/r0", "h1/r0", "h2/r0"]
    assert set(entries[0]) == {
        "observer", "role", "src", "dst", "transport", "path", "dscp", "state", "since_at_ns", "interval_ns", "missed",
    }  # fmt: skip
    # what a complete list told is not told again
    assert watch.assess(1, EPOCH) == []


def test_times_reported_are_the_hosts_clock() -> None:
    watch = PathLiveness("sender", 50, Clock(VirtualClock(offset_ns=1e9)))
    watch.add(NAMES[:1], np.array([10 * MS]), 0)
    watch.received(only(), 7 * MS)
    (entry,) = watch.assess(9 * MS, EPOCH)
    assert entry["since_at_ns"] == EPOCH - 2 * MS + NS_PER_S


class TestReflectorSide:
    def watch(self) -> PathLiveness:
        watch = PathLiveness("reflector", 50, Clock())
        watch.add(NAMES[:1], np.zeros(1, dtype=np.int64), 0)
        return watch

    def arrive(self, watch: PathLiveness, at_ms: float, ahead: int = 1) -> None:
        watch.arrived(only(), np.array([ahead]), int(at_ms * MS))

    def test_the_interval_is_learnt_through_loss(self) -> None:
        watch = self.watch()
        for k in (0, 1, 2, 5, 6, 16, 17):
            self.arrive(watch, 40.0 * k, ahead={5: 3, 16: 10}.get(k, 1))
        assert watch.interval_ns.tolist() == [40 * MS]
        states(watch, 40 * 17)
        assert states(watch, 40 * 20 - 0.1) == []
        assert states(watch, 40 * 20) == ["silent"]

    def test_a_slow_sender_is_not_called_silent_before_its_rate_is_known(self) -> None:
        watch = self.watch()
        self.arrive(watch, 0)
        assert states(watch, 2_999) == ["alive"]
        self.arrive(watch, 2_000)
        assert states(watch, 5_999) == []

    def test_a_restarted_sender_teaches_nothing(self) -> None:
        watch = self.watch()
        self.arrive(watch, 0)
        self.arrive(watch, 100)
        self.arrive(watch, 9_000, ahead=2**32 - 50)
        assert watch.interval_ns.tolist() == [100 * MS]

    def test_a_path_gone_for_good_is_dropped(self) -> None:
        watch = self.watch()
        self.arrive(watch, 0)
        assert states(watch, 10_000) == ["alive", "silent"]
        assert len(watch.assess(FORGET_NS - 1, EPOCH, complete=True)) == 1
        assert watch.assess(FORGET_NS, EPOCH, complete=True) == []
        self.arrive(watch, FORGET_NS / MS + 5)
        assert states(watch, FORGET_NS / MS + 6) == ["alive"]


def test_a_nic_that_vanishes_is_unknown_at_both_ends_of_its_host() -> None:
    wire = Wire(sender_of(host_a(ports=(50_001,))), reflector_of(host_b()))
    wire.run(NS_PER_S)
    wire.sender.liveness(NS_PER_S, EPOCH)
    wire.reflector.liveness(NS_PER_S, EPOCH)
    wire.sender.nic_usable("ha/r0", False, NS_PER_S)
    assert [e["state"] for e in wire.sender.liveness(NS_PER_S, EPOCH)] == ["unknown"]
    assert wire.run(2 * NS_PER_S, NS_PER_S) == 0
    assert wire.sender.liveness(5 * NS_PER_S, EPOCH) == []
    wire.reflector.nic_usable("hb/r0", False, NS_PER_S)
    assert [e["state"] for e in wire.reflector.liveness(NS_PER_S, EPOCH)] == ["unknown"]
    wire.sender.nic_usable("ha/r0", True, 2 * NS_PER_S)
    wire.reflector.nic_usable("hb/r0", True, 2 * NS_PER_S)
    wire.run(3 * NS_PER_S, 2 * NS_PER_S)
    assert [e["state"] for e in wire.sender.liveness(3 * NS_PER_S, EPOCH)] == ["alive"]
    assert [e["state"] for e in wire.reflector.liveness(3 * NS_PER_S, EPOCH)] == ["alive"]


def test_strangers_are_answered_where_wanted_but_not_reported() -> None:
    limits = ReflectorLimits(strangers=True)
    reflector = SessionReflector(host_b(), {SOCKET_B: "hb/r0"}, {}, limits=limits)
    other = Wire(sender_of(host_a()), reflector)
    other.run(NS_PER_S)
    assert other.sender.counters.get("answered") > 20
    assert reflector.liveness(NS_PER_S, EPOCH, complete=True) == []


def test_detection_within_the_limit_and_a_gap() -> None:
    """At 100 probes/s with a 50 ms limit silence is told within 50 ms + one gap + one judgement of the last answer."""
    wire = Wire(sender_of(host_a(ports=(50_001,), rate_hz=100.0), liveness_ms=50), reflector_of(host_b()))
    wire.run(NS_PER_S)
    wire.sender.liveness(NS_PER_S, EPOCH)
    wire.drop_forward = lambda s: np.ones(len(s.token), dtype=bool)
    now = NS_PER_S
    entries: list[dict] = []
    while not entries:
        wire.run(now + 5 * MS, now)
        now += 5 * MS
        entries = wire.sender.liveness(now, EPOCH + now)
    assert entries[0]["state"] == "silent"
    assert 40 * MS <= now - NS_PER_S <= 60 * MS


def test_event_payload() -> None:
    assert event_data("ha", "b", 5, [{"state": "alive"}], complete=True, liveness_ms=600) == {
        "host": "ha", "boot_id": "b", "seen_at_ns": 5, "complete": True, "limit_ns": 600 * MS,
        "changes": [{"state": "alive"}], "stopping": False,
    }  # fmt: skip
