"""The form of a recording: blocks of a bulk topic, lines of a rare one, and how messages come out of them.

A recording is a folder with ``recording.json`` and one file per topic (contract 4.3). Bulk: ``<topic>.arrows``, one
Arrow IPC stream whose record batches ("blocks" here) hold many messages; its columns are `PREFIX`, then the topic's.
Rare: ``<topic>.jsonl``. Within a file messages stand in order of (bus_at_ns, bus_seq).

Blocks carry whole dictionaries that replace one another; polars and pyarrow both read that (tested).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sdfstream import strict_json
from sdfstream.bus import cloudevents
from sdfstream.bus.conform import conform
from sdfstream.errors import FormatError
from sdfstream.records import arrow
from sdfstream.records.columns import instants, names, values
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import NAME, Topic, is_schema_of
from sdfstream.records.units import NS_PER_S

VERSION: Final = 1
BLOCK_NS: Final = NS_PER_S
BLOCK_ROWS: Final = 65_536
"""A block ends where bus time crosses a full second or the next message would pass this many rows."""

PREFIX: Final = pa.schema(
    [
        pa.field(
            "bus_at_ns", pa.int64(), nullable=False, metadata={"unit": "ns since epoch", "doc": "entered the bus"}
        ),
        pa.field("bus_seq", pa.uint64(), nullable=False, metadata={"unit": "", "doc": "message number in the topic"}),
        pa.field("bus_key", NAME, metadata={"unit": "", "doc": "the message's key"}),
        pa.field("boot_id", NAME, metadata={"unit": "", "doc": "the producer's run"}),
        pa.field("batch_seq", pa.int64(), metadata={"unit": "", "doc": "the producer's message number"}),
    ]
)


def block_schema(topic: Topic) -> pa.Schema:
    """The columns of a bulk topic's file, with units and descriptions as metadata."""
    assert topic.columns is not None
    return pa.schema([*PREFIX, *topic.columns])


@dataclass(slots=True)
class BlockBuilder:
    """Gathers messages of one bulk topic, in order, into blocks that depend on nothing but the messages."""

    topic: Topic
    _messages: list[Message] = field(default_factory=list)
    _rows: int = 0

    def add(self, message: Message) -> pa.RecordBatch | None:
        """Take `message`; returns the block before it when it opens a new one."""
        done = None
        if self._messages and (
            message.bus_at_ns // BLOCK_NS != self._messages[0].bus_at_ns // BLOCK_NS
            or self._rows + message.rows > BLOCK_ROWS
        ):
            done = self.flush()
        self._messages.append(message)
        self._rows += message.rows
        return done

    def flush_before(self, second: int) -> pa.RecordBatch | None:
        """The messages since the last block, if they lie before that second of bus time: `add` would end there too."""
        return self.flush() if self._messages and self._messages[0].bus_at_ns // BLOCK_NS < second else None

    def flush(self) -> pa.RecordBatch | None:
        """The messages since the last block, as one."""
        messages, self._messages, self._rows = [m for m in self._messages if m.rows], [], 0
        if not messages:
            return None
        rows = np.array([m.rows for m in messages])
        body = pa.Table.from_batches([m.body for m in messages]).unify_dictionaries().combine_chunks()
        (whole,) = body.to_batches()
        prefix = [
            arrow.column(np.repeat(np.array([m.bus_at_ns for m in messages], np.int64), rows), pa.int64()),
            arrow.column(np.repeat(np.array([m.bus_seq for m in messages], np.uint64), rows), pa.uint64()),
            _repeated([m.key for m in messages], rows),
            _repeated([m.boot_id for m in messages], rows),
            arrow.column(np.repeat(np.array([m.batch_seq for m in messages], np.int64), rows), pa.int64()),
        ]
        return pa.RecordBatch.from_arrays([*prefix, *whole.columns], schema=block_schema(self.topic))


def _repeated(texts: list[str], rows: Any) -> pa.Array:
    column = arrow.names(texts)
    return arrow.coded(np.repeat(arrow.plain(column.indices), rows), column.dictionary)


class Split(NamedTuple):
    """The messages of a block, and its refused rows."""

    messages: list[Message]
    refused: dict[str, int]
    """Rows refused by reason: ``null``, ``order``."""


def split(topic: Topic, block: pa.RecordBatch, after: tuple[int, int]) -> Split:
    """The messages of `block`, in order; rows before (bus_at_ns, bus_seq) = `after` are refused.

    Raises
    ------
    FormatError
        The block cannot be read at all: ``arrow-corrupt`` or what `conform` raises.
    """
    assert topic.columns is not None
    try:
        block.validate(full=True)
    except pa.ArrowException as error:
        raise FormatError("arrow-corrupt", str(error)[:300]) from error
    block, nulls = conform(block_schema(topic), block)
    block, late = _in_order(block, after)
    body = block.select(topic.columns.names)
    at_ns, seq = values(block, "bus_at_ns"), values(block, "bus_seq")
    key_codes, keys = names(block, "bus_key")
    boot_codes, boots = names(block, "boot_id")
    batch_seq = np.where(arrow.nulls(block.column("batch_seq")), -1, instants(block, "batch_seq"))
    changes = np.zeros(max(block.num_rows - 1, 0), bool)
    for column in (at_ns, seq, key_codes, boot_codes, batch_seq):
        changes |= column[1:] != column[:-1]
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1)) if block.num_rows else np.empty(0, np.int64)
    ends = np.concatenate((starts[1:], [block.num_rows]))
    messages = [
        Message(
            topic.name,
            keys[key_codes[i]] if key_codes[i] >= 0 else "",
            body.slice(i, j - i),
            int(at_ns[i]),
            int(seq[i]),
            boots[boot_codes[i]] if boot_codes[i] >= 0 else "",
            int(batch_seq[i]),
        )
        for i, j in zip(starts.tolist(), ends.tolist(), strict=False)
    ]
    return Split(messages, {reason: n for reason, n in (("null", nulls), ("order", late)) if n})


