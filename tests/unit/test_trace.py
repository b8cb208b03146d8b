"""When which hop of which path is asked, and what comes of the answers."""

from __future__ import annotations

import numpy as np

from sdfstream.probes.trace import Ask, Trace, Tracer
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

S = NS_PER_S


def router(number: int) -> bytes:
    return bytes(10) + b"\xff\xff" + bytes([10, 0, 0, number])


class Network:
    """Routers 1…distance on every path; `mute` ones never answer; answers come at once."""

    def __init__(self, tracer: Tracer, ttls: list[int], *, quote: bool = True, mute: tuple[int, ...] = ()) -> None:
        self.tracer = tracer
        self.ttls = ttls
        self.quote = quote
        self.mute = mute
        self.asks: list[tuple[int, Ask]] = []
        self.keys = [(0, router(100 + p), 862) for p in range(len(ttls))]

    def run(self, start_ns: int, stop_ns: int, heard: bool = True) -> list[tuple[int, Trace]]:
        traces = []
        for now_ns in range(start_ns, stop_ns, 50 * NS_PER_MS):
            if heard:
                self.tracer.heard(np.full(len(self.ttls), now_ns, np.int64), np.array(self.ttls, np.uint8), now_ns)
            traces += [(now_ns, t) for t in self.tracer.finished(now_ns)]
            for ask in self.tracer.due(now_ns):
                self.asks.append((now_ns, ask))
                assert ask.ttl <= 255 - self.ttls[ask.path], "a traced packet would reach the far host"
                if ask.ttl not in self.mute:
                    self.tracer.exceeded(self.keys[ask.path], ask.token if self.quote else None, router(ask.ttl))
        return traces


def network(ttls: list[int], *, rate_hz: float = 100.0, interval_ns: int = 60 * S, **options: object) -> Network:
    keys = [(0, router(100 + p), 862) for p in range(len(ttls))]
    return Network(Tracer(keys, interval_ns, rate_hz), ttls, **options)  # type: ignore[arg-type]


def test_every_path_is_traced_hop_by_hop_once_it_is_heard() -> None:
    net = network([252, 254, 255])
    traces = net.run(0, 2 * S)
    assert {t.path: t.hops for _, t in traces} == {0: (router(1), router(2), router(3)), 1: (router(1),), 2: ()}
    assert all(t.complete for _, t in traces)
    assert len(net.asks) == 4


def test_nothing_is_asked_before_a_path_is_heard_or_where_the_ttl_is_not_told() -> None:
    net = network([252])
    assert net.run(0, S, heard=False) == []
    mute_reflector = network([0])
    assert mute_reflector.run(0, S) == []
    other_start = network([60])  # a distance of 195 routers: somebody rewrote the TTL
    assert other_start.run(0, S) == []
    assert net.asks == mute_reflector.asks == other_start.asks == []


def test_answers_without_quoted_payload_serve_too() -> None:
    traces = network([252], quote=False).run(0, 2 * S)
    assert [t.hops for _, t in traces] == [(router(1), router(2), router(3))]


def test_a_silent_router_is_asked_three_times_and_left_open() -> None:
    net = network([252], mute=(2,))
    traces = net.run(0, 5 * S)
    assert [t.hops for _, t in traces] == [(router(1), None, router(3))]
    assert not traces[0][1].complete
    assert [a.ttl for _, a in net.asks] == [1, 2, 2, 2, 3]


def test_a_trace_with_gaps_is_made_again_after_a_growing_pause() -> None:
    net = network([253], mute=(1,))
    at = [now / S for now, _ in net.run(0, 200 * S)]
    pauses = np.diff(at)
    assert 9 < pauses[0] < 15
    assert 19 < pauses[1] < 25
    assert (pauses[3:] > 55).all()


def test_the_rate_is_kept_and_traces_repeat_at_the_interval() -> None:
    net = network([252] * 20, rate_hz=8.0, interval_ns=30 * S)
    traces = net.run(0, 60 * S)
    sent = np.array([at for at, _ in net.asks])
    for start in range(0, 60):
        assert ((sent >= start * S) & (sent < (start + 1) * S)).sum() <= 8 + 4
    first = {t.path: at for at, t in reversed(traces)}
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
    assert net.run(4 * S, 10 * S, heard=False) == []
    at, _ = net.run(10 * S, 12 * S)[0]
    assert at < 10 * S + 500 * NS_PER_MS


def test_a_path_that_falls_silent_is_given_up_and_says_nothing() -> None:
    net = network([252], mute=(1, 2, 3))
    assert net.run(0, 500 * NS_PER_MS) == []
    assert net.run(500 * NS_PER_MS, 20 * S, heard=False) == []
    assert net.tracer.slots() == set()


def test_strange_answers_change_nothing() -> None:
    net = network([252], mute=(1, 2, 3))
    net.run(0, 200 * NS_PER_MS)
    token = net.asks[0][1].token
    net.tracer.exceeded((0, router(99), 862), token, router(9))  # to somebody else
    net.tracer.exceeded((1, router(100), 862), token, router(9))  # from another socket
    net.tracer.exceeded(net.keys[0], token + 1, router(9))  # a hop not asked for
    net.tracer.exceeded(net.keys[0], token + 256, router(9))  # another trace
    assert [t.hops for _, t in net.run(200 * NS_PER_MS, 12 * S)] == [(None, None, None)]


def test_paths_that_an_icmp_error_cannot_tell_apart_are_traced_one_after_the_other() -> None:
    key = (0, router(100), 862)
    net = Network(Tracer([key, key], 60 * S, 100.0), [253, 253], quote=False)
    net.keys = [key, key]
    assert len(net.run(0, 2 * S)) == 2
    assert [a.path for _, a in net.asks] == [0, 0, 1, 1]


def test_heard_takes_absent_as_never() -> None:
    tracer = Tracer([(0, router(1), 862)], S, 1.0)
    tracer.heard(np.array([ABSENT_NS]), np.array([250], np.uint8), 0)
    assert tracer.due(5 * S) == []
