"""Outputs to bytes and headers, and back; what cannot be read is refused with its reason.

Bulk topics: one Arrow IPC stream per message with exactly one record batch; names as dictionary<int32, utf8>, whole
in every message. Rare topics: CloudEvents 1.0 JSON (`cloudevents`). Headers, all bytes: ``schema`` (the topic's
name, thus its version), ``boot_id``, ``batch_seq`` (decimal), ``content-type``, and on Kafka ``bus_at_ns``.

Decoding takes the columns over without a copy (uncompressed messages), after Arrow's full validation: an index outside
its dictionary or text that is not UTF-8 must never reach a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from sdfstream.bus import cloudevents, dead_letters, fronts, producers
from sdfstream.bus.arrow_size import check_rows, check_size
from sdfstream.bus.conform import conform, conforms
from sdfstream.bus.conform import look_together as conform_together
from sdfstream.bus.known_streams import KnownStreams
from sdfstream.errors import FormatError
from sdfstream.records.message import MOST_KEY, Body, Event, Output
from sdfstream.records.topics import TOPICS, Topic, is_schema_of

Headers: TypeAlias = list[tuple[str, bytes]]
Compression: TypeAlias = Literal["zstd"] | None

MOST_BOOT_ID: Final = 256
ARROW_CONTENT_TYPE: Final = "application/vnd.apache.arrow.stream"

# one thread: with Arrow's pool, small compressed batches cost up to eight times more
_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)
_WRITE: Final = {
    None: pa.ipc.IpcWriteOptions(use_threads=False),
    "zstd": pa.ipc.IpcWriteOptions(use_threads=False, compression="zstd"),
}
_BARE: Final = {t.name: t.columns.remove_metadata() for t in TOPICS.values() if t.columns is not None}
# units and descriptions are published in schemas/; on the wire they would double a small message


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded message."""

    body: Body
    boot_id: str
    batch_seq: int
    bus_at_ns: int | None
    refused_rows: int
    """Rows left out for a null where none may be; the others are in `body`."""


def topic_of(name: str) -> Topic:
    """The topic called `name`; a dead-letter topic is an event topic of its own.

    Raises
    ------
    FormatError
        ``topic-unknown``.
    """
    topic = TOPICS.get(name)
    if topic is not None:
        return topic
    if dead_letters.is_dead(name) and name.removesuffix(dead_letters.SUFFIX) in TOPICS:
        return Topic(name, "What could not be read of its topic, with the reason.", key="as the original's")
    raise FormatError("topic-unknown", name[:200])


def check(output: Output) -> tuple[Body, int]:
    """The body as its topic wants it, and the number of rows left out; own outputs pass unchanged.

    Raises
    ------
    FormatError
        ``topic-unknown``, ``form`` (an event on a bulk topic or the reverse), ``key``, or what `conform` raises.
    """
    columns, body = topic_of(output.topic).columns, output.body
    if not dead_letters.is_dead(output.topic):  # a dead letter has the key of its message, whatever that is
        _check_key(output.key)
    if (columns is None) != isinstance(body, Event):
        raise FormatError("form", f"{type(body).__name__} on {output.topic}")
    if columns is None or conforms(output.topic, body):
        return body, 0
    return conform(columns, body)


def look_together(outputs: Sequence[Output]) -> None:
    """Make `check` of each of these outputs cheap where all that are batches of one topic conform; says nothing."""
    by_topic: dict[str, list[pa.RecordBatch]] = {}
    for output in outputs:
        if isinstance(output.body, pa.RecordBatch) and output.topic in _BARE:
            by_topic.setdefault(output.topic, []).append(output.body)
    for topic, batches in by_topic.items():
        conform_together(topic, batches)


def encode_body(topic: str, body: Body, key: str = "", compression: Compression = None) -> bytes:
    """The bytes of a body that `check` has passed; FormatError ``unwritable``: an event that no JSON can say."""
    if isinstance(body, Event):
        try:
            return cloudevents.encode_event(body, key)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise FormatError("unwritable", f"{type(error).__name__}: {error}"[:300]) from error
    raw = fronts.encoded(body) if compression is None else None
    if raw is None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _BARE[topic], options=_WRITE[compression]) as writer:
            writer.write_batch(body)  # with its own metadata: the writer compares and writes none of them
        raw = sink.getvalue().to_pybytes()
        if compression is None:
            fronts.learn(body, raw)
    return raw


def encode(
    output: Output, boot_id: str, batch_seq: int, *, bus_at_ns: int | None = None, compression: Compression = None
) -> tuple[Headers, bytes]:
    """Headers and bytes of `output` as message `batch_seq` of producer run `boot_id`.

    Errors as `check` and `encode_body`.
    An output that carries another producer's `boot_id` keeps that and its number.
    """
    body, _ = check(output)
    if output.boot_id:
        boot_id, batch_seq = output.boot_id, output.batch_seq
    if dead_letters.is_dead(output.topic) and isinstance(body, Event):
        packed, value = dead_letters.pack(body)
        return packed if bus_at_ns is None else [*packed, ("bus_at_ns", b"%d" % bus_at_ns)], value
    content = cloudevents.CONTENT_TYPE if isinstance(body, Event) else ARROW_CONTENT_TYPE
    headers = [("schema", output.topic.encode()), ("content-type", content.encode())]
    if batch_seq >= 0:
        headers += [("boot_id", boot_id.encode()), ("batch_seq", b"%d" % batch_seq)]
    if bus_at_ns is not None:
        headers.append(("bus_at_ns", b"%d" % bus_at_ns))
    return headers, encode_body(output.topic, body, output.key, compression)


