"""When which hop of which path is probed, and what follows from the answers."""

from __future__ import annotations

import numpy as np

from sdfstream.probes.config import SessionConfig
from sdfstream.probes.stamp import packet
from sdfstream.probes.stamp import paths as path_table
from sdfstream.probes.stamp.liveness import ALIVE, SILENT
from sdfstream.probes.trace.paths import Distance, PathBook
from sdfstream.probes.trace.silent import SilentTracer
from sdfstream.probes.trace.tracer import NOW, SOON, HopProbe, Trace, Tracer
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

S = NS_PER_S
FAR = "10.9.0.1"


def router(number: int) -> bytes:
    return bytes(10) + b"\xff\xff" + bytes([10, 0, 0, number])


def sessions(ports: int, pairs: int) -> list[SessionConfig]:
    each = tuple(range(50_000, 50_000 + ports))
    return [SessionConfig("a/0", f"b{i}/0", FAR, source_ports=each) for i in range(pairs)]


class Network:
    """Routers 1…distance on every path; `mute` ones never answer; answers come at once."""

    def __init__(self, tracer: Tracer, ttls: list[int], *, quote: bool, mute: tuple[int, ...], pairs: int) -> None:
        self.tracer = tracer
        self.ttls = ttls
        self.quote = quote
        self.mute = mute
        self.probes: list[tuple[int, HopProbe]] = []
        self.keys = [(0, router(100 + p), 862) for p in range(len(ttls))]
        self.states = np.full(len(ttls), ALIVE, np.uint8)
        self.received_at_ns = np.full(len(ttls), ABSENT_NS, np.int64)
        self.silent = SilentTracer()
        self.book = PathBook(tracer, self.silent)
        found = sessions(len(ttls) // pairs, pairs)
        sockets = {("a/0", port): port for s in found for port in s.source_ports}
        table = path_table.build(found, sockets, packet.mode_of(None), by_socket=False)
        self.book.adopt(table, self.keys, 0)

    def run(self, start_ns: int, stop_ns: int, answered: bool = True) -> list[tuple[int, Trace]]:
        traces = []
        for now_ns in range(start_ns, stop_ns, 50 * NS_PER_MS):
            if answered:
                self.received_at_ns[self.states == ALIVE] = now_ns
            self.book.step(self.received_at_ns, np.array(self.ttls, np.uint8), self.states, now_ns)
            traces += [(now_ns, t) for t in self.silent.finished(now_ns) + self.tracer.finished(now_ns)]
            for probe in self.silent.due(now_ns) + self.tracer.due(now_ns):
                assert isinstance(probe.subject, int)
                self.probes.append((now_ns, probe))
                assert probe.ttl <= 255 - self.ttls[probe.subject], "a traced packet would reach the far host"
                if probe.ttl not in self.mute:
                    key, token = self.keys[probe.subject], probe.token if self.quote else None
                    if not self.silent.exceeded(key, token, router(probe.ttl)):
                        self.tracer.exceeded(key, token, router(probe.ttl))
        return traces


def network(
    ttls: list[int],
    *,
    rate_hz: float = 100.0,
    interval_ns: int = 60 * S,
    quote: bool = True,
    mute: tuple[int, ...] = (),
    pairs: int = 1,
) -> Network:
    return Network(Tracer(interval_ns, rate_hz), ttls, quote=quote, mute=mute, pairs=pairs)


def test_every_path_is_traced_hop_by_hop_once_it_is_answered() -> None:
    net = network([252, 254, 255])
    traces = net.run(0, 2 * S)
    assert {t.subject: t.hops for _, t in traces} == {0: (router(1), router(2), router(3)), 1: (router(1),), 2: ()}
    assert all(t.complete for _, t in traces)
    assert len(net.probes) == 4


def test_nothing_is_probed_before_a_path_is_answered_or_where_the_ttl_is_not_reported() -> None:
    net = network([252])
    assert net.run(0, S, answered=False) == []
    mute_reflector = network([0])
    assert mute_reflector.run(0, S) == []
    other_start = network([60])  # a distance of 195 routers: somebody rewrote the TTL
    assert other_start.run(0, S) == []
    assert net.probes == mute_reflector.probes == other_start.probes == []


def test_answers_without_quoted_payload_serve_too() -> None:
    traces = network([252], quote=False).run(0, 2 * S)
    assert [t.hops for _, t in traces] == [(router(1), router(2), router(3))]


def test_a_silent_router_is_asked_three_times_and_left_open() -> None:
    net = network([252], mute=(2,))
    traces = net.run(0, 5 * S)
    assert [t.hops for _, t in traces] == [(router(1), None, router(3))]
    assert not traces[0][1].complete
    assert [a.ttl for _, a in net.probes] == [1, 2, 2, 2, 3]


def test_a_trace_with_gaps_is_made_again_after_a_growing_pause() -> None:
    net = network([253], mute=(1,))
    at = [now / S for now, _ in net.run(0, 200 * S)]
    pauses = np.diff(at)
    assert 9 < pauses[0] < 15
    assert 19 < pauses[1] < 25
    assert (pauses[3:] > 55).all()


def test_the_rate_holds_and_traces_repeat_at_the_interval() -> None:
    net = network([252] * 20, rate_hz=8.0, interval_ns=30 * S)
    traces = net.run(0, 60 * S)
    sent = np.array([at for at, _ in net.probes])
    for start in range(0, 60):
        assert ((sent >= start * S) & (sent < (start + 1) * S)).sum() <= 8 + 4
    first = {t.subject: at for at, t in reversed(traces)}
    assert len(first) == 20
    assert max(first.values()) < 10 * S
    assert 40 <= len(traces) <= 60


def test_a_change_of_length_and_a_return_from_silence_are_traced_soon() -> None:
    net = network([252])
    assert len(net.run(0, 2 * S)) == 1
    net.ttls[0] = 251
    at, trace = net.run(2 * S, 4 * S)[0]
    assert at < 2 * S + 500 * NS_PER_MS
    assert len(trace.hops) == 4
    assert net.run(4 * S, 10 * S, answered=False) == []
    at, _ = net.run(10 * S, 12 * S)[0]
    assert at < 10 * S + 500 * NS_PER_MS


def test_a_path_that_falls_silent_is_given_up_and_says_nothing() -> None:
    net = network([252], mute=(1, 2, 3))
    assert net.run(0, 500 * NS_PER_MS) == []
    assert net.run(500 * NS_PER_MS, 20 * S, answered=False) == []
    assert net.tracer.busy() == []


def test_what_runs_between_the_same_nics_is_traced_anew_when_a_path_changes_state() -> None:
    net = network([252] * 6, pairs=2)
    assert len(net.run(0, 2 * S)) == 6
    net.states[1] = SILENT
    others = {t.subject: t.silent for _, t in net.run(2 * S, 3 * S)}
    assert others == {0: False, 1: True, 2: False}, "nothing of the other pair"
    net.states[1] = ALIVE
    back = net.run(3 * S, 4 * S)
    assert {t.subject for _, t in back} == {0, 1, 2}
    assert net.run(4 * S, 10 * S) == []


def test_of_a_path_that_falls_silent_it_is_told_once_and_soon_how_far_its_packets_get() -> None:
    net = network([250])
    assert len(net.run(0, 2 * S)) == 1
    net.states[0] = SILENT
    net.mute = (3, 4, 5)
    net.probes.clear()
    ((at_ns, trace),) = net.run(2 * S, 30 * S)
    assert trace == Trace(0, (router(1), router(2), None, None, None), silent=True)
    assert at_ns <= 2 * S + 250 * NS_PER_MS
    assert [probe.ttl for _, probe in net.probes] == [1, 2, 3, 4, 5, 3, 4, 5], "at once, and who is mute once more"
    net.states[0], net.mute = ALIVE, ()
    ((_, back),) = net.run(30 * S, 31 * S)
    assert back.complete and not back.silent


def test_silent_paths_are_traced_beside_the_rate_of_the_usual_traces() -> None:
    """A host of nine NICs has one rate; blame waits for some tenths of a second."""
    net = network([250] * 4, rate_hz=8.0, pairs=4)
    net.run(0, 20 * S)
    net.states[:], net.mute = SILENT, (3, 4, 5)
    found = net.run(20 * S, 21 * S)
    assert {t.subject for at_ns, t in found if t.silent and at_ns <= 20 * S + 250 * NS_PER_MS} == {0, 1, 2, 3}


def test_of_a_silent_path_whose_routers_quote_too_little_nothing_is_told() -> None:
    net = network([252], quote=False)
    net.run(0, 2 * S)
    net.states[0], net.mute = SILENT, (3,)
    assert net.run(2 * S, 10 * S) == []


def test_late_and_strange_answers_to_the_trace_of_a_silent_path_change_nothing() -> None:
    silent, here = SilentTracer(), (0, router(99), 862)
    silent.request("a", here, 2)
    first = silent.due(0)
    assert [p.ttl for p in first] == [1, 2] and silent.due(50 * NS_PER_MS) == []
    silent.cancel("a")
    silent.request("a", here, 2)
    silent.request("b", here, 2)  # under the same key
    second = silent.due(S)
    token = {(p.subject, p.ttl): p.token for p in second}
    assert len(set(token.values()) | {p.token for p in first}) == 6
    assert not silent.exceeded(here, first[0].token, router(1)), "of the trace before"
    assert not silent.exceeded(here, (1 << 8) | 1, router(1)), "of a usual trace"
    assert not silent.exceeded(here, token["a", 1] & ~0xFF | 3, router(3)), "of a hop that has no probe"
    assert not silent.exceeded((1, router(99), 862), token["a", 1], router(1)), "of another socket"
    assert not silent.exceeded((1, router(99), 862), None, router(1))
    assert silent.exceeded(here, token["b", 2], router(2)) and silent.finished(S) == []
    assert [(p.subject, p.ttl) for p in silent.due(S + 100 * NS_PER_MS)] == [("a", 1), ("a", 2), ("b", 1)]
    assert silent.exceeded(here, token["a", 1], router(1)), "the answer to the first probe"
    assert silent.exceeded(here, token["a", 2], router(2))
    assert silent.finished(S + 110 * NS_PER_MS) == [Trace("a", (router(1), router(2)), silent=True)], "all answered"
    assert silent.finished(S + 200 * NS_PER_MS) == [Trace("b", (None, router(2)), silent=True)]
    assert silent.busy() == []


def test_one_router_that_does_not_answer_does_not_end_the_trace_of_a_silent_path() -> None:
    net = network([252])
    net.run(0, 2 * S)
    net.states[0], net.mute = SILENT, (2,)
    ((_, trace),) = net.run(2 * S, 10 * S)
    assert trace.hops == (router(1), None, router(3))


def test_of_a_silent_path_that_is_answered_again_the_usual_trace_is_made() -> None:
    net = network([252])
    net.run(0, 2 * S)
    net.states[0], net.mute = SILENT, (3,)
    assert net.run(2 * S, 2 * S + 150 * NS_PER_MS) == []
    net.states[0], net.mute = ALIVE, ()
    ((_, trace),) = net.run(2 * S + 150 * NS_PER_MS, 4 * S)
    assert trace.complete and not trace.silent


def test_of_many_paths_that_fall_silent_a_few_are_traced_each_to_another_nic() -> None:
    """Routers answer few; and what is alive still waits for its own traces."""
    net = network([252] * 24, pairs=8)
    net.run(0, 5 * S)
    for start_s, traced in ((5, 4), (10, 0), (16, 4)):
        net.states[:] = SILENT
        found = [t.subject for _, t in net.run(start_s * S, (start_s + 2) * S) if t.silent]
        assert len(found) == traced == len({subject // 3 for subject in found})
        net.states[:] = ALIVE
        net.run((start_s + 2) * S, (start_s + 5) * S)


def test_the_distance_of_a_pair_is_the_shortest_and_says_whether_all_agree() -> None:
    net = network([252, 252, 253, 0], pairs=2)
    assert net.book.distance(("a/0", "b0/0")) is None
    net.run(0, S)
    assert net.book.distance(("a/0", "b0/0")) == Distance(3, True)
    assert net.book.distance(("a/0", "b1/0")) == Distance(2, True)
    net.ttls[1] = 250
    net.run(S, 2 * S)
    assert net.book.distance(("a/0", "b0/0")) == Distance(3, False)


def test_a_slot_given_to_another_session_is_another_path() -> None:
    net = network([252])
    assert len(net.run(0, S)) == 1
    table = path_table.build(
        [SessionConfig("a/0", "c/0", FAR, source_ports=(50_000,))], {("a/0", 50_000): 0}, packet.mode_of(None)
    )
    net.book.adopt(table, net.keys, 0)
    net.received_at_ns[:] = ABSENT_NS
    assert net.run(S, 2 * S, answered=False) == []
    assert len(net.run(2 * S, 3 * S)) == 1
    assert net.book.distance(("a/0", "c/0")) == Distance(3, True)


def test_strange_answers_change_nothing() -> None:
    net = network([252], mute=(1, 2, 3))
    net.run(0, 200 * NS_PER_MS)
    token = net.probes[0][1].token
    assert not net.tracer.exceeded((0, router(99), 862), token, router(9))  # to somebody else
    assert not net.tracer.exceeded((1, router(100), 862), token, router(9))  # from another socket
    assert not net.tracer.exceeded(net.keys[0], token + 1, router(9))  # a hop not probed
    assert not net.tracer.exceeded(net.keys[0], token + 256, router(9))  # another trace
    assert not net.tracer.exceeded(net.keys[0], (token + 256) & 0xFFFF, router(9), 16)
    assert [t.hops for _, t in net.run(200 * NS_PER_MS, 12 * S)] == [(None, None, None)]


def test_paths_with_equal_icmp_errors_are_traced_one_after_the_other() -> None:
    tracer = Tracer(60 * S, 100.0)
    for subject in (0, 1):
        tracer.add(subject, "same")
        tracer.request(subject, 2, 0)
    probed: list[HopProbe] = []
    for now_ns in range(0, S, 50 * NS_PER_MS):
        tracer.finished(now_ns)
        for probe in tracer.due(now_ns):
            probed.append(probe)
            tracer.exceeded("same", None, router(probe.ttl))
    assert [a.subject for a in probed] == [0, 0, 1, 1]


def test_rank_goes_before_waiting_and_order_of_asking_before_number() -> None:
    tracer = Tracer(60 * S, 1.0)
    tracer.due(0)
    for subject, due_at, rank in (("path", 0, SOON), ("flow2", 2, NOW), ("flow1", 1, NOW)):
        tracer.add(subject, subject)
        tracer.request(subject, 1, due_at, rank)
    tracer._allowance = 0.0
    order = [a.subject for k in range(1, 4) for a in tracer.due(k * S)]
    assert order == ["flow1", "flow2", "path"]


def test_a_subject_that_is_dropped_leaves_nothing_behind() -> None:
    tracer = Tracer(60 * S, 100.0)
    tracer.add("x", "key")
    tracer.request("x", 3, 0)
    (probe,) = tracer.due(0)
    tracer.drop("x")
    assert not tracer.exceeded("key", probe.token, router(1))
    assert tracer.finished(10 * S) == []
    assert tracer.due(10 * S) == []


def test_asking_often_does_not_fill_the_memory() -> None:
    tracer = Tracer(60 * S, 1.0)
    tracer.add("x", "key")
    for k in range(10_000):
        tracer.request("x", 3, k * S)
    assert len(tracer._later) < 200
