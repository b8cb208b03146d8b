"""ClickHouse's own Kafka engine subscribes to our bulk topics on a real broker, with no code of ours in between.

chDB contains the engine (its CREATE complains of a shutdown and the table works all the same). The statements are
those of docs/archive.md. What is read is compared row by row count and by sums over every kind of column; of a topic
written in transactions only what was committed may arrive.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer

from sdfstream.bus import codec
from sdfstream.records.message import Output
from sdfstream.records.topics import OWD, PROBE, Topic
from tests.fixtures.archive import bulk
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka

DOCS = Path(__file__).parents[2] / "docs" / "archive.md"
SUMS = {
    PROBE.name: "count(), sum(seq), sum(reinterpretAsUInt64(t1_ns)), sum(reinterpretAsUInt64(t4_ns)),"
    " countIf(t4_ns IS NULL), uniqExact(src), sum(length(plane)), sum(rx_host_ns), sum(ecn_fwd)",
    OWD.name: "count(), sum(n), sum(lost), sum(reinterpretAsUInt64(at_ns)), sum(reinterpretAsUInt64(owd_max_ns)),"
    " countIf(owd_min_ns IS NULL), uniqExact(dst), sum(length(dir))",
}

READER = """
import contextlib, json, sys, time
import chdb
folder, statements, sums, wanted = json.loads(sys.stdin.read())
chdb_ = chdb.connect(folder)
for sql in statements:
    try:
        chdb_.query(sql)
    except RuntimeError as error:
        if "Shutdown was called" not in str(error):  # chDB says so and makes the table all the same
            raise
def count(table):
    return int(chdb_.query(f"SELECT count() FROM {table}", "TSV").bytes().decode())
deadline = time.monotonic() + 100
while time.monotonic() < deadline and any(count(t) < n for t, n in wanted.items()):
    time.sleep(0.2)
time.sleep(2)  # whatever came twice, or was never committed, would be here now
print(json.dumps({t: chdb_.query(f"SELECT {sql} FROM {t}", "TSV").bytes().decode().split() for t, sql in sums.items()}))
sys.stdout.flush()
import os
os._exit(0)  # a Kafka table waits for its consumer at the end
"""


def subscription(topic: Topic, broker: str, name: str) -> list[str]:
    """The statements that docs/archive.md gives for `topic`, with this broker and topic name."""
    text = DOCS.read_text(encoding="utf-8")
    blocks = [b.split("```", 1)[0] for b in text.split("```sql\n")[1:]]
    (block,) = [b for b in blocks if "ENGINE = Kafka" in b and f"'{topic.name}'" in b]
    block = block.replace("kafka:9092", broker).replace(f"'{topic.name}'", f"'{name}'")
    block = block.replace("'our-clickhouse", f"'{name}")  # a group whose member was killed waits 45 s for it
    return [s.strip() for s in block.split(";\n") if s.strip()]


async def publish(broker: Broker, name: str, topic: Topic, batches: list[pa.RecordBatch], *, abort: int = 0) -> None:
    """`batches` as our agents send them; with `abort`, in transactions with so many aborted ones among them."""
    given = {"bootstrap_servers": broker.address, "acks": "all", "max_request_size": 4 << 20}
    if abort:
        given["transactional_id"] = uuid.uuid4().hex
    else:
        given["enable_idempotence"] = True
    async with AIOKafkaProducer(**given) as producer:
        for number, batch in enumerate(batches):
            headers, value = codec.encode(Output(topic.name, "h00", batch), "boot", number, bus_at_ns=1)
            if not abort:
                await producer.send_and_wait(name, value, key=b"h00", headers=headers)
                continue
            if number < abort:
                await producer.begin_transaction()
                await producer.send_and_wait(name, value, key=b"h00", headers=headers)
                await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(name, value, key=b"h00", headers=headers)


def read(folder: Path, statements: list[str], wanted: dict[str, int], sums: dict[str, str]) -> dict[str, list[str]]:
    given = json.dumps([str(folder), statements, sums, wanted])
    done = subprocess.run([sys.executable, "-c", READER], input=given, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def expected(topic: Topic, batches: list[pa.RecordBatch]) -> list[str]:
    whole = pa.Table.from_batches(batches)

    def values(name: str) -> list[Any]:
        return [v for v in whole[name].to_pylist() if v is not None]

    def bits(name: str) -> int:
        kind = np.float64 if pa.types.is_floating(whole[name].type) else np.int64
        return int(np.array(values(name), kind).view(np.uint64).sum(dtype=np.uint64))

    if topic is PROBE:
        found = [whole.num_rows, sum(values("seq")), bits("t1_ns"), bits("t4_ns"), whole["t4_ns"].null_count]
        found += [
            len(set(values("src"))),
            sum(map(len, values("plane"))),
            sum(values("rx_host_ns")),
            sum(values("ecn_fwd")),
        ]
    else:
        found = [whole.num_rows, sum(values("n")), sum(values("lost")), bits("at_ns"), bits("owd_max_ns")]
        found += [whole["owd_min_ns"].null_count, len(set(values("dst"))), sum(map(len, values("dir")))]
    return [str(v) for v in found]


async def test_clickhouse_subscribes_to_probes_and_delays(kafka: Broker, tmp_path: Path) -> None:
    rng = np.random.default_rng(20261121)
    names = {t.name: f"{t.name}.{uuid.uuid4().hex[:8]}" for t in (PROBE, OWD)}
    sent = {t.name: [bulk(t, 2_000, rng) for _ in range(5)] for t in (PROBE, OWD)}
    for topic in (PROBE, OWD):
        await publish(kafka, names[topic.name], topic, sent[topic.name])
    statements = [s for t in (PROBE, OWD) for s in subscription(t, kafka.address, names[t.name])]
    tables = {"received_probe": PROBE, "received_owd": OWD}
    got = read(
        tmp_path / "chdb", statements, dict.fromkeys(tables, 10_000), {n: SUMS[t.name] for n, t in tables.items()}
    )
    assert got == {name: expected(topic, sent[topic.name]) for name, topic in tables.items()}


async def test_of_a_topic_in_transactions_only_what_was_committed_arrives(kafka: Broker, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    name = f"{OWD.name}.{uuid.uuid4().hex[:8]}"
    sent = [bulk(OWD, 500, rng) for _ in range(8)]
    await publish(kafka, name, OWD, sent, abort=5)
    statements = subscription(OWD, kafka.address, name)
    got = read(tmp_path / "chdb", statements, {"received_owd": 4_000}, {"received_owd": SUMS[OWD.name]})
    assert got == {"received_owd": expected(OWD, sent)}
