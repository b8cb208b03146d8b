"""What the controller knows of queue pairs: the job map and throughput."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.actuate.jobs import RING, QpWindows, RunningJobs
from sdfstream.records import columns
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.topics import NAME, QP_WINDOW
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.stats import Counters

S = NS_PER_S
PAIR = QueuePair("h0/r0#1", 0, 1, "h0/r0", "h1/r0", "10.0.0.2", 51_000, 4791, steering="socket", alternates=(51_001,))


def test_the_later_word_about_a_path_counts() -> None:
    jobs = RunningJobs()
    shard = JobShard("j", "h0", seen_at_ns=10, qps=(PAIR,))
    assert jobs.take(shard, S) == (["h0/r0#1"], [])
    assert jobs.moved("h0/r0#1", 51_001, 20)
    jobs.take(replace(shard, seen_at_ns=15), 2 * S)
    assert jobs.get("h0/r0#1").pair.path == 51_001, "written before the move"  # type: ignore[union-attr]
    changed, _ = jobs.take(replace(shard, seen_at_ns=25), 3 * S)
    assert changed and jobs.get("h0/r0#1").pair.path == 51_000  # type: ignore[union-attr]
    assert not jobs.moved("h0/r0#1", 51_001, 5), "an old outcome that comes late"


def test_the_job_map_does_not_know_the_path_of_a_kernel_flow() -> None:
    jobs = RunningJobs()
    shard = JobShard("j", "h0", seen_at_ns=10, qps=(replace(PAIR, steering="kernel"),))
    jobs.take(shard, S)
    jobs.moved("h0/r0#1", 51_001, 20)
    jobs.take(replace(shard, seen_at_ns=90), 3 * S)
    owned = jobs.get("h0/r0#1")
    assert owned is not None and owned.pair.path == 51_001 and owned.own == 51_000


def test_queue_pairs_are_found_by_flow_and_nic_and_go_with_their_job() -> None:
    jobs = RunningJobs()
    jobs.take(JobShard("j", "h0", qps=(PAIR,)), S)
    assert jobs.of_flow(PAIR.answers(51_001)) == ["h0/r0#1"] == jobs.of_nic("h0/r0")
    jobs.take(JobShard("k", "h0", qps=(PAIR,)), S)
    assert jobs.contested("h0/r0#1")
    assert jobs.take(JobShard("k", "h0", state="ended"), S) == (["h0/r0#1"], []), "it is the other job's now"
    assert not jobs.contested("h0/r0#1") and jobs.get("h0/r0#1") is not None
    assert jobs.forget(2 * S) == ["h0/r0#1"]
    assert jobs.of_flow(PAIR.flow()) == [] == jobs.of_nic("h0/r0")


def test_the_far_end_of_a_queue_pair_is_one_of_the_same_two_nics() -> None:
    near = replace(PAIR, peer_qp="h1/r0#9")
    far = QueuePair("h1/r0#9", 1, 0, "h1/r0", "h0/r0", "10.0.0.1", 51_000, 4791)
    jobs = RunningJobs()
    jobs.take(JobShard("j", "h0", qps=(near,)), S)
    owned = jobs.get("h0/r0#1")
    assert owned is not None and jobs.far_end(owned) is None
    jobs.take(JobShard("j", "h1", qps=(replace(far, dst="h2/r0"),)), S)
    assert jobs.far_end(owned) is None, "another pair of NICs"
    jobs.take(JobShard("j", "h1", qps=(far,)), S)
    assert jobs.far_end(owned) == jobs.get("h1/r0#9")


def qp_batch(rows: list[tuple[int, int, int]], qp: str = "q") -> object:
    """(window number, bytes, path)"""
    n = len(rows)
    needed = [f for f in QP_WINDOW.columns if not f.nullable]
    names = {f.name: ["x"] * n for f in needed if f.type == NAME}
    zeros = {f.name: np.zeros(n, f.type.to_pandas_dtype()) for f in needed if f.type != NAME}
    return columns.build(
        QP_WINDOW.columns,
        {
            **zeros,
            **names,
            "qp": [qp] * n,
            "at_ns": np.array([w * TICK_NS for w, _, _ in rows]),
            "window_ns": np.full(n, TICK_NS),
            "bytes": np.array([b for _, b, _ in rows], np.uint64),
            "path": np.array([p for _, _, p in rows], np.uint32),
        },
    )


def test_throughput_is_the_mean_over_windows_with_something_to_send() -> None:
    windows = QpWindows(Counters("t"))
    windows.take(qp_batch([(w, 1_000 if w < 10 else 3_000, 1 if w < 10 else 2) for w in (*range(5), *range(8, 14))]), S)  # type: ignore[arg-type]
    assert windows.between("q", 0, 9).bps == pytest.approx(80_000) and windows.between("q", 0, 9).n == 7
    assert windows.between("q", 0, 99, path=2).bps == pytest.approx(240_000)
    assert windows.first_on("q", 2, after=4) == 10 and windows.first_on("q", 2, after=13) is None
    assert windows.path("q", 2 * S) == 2 and windows.path("q", 9 * S) is None
    assert windows.rates(4, 2 * S) == {"q": pytest.approx(240_000)} and windows.rates(4, 9 * S) == {}
    windows.take(qp_batch([(RING + 2, 9, 2)]), S)  # type: ignore[arg-type]
    assert windows.between("q", 2, 2).n == 0, "overwritten by a later one"
    windows.take(qp_batch([(2, 9, 2)]), S)  # type: ignore[arg-type]
    assert windows.between("q", 2, 2).n == 0, "which an earlier one that comes late is not"
    windows.drop("q")
    assert windows.between("q", 0, 99).n == 0


def test_a_contested_queue_pair_is_the_others_when_one_job_ends_and_the_state_can_be_taken_up_again() -> None:
    """Found by the fuzzer: it stayed the ended job's, and no snapshot made meanwhile could be restored."""
    jobs = RunningJobs()
    for job in ("a", "b"):
        jobs.take(JobShard(job, "h0", seen_at_ns=5, qps=(PAIR,)), S)
    jobs.take(JobShard("b", "h0", state="ended"), S)
    owned = jobs.get(PAIR.qp)
    assert owned is not None and owned.job == "a"
    again = RunningJobs()
    again.restore(jobs.snapshot())
    assert again.snapshot() == jobs.snapshot() and again.get(PAIR.qp) == owned
