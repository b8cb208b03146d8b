"""Messages of a bulk topic → one Arrow table of the columns that its ClickHouse table stores.

Pure. Messages that cannot be read whole, and rows with a null where the contract allows none, come back as
rejects with a reason; everything else goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sdfstream.archive import packing, sorting, tables
from sdfstream.errors import FormatError
from sdfstream.records import arrow
from sdfstream.records.joins import JOINS
from sdfstream.records.message import Message
from sdfstream.records.topics import NAME, Topic
from sdfstream.records.units import Int64s

_GROUP: Final = 64
"""Small messages that are joined at once (`_joined`)."""
_SMALL_ROWS: Final = 1024
"""Rows of a message, on average, from which on it is not worth copying them twice."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Rows of one message that the archive refuses."""

    message: Message
    reason: str
    detail: str
    rows: int
    body: bytes
    """The refused rows as an Arrow IPC stream, or JSON."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of one insert, and the rejects of its messages."""

    table: pa.Table
    rejects: tuple[Reject, ...]


def bulk_rows(topic: Topic, messages: Sequence[Message], bus_id: str) -> TableRows:
    """The rows of `messages`, all of the bulk topic `topic`, under the stored columns' names.

    They are in the order of their messages or, many of them, in that of their table (`sorting`).
    """
    whole = _sound(topic, messages)
    JOINS.forget(m.body for m in messages)
    if whole is not None:
        return TableRows(_rows(topic, whole, messages, [m.rows for m in messages], bus_id), ())
    accepted: list[tuple[Message, pa.RecordBatch]] = []
    rejects: list[Reject] = []
    for message in messages:
        try:
            batch, refused = _readable(topic, message)
        except FormatError as error:
            rejects.append(Reject(message, error.reason, error.detail, message.rows, _ipc(message.body)))
            continue
        rejects.extend(refused)
        if batch.num_rows:
            accepted.append((message, batch))
    merged = _joined([batch for _, batch in accepted], topic.columns)
    counts = [b.num_rows for _, b in accepted]
    return TableRows(_rows(topic, merged, [m for m, _ in accepted], counts, bus_id), tuple(rejects))


def _rows(
    topic: Topic, merged: pa.RecordBatch, messages: Sequence[Message], counts: Sequence[int], bus_id: str
) -> pa.Table:
    order = sorting.order_of(topic, merged)
    if order is not None:
        merged = sorting.taken(merged, order)
    return pa.table(_stored(topic, merged) | bus_columns(messages, counts, bus_id, order))


def _sound(topic: Topic, messages: Sequence[Message]) -> pa.RecordBatch | None:
    """The rows of all messages as one; None where any of them may break the contract."""
    schema = topic.columns
    assert schema is not None, topic.name
    bodies = [m.body for m in messages]
    if not all(isinstance(body, pa.RecordBatch) and body.schema.equals(schema) for body in bodies):
        return None
    merged = _joined(bodies, schema)
    return None if any(merged.column(i).null_count for i, f in enumerate(schema) if not f.nullable) else merged