def _in_order(block: pa.RecordBatch, after: tuple[int, int]) -> tuple[pa.RecordBatch, int]:
    """`block` sorted by (bus_at_ns, bus_seq), keeping the order of equals, and the number of rows before `after`."""
    at_ns, seq = values(block, "bus_at_ns"), values(block, "bus_seq")
    back = (at_ns[1:] < at_ns[:-1]) | ((at_ns[1:] == at_ns[:-1]) & (seq[1:] < seq[:-1]))
    if back.any():
        order = np.lexsort((seq, at_ns))
        block, at_ns, seq = block.take(arrow.column(order, pa.int64())), at_ns[order], seq[order]
    late = int(np.count_nonzero((at_ns < after[0]) | ((at_ns == after[0]) & (seq < np.uint64(max(after[1], 0))))))
    return block.slice(late), late


def same_message(a: Message, b: Message) -> bool:
    """Whether two neighbouring pieces of a file are of one message that a block's end has cut."""
    return (a.bus_at_ns, a.bus_seq, a.key, a.boot_id, a.batch_seq) == (
        b.bus_at_ns,
        b.bus_seq,
        b.key,
        b.boot_id,
        b.batch_seq,
    )


def joined(pieces: list[Message]) -> Message:
    """One message from the pieces of it that stood in several blocks."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    table = pa.Table.from_batches([p.body for p in pieces]).unify_dictionaries().combine_chunks()
    (body,) = table.to_batches()
    return Message(first.topic, first.key, body, first.bus_at_ns, first.bus_seq, first.boot_id, first.batch_seq)


def line(message: Message) -> bytes:
    """The line of an event's message, with its line feed."""
    assert isinstance(message.body, Event)
    headers: dict[str, Any] = {"schema": message.topic}
    if message.batch_seq >= 0:
        headers |= {"boot_id": message.boot_id, "batch_seq": message.batch_seq}
    fields = {
        "bus_at_ns": message.bus_at_ns,
        "bus_seq": message.bus_seq,
        "key": message.key,
        "headers": headers,
        "value": cloudevents.as_object(message.body, message.key),
    }
    return cloudevents.canonical(fields) + b"\n"


def parse_line(topic: Topic, raw: bytes) -> Message:
    """The message of a line.

    Raises
    ------
    FormatError
        ``json``, ``line`` (a field is missing or of another type), ``schema-version``, or as `cloudevents.from_object`.
    """
    fields = strict_json.parse(raw)
    if not isinstance(fields, dict):
        raise FormatError("line", "not an object")
    headers = fields.get("headers") or {}
    if not isinstance(headers, dict):
        raise FormatError("line", "headers is not an object")
    strict_json.check([fields.get("key"), headers])
    if not is_schema_of(str(headers.get("schema", topic.name)), topic.name):
        raise FormatError("schema-version", f"header schema is {headers['schema']!r} in the file of {topic.name}")
    return Message(
        topic.name,
        _typed(fields, "key", str, ""),
        cloudevents.from_object(fields.get("value"), topic.name, whole=False),
        _typed(fields, "bus_at_ns", int),
        _typed(fields, "bus_seq", int),
        _typed(headers, "boot_id", str, ""),
        _typed(headers, "batch_seq", int, -1),
    )


def _typed(fields: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = fields.get(name)
    if value is None:
        value = default
    wide = isinstance(value, int) and not -(1 << 63) <= value < 1 << 63
    if not isinstance(value, kind) or isinstance(value, bool) or wide:
        raise FormatError("line", f"{name} is {value!r}"[:200])
    return value


def merged_key(message: Message) -> tuple[int, str, int]:
    """The order in which a recording's messages are replayed."""
    return message.bus_at_ns, message.topic, message.bus_seq


class RecordingReject(NamedTuple):
    """Rows, a line or a block of a recording that could not be read."""

    file: str
    reason: str
    detail: str
    where: str
    """``line 12``, ``block 3``, ``from block 3 on``, ``the file``."""
    n: int
    """Rows, lines or blocks refused; 1 where the number is not known."""


def reject_lines(rejects: list[RecordingReject]) -> Iterator[bytes]:
    """The lines of a ``rejects.jsonl``."""
    return (cloudevents.canonical(r._asdict()) + b"\n" for r in rejects)
