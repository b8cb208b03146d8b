"""The job map's engine: files and answers in, shards and events out."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from sdfstream.agent.jobmap.drop_file import MOST_BYTES, MOST_PAIRS, Unreadable
from sdfstream.agent.jobmap.jobmap import GRACE_NS, MOST_SHARDS, JobMap
from sdfstream.records.job import job_shard
from sdfstream.records.shapes import SHAPES
from sdfstream.records.topics import JOB
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.fixtures.jobs import BACK, KERNEL, PAIR, answer, file, pair

NAME, KEY = "train-7@h00.json", "train-7@h00"
CLOCK_NS = 1_790_000_000 * NS_PER_S


def _states(jobs: JobMap, now_ns: int) -> list[tuple[str, str, int]]:
    """(key, state, queue pairs) of every event that is due."""
    out = jobs.events(now_ns, CLOCK_NS + now_ns)
    for output in out:
        jsonschema.validate(output.body.data, SHAPES[JOB.name][JOB.name])
        assert job_shard(output.body.data).key == output.key
        assert output.body.source == output.body.data["host"]
        assert output.body.data["seen_at_ns"] == output.body.time_ns == CLOCK_NS + now_ns
    return [(o.key, o.body.data["state"], len(o.body.data["qps"])) for o in out]


def test_a_file_without_a_socket_is_a_shard_with_its_own_queue_pairs() -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(qps=[pair(KERNEL)])}, 0)
    (shard,) = jobs.shards
    assert (shard.key, shard.source, shard.qps, shard.ranks[0].nics) == (KEY, "dropdir", (KERNEL,), ("h00/r0",))
    assert jobs.version == 1 and jobs.sockets == {}


def test_a_shard_is_published_at_once_every_ten_seconds_and_once_when_it_ends() -> None:
    jobs = JobMap({"h00"}, "boot")
    jobs.take_files({NAME: file(qps=[pair(KERNEL)])}, 0)
    assert _states(jobs, 1) == [(KEY, "running", 1)]
    assert _states(jobs, 9 * NS_PER_S) == []
    assert _states(jobs, 1 + 10 * NS_PER_S) == [(KEY, "running", 1)]
    jobs.take_files({NAME: file(qps=[])}, 11 * NS_PER_S)
    assert _states(jobs, 11 * NS_PER_S) == [(KEY, "running", 0)]
    jobs.take_files({}, 12 * NS_PER_S)
    (end,) = jobs.events(12 * NS_PER_S, CLOCK_NS)
    assert (end.body.data["state"], end.body.data["since_at_ns"], end.body.id) == ("ended", CLOCK_NS, "boot-job-4")
    assert end.body.data["ranks"] == [{"rank": 0, "nics": ["h00/r0"], "pid": 77}]
    assert _states(jobs, 60 * NS_PER_S) == []
    assert jobs.version == 3


def test_queue_pairs_come_from_the_process_behind_the_socket() -> None:
    jobs = JobMap({"h00"}, folder="/run/jobs")
    jobs.take_files({NAME: file(control="train-7.sock", qps=[pair(PAIR, path=60000)])}, 0)
    assert jobs.sockets == {KEY: "/run/jobs/train-7.sock"}
    assert [p.qps for p in jobs.shards] == [()]
    jobs.take_answer(KEY, answer(PAIR, receives=(BACK,)), 1)
    (shard,) = jobs.shards
    assert (shard.qps, shard.receives, shard.source, shard.ranks[0].rank) == ((PAIR,), (BACK,), "process", 0)
    version = jobs.version
    jobs.take_answer(KEY, answer(PAIR, receives=(BACK,)) | {"qps": [pair(PAIR) | {"sent_bytes": 99}]}, 2)
    assert jobs.version == version, "bytes sent are no change of the map"
    for changed in (replace(PAIR, path=50002), replace(PAIR, alternates=()), replace(PAIR, rate_bps=10**9)):
        jobs.take_answer(KEY, answer(changed), 3)
        version += 1
        assert jobs.version == version
    jobs.take_files({NAME: file(control="train-7.sock", name="a name for people")}, 4)
    assert jobs.shards[0].qps and jobs.shards[0].name, "a rewritten file does not forget the process's answer"


def test_a_dead_process_loses_its_queue_pairs_at_once_and_ends_after_a_while_and_may_come_back() -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(control="/x.sock")}, 0)
    for _ in range(3):
        jobs.take_answer(KEY, None, 1)
    assert _states(jobs, 3600 * NS_PER_S) == [(KEY, "running", 0)], "not started yet"
    at = 3600 * NS_PER_S
    jobs.take_answer(KEY, answer(PAIR), at)
    assert _states(jobs, at) == [(KEY, "running", 1)]
    jobs.take_answer(KEY, None, at)
    jobs.take_answer(KEY, None, at + GRACE_NS - 1)
    assert _states(jobs, at + GRACE_NS - 1) == [(KEY, "running", 0)]
    version = jobs.version
    assert _states(jobs, at + GRACE_NS) == [(KEY, "ended", 0)]
    assert jobs.shards == [] and jobs.version == version + 1
    assert _states(jobs, at + 20 * GRACE_NS) == []
    jobs.take_answer(KEY, answer(PAIR), at + 20 * GRACE_NS)
    assert _states(jobs, at + 20 * GRACE_NS) == [(KEY, "running", 1)]
    assert jobs.counters.get("died") == 1 and len(jobs.notes()) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"version": 1, "job": "train-7", "ho', "not-json"),
        (b"[" * 100_000, "not-json"),
        (b"\xff\xfe", "not-json"),
        (b"[]", "not-json"),
        (b" " * (MOST_BYTES + 1), "oversized"),
        (file(version=2), "version"),
        (file(version=True), "version"),
        (file("other"), "name-mismatch"),
        (file(host="h01"), "name-mismatch"),
        (file(job=""), "job-part"),
        (file(control=7), "job-part"),
        (file(since_at_ns=-1), "job-part"),
        (file(state="asleep"), "job-part"),
        (file(name="x" * 1000), "job-part"),
        (file(qps={}), "answer"),
        (Unreadable("owner", "belongs to user 1000"), "owner"),
    ],
)
def test_a_bad_file_is_refused_with_one_note_and_tried_again_when_it_changes(content, reason: str) -> None:
    jobs = JobMap({"h00"})
    for _ in range(3):
        jobs.take_files({NAME: content}, 0)
    assert jobs.shards == []
    assert jobs.counters.as_dict() == {f"jobs.refused.{reason}": 1}
    (note,) = jobs.notes()
    assert NAME in note and reason in note
    jobs.take_files({NAME: file()}, 1)
    assert [p.key for p in jobs.shards] == [KEY] and jobs.notes() == []


def test_a_file_that_spoils_counts_as_it_was_for_a_while() -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(qps=[pair(KERNEL)])}, 0)
    assert _states(jobs, 0) == [(KEY, "running", 1)]
    jobs.take_files({NAME: b"{"}, NS_PER_S)
    jobs.take_files({NAME: b"{}"}, NS_PER_S + GRACE_NS - 1)
    assert [p.qps for p in jobs.shards] == [(KERNEL,)]
    assert _states(jobs, NS_PER_S + GRACE_NS) == [(KEY, "ended", 0)]
    jobs.take_files({NAME: file(qps=[pair(KERNEL)])}, 9 * NS_PER_S)
    assert _states(jobs, 9 * NS_PER_S) == [(KEY, "running", 1)]


def test_other_hosts_are_none_of_our_business_and_strange_names_are_refused_once() -> None:
    jobs = JobMap({"h00", "h02"})
    names = ("train-7@h01.json", ".train-7@h00.json", "a.tmp", "train-7.sock", "train-7.log")
    files = {name: b"rubbish" for name in names} | {"train-7.json": b"", "b@h02.json": file("b", "h02")}
    for _ in range(3):
        jobs.take_files(files, 0)
    assert [p.key for p in jobs.shards] == ["b@h02"]
    assert jobs.counters.as_dict() == {"jobs.refused.name": 1}
    jobs.take_files({}, 1)
    jobs.take_files(files, 2)
    assert jobs.counters.get("refused", "name") == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"src": "h01/r0"},
        {"src": "h00"},
        {"path": 0},
        {"path": "50001"},
        {"dst_port": 70000},
        {"alternates": ["x"]},
        {"alternates": [0]},
        {"alternates": 3},
        {"dscp": 64},
        {"rank": -1},
        {"protocol": "sctp"},
        {"steering": "magic"},
        {"dst_address": "nowhere"},
        {"answer_path": 70000},
        {"qp": "x" * 300},
        {"qp": "h00/r0#1"},
    ],
    ids=str,
)
def test_a_bad_queue_pair_is_refused_alone_with_one_note(bad: dict) -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(control="/x.sock")}, 0)
    odd = pair(PAIR, qp="h00/r0#2") | bad
    for now in range(3):
        jobs.take_answer(KEY, answer(PAIR) | {"qps": [pair(PAIR), odd]}, now)
    assert jobs.shards[0].qps == (PAIR,)
    assert jobs.counters.get("refused", "pair") == 1
    assert len(jobs.notes()) == 1


def test_a_queue_pair_that_ends_elsewhere_is_not_received_here() -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(control="/x.sock")}, 0)
    jobs.take_answer(KEY, answer(receives=(BACK, PAIR)), 1)
    assert jobs.shards[0].receives == (BACK,)


@pytest.mark.parametrize("odd", [{"job": "other"}, {"qps": 3}, {"error": "busy: not now"}, {"receives": {}}], ids=str)
def test_an_answer_that_cannot_be_used_leaves_the_last_one(odd: dict) -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(control="/x.sock")}, 0)
    jobs.take_answer(KEY, answer(PAIR), 1)
    for now in (2, 3):
        jobs.take_answer(KEY, answer(PAIR) | odd, now)
    assert jobs.shards[0].qps == (PAIR,)
    assert jobs.counters.get("refused", "answer") == 2 and len(jobs.notes()) == 1
    jobs.take_answer("nobody@h00", answer(PAIR), 4)


def test_shards_and_queue_pairs_are_bounded() -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({f"j{i}@h00.json": file(f"j{i}") for i in range(MOST_SHARDS + 2)}, 0)
    assert len(jobs.shards) == MOST_SHARDS and jobs.counters.get("refused", "too-many") == 2
    jobs.take_files({NAME: file(control="/x.sock")}, 1)
    many = [pair(PAIR, qp=f"h00/r0#{i}") for i in range(MOST_PAIRS + 5)]
    jobs.take_answer(KEY, answer() | {"qps": many}, 2)
    assert len(jobs.shards[0].qps) == MOST_PAIRS and jobs.counters.get("refused", "pair") == 1


def test_a_file_cannot_pretend_that_a_socket_steers_what_no_socket_owns() -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(qps=[pair(PAIR)])}, 0)
    assert jobs.shards[0].qps[0].steering == "none"


def test_events_of_a_quiet_map_cost_nothing_on_the_bus() -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(control="/x.sock")}, 0)
    reported = 0
    for now in range(0, 30 * NS_PER_S, 100 * NS_PER_MS):
        jobs.take_answer(KEY, answer(PAIR), now)
        reported += len(jobs.events(now, CLOCK_NS + now))
    assert reported == 3
