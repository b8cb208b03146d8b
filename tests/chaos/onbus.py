"""What is on the topics at the end, read by a client that shares no code with the product's: librdkafka's.

Reads committed records only. Arrow is read by pyarrow itself and JSON by Python's; of the product only the list of
topics and their columns is used.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from sdfstream.records.position import PARTITION_BITS
from sdfstream.records.topics import CLOCK, COMMAND, EDGE, ESTIMATE, FINDING, OWD, PROBE, QP, QP_WINDOW, TOPICS
from tests.chaos import digest
from tests.chaos.accounting import Place, Record
from tests.chaos.judgements import Said

KEYS: dict[str, tuple[str, ...]] = {
    OWD.name: ("src", "dst", "transport", "path", "dscp", "dir", "at_ns"),
    CLOCK.name: ("clock", "kind", "at_ns"),
    ESTIMATE.name: ("tick_at_ns", "clock"),
    EDGE.name: ("tick_at_ns", "clock_src", "clock_dst"),
}
"""Columns that name one statement of a stage: a second row with the same ones was made by doing the work twice."""
TALLIES: dict[str, tuple[tuple[str, ...], pl.Expr]] = {
    PROBE.name: (("src", "dst", "path", "dscp_sent"), pl.len()),
    OWD.name: (("src", "dst", "path", "dscp"), (pl.col("n") + pl.col("lost")).filter(pl.col("dir") == "fwd").sum()),
    QP.name: (("qp",), pl.len()),
    QP_WINDOW.name: (("qp",), pl.col("n").sum()),
}
"""What rows are about, and what is summed up: exchanges and chunks given to a stage, and what it said of them."""
_WAIT_S = 60.0


@dataclass(slots=True)
class Topic:
    """One topic as it is."""

    name: str
    records: list[Record] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    """Of findings and commands what they say."""
    statements: list[pl.DataFrame] = field(default_factory=list)
    """Of each row the hash of what names it (`KEYS`), and the run that said it."""
    events: list[str] = field(default_factory=list)
    """Of each event its source and id."""
    tally: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    """By what the rows are about (`TALLIES`), repeats left out."""
    dead: list[str] = field(default_factory=list)
    """Of a dead-letter topic the fingerprint of every record that quotes a whole message."""
    about: list[Place] = field(default_factory=list)
    """Of a dead-letter topic the messages of which a stage refused rows that could be read."""
    unreadable: list[str] = field(default_factory=list)
    """Places of records that are no poison and cannot be read."""

    @property
    def said_again(self) -> int:
        """Events that are there again, and rows that another run said too.

        One run may say the same instant of a clock twice, when it thinks better of it; what two runs of a task say of
        one thing was worked out twice.
        """
        again = len(self.events) - len(set(self.events))
        if self.statements:
            runs = pl.concat(self.statements).group_by("what").agg(pl.col("run").n_unique() - 1)
            again += int(runs["run"].sum())
        return again


@dataclass(frozen=True, slots=True)
class Poison:
    """A message that somebody put on the bus and that cannot be read, or not whole."""

    name: str
    topic: str
    key: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    good_rows: int = 0
    """Rows of it that can be read all the same."""
    good_digest: int = 0

    @property
    def fingerprint(self) -> str:
        """Of its bytes."""
        return digest.fingerprint(self.value)


def consumer(servers: str, group: str = "chaos-auditor") -> Any:
    """A plain consumer of committed records; it never joins its group."""
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
            "fetch.message.max.bytes": 16 << 20,
            "receive.message.max.bytes": 128 << 20,
        }
    )


def ends(servers: str, names: Iterable[str]) -> dict[tuple[str, int], int]:
    """The offset behind the last committed record of every partition."""
    with closing(consumer(servers)) as client:
        known = client.list_topics(timeout=_WAIT_S).topics
        parts = [TopicPartition(n, p) for n in names if n in known for p in known[n].partitions]
        return {(p.topic, p.partition): client.get_watermark_offsets(p, timeout=_WAIT_S)[1] for p in parts}


def behind(servers: str, group: str, ends: Mapping[tuple[str, int], int]) -> int:
    """How many records before `ends` the group has not committed; partitions it has no position in are not its own."""
    with closing(consumer(servers, group)) as client:
        parts = [TopicPartition(topic, partition) for topic, partition in ends]
        told = client.committed(parts, timeout=_WAIT_S)
    return sum(max(0, ends[p.topic, p.partition] - p.offset) for p in told if p.offset >= 0)


def raw(servers: str, name: str) -> Iterator[Any]:
    """Every committed record of a topic."""
    with closing(consumer(servers)) as client:
        known = client.list_topics(timeout=_WAIT_S).topics
        if name not in known:
            return
        parts = [TopicPartition(name, p, OFFSET_BEGINNING) for p in known[name].partitions]
        left = {p.partition for p in parts if _holds(client, p)}
        client.assign(parts)
        high = {p.partition: client.get_watermark_offsets(p, timeout=_WAIT_S)[1] for p in parts}
        deadline_s = time.monotonic() + _WAIT_S
        while left:
            for message in client.consume(2000, timeout=0.5):
                if message.error():
                    raise RuntimeError(f"{name}: {message.error()}")
                deadline_s = time.monotonic() + _WAIT_S
                yield message
            # markers of transactions stand behind the last record: the position passes them, no record does
            for at in client.position(list(parts)):
                if at.offset >= high[at.partition]:
                    left.discard(at.partition)
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{name}: no end in sight at {client.position(list(parts))}, ends are {high}")


def _holds(client: Any, part: Any) -> bool:
    low, high = client.get_watermark_offsets(part, timeout=_WAIT_S)
    return bool(high > low)


def read(servers: str, name: str, poisons: Mapping[str, Poison], start_ns: int) -> Topic:
    """One topic, record by record; `poisons` by fingerprint."""
    topic = Topic(name)
    if name.endswith(".dlq"):
        for message in raw(servers, name):
            value = message.value() or b""
            if (place := _refused(value, dict(message.headers() or ()))) is not None:
                topic.about.append(place)
            else:
                topic.dead.append(digest.fingerprint(value))
        return topic
    bulk = TOPICS[name].columns is not None
    bodies: list[pa.RecordBatch] = []
    where: list[int] = []
    seen: set[tuple[str, str, str, int]] = set()
    for message in raw(servers, name):
        value = message.value() or b""
        poison = poisons.get(digest.fingerprint(value))
        record = _record(message, poison)
        if poison is None:
            try:
                record = (
                    _with_batch(record, value, bodies, where, len(topic.records))
                    if bulk
                    else _with_event(topic, record, value, start_ns, message)
                )
            except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
                topic.unreadable.append(f"{name}[{record.partition}]@{record.offset}: {error}"[:200])
        topic.records.append(record)
    for begin in range(0, len(bodies), 2000):
        part = bodies[begin : begin + 2000]
        for at, sum_ in zip(where[begin:], digest.batches(name, part), strict=False):
            topic.records[at] = replace(topic.records[at], digest=sum_)
        if name in KEYS:
            runs = [topic.records[at].boot_id for at in where[begin : begin + len(part)]]
            topic.statements.append(_statements(name, part, runs))
        if name in TALLIES:
            first = [b for b, at in zip(part, where[begin:], strict=False) if _is_first(topic.records[at], seen)]
            topic.tally.update(_tally(name, first))
    topic.records.sort(key=lambda r: (r.partition, r.offset))
    return topic


def _refused(value: bytes, headers: Mapping[str, bytes]) -> Place | None:
    """The message of which a stage says that it refused rows."""
    if "schema" in headers or not value.startswith(b"{"):
        return None
    try:
        data = json.loads(value)["data"]
        return data["topic"], data["bus_seq"] >> PARTITION_BITS, data["bus_seq"] & ((1 << PARTITION_BITS) - 1)
    except (ValueError, KeyError, TypeError):
        return None


def _record(message: Any, poison: Poison | None) -> Record:
    headers = dict(message.headers() or ())
    seq = headers.get("batch_seq", b"")
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        (message.key() or b"").decode(errors="replace"),
        headers.get("boot_id", b"").decode(errors="replace"),
        int(seq) if seq.isdigit() else -1,
        poison.good_rows if poison else 0,
        poison.good_digest if poison else 0,
        poison.name if poison else "",
    )


def _with_batch(record: Record, value: bytes, bodies: list[Any], where: list[int], number: int) -> Record:
    (batch,) = pa.ipc.open_stream(value)
    bodies.append(batch)
    where.append(number)
    return replace(record, rows=batch.num_rows)


def _with_event(topic: Topic, record: Record, value: bytes, start_ns: int, message: Any) -> Record:
    event = json.loads(value)
    id_, source, type_, data = (event[name] for name in ("id", "source", "type", "data"))
    topic.events.append(f"{source} {id_}")
    if topic.name in (FINDING.name, COMMAND.name):
        place = f"{topic.name}[{record.partition}]@{record.offset}"
        # when it was seen, not when it was said: stages may be behind the bus
        seen_ns = data.get("seen_at_ns", data.get("issued_at_ns", 0))
        at_s = (seen_ns - start_ns) / 1e9
        topic.said.append(Said(place, f"{source} {id_}", at_s, data))
    return replace(record, rows=1, digest=digest.event(id_, source, type_, data))


def _is_first(record: Record, seen: set[tuple[str, str, str, int]]) -> bool:
    stream = record.stream
    if stream is None:
        return True
    known = stream in seen
    seen.add(stream)
    return not known


def _frame(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pl.DataFrame:
    table = pa.concat_tables([pa.Table.from_batches([b]).select(columns) for b in batches]).unify_dictionaries()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _statements(name: str, batches: Sequence[pa.RecordBatch], runs: Sequence[str]) -> pl.DataFrame:
    said_by = np.repeat(np.array(runs, dtype=object), [b.num_rows for b in batches])
    return pl.DataFrame(
        {"what": _frame(batches, KEYS[name]).hash_rows(seed=7), "run": pl.Series(said_by.tolist(), dtype=pl.String)}
    )


def _tally(name: str, batches: Sequence[pa.RecordBatch]) -> dict[tuple[Any, ...], int]:
    about, what = TALLIES[name]
    if not batches:
        return {}
    columns = [*about, *(c for c in ("n", "lost", "dir") if c in batches[0].schema.names)]
    sums = _frame(batches, columns).group_by(about).agg(what.alias("sum"))
    return {tuple(row[:-1]): int(row[-1]) for row in sums.iter_rows()}
