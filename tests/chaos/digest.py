"""Sums of rows that do not depend on their order, of batches, of tables from SQL, and of events.

A row's hash covers every column of its topic; a message's digest is the sum of its rows' hashes modulo 2^64.
Delays are rounded first as the archive stores them (1/16 ns).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from sdfstream.archive import tables
from sdfstream.records.topics import NAME, TOPICS

Words = npt.NDArray[np.uint64]
_AT_ONCE = 2000

_POLARS = {
    pa.int64(): pl.Int64,
    pa.int32(): pl.Int32,
    pa.uint64(): pl.UInt64,
    pa.uint32(): pl.UInt32,
    pa.uint16(): pl.UInt16,
    pa.uint8(): pl.UInt8,
    pa.float64(): pl.Float64,
    pa.float32(): pl.Float32,
    pa.bool_(): pl.Boolean,
    NAME: pl.String,
}


def rows_of(topic: str, table: pa.Table) -> Words:
    """The hash of every row of `table`, whatever the order of its columns and the form of its names."""
    schema = TOPICS[topic].columns
    assert schema is not None
    have = set(table.column_names)
    arrays = []
    for field in schema:
        if field.name in have:
            column = table.column(field.name)
            if tables.is_rounded(TOPICS[topic], field):
                column = pc.round(pc.multiply(column, tables.OWD_STEPS_PER_NS))
        else:
            column = pa.nulls(table.num_rows, field.type)
        arrays.append(column)
    frame = pl.from_arrow(pa.table(arrays, names=schema.names))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.select(pl.col(f.name).cast(_POLARS[f.type]) for f in schema)
    return frame.hash_rows(seed=1).to_numpy()


def batches(topic: str, several: Sequence[pa.RecordBatch]) -> list[int]:
    """The digest of every batch."""
    digests: list[int] = []
    for begin in range(0, len(several), _AT_ONCE):
        part = several[begin : begin + _AT_ONCE]
        counts = np.array([b.num_rows for b in part])
        whole = pa.concat_tables([_plain(pa.Table.from_batches([b])) for b in part], promote_options="default")
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(rows_of(topic, whole), dtype=np.uint64)])
        ends = np.cumsum(counts)
        digests += (sums[ends] - sums[ends - counts]).tolist()
    return digests


def _plain(table: pa.Table) -> pa.Table:
    """Names as strings: two batches number theirs differently."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, pc.cast(table.column(i), pa.string()))
    return table.replace_schema_metadata(None)


def by_message(topic: str, table: pa.Table, bus_seq: npt.NDArray[np.uint64]) -> tuple[Words, Words, Words]:
    """(message numbers, rows of each, digest of each) of a table whose rows say which message they came in."""
    hashes = rows_of(topic, table)
    messages, which, rows = np.unique(bus_seq, return_inverse=True, return_counts=True)
    digests = np.zeros(messages.size, np.uint64)
    np.add.at(digests, which, hashes)
    return messages, rows.astype(np.uint64), digests


def event(id_: str, source: str, type_: str, data: Mapping[str, Any]) -> int:
    """The digest of an event: what it says, not how its JSON is spelled."""
    text = json.dumps([id_, source, type_, data], sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def fingerprint(value: bytes) -> str:
    """Of the bytes of a message that nobody can read."""
    return hashlib.blake2b(value, digest_size=12).hexdigest()
