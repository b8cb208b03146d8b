"""Messages of one topic as polars frames, all of one schema, so that they can be put together and written.

A bulk topic has its columns (``schemas/topics.md``) behind those of a recording (``bus_at_ns``, ``bus_seq``, …); names
are text. An event topic has a row a message: the bus's columns, the CloudEvents envelope, and the payload as JSON in
``data``, as the archive's tables have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import polars as pl
import pyarrow as pa

from sdfstream.bus import cloudevents
from sdfstream.bus.recording.format import BlockBuilder, block_schema
from sdfstream.client.choice import Choice
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import Topic

MOST_EVENTS: Final = 4096
"""Messages of an event topic in a frame."""
_EVENTS: Final = pl.Schema(
    {
        "bus_at_ns": pl.Int64, "bus_seq": pl.UInt64, "bus_key": pl.String, "boot_id": pl.String, "batch_seq": pl.Int64,
        "event_id": pl.String, "event_type": pl.String, "event_source": pl.String, "event_time_ns": pl.Int64,
        "data": pl.String,
    }
)  # fmt: skip


def schema_of(topic: Topic) -> pl.Schema:
    """The columns of the topic's frames."""
    if topic.columns is None:
        return _EVENTS
    return _as_frame(block_schema(topic).empty_table()).schema


def frames(topic: Topic, messages: Iterable[Message], choice: Choice) -> Iterator[pl.DataFrame]:
    """The rows of `messages` that are chosen, in order; a frame holds what a second brought, or some thousand events.

    Raises
    ------
    ConfigError
        The topic has no column that could name what is chosen.
    """
    within = (message for message in messages if choice.spans(message))
    return _bulk(topic, within, choice) if topic.columns is not None else _events(within, choice)


def _bulk(topic: Topic, messages: Iterable[Message], choice: Choice) -> Iterator[pl.DataFrame]:
    assert topic.columns is not None
    rows = choice.rows(topic.name, topic.columns.names)
    blocks = BlockBuilder(topic)
    for block in _blocks(blocks, messages):
        frame = _as_frame(pa.Table.from_batches([block]))
        yield frame if rows is None else frame.filter(rows)


def _blocks(builder: BlockBuilder, messages: Iterable[Message]) -> Iterator[pa.RecordBatch]:
    for message in messages:
        if (block := builder.add(message)) is not None:
            yield block
    if (last := builder.flush()) is not None:
        yield last


def _events(messages: Iterable[Message], choice: Choice) -> Iterator[pl.DataFrame]:
    rows: list[tuple[object, ...]] = []
    for message in messages:
        event = message.body
        assert isinstance(event, Event)
        if not choice.names(event):
            continue
        sequence = message.batch_seq if message.batch_seq >= 0 else None
        bus = (message.bus_at_ns, message.bus_seq, message.key, message.boot_id, sequence)
        data = cloudevents.canonical(dict(event.data)).decode()
        rows.append((*bus, event.id, event.type, event.source, event.time_ns, data))
        if len(rows) == MOST_EVENTS:
            yield pl.DataFrame(rows, schema=_EVENTS, orient="row")
            rows.clear()
    if rows:
        yield pl.DataFrame(rows, schema=_EVENTS, orient="row")


def _as_frame(table: pa.Table) -> pl.DataFrame:
    """`table` with names as text."""
    plain = pa.schema(
        [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
    )
    frame = pl.from_arrow(table.cast(plain))
    assert isinstance(frame, pl.DataFrame)
    return frame
