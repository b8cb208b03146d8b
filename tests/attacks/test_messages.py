"""Messages that once ended a stage or an agent, through the real decoders: refused with a reason, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.agent.commands.admission import Admission, Refusal
from sdfstream.agent.jobmap.drop_file import read_file, read_pairs
from sdfstream.agent.publish_io import PublishBuffer
from sdfstream.bus import codec
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.errors import FormatError
from sdfstream.records.fabric import PATH_TYPE
from sdfstream.records.job import JobShard
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.shapes import SHAPES
from sdfstream.records.signature import KeyRing, key_id
from sdfstream.records.topics import CLOCK, COMMAND, JOB, LIVENESS, MESH, PROBE, TOPICS, TOPOLOGY
from sdfstream.stats import Counters
from tests.bus_samples import clock_batch, probe_batch
from tests.fixtures.shapes import sample

TRACED = sample(SHAPES[TOPOLOGY.name][PATH_TYPE])
HEARD = sample(SHAPES[LIVENESS.name][LIVENESS.name])
PLAN = sample(SHAPES[MESH.name][MESH.name])
AT = "2026-11-22T10:00:00.000000000Z"


def wire(topic: str, data: Any, type_: str = "", **envelope: Any) -> bytes:
    """An event as a stranger may write it; a str among the values stands for itself, also as ``1e400``."""
    whole = {"specversion": "1.0", "id": "1", "source": "h00", "type": type_ or topic, "time": AT, "data": data}
    text = json.dumps(whole | envelope)
    return text.replace('"~', "").replace('~"', "").encode()


def literally(number: str) -> str:
    """A number that `json.dumps` would not write."""
    return f"~{number}~"


def in_change(**fields: Any) -> dict[str, Any]:
    return HEARD | {"changes": [HEARD["changes"][0] | fields]}


HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "path of 2^63": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"path": 1 << 63}, PATH_TYPE), "shape"),
    "path of 2^32": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"path": 1 << 32}, PATH_TYPE), "shape"),
    "path is true": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"path": True}, PATH_TYPE), "shape"),
    "path is a list": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"path": [1]}, PATH_TYPE), "shape"),
    "hops are objects": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"hops": [{}]}, PATH_TYPE), "shape"),
    "traced in 2262": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"traced_at_ns": 1 << 62 | 1}, PATH_TYPE), "shape"),
    "traced before 1970": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"traced_at_ns": -1}, PATH_TYPE), "shape"),
    "liveness of 1e400": (LIVENESS.name, wire(LIVENESS.name, in_change(interval_ns=literally("1e400"))), "shape"),
    "an endless interval": (LIVENESS.name, wire(LIVENESS.name, in_change(interval_ns=1 << 62)), "shape"),
    "missed 2^70": (LIVENESS.name, wire(LIVENESS.name, in_change(missed=1 << 70)), "shape"),
    "since 2^63": (LIVENESS.name, wire(LIVENESS.name, in_change(since_at_ns=1 << 63)), "shape"),
    "a change is a number": (LIVENESS.name, wire(LIVENESS.name, HEARD | {"changes": [7]}), "shape"),
    "no host": (LIVENESS.name, wire(LIVENESS.name, {k: v for k, v in HEARD.items() if k != "host"}), "shape"),
    "an escape in a host": (LIVENESS.name, wire(LIVENESS.name, HEARD | {"host": "h\x1b[2J"}), "shape"),
    "a surrogate in a NIC": (LIVENESS.name, wire(LIVENESS.name, in_change(observer="h00/\ud800")), "shape"),
    "a NIC of 1 MB": (LIVENESS.name, wire(LIVENESS.name, in_change(observer="h" * 1_000_000)), "shape"),
    "a field of 1e400": (LIVENESS.name, wire(LIVENESS.name, HEARD | {"new": literally("1e400")}), "json"),
    "a field of 2^70": (LIVENESS.name, wire(LIVENESS.name, HEARD | {"new": {"at": [1 << 70]}}), "json"),
    "a field 600 deep": (
        LIVENESS.name, wire(LIVENESS.name, HEARD | {"new": literally("[" * 600 + "]" * 600)}), "json"
    ),
    "year 9999": (LIVENESS.name, wire(LIVENESS.name, HEARD, time="9999-12-31T23:59:59Z"), "time"),
    "year 1": (LIVENESS.name, wire(LIVENESS.name, HEARD, time="0001-01-01T00:00:00+23:59"), "time"),
    "an escape in a source": (LIVENESS.name, wire(LIVENESS.name, HEARD, source="\x1b]0;x\x07"), "name"),
    "a plan of 1e400": (MESH.name, wire(MESH.name, PLAN | {"budget_pps": literally("1e400")}), "shape"),
    "a plan of NaN": (MESH.name, wire(MESH.name, PLAN | {"send_pps": literally("NaN")}), "json"),
    "a shortfall of lists": (MESH.name, wire(MESH.name, PLAN | {"shortfall": {"clock_rate_hz": []}}), "shape"),
    "a name twice": (MESH.name, wire(MESH.name, PLAN).replace(b'"host":', b'"host": 7, "host":'), "json"),
}  # fmt: skip


@pytest.mark.parametrize(("topic", "value", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_row_3_an_event_out_of_bounds_reaches_no_stage(topic: str, value: bytes, reason: str) -> None:
    headers = [("schema", topic.encode())]
    with pytest.raises(FormatError) as refused:
        codec.decode(topic, headers, value)
    assert refused.value.reason == reason


async def test_row_3_what_is_refused_is_a_dead_letter_and_counted() -> None:
    bus = MemoryBus(lambda: 1, boot_id="bus")
    topics = sorted({topic for topic, _, _ in HOSTILE.values()})
    reader = await bus.subscribe("g", topics)
    dead = await bus.subscribe("d", [TOPICS[t].dead_letters for t in topics])
    for topic, value, _ in HOSTILE.values():
        await bus.publish_bytes(topic, "h00", [("schema", topic.encode())], value)
    assert await reader.read(1000, 0.01) == []
    reasons = sorted(m.body.data["reason"] for m in await dead.read(1000, 0.01))  # type: ignore[union-attr]
    assert reasons == sorted(reason for _, _, reason in HOSTILE.values())
    await bus.close()


def probe_rows(rows: int, **instead: Any) -> pa.RecordBatch:
    """Probe rows that are all alike, which Zstandard packs into next to nothing."""
    one = probe_batch(1)
    arrays = [one.column(i).take(pa.array(np.zeros(rows, np.int32))) for i in range(one.num_columns)]
    return pa.RecordBatch.from_arrays(
        [instead.get(name, array) for name, array in zip(one.schema.names, arrays, strict=True)], one.schema.names
    )


def stream(batch: pa.RecordBatch, compression: str | None = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


BOMBS: dict[str, Callable[[], bytes]] = {
    "1 M rows": lambda: stream(probe_rows(1_000_000)),
    "1 M rows, LZ4": lambda: stream(probe_rows(1_000_000), "lz4"),
    "10 M rows of null": lambda: stream(pa.record_batch([pa.nulls(10_000_000)], ["plane"]), None),
    "1 M names": lambda: stream(
        probe_rows(
            1, src=pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), [f"h/{i:x}" for i in range(200_000)])
        ),
        None,
    ),
    "a name of 100 MB": lambda: stream(
        probe_rows(1, src=pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), ["h" * 100_000_000]))
    ),
    "an escape in a name": lambda: stream(
        probe_rows(1, src=pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), ["h\x1b[2J/r0"]))
    ),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_row_5_a_message_that_unpacks_to_more_than_its_bound_is_refused_unread(bomb: Callable[[], bytes]) -> None:
    value = bomb()
    before = pa.total_allocated_bytes()
    pa_peak = pa.default_memory_pool().max_memory() or 0
    with pytest.raises(FormatError) as refused:
        codec.decode(PROBE.name, [("schema", PROBE.name.encode())], value)
    assert refused.value.reason in ("arrow-size", "name", "null")
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert (pa.default_memory_pool().max_memory() or 0) - pa_peak < 64 << 20


def test_row_5_rows_out_of_bounds_are_left_out_and_the_others_go_on() -> None:
    t1 = np.array([1, -1, 1 << 62, (1 << 62) + 1, -(1 << 63), (1 << 63) - 1])
    rows = probe_rows(6, t1_ns=pa.array(t1))
    decoded = codec.decode(PROBE.name, [("schema", PROBE.name.encode())], stream(rows, None))
    assert decoded.refused_rows == 4
    assert decoded.body.column("t1_ns").to_pylist() == [1, 1 << 62]  # type: ignore[union-attr]


def test_row_5_numbers_that_are_not_finite_are_left_out() -> None:
    rows = clock_batch(7, 4)
    at = rows.schema.get_field_index("err_ns")
    rows = rows.set_column(at, rows.schema.field(at), pa.array([1.0, float("nan"), float("inf"), 2.0]))
    decoded = codec.decode(CLOCK.name, [("schema", CLOCK.name.encode())], stream(rows, None))
    assert decoded.refused_rows == 2
    assert decoded.body.column("at_ns").to_pylist() == [7, 10]  # type: ignore[union-attr]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


COMMANDED = sample(SHAPES[COMMAND.name][COMMAND.name])


@pytest.mark.parametrize("field", ["set", "reason", "target", "new"])
def test_row_4_an_unsigned_command_of_600_nested_lists_ends_no_agent(field: str) -> None:
    held = {field: {"x": nested(600)}} if field != "reason" else {field: nested(600)}
    value = wire(COMMAND.name, COMMANDED | {field: literally("HERE")})
    value = value.replace(b"HERE", json.dumps(held[field]).encode())
    with pytest.raises(FormatError) as refused:
        codec.decode(COMMAND.name, [("schema", COMMAND.name.encode())], value)
    assert refused.value.reason in ("json", "shape")
    # nor one that shares a process with the bus, where nothing is encoded
    event = Event(COMMAND.name, "stranger", "1", 1, COMMANDED | held)
    admission = Admission(["h0"], KeyRing([]))
    answer = admission.read(Message(COMMAND.name, "h0", event, 1, 0), 1)
    assert isinstance(answer, Refusal) and answer.reason == "malformed"
    KeyRing([bytes(32)]).refuses(COMMANDED | held | {"key_id": key_id(bytes(32))})


SURROGATE = "h00/\ud800"


async def test_row_7_an_event_that_cannot_be_written_does_not_mute_those_behind_it() -> None:
    bus, counters = MemoryBus(lambda: 1, boot_id="bus"), Counters("agent")
    reader = await bus.subscribe("g", [LIVENESS.name, JOB.name])
    buffer = PublishBuffer(bus, counters)
    bad = Output(JOB.name, "j@h00", Event(JOB.name, "h00", "1", 1, {"ranks": [{"rank": 0, "nics": [SURROGATE]}]}))
    nan = Output(JOB.name, "j@h00", Event(JOB.name, "h00", "2", 1, {"at": float("nan")}))
    keyed = Output(JOB.name, SURROGATE, Event(JOB.name, "h00", "3", 1, {}))
    urgent = Output(LIVENESS.name, "h00", Event(LIVENESS.name, "h00", "4", 1, HEARD))
    buffer.put([bad, nan, keyed, urgent])
    sending = asyncio.create_task(buffer.run())
    try:
        found: list[Message] = []
        async with asyncio.timeout(20):
            while not found:
                found = await reader.read(10, 0.1)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert [m.topic for m in found] == [LIVENESS.name]
    assert (counters.get("refused", "unwritable"), counters.get("refused", "key")) == (2, 1)
    assert counters.total("publish-failed") == 0
    await bus.close()


def test_row_7_a_surrogate_in_a_jobs_answer_is_refused_where_it_enters() -> None:
    job = JobShard("j", "h00")
    ranks = [{"rank": 0, "nics": [SURROGATE]}, {"rank": 1, "nics": ["h00/r1"]}, {"rank": 2, "nics": ["h00/\x1b[2J"]}]
    taken = read_pairs(job, {"ranks": ranks, "qps": []})
    assert [rank.rank for rank in taken.ranks] == [1]
    assert len(taken.refused) == 1
    with pytest.raises(FormatError, match="not-json"):
        read_file("j@h00.json", b'{"version": 1, "ranks": [{"rank": 0, "nics": ["h00/\\ud800"]}]}')
