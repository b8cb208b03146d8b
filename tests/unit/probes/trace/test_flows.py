"""Which flows and answers are traced, when, and in which order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sdfstream.probes.stamp.liveness import ALIVE, SILENT, PathName
from sdfstream.probes.trace.answers import AnswerBook
from sdfstream.probes.trace.flows import FlowBook, FlowRequest, Leaves, risen
from sdfstream.probes.trace.paths import Distance, Pair, PathChanges
from sdfstream.probes.trace.tracer import Tracer
from sdfstream.records.fabric import Flow
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

S = NS_PER_S
NICS = {"a/0": "10.0.0.1", "a/1": "10.0.1.1"}
QUIET = PathChanges(set(), set(), set())


def flow(port: int, dst: str = "b/0", src: str = "a/0", protocol: str = "udp") -> Flow:
    return Flow(src, dst, protocol, port, 4791, 26)


def requested(port: int, dst: str = "b/0", **more: str) -> FlowRequest:
    return FlowRequest(flow(port, dst, **more), "10.0.9.1")


class Known:
    """Stands for the path book: distances by decree."""

    def __init__(self, **distances: int) -> None:
        self.distances: dict[Pair, Distance] = {("a/0", f"{b}/0"): Distance(d, True) for b, d in distances.items()}

    def distance(self, pair: Pair) -> Distance | None:
        return self.distances.get(pair)


class Bench:
    def __init__(self, rate_hz: float = 1000.0, **distances: int) -> None:
        self.tracer = Tracer(60 * S, rate_hz)
        self.known = Known(**distances)
        self.ready = {"a/0", "a/1"}
        self.counters = Counters("io")
        self.leaves = Leaves()
        self.book = FlowBook(self.tracer, self.known, NICS, self.ready.__contains__, self.counters)  # type: ignore[arg-type]
        self.answers = AnswerBook(self.tracer, self.known, NICS, self.ready.__contains__, 862)  # type: ignore[arg-type]
        self.probed: list[tuple[object, int]] = []

    def run(self, now_ns: int, until_ns: int) -> list[object]:
        """Subjects traced to the end, in order."""
        done: list[object] = []
        for at_ns in range(now_ns, until_ns, 10 * NS_PER_MS):
            done += [trace.subject for trace in self.tracer.finished(at_ns)]
            for probe in self.tracer.due(at_ns):
                self.probed.append((probe.subject, probe.ttl))
                template = (self.book.templates | self.answers.templates)[probe.subject]  # type: ignore[operator,index]
                assert self.tracer.exceeded(
                    template.five_tuple, probe.token & 0xFFFF, bytes(15) + bytes([probe.ttl]), 16
                )
        return done


def test_flows_are_traced_in_the_order_of_the_requests() -> None:
    bench = Bench(b=3)
    bench.book.take([requested(p) for p in (50_003, 50_001, 50_002)], 0)
    assert [f.source_port for f in bench.run(0, S)] == [50_003, 50_001, 50_002]  # type: ignore[attr-defined]
    assert [ttl for subject, ttl in bench.probed if subject == flow(50_001)] == [1, 2, 3]
    assert bench.run(S, 59 * S) == []
    assert len(bench.run(59 * S, 62 * S)) == 3


def test_what_is_not_urgent_is_traced_after_new_probe_paths() -> None:
    bench = Bench(b=1)
    first, *later = [FlowRequest(flow(port), "10.0.9.1", urgent=port == 1) for port in (1, 2, 3)]
    bench.book.take([first, *later, replace(later[1], urgent=True)], 0)
    bench.answers.step([NAME], [ADDRESS], np.array([ALIVE], np.uint8), QUIET, 0)
    order = bench.run(10 * NS_PER_MS, S)
    assert order[:2] + order[3:] == [flow(1), flow(3), flow(2)], "one queue pair's spare flow is another's only one"


def test_without_a_distance_nothing_is_sent_until_it_is_known() -> None:
    bench = Bench()
    bench.book.take([requested(50_001)], 0)
    assert bench.run(0, S) == []
    assert bench.probed == []
    bench.known.distances["a/0", "b/0"] = Distance(2, True)
    bench.book.step(PathChanges(set(), {("a/0", "b/0")}, set()), bench.leaves, S)
    assert bench.run(S, 2 * S) == [flow(50_001)]
    bench.known.distances["a/0", "b/0"] = Distance(1, True)
    bench.probed.clear()
    bench.book.step(PathChanges(set(), {("a/0", "b/0")}, set()), bench.leaves, 3 * S)
    bench.run(3 * S, 4 * S)
    assert [ttl for _, ttl in bench.probed] == [1]


def test_without_raw_sockets_nothing_is_sent_until_there_are_some() -> None:
    bench = Bench(b=2)
    bench.ready.clear()
    bench.book.take([requested(50_001)], 0)
    bench.answers.step([NAME], [ADDRESS], np.array([ALIVE], np.uint8), QUIET, 0)
    assert bench.run(0, S) == []
    bench.ready.add("a/0")
    changes = PathChanges(set(), set(), {"a/0"})
    bench.book.step(changes, bench.leaves, S)
    bench.answers.step([NAME], [ADDRESS], np.array([ALIVE], np.uint8), changes, S)
    assert len(bench.run(S, 2 * S)) == 2


def test_only_what_is_new_or_has_risen_is_traced_at_once() -> None:
    bench = Bench(b=1)
    bench.book.take([requested(p) for p in (1, 2, 3)], 0)
    bench.run(0, S)
    bench.book.take([requested(p) for p in (2, 3)], S)  # the first job ended
    assert bench.run(S, 2 * S) == []
    bench.book.take([requested(p) for p in (3, 2, 4)], 2 * S)  # moved to its alternate 3; 4 is new
    assert bench.run(2 * S, 3 * S) == [flow(3), flow(4)]
    bench.book.take([], 3 * S)
    assert bench.run(3 * S, 100 * S) == []
    assert bench.book.templates == {}


def test_a_change_between_the_same_two_leaves_is_traced_anew() -> None:
    bench = Bench(b=1, c=1, d=1)
    bench.book.take([requested(1, "b/0"), requested(2, "c/0"), requested(3, "d/0")], 0)
    bench.run(0, S)
    bench.leaves.note("b/0", [b"x", b"leaf1"])
    bench.leaves.note("c/0", [b"y", b"leaf1"])
    bench.leaves.note("d/0", [b"y", b"leaf2"])
    bench.leaves.note("d/0", [b"y", None])
    bench.book.step(PathChanges({("a/0", "c/0")}, set(), set()), bench.leaves, S)
    assert bench.run(S, S + 90 * NS_PER_MS) == [], "routers are given a moment"
    assert bench.run(S + 90 * NS_PER_MS, 2 * S) == [flow(1, "b/0"), flow(2, "c/0")]
    bench.book.step(PathChanges({("a/1", "c/0")}, set(), set()), bench.leaves, 2 * S)
    assert bench.run(2 * S, 3 * S) == [], "another NIC of ours hangs on another leaf"


def test_what_makes_no_sense_is_counted_and_the_rest_goes_on() -> None:
    bench = Bench(b=1)
    bad = [
        FlowRequest(flow(1, src="z/0"), "10.0.9.1"),
        FlowRequest(flow(1), "nonsense"),
        FlowRequest(flow(1), "fd00::1"),
        FlowRequest(flow(0), "10.0.9.1"),
        FlowRequest(flow(1, protocol="sctp"), "10.0.9.1"),
        FlowRequest(flow(1)._replace(dscp=64), "10.0.9.1"),
    ]
    bench.book.take([*bad, requested(7)], 0)
    assert bench.run(0, S) == [flow(7)]
    assert bench.counters.total("refused") == len(bad)


NAME = PathName("a/0", "b/0", "a/0", "udp", 50_000, 46)
ADDRESS = bytes(10) + b"\xff\xff" + bytes([10, 0, 9, 1])


def test_answers_are_traced_when_they_come_up_and_when_they_change() -> None:
    bench = Bench(b=2)
    state = np.zeros(1, np.uint8)
    names = [NAME]
    bench.answers.step(names, [ADDRESS], state, QUIET, 0)
    assert bench.run(0, S) == []
    state[0] = ALIVE
    bench.answers.step(names, [ADDRESS], state, QUIET, S)
    (path,) = bench.run(S, 2 * S)
    assert str(path) == "b/0>a/0 udp:50000 dscp46 rev"
    template = bench.answers.templates[path]  # type: ignore[index]
    assert (template.nic, template.five_tuple.source_port, template.five_tuple.destination_port, template.tos) == (
        "a/0", 862, 50_000, 46 << 2,
    )  # fmt: skip
    assert template.five_tuple.destination == ADDRESS
    # another session of the same pair falls silent: this one is looked at anew
    names.append(NAME._replace(path=50_001))
    state = np.array([ALIVE, ALIVE], np.uint8)
    bench.answers.step(names, [ADDRESS] * 2, state, QUIET, 2 * S)
    assert len(bench.run(2 * S, 3 * S)) == 1
    state = np.array([ALIVE, SILENT], np.uint8)
    bench.answers.step(names, [ADDRESS] * 2, state, QUIET, 3 * S)
    assert bench.run(3 * S, 4 * S) == [path]
    # our own probes to that NIC changed
    bench.answers.step(names, [ADDRESS] * 2, state, PathChanges({("a/0", "b/0")}, set(), set()), 4 * S)
    assert bench.run(4 * S, 5 * S) == [path]


def test_risen() -> None:
    a, b, c, d = (flow(p) for p in (1, 2, 3, 4))
    assert risen([a, b, c], [a, b, c]) == set()
    assert risen([a, b, c], [b, c]) == set()
    assert risen([a, b, c], [d, a, b, c]) == set()
    assert risen([a, b, c], [b, a, c]) == {b}
    assert risen([a, b, c], [c, b, a]) == {c, b}
