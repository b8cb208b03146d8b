"""One topic's file of a recording, read as far as it is whole, one block or line at a time."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import numpy as np
import pyarrow as pa

from sdfstream.bus import arrow_size, codec
from sdfstream.bus.conform import size_bytes
from sdfstream.bus.recording import format as recording
from sdfstream.bus.recording.format import RecordingReject
from sdfstream.errors import FormatError
from sdfstream.records import arrow
from sdfstream.records.message import Message
from sdfstream.records.topics import Topic

MAX_LINE_BYTES: Final = 32 << 20
MAX_PIECES_BYTES: Final = 512 << 20
"""Most bytes of one message joined over several blocks; bounds a file whose rows all share one bus_seq."""
_SMALL_BYTES: Final = 64 << 20
"""What any block may be decompressed: 65,536 rows of the widest topic are less than half of it."""

Refuse: TypeAlias = Callable[[RecordingReject], None]

_FIRST: Final = (-(1 << 63), 0)
_FAILURES: Final = (pa.ArrowException, OSError, MemoryError, UnicodeError)


def topic_files(directory: Path, source: int = 0) -> Iterator[TopicFile]:
    """The topics' files in `directory`, sorted by name."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.suffix in (".arrows", ".jsonl") and path.stem.startswith("sdf."):
            yield TopicFile(path, source)


@dataclass(frozen=True, slots=True)
class TopicFile:
    """The file of one topic in one folder; `source` numbers the folder where several are read as one."""

    path: Path
    source: int = 0

    @property
    def name(self) -> str:
        """The topic's name as the file's name spells it."""
        return self.path.stem

    @property
    def topic(self) -> Topic | None:
        """The topic; None when it is not known or the file has the other form's ending."""
        try:
            topic = codec.topic_of(self.name)
        except FormatError:
            return None
        return topic if (topic.form == "bulk") == (self.path.suffix == ".arrows") else None

    def messages(self, refuse: Refuse) -> Iterator[Message]:
        """The file's messages in order of (bus_at_ns, bus_seq); what cannot be read goes to `refuse`."""
        topic = self.topic
        if topic is None:
            refuse(RecordingReject(self.path.name, "topic-unknown", self.name, "the file", 1))
            return
        read = self._events if topic.columns is None else self._whole_messages
        for message in read(topic, refuse):
            # folders have their own numbers; the source in the high bits keeps (topic, bus_seq) unique
            yield replace(message, bus_seq=message.bus_seq | self.source << 48) if self.source else message

    def span(self) -> tuple[int, int] | None:
        """First and last bus_at_ns that can be read; None when there is none. Reads no other column."""
        if self.topic is None:
            return None
        times = self._event_times() if self.path.suffix == ".jsonl" else self._block_times()
        first = last = None
        for low, high in times:
            first = low if first is None else min(first, low)
            last = high if last is None else max(last, high)
        return None if first is None or last is None else (first, last)

    def _whole_messages(self, topic: Topic, refuse: Refuse) -> Iterator[Message]:
        """Messages of a bulk topic, joined where a block's end has cut one."""
        pieces: list[Message] = []
        size = 0
        for message in self._pieces(topic, refuse):
            if pieces and not recording.same_message(pieces[0], message):
                yield recording.joined(pieces)
                pieces, size = [], 0
            size += size_bytes(topic.name, message.body) if pieces else 0
            if pieces and size > MAX_PIECES_BYTES:
                refuse(
                    RecordingReject(self.path.name, "oversize", f"bus_seq {message.bus_seq}", "a message", message.rows)
                )
                continue
            pieces.append(message)
        if pieces:
            yield recording.joined(pieces)

    def _pieces(self, topic: Topic, refuse: Refuse) -> Iterator[Message]:
        after = _FIRST
        for number, block in enumerate(self._blocks(refuse)):
            try:
                messages, refused = recording.split(topic, block, after)
            except FormatError as error:
                where = f"block {number}"
                refuse(RecordingReject(self.path.name, error.reason, error.detail, where, max(block.num_rows, 1)))
                continue
            for reason, rows in refused.items():
                refuse(RecordingReject(self.path.name, reason, f"{rows} rows", f"block {number}", rows))
            if messages:
                after = (messages[-1].bus_at_ns, messages[-1].bus_seq)
            yield from messages

    def _blocks(self, refuse: Refuse) -> Iterator[pa.RecordBatch]:
        """The record batches of the file up to the first that cannot be read, or would grow beyond its bound."""
        number = 0
        try:
            with pa.memory_map(str(self.path)) as source, pa.ipc.open_stream(source, options=_plain()) as reader:
                for _ in _bounded_blocks(self.path):
                    yield reader.read_next_batch()
                    number += 1
                yield from reader  # none is left; what ends the stream otherwise is said
        except (*_FAILURES, FormatError) as error:
            reason = "truncated" if _is_truncation(error) else "arrow-corrupt"
            reason = error.reason if isinstance(error, FormatError) and reason != "truncated" else reason
            where = f"from block {number} on"
            detail = error.detail if isinstance(error, FormatError) else f"{type(error).__name__}: {error}"
            refuse(RecordingReject(self.path.name, reason, detail[:300], where, 1))

    def _events(self, topic: Topic, refuse: Refuse) -> Iterator[Message]:
        after = _FIRST
        with self.path.open("rb") as lines:
            for number, raw in _lines(lines):
                try:
                    if len(raw) >= MAX_LINE_BYTES:
                        raise FormatError("oversize", f"a line of more than {MAX_LINE_BYTES} bytes")
                    message = recording.parse_line(topic, raw)
                    if (message.bus_at_ns, message.bus_seq) < after:
                        raise FormatError("order", f"bus_at_ns {message.bus_at_ns} stands behind a later message")
                except FormatError as error:
                    reason = error.reason if raw.endswith(b"\n") else "truncated"
                    refuse(RecordingReject(self.path.name, reason, error.detail[:300], f"line {number}", 1))
                    continue
                after = (message.bus_at_ns, message.bus_seq)
                yield message

    def _block_times(self) -> Iterator[tuple[int, int]]:
        try:
            with pa.memory_map(str(self.path)) as source, pa.ipc.open_stream(source) as whole:
                column = whole.schema.get_field_index("bus_at_ns")
            with pa.memory_map(str(self.path)) as source:
                options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=[column])
                for block in pa.ipc.open_stream(source, options=options) if column >= 0 else ():
                    column_ns = block.column(0).drop_null()
                    at_ns = arrow.plain(column_ns) if column_ns.type == pa.int64() else np.empty(0, np.int64)
                    if at_ns.size:
                        yield int(at_ns.min()), int(at_ns.max())
        except _FAILURES:
            return  # `messages` says what is wrong with it

    def _event_times(self) -> Iterator[tuple[int, int]]:
        ignored: list[RecordingReject] = []
        assert self.topic is not None
        for message in self._events(self.topic, ignored.append):
            yield message.bus_at_ns, message.bus_at_ns
            ignored.clear()