def decode(
    topic: str, headers: Iterable[tuple[str, bytes]], value: bytes, key: str = "", rows: pa.RecordBatch | None = None
) -> Decoded:
    """Decode a message of `topic`; its `key` is looked at as well, since stages take it for a host's name.

    `rows`: what `KnownStreams` has read of `value`; None: nothing.

    Raises
    ------
    FormatError
        ``topic-unknown``, ``key``, ``schema-missing``, ``schema-version``, ``header``, ``arrow-corrupt``,
        ``arrow-batches``, ``arrow-size``, ``arrow-trailing``, what `conform` raises, ``json``, ``cloudevent``,
        ``time``, ``name``, ``shape``.
    """
    columns = topic_of(topic).columns
    if dead_letters.is_dead(topic):
        given = list(headers)
        marks = [(n, v) for n, v in given if n != "bus_at_ns"]
        return Decoded(dead_letters.unpack(topic, marks, value), "", -1, _number(dict(given), "bus_at_ns"), 0)
    given_by_name = dict(headers)
    _check_key(key)
    schema = given_by_name.get("schema")
    if schema is None:
        raise FormatError("schema-missing", "no header schema")
    if not is_schema_of(schema.decode(errors="replace"), topic):
        raise FormatError("schema-version", f"header schema is {schema[:200]!r} on {topic}")
    batch_seq = _number(given_by_name, "batch_seq")
    bus_at_ns = _number(given_by_name, "bus_at_ns")
    boot_id = _boot_id(given_by_name)
    if columns is None:
        body: Body = cloudevents.decode_event(value, topic)
        refused = 0
    elif rows is not None:
        body, refused = rows, 0
    else:
        body, refused = conform(columns, read_one_batch(value))
    return Decoded(body, boot_id, -1 if batch_seq is None else batch_seq, bus_at_ns, refused)


def decode_own(
    topic: str, headers: Iterable[tuple[str, bytes]], value: bytes, key: str, known: KnownStreams | None = None
) -> Decoded:
    """`decode`, for messages straight from their producers: one that speaks of another host is ``foreign-host``.

    `known`: of a reader of many messages; makes it cheaper and changes nothing else.
    """
    rows = None if known is None else known.read(topic, key, value)
    decoded = decode(topic, headers, value, key, rows)
    if rows is None:
        producers.check(topic, key, decoded.body)
        if known is not None and not decoded.refused_rows:
            known.learn(topic, key, value, decoded.body)
    return decoded


def read_one_batch(value: bytes) -> pa.RecordBatch:
    """The only record batch of an Arrow IPC stream, fully validated, without a copy where it is not compressed.

    Raises
    ------
    FormatError
        ``arrow-size`` (more than `arrow_size` allows), ``arrow-corrupt``, ``arrow-batches`` (none, or more than one),
        ``arrow-trailing`` (bytes behind the stream).
    """
    check_size(value)
    source = pa.BufferReader(value)
    try:
        reader = pa.ipc.open_stream(source, options=_READ)
        batch = next(reader, None)
        more = batch is not None and next(reader, None) is not None
        if batch is not None:
            check_rows(batch.num_rows)
            batch.validate(full=True)
    except (pa.ArrowException, OSError, MemoryError, UnicodeError) as error:
        raise FormatError("arrow-corrupt", f"{type(error).__name__}: {error}"[:300]) from error
    if batch is None or more:
        raise FormatError("arrow-batches", "more than one record batch" if more else "no record batch")
    if source.tell() < len(value):
        raise FormatError("arrow-trailing", f"{len(value) - source.tell()} bytes behind the stream")
    return batch


def _check_key(key: str) -> None:
    if not key.isprintable() or len(key) > MOST_KEY:
        raise FormatError("key", f"{key[:64]!r}, {len(key)} characters")


def _number(headers: dict[str, bytes], name: str) -> int | None:
    raw = headers.get(name)
    if raw is None:
        return None
    if not raw.isdigit() or len(raw) > 19 or int(raw) >= 1 << 63:
        raise FormatError("header", f"{name} is {raw[:40]!r}, not a number")
    return int(raw)


def _boot_id(headers: dict[str, bytes]) -> str:
    raw = headers.get("boot_id", b"")
    try:
        boot_id = raw.decode()
    except UnicodeDecodeError as error:
        raise FormatError("header", "boot_id is not UTF-8") from error
    if not boot_id.isprintable() or len(boot_id) > MOST_BOOT_ID:
        raise FormatError("header", f"boot_id is {raw[:40]!r}")
    return boot_id
