"""The job's data plane in C sends the octets that the one in Python sends, and comes to the same figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.emulator import qp_header as wire
from sdfstream.emulator.engine.engine_io import NativeJob
from sdfstream.emulator.rank_plan import JobSpec
from tests.fixtures.emulated import EPOCH_NS, PASS_NS, RUN, Run, Wire


class Twins(Run):
    """A job on a bad wire, and its twin in C that is given the same datagrams."""

    def __init__(self, spec: JobSpec, wire: Wire, seed: int = 1) -> None:
        super().__init__(spec, wire, seed)
        self.twin = NativeJob(self.engine.plan, RUN, 0)

    def deliver(self, rank: int, port: int, tos: int, at_ns: int, packet: bytes) -> None:
        super().deliver(rank, port, tos, at_ns, packet)
        self.twin.receive(rank, port, tos, at_ns, packet, self.now_ns)

    def step(self) -> None:
        now_ns = self.now_ns
        super().step()
        sent = self.twin.step(now_ns)
        for ours, theirs in zip(self.sent, sent, strict=True):
            assert ours[:5] == theirs[:5]
            assert (ours.on_departure is None) == (theirs.on_departure is None)
            if theirs.on_departure is not None:
                theirs.on_departure(EPOCH_NS + now_ns)

    def steer(self, which: int, port: int) -> None:
        moved = list(self.engine.ends.values())[which]
        moved.requester.steer(moved.plan.ports[port], self.now_ns)
        self.twin.steer(which, moved.plan.ports[port], self.now_ns)

    def limit(self, which: int, rate_bps: int | None) -> None:
        list(self.engine.ends.values())[which].requester.rate_bps = rate_bps
        self.twin.limit(which, rate_bps)

    def compare(self) -> None:
        assert self.engine.stats() == self.twin.stats()
        rows = list(self.engine.finished)
        self.engine.finished.clear()
        assert rows == self.twin.take_rows()
        assert self.engine.is_done == self.twin.is_done


@contextmanager
def twins(spec: JobSpec, wire: Wire, seed: int) -> Iterator[Twins]:
    made = Twins(spec, wire, seed)
    try:
        yield made
    finally:
        made.twin.close()


@settings(max_examples=40, deadline=None)
@given(
    loss=st.floats(0, 0.3),
    double=st.floats(0, 0.3),
    late=st.floats(0, 0.3),
    corrupt=st.floats(0, 0.1),
    marked=st.floats(0, 0.3),
    collective=st.sampled_from(["all-reduce", "all-to-all"]),
    ranks=st.integers(2, 4),
    qps=st.integers(1, 3),
    chunk_kb=st.sampled_from([1, 7, 64]),
    rate_bps=st.sampled_from([None, 100_000, 2_000_000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_whatever_the_wire_does_both_send_the_same_octets(
    loss: float, double: float, late: float, corrupt: float, marked: float, collective: str, ranks: int, qps: int,
    chunk_kb: int, rate_bps: int | None, seed: int,
) -> None:  # fmt: skip
    spec = JobSpec(
        "t", tuple("abcd"[:ranks]), collective=collective, qps=qps, chunk_kb=chunk_kb, message_mb=0.1, collectives=2,
        rate_bps=rate_bps,
    )  # fmt: skip
    with twins(spec, Wire(loss, double, late, corrupt, marked), seed) as run:
        run.run(2)
        run.compare()


@settings(max_examples=25, deadline=None)
@given(
    orders=st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 5), st.integers(0, 16), st.sampled_from([None, None, 300_000])),
        max_size=12,
    ),
    dead=st.integers(0, 6),
    late=st.floats(0, 0.5),
    seed=st.integers(0, 2**32 - 1),
)
def test_moves_limits_and_dead_paths(
    orders: list[tuple[int, int, int, int | None]], dead: int, late: float, seed: int
) -> None:
    spec = JobSpec("t", ("a", "b", "c"), message_mb=0.2, chunk_kb=16, collectives=2)
    with twins(spec, Wire(loss=0.01, late=late), seed) as run:
        if dead < 6:
            run.wire.dead = frozenset([run.engine.plan.qps[dead].ports[0]])
        for passes, which, port, rate_bps in orders:
            for _ in range(passes):
                run.step()
            run.steer(which, port)
            run.limit(which, rate_bps)
        run.run(1)
        run.compare()


_U64 = st.one_of(st.integers(0, 600), st.integers(0, 2**64 - 1))
_U32 = st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1))


@st.composite
def forged(draw: st.DrawFn) -> bytes:
    """A packet with a right checksum and any content, or any octets."""
    what = draw(st.integers(0, 2))
    qp = draw(st.integers(0, 7))
    if what == 0:
        size = draw(st.sampled_from([1, 1408, 1409, 16_384, wire.MAX_CHUNK_BYTES]))
        offset = draw(st.sampled_from([0, 1408, 2816]))
        void = draw(st.booleans())
        length = 0 if void else max(0, min(size - offset, wire.PAYLOAD_BYTES))
        header = wire.DataHeader(
            wire.MAGIC, wire.DATA, int(void), length, RUN, qp, draw(_U64), draw(_U64), draw(_U32), draw(_U32),
            draw(_U32), draw(_U32), size, offset,
        )  # fmt: skip
        return wire.data_packet(header, bytes(length))
    if what == 1:
        reports = draw(
            st.lists(st.builds(wire.ChunkReport, _U32, _U32, st.just(EPOCH_NS), st.just(EPOCH_NS)), max_size=4)
        )
        ahead = draw(st.one_of(st.just(0), st.integers(0, 2**512 - 1), st.integers(0, 255)))
        return wire.ack_packet(wire.Ack(RUN, qp, draw(_U64), draw(_U64), draw(_U32), draw(_U32), ahead, tuple(reports)))
    return draw(st.binary(max_size=120))


@settings(max_examples=60, deadline=None)
@given(packets=st.lists(st.tuples(st.integers(0, 2), forged()), max_size=40), seed=st.integers(0, 1000))
def test_forged_packets_are_taken_or_refused_by_both_alike(packets: list[tuple[int, bytes]], seed: int) -> None:
    spec = JobSpec("t", ("a", "b", "c"), message_mb=0.05, chunk_kb=16, collectives=2)
    with twins(spec, Wire(), seed) as run:
        for number, (rank, packet) in enumerate(packets):
            run.deliver(rank, 50_000, 2, EPOCH_NS + number, packet)
            if number % 3 == 0:
                run.step()
        run.compare()


@pytest.mark.parametrize("collective", ["all-reduce", "all-to-all"])
def test_what_is_done_at_the_instant_that_it_names_is_all_that_is_to_do(collective: str) -> None:
    """Passes between the instants of `next_ns` and arrivals send nothing: a thread may sleep through them."""
    spec = JobSpec("t", ("a", "b"), collective=collective, message_mb=0.05, chunk_kb=4, collectives=2, rate_bps=300_000)
    with twins(spec, Wire(loss=0.05), 3) as run:
        run.step()
        while not run.twin.is_done:
            idle = run.now_ns < run.twin.next_ns(run.now_ns - PASS_NS) and not run.arriving
            run.step()
            assert not (idle and run.sent)