def _joined(batches: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of all `batches`, in order.

    What a stage of this process has joined is taken as it is. Column by column over thousands of small batches each of
    them would be fetched from memory once a column; by groups that the processor's cache holds, once in all.
    """
    if not batches:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    batches = JOINS.pieces(batches)
    if sum(batch.num_rows for batch in batches) < _SMALL_ROWS * len(batches):
        batches = [pa.concat_batches(batches[i : i + _GROUP]) for i in range(0, len(batches), _GROUP)]
    return pa.concat_batches(batches)


def bus_columns(
    messages: Sequence[Message], counts: Sequence[int], bus_id: str, order: Int64s | None = None
) -> dict[str, pa.Array]:
    """The bus columns for `messages` of `counts` rows each, in `order`; unknown boot id and batch number are null."""
    of = np.repeat(np.arange(len(messages)), np.asarray(counts, dtype=np.int64))
    if order is not None:
        of = of.take(order)

    def spread(values: Sequence[int], kind: Any) -> np.ndarray[Any, Any]:
        return np.array(values, dtype=kind).take(of)

    batch_seq = spread([m.batch_seq for m in messages], np.int64)
    at = arrow.column(spread([m.bus_at_ns for m in messages], np.int64), pa.int64())
    return {
        "bus_at": at.view(tables.INSTANT),
        "bus_seq": arrow.column(spread([m.bus_seq for m in messages], np.uint64), pa.uint64()),
        "bus_key": _spread_names([m.key for m in messages], of),
        "bus_id": arrow.coded(np.zeros(len(of), np.int32), [_encodable(bus_id)] if len(of) else []),
        "boot_id": _spread_names([m.boot_id or None for m in messages], of),
        "batch_seq": arrow.column(batch_seq, pa.int64(), batch_seq >= 0),
    }


def reject_rows(rejects: Sequence[Reject], bus_id: str) -> pa.Table:
    """Rejects as rows of the table ``reject``."""
    messages = [r.message for r in rejects]
    columns = {
        "topic": pa.array([m.topic for m in messages], pa.utf8()),
        "reason": pa.array([r.reason for r in rejects], pa.utf8()),
        "detail": pa.array([r.detail.encode("utf-8", "backslashreplace") for r in rejects], pa.binary()),
        "rows": pa.array([r.rows for r in rejects], pa.uint32()),
        "body": pa.array([r.body for r in rejects], pa.binary()),
    }
    bus = bus_columns(messages, [1] * len(rejects), bus_id)
    return pa.table(columns | {name: bus[name] for name in ("bus_at", "bus_seq", "bus_key", "bus_id")})


def _spread_names(names: Sequence[str | None], of: Int64s) -> pa.DictionaryArray:
    """`names` of messages, for rows `of` these messages, as a name column."""
    index = {name: i for i, name in enumerate(dict.fromkeys(names))}
    codes = np.array([*map(index.__getitem__, names)], dtype=np.int32)
    if None in index:  # rows of these are null, and the entry in its place is nobody's
        codes[codes == index[None]] = -1
    return arrow.coded(codes.take(of), ["" if name is None else _encodable(name) for name in index])


def _encodable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def _readable(topic: Topic, message: Message) -> tuple[pa.RecordBatch, list[Reject]]:
    """The message's rows in the topic's schema, and its rows that break the contract."""
    body = message.body
    if not isinstance(body, pa.RecordBatch):
        raise FormatError("form", "an event on a bulk topic")
    schema = topic.columns
    assert schema is not None, topic.name
    batch = body if body.schema.equals(schema) else cast_columns(body, schema)
    broken = _nulls_not_allowed(batch)
    if broken is None:
        return batch, []
    where = [f.name for i, f in enumerate(schema) if not f.nullable and batch.column(i).null_count]
    bad = batch.filter(broken)
    reject = Reject(message, "null", ", ".join(where), bad.num_rows, _ipc(bad))
    return batch.filter(pc.invert(broken)), [reject]


def cast_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` in `schema`: an absent nullable column becomes null, an unknown one is left out, others are cast.

    Raises
    ------
    FormatError
        ``column-missing``, ``column-type``.
    """
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0 and not field.nullable:
            raise FormatError("column-missing", field.name)
        arrays.append(pa.nulls(batch.num_rows, field.type) if index < 0 else _cast(batch.column(index), field))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        if field.type != NAME:
            return column.cast(field.type)
        plain = column if pa.types.is_dictionary(column.type) else column.cast(pa.utf8()).dictionary_encode()
        return pa.DictionaryArray.from_arrays(plain.indices.cast(pa.int32()), plain.dictionary.cast(pa.utf8()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise FormatError("column-type", f"{field.name} is {column.type}, not {field.type}") from error


def _nulls_not_allowed(batch: pa.RecordBatch) -> pa.Array | None:
    """Which rows have a null in a column that allows none; None when no row has."""
    masks = [
        batch.column(i).is_null() for i, f in enumerate(batch.schema) if not f.nullable and batch.column(i).null_count
    ]
    if not masks:
        return None
    broken = masks[0]
    for mask in masks[1:]:
        broken = pc.or_(broken, mask)
    return broken


def _stored(topic: Topic, merged: pa.RecordBatch) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    packed = tables.packed_fields(topic)
    if packed:
        columns |= packing.probe_columns(*(merged.column(name) for name in packed))
    for field in topic.columns or ():
        if field.name in packed:
            continue
        column = merged.column(field.name)
        base = tables.base_of(topic, field)
        if base is not None:
            column = pc.subtract(column, merged.column(base))  # wraps, as the ALIAS column does on the way back
        elif tables.is_instant(field):
            column = column.cast(tables.INSTANT)
        elif tables.is_rounded(topic, field):
            column = _rounded(column)
        columns[tables.stored_name(topic, field)] = column
    return columns


def _rounded(column: pa.Array) -> pa.Array:
    """A column of float64 rounded to 1/`tables.OWD_STEPS_PER_NS`, 0 where it is null."""
    values = arrow.filled(column, 0.0) * float(tables.OWD_STEPS_PER_NS)
    np.rint(values, out=values)
    values /= float(tables.OWD_STEPS_PER_NS)
    return arrow.column(values, column.type, ~arrow.nulls(column) if column.null_count else None)


def _ipc(body: Any) -> bytes:
    if not isinstance(body, pa.RecordBatch):
        return repr(body).encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, body.schema) as writer:
        writer.write_batch(body)
    return bytes(sink.getvalue())
