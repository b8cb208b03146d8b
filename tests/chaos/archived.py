"""What is in the archive at the end, record by record, by SQL over ClickHouse's HTTP protocol."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from sdfstream.archive.tables import table_of
from sdfstream.records.position import PARTITION_BITS
from sdfstream.records.topics import ARCHIVED, NAME, Topic
from tests.chaos import digest
from tests.chaos.accounting import Kept

_AT_ONCE = 400_000
"""Rows of one answer."""


class Sql:
    """Questions to one address; nothing is kept open between them."""

    def __init__(self, port: int, token: str, database: str = "sdf") -> None:
        self._port, self._database = port, database
        self._headers = {"X-ClickHouse-Key": token}

    def arrow(self, sql: str) -> pa.Table:
        """The answer as a table."""
        return pa.ipc.open_stream(io.BytesIO(self._ask(f"{sql} FORMAT ArrowStream"))).read_all()

    def value(self, sql: str) -> Any:
        """The single value of the answer; None where the archive does not answer, or has no such table yet."""
        try:
            found = json.loads(self._ask(f"{sql} FORMAT JSONCompact", 5.0))["data"]
        except (OSError, RuntimeError, ValueError, http.client.HTTPException):
            return None
        return found[0][0] if found else None

    def _ask(self, sql: str, timeout_s: float = 60.0) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout_s)
        try:
            settings = "output_format_arrow_string_as_string=1&output_format_json_quote_64bit_integers=0"
            target = f"/?database={quote(self._database)}&{settings}"
            connection.request("POST", target, sql.encode(), self._headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(body.decode(errors="replace")[:300])
        return body


def newest_ns(sql: Sql, topic: str) -> int | None:
    """Bus time of the newest archived row of a topic."""
    found = sql.value(f"SELECT toUnixTimestamp64Nano(max(bus_at)) FROM {table_of(topic)}")
    return None if found is None else int(found)


def reach(sql: Sql, topic: str) -> dict[int, int]:
    """Per partition the highest archived offset; empty where the archive does not answer."""
    wanted = f"SELECT max(bus_seq) FROM {table_of(topic)} GROUP BY bitShiftRight(bus_seq, {PARTITION_BITS})"
    try:
        found = sql.arrow(wanted).column(0).to_pylist()
    except (OSError, RuntimeError, http.client.HTTPException, pa.ArrowException):
        return {}
    return {seq >> PARTITION_BITS: seq & ((1 << PARTITION_BITS) - 1) for seq in found}


def read(sql: Sql, name: str) -> list[Kept]:
    """Every record of a topic that the archive has rows of."""
    topic = ARCHIVED[name]
    parts = _bulk(sql, topic) if topic.columns is not None else _events(sql, topic)
    return [Kept(name, seq >> PARTITION_BITS, seq & ((1 << PARTITION_BITS) - 1), n, sum_) for seq, n, sum_ in parts]


def _bulk(sql: Sql, topic: Topic) -> Iterator[tuple[int, int, int]]:
    assert topic.columns is not None
    wanted = ", ".join(_column(field) for field in topic.columns)
    for first, last in _spans(sql, topic):
        table = sql.arrow(
            f"SELECT bus_seq AS of_message, {wanted} FROM {table_of(topic.name)} "
            f"WHERE bus_seq BETWEEN {first} AND {last}"
        )
        seqs = table.column("of_message").to_numpy().astype(np.uint64)
        numbers, rows, digests = digest.by_message(topic.name, table.drop_columns(["of_message"]), seqs)
        yield from zip(numbers.tolist(), rows.tolist(), digests.tolist(), strict=True)


def _column(field: pa.Field) -> str:
    if field.type != NAME:
        return str(field.name)
    kind = "Nullable(String)" if field.nullable else "String"
    return f"CAST({field.name} AS {kind}) AS {field.name}"


def _events(sql: Sql, topic: Topic) -> Iterator[tuple[int, int, int]]:
    for first, last in _spans(sql, topic):
        table = sql.arrow(
            "SELECT bus_seq, CAST(event_id AS String) AS id, CAST(event_source AS String) AS source, "
            f"CAST(event_type AS String) AS type, CAST(data AS String) AS data FROM {table_of(topic.name)} "
            f"WHERE bus_seq BETWEEN {first} AND {last}"
        )
        found: dict[int, list[int]] = {}
        for row in table.to_pylist():
            sum_ = digest.event(row["id"], row["source"], row["type"], json.loads(row["data"]))
            found.setdefault(row["bus_seq"], []).append(sum_)
        yield from ((seq, len(sums), sum(sums) & ((1 << 64) - 1)) for seq, sums in found.items())


def _spans(sql: Sql, topic: Topic) -> list[tuple[int, int]]:
    """Ranges of message numbers of at most about `_AT_ONCE` rows each."""
    table = sql.arrow(f"SELECT bus_seq, count() AS n FROM {table_of(topic.name)} GROUP BY bus_seq ORDER BY bus_seq")
    seqs, rows = table.column("bus_seq").to_numpy(), np.cumsum(table.column("n").to_numpy())
    if not seqs.size:
        return []
    cuts = np.flatnonzero(np.diff(rows // _AT_ONCE)) + 1
    firsts = [seqs[0], *seqs[cuts]]
    lasts = [*seqs[cuts - 1], seqs[-1]]
    return [(int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]
