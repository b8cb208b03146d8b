"""Writing a recording: one file per topic, blocks and lines in order, ``recording.json`` at both ends."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from sdfstream.bus import codec
from sdfstream.bus.recording import format as recording
from sdfstream.bus.recording.file_io import topic_files
from sdfstream.bus.sequences import Numbers
from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import Topic
from sdfstream.stats import Counters

META: Final = "recording.json"


class RecordingWriter:
    """Writes messages into a new recording; also a publisher, which makes messages of outputs itself.

    Parameters
    ----------
    directory : Path
        Made if need be; must not hold a recording yet.
    clock : callable
        ns since the Unix epoch; stamps what comes through `publish`, and the end at `close`. Without one, only
        `write` may be used.
    cluster : str
        Written to ``recording.json``.
    start_at_ns : int, optional
        Begin of the recording; the first message's time by default.
    compression : {"zstd", None}
        Of the Arrow buffers: about a third of the size for about 130 ns per row.

    Notes
    -----
    The same messages (and `flush` calls) give the same bytes. Within a topic, (bus_at_ns, bus_seq) must rise; a
    message that comes late, as from several Kafka partitions, is stamped 1 ns after the one before it and counted as
    ``restamped``. A writer that is killed loses at most the last two seconds of bus time.

    A disk that refuses ends the recording, not its process: what was written until then replays, what comes later is
    counted as ``lost.<topic>`` (rows), and the trouble ``disk`` says so. A gap in the middle would replay as if the
    fabric had been silent.
    """

    def __init__(
        self,
        directory: Path | str,
        clock: Callable[[], int] | None = None,
        *,
        cluster: str = "",
        boot_id: str = "",
        start_at_ns: int | None = None,
        compression: codec.Compression = "zstd",
    ) -> None:
        self.counters = Counters("recording")
        self.directory = Path(directory)
        self.start_at_ns = start_at_ns
        self.end_at_ns: int | None = None
        self._clock = clock
        self._cluster = cluster
        self._boot_id = boot_id
        self._compression = compression
        self._numbers = Numbers()
        self._files: dict[str, _TopicWriter] = {}
        self._second = -(1 << 63)
        self._refused = False
        """The disk took something not: nothing more is written."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if (self.directory / META).exists() or any(topic_files(self.directory)):
            raise ConfigError(f"{self.directory} holds a recording already; name another folder")
        try:
            self._write_meta()
        except OSError as error:
            raise UnavailableError(f"no recording can be written into {self.directory}: {error.strerror}") from error

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Stamp `outputs` with the clock and write them; errors as `codec.check`."""
        assert self._clock is not None, "publish needs a clock"
        now_ns = self._clock()
        for output in outputs:
            body, refused = codec.check(output)
            self.counters.add("refused", "null-rows", refused)
            file = self._file(output.topic)
            boot_id, number = output.boot_id, output.batch_seq
            if not boot_id:
                boot_id, number = self._boot_id, self._numbers.take(output.topic, output.key)
            at_ns = max(now_ns, file.last[0])
            self.write([Message(output.topic, output.key, body, at_ns, file.last[1] + 1, boot_id, number)])

    def write(self, messages: Iterable[Message]) -> None:
        """Write `messages`."""
        for message in messages:
            if self._refused:
                self.counters.add("lost", message.topic, message.rows)
                continue
            try:
                self._write(message)
            except OSError as error:
                self._stop(error)
                self.counters.add("lost", message.topic, message.rows)

    def _write(self, message: Message) -> None:
        file = self._file(message.topic)
        placed = file.in_order(message)
        self.counters.add("restamped", n=placed is not message)
        file.write(placed)
        self.counters.add("written", message.topic)
        if (second := placed.bus_at_ns // recording.BLOCK_NS) > self._second:
            self._second = second
            for other in self._files.values():
                other.settle(second - 1)
        if self.start_at_ns is None:
            self.start_at_ns = placed.bus_at_ns
        self.end_at_ns = max(placed.bus_at_ns, self.end_at_ns or placed.bus_at_ns)

    def flush(self) -> None:
        """Bring everything taken so far into the files."""
        if self._refused:
            return
        try:
            for file in self._files.values():
                file.flush()
        except OSError as error:
            self._stop(error)

    async def close(self) -> None:
        """Finish; the recording ends now (by the clock), or with its last message without one."""
        self.finish(self._clock() if self._clock else None)

    def finish(self, end_at_ns: int | None = None) -> None:
        """Finish with `end_at_ns`, by default the last message's time."""
        for file in self._files.values():
            try:
                file.close(abandon=self._refused)
            except OSError as error:
                self._stop(error)
        self._files.clear()
        ends = [at for at in (end_at_ns, self.end_at_ns) if at is not None]
        self.end_at_ns = max(ends, default=None)
        if self.start_at_ns is None:
            self.start_at_ns = self.end_at_ns
        try:
            self._write_meta()
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        self._refused = True
        why = error.strerror or str(error)
        self.counters.troubles.begin(
            "disk", f"the recording in {self.directory} ended, what comes is lost to it: {why}"
        )

    def _file(self, name: str) -> _TopicWriter:
        if name not in self._files:
            self._files[name] = _TopicWriter(codec.topic_of(name), self.directory, self._compression)
        return self._files[name]

    def _write_meta(self) -> None:
        known = {"version": recording.VERSION, "cluster": self._cluster}
        times = {"start_at_ns": self.start_at_ns, "end_at_ns": self.end_at_ns}
        known |= {name: at for name, at in times.items() if at is not None}
        unfinished = self.directory / f".{META}.unfinished"  # a full disk must not take the old one away
        unfinished.write_text(json.dumps(known, sort_keys=True, indent=2) + "\n")
        unfinished.replace(self.directory / META)


