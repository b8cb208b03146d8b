"""Messages that nobody can read, one kind after another, each with bytes of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sdfstream.bus.codec import ARROW_CONTENT_TYPE
from sdfstream.records.fabric import host_of
from sdfstream.records.topics import JOB, LIVENESS, OWD, PROBE, QP, TOPICS, TOPOLOGY
from tests.chaos import digest
from tests.chaos.onbus import Poison

HUGE_BYTES = 8_300_000
"""Just below the largest message."""


def _headers(topic: str, content: str = ARROW_CONTENT_TYPE) -> tuple[tuple[str, bytes], ...]:
    return (("schema", topic.encode()), ("content-type", content.encode()))


def _stream(batch: pa.RecordBatch, more: int = 0) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(1 + more):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def nulls(seed_rows: pa.RecordBatch, name: str) -> Poison:
    """Rows of which the first has a null where none may be; the others are good, under their own host's key."""
    key = host_of(seed_rows.column("src")[0].as_py())
    mask = np.arange(seed_rows.num_rows) == 0
    at = seed_rows.schema.get_field_index("t1_ns")
    # the good rows must be nobody else's: moved by an hour
    moved = pc.add(seed_rows.column(at), pa.scalar(3_600_000_000_000))
    broken = pc.if_else(pa.array(mask), pa.scalar(None, pa.int64()), moved)
    fields = [f.with_nullable(True) if f.name == "t1_ns" else f for f in seed_rows.schema]
    arrays = [broken if i == at else seed_rows.column(i) for i in range(seed_rows.num_columns)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    good = batch.filter(pa.array(~mask))
    (sum_,) = digest.batches(PROBE.name, [good])
    return Poison(name, PROBE.name, key, _stream(batch), _headers(PROBE.name), good.num_rows, sum_)


def make(kind: int, number: int, rng: np.random.Generator, sample: pa.RecordBatch, key: str) -> Poison:
    """Poison number `number`, of kind `kind` (any number); `sample` is a good batch of `PROBE`."""
    mark = f"poison-{number}-{rng.integers(1 << 40)}".encode()
    junk = rng.bytes(300) + mark
    arrow = _stream(sample.slice(0, 1))
    wrong = _stream(pa.RecordBatch.from_pydict({"not": [1], "ours": [mark]}))
    event = b'{"specversion":"1.0","id":"%s"}' % mark
    kinds: list[Any] = [
        (PROBE.name, "no headers", junk, ()),
        (PROBE.name, "garbage", junk, _headers(PROBE.name)),
        (PROBE.name, "behind the stream", arrow + mark, _headers(PROBE.name)),
        (PROBE.name, "other columns", wrong, _headers(PROBE.name)),
        (LIVENESS.name, "another schema", event, _headers(PROBE.name)),
        (LIVENESS.name, "half an event", event, _headers(LIVENESS.name)),
        (TOPOLOGY.name, "no JSON", b"{" + mark, _headers(TOPOLOGY.name)),
        (JOB.name, "NaN", b'{"a":NaN,"b":"%s"}' % mark, _headers(JOB.name)),
        (QP.name, "garbage", junk, _headers(QP.name)),
        (OWD.name, "garbage", junk, _headers(OWD.name)),
        (PROBE.name, "huge", rng.bytes(HUGE_BYTES) + mark, _headers(PROBE.name)),
        "nulls",
    ]
    chosen = kinds[kind % len(kinds)]
    if chosen == "nulls":
        return nulls(sample, f"{number} nulls")
    topic, name, value, headers = chosen
    assert topic in TOPICS
    return Poison(f"{number} {name} on {topic}", topic, key, value, headers)