def _lines(lines: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) with at most `MAX_LINE_BYTES` of each; the rest of a longer one is skipped."""
    number = 0
    while raw := lines.readline(MAX_LINE_BYTES):
        number += 1
        tail = raw
        while len(tail) == MAX_LINE_BYTES and not tail.endswith(b"\n"):
            tail = lines.readline(MAX_LINE_BYTES)
        if raw.strip():
            yield number, raw


def _plain() -> pa.ipc.IpcReadOptions:
    return pa.ipc.IpcReadOptions(use_threads=False)


def _bounded_blocks(path: Path) -> Iterator[int]:
    """For each block, before Arrow decodes it, its bytes decompressed; FormatError ``arrow-size`` at one too large."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        grown = stored = 0
        for one in arrow_size.messages(raw):
            grown, stored = grown + one.grown_bytes, stored + one.stored_bytes
            most = _SMALL_BYTES + arrow_size.MOST_GROWTH * stored
            if grown > most:
                raise FormatError("arrow-size", f"{stored} bytes would be {grown} decompressed, at most {most}")
            if one.is_batch:
                yield grown
                grown = stored = 0


def _is_truncation(error: BaseException) -> bool:
    """Arrow has no type for it: the first wordings are those of its message reader, the others ours."""
    said = ("Expected to ", "was null or length 0", "Cannot mmap an empty", "a body beyond", "requires a buffer of")
    return any(words in str(error) for words in said)
