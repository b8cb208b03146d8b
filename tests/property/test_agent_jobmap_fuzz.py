"""Whatever lies in the drop directory or comes from a socket: refused with a reason, never an exception."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.agent.jobmap.drop_file import read_file
from sdfstream.agent.jobmap.jobmap import JobMap
from sdfstream.errors import FormatError
from tests.fixtures.jobs import KERNEL, PAIR, answer, file, pair

NAME = "train-7@h00.json"
GOOD = file(qps=[pair(KERNEL)], control="")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["version", "job", "host", "ranks", "qps", "receives", "control", "name", "since_at_ns", "state"]
)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes(content: bytes) -> None:
    try:
        read_file(NAME, content)
    except FormatError as error:
        assert error.reason


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_damaged_bytes(damage: list[tuple[int, int]]) -> None:
    spoilt = bytearray(GOOD)
    for at, byte in damage:
        spoilt[at] = byte
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: bytes(spoilt)}, 0)
    assert len(jobs.shards) + jobs.counters.total("refused") - jobs.counters.get("refused", "pair") == 1
    jobs.events(0, 1)


@given(FIELDS, JSON)
@settings(max_examples=300, deadline=None)
def test_a_field_of_any_type(field: str, value: object) -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: json.dumps(json.loads(GOOD) | {field: value}).encode()}, 0)
    jobs.events(0, 1)


@given(st.sampled_from(sorted(pair(PAIR))), JSON)
@settings(max_examples=300, deadline=None)
def test_a_queue_pairs_field_of_any_type(field: str, value: object) -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(control="/s")}, 0)
    jobs.take_answer("train-7@h00", answer() | {"qps": [pair(PAIR) | {field: value}, pair(PAIR, qp="h00/r0#2")]}, 1)
    (output,) = jobs.events(2, 3)
    assert [qp["qp"] for qp in output.body.data["qps"]][-1] == "h00/r0#2"
    json.dumps(output.body.data, allow_nan=False).encode()


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_any_answer(value: object) -> None:
    jobs = JobMap({"h00"})
    jobs.take_files({NAME: file(control="/s")}, 0)
    jobs.take_answer("train-7@h00", value, 1)  # type: ignore[arg-type]
    jobs.take_answer("train-7@h00", answer() | {"qps": value, "ranks": value}, 1)
    jobs.events(2, 3)