class _TopicWriter:
    """The file of one topic."""

    def __init__(self, topic: Topic, directory: Path, compression: codec.Compression) -> None:
        self.last = (-(1 << 63), -1)
        self._out: BinaryIO = (directory / f"{topic.name}{'.jsonl' if topic.columns is None else '.arrows'}").open("xb")
        self._blocks: recording.BlockBuilder | None = None
        if topic.columns is not None:
            self._blocks = recording.BlockBuilder(topic)
            options = pa.ipc.IpcWriteOptions(use_threads=False, compression=compression)
            self._stream = pa.ipc.new_stream(self._out, recording.block_schema(topic), options=options)

    def in_order(self, message: Message) -> Message:
        """`message`, stamped later if it would stand before the last one."""
        here = (message.bus_at_ns, message.bus_seq)
        if here <= self.last:
            at_ns = self.last[0] + 1
            m = message
            message = Message(m.topic, m.key, m.body, at_ns, m.bus_seq, m.boot_id, m.batch_seq)
        self.last = (message.bus_at_ns, message.bus_seq)
        return message

    def write(self, message: Message) -> None:
        """Append `message`, which stands in order."""
        if self._blocks is None:
            self._out.write(recording.line(message))
        else:
            self._put(self._blocks.add(message))

    def settle(self, second: int) -> None:
        """Into the file with what lies before that second of bus time, one for stragglers of other topics left over."""
        if self._blocks is not None:
            self._put(self._blocks.flush_before(second))
        else:
            self._out.flush()

    def flush(self) -> None:
        """Into the file with everything."""
        if self._blocks is not None:
            self._put(self._blocks.flush())
        self._out.flush()

    def _put(self, block: pa.RecordBatch | None) -> None:
        if block is not None:
            self._stream.write_batch(block)
            self._out.flush()

    def close(self, *, abandon: bool = False) -> None:
        """Flush, mark the end of the stream, close; with `abandon` close what is there."""
        try:
            if not abandon:
                self.flush()
                if self._blocks is not None:
                    self._stream.close()
        finally:
            with contextlib.suppress(OSError):
                self._out.close()
