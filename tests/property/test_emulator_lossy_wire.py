"""Two ends of every queue pair over a bad wire: every collective comes out right, every chunk exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.emulator.rank_plan import JobSpec
from tests.fixtures.emulated import Run, Wire

RING = JobSpec("t", ("a", "b", "c"), message_mb=0.2, chunk_kb=16, collectives=2)


def assert_right(run: Run) -> None:
    stats = run.engine.stats()
    spec = run.engine.plan.spec
    ranks, done = len(spec.hosts), spec.collectives
    assert run.engine.is_done
    assert (stats["collectives"], stats["checked_right"], stats["checked_wrong"]) == (done, ranks * done, 0)
    per_rank = 2 * (ranks - 1) if spec.collective == "all-reduce" else ranks - 1
    assert stats["payload_bytes"] == done * ranks * per_rank * spec.elements // ranks * 4


@settings(max_examples=25, deadline=None)
@given(
    loss=st.floats(0, 0.3),
    double=st.floats(0, 0.3),
    late=st.floats(0, 0.3),
    corrupt=st.floats(0, 0.1),
    collective=st.sampled_from(["all-reduce", "all-to-all"]),
    qps=st.integers(1, 3),
    chunk_kb=st.sampled_from([1, 7, 64]),
    seed=st.integers(0, 2**32 - 1),
)
def test_whatever_the_wire_does_data_arrive_exactly_once(
    loss: float, double: float, late: float, corrupt: float, collective: str, qps: int, chunk_kb: int, seed: int
) -> None:
    spec = JobSpec(
        "t", ("a", "b", "c"), collective=collective, qps=qps, chunk_kb=chunk_kb, message_mb=0.1, collectives=2
    )
    run = Run(spec, Wire(loss, double, late, corrupt), seed)
    run.run(120)
    assert_right(run)


@settings(max_examples=15, deadline=None)
@given(
    moves=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5), st.integers(0, 16)), max_size=12),
    late=st.floats(0, 0.5),
    seed=st.integers(0, 2**32 - 1),
)
def test_moves_in_mid_flight_lose_and_double_nothing(moves: list[tuple[int, int, int]], late: float, seed: int) -> None:
    run = Run(RING, Wire(loss=0.01, late=late), seed)
    ends = list(run.engine.ends.values())
    for passes, which, port in moves:
        for _ in range(passes):
            run.step()
        moved = ends[which]
        moved.requester.steer(moved.plan.ports[port], run.now_ns)
        moved.requester.steer(moved.plan.ports[port], run.now_ns)  # saying it twice changes nothing
    run.run(60)
    assert_right(run)


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_wire_sends_nothing_twice(seed: int) -> None:
    run = Run(RING, Wire(), seed)
    run.run(10)
    assert_right(run)
    stats = run.engine.stats()
    assert stats["retransmits"] == stats["time_outs"] == stats["duplicate_packets"] == stats["doubled_chunks"] == 0


@pytest.mark.parametrize("seed", range(5))
def test_reordering_alone_never_reaches_the_result_and_counts_no_octet_twice(seed: int) -> None:
    run = Run(RING, Wire(late=0.3, double=0.3), seed)
    run.run(60)
    assert_right(run)
    for qp in run.engine.stats()["qps"]:
        assert qp["acknowledged_bytes"] <= qp["sent_bytes"]


@pytest.mark.parametrize("seed", range(3))
def test_corrupt_packets_are_refused_by_their_checksum(seed: int) -> None:
    run = Run(RING, Wire(corrupt=0.2), seed)
    run.run(60)
    assert_right(run)
    refused = {k: n for k, n in run.engine.counters.as_dict().items() if "refused" in k}
    assert refused.get("job.refused.checksum", 0) > 0
    assert set(refused) <= {f"job.refused.{r}" for r in ("checksum", "magic", "length", "kind")}
