"""The link from an agent's process to a pipeline's, for use without Kafka: the agent's end.

`LinkPublisher` never makes its caller wait: outputs go into a bounded buffer that sheds its oldest and counts that.
With `LinkConfig.hold` nothing is shed, and the caller waits for the acknowledgement. A frame is held until it is
acknowledged, and is sent again after a reconnect, so delivery is at least once; the reader recognises a repeat by boot
id and batch number.

In the other direction, `LinkPublisher.subscribe` and `read` give messages of the pipeline's bus. After a break they go
on behind the last one read, as far as the server still holds them (its newest MiB per topic). Lost, and counted as
``down-lost`` where that can be known, are messages beyond that, and those published during a restart of the pipeline:
a reader must rely on repeated messages (a command is renewed until its lease ends). There is no latest state of
compacted topics. Agents import this module: it knows pyarrow, and nothing of
polars, pydantic, chDB or Kafka. The serving end is `server_io`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from sdfstream.bus import codec
from sdfstream.bus.link import frames
from sdfstream.bus.link.downlink import LinkInbox
from sdfstream.bus.sequences import Numbers
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Message, Output
from sdfstream.stats import Counters


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """Bounds of a publisher: it keeps at most buffer_bytes + window_bytes + inbox_bytes + one frame each way."""

    buffer_bytes: int = 32 << 20
    window_bytes: int = 4 << 20
    max_message_bytes: int = 8 << 20
    inbox_bytes: int = 8 << 20
    """Messages received and not read; beyond it the oldest are shed, counted."""
    hold: bool = False
    """`publish` returns when the server's bus has the outputs; then nothing is shed here, and a caller that keeps what
    it could not publish (an agent's buffer, with its spill) sheds by its own bound."""
    retry_s: tuple[float, float] = (0.05, 2.0)
    """First and longest pause between attempts to connect; each doubles the one before."""


class LinkPublisher:
    """Sends outputs to the `LinkServer` at a path, and receives messages of subscribed topics.

    Parameters
    ----------
    path : Path or str
        The server's unix socket; it need not be there yet.
    boot_id : str
        Names this run of the agent; a random one by default.

    Notes
    -----
    Counters: ``published``, ``acknowledged``, ``shed`` (buffer full), ``refused`` (too large, or by the server),
    ``resent``, ``connected``, ``connect-failed``, ``disconnected``, ``unsent-at-close``, ``welcomed``,
    ``wish-refused`` (reason), and those of `downlink.LinkInbox`.
    """

    def __init__(self, path: Path | str, *, boot_id: str = "", config: LinkConfig | None = None) -> None:
        self.counters = Counters("link")
        self.boot_id = boot_id or uuid.uuid4().hex
        self._path = str(path)
        self._config = config or LinkConfig()
        self._numbers = Numbers()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._sent: deque[bytes] = deque()
        self._sent_bytes = 0
        self._wake = asyncio.Event()
        self._buffered = self._settled = 0
        """Frames ever taken, and those of them that were acknowledged, refused or shed; both in order."""
        self._settling = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._inbox = LinkInbox(self.counters, self._config.inbox_bytes)
        self._received = asyncio.Event()
        self._welcome = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> LinkPublisher:
        """Start connecting."""
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        """Flush and stop."""
        await self.close()

    def start(self) -> None:
        """Connect in the background, again and again; `publish` calls this too."""
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run(), name="link-publisher")
        elif self._task is not None and self._task.done() and not self._closed:
            self._task.result()  # it ends only by our own mistake, and not silently

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Buffer `outputs` for sending; returns at once, or with `hold` when the server has them.

        Raises
        ------
        FormatError
            As `codec.encode`; with `hold` also ``oversize``.
        """
        self.start()
        if len(outputs) > 1:
            codec.look_together(outputs)
        for output in outputs:
            if not output.boot_id:  # before a number is given out, lest a refusal look like a gap
                codec.check(output)
            number = output.batch_seq if output.boot_id else self._numbers.take(output.topic, output.key)
            headers, payload = codec.encode(output, self.boot_id, number)
            if len(payload) > self._config.max_message_bytes:
                self.counters.add("refused", "oversize")
                if self._config.hold:
                    raise FormatError("oversize", f"{len(payload)} bytes for {output.topic}")
                continue
            self._buffer(frames.frame(output.topic, output.key, headers, payload))
            self.counters.add("published")
        mine = self._buffered
        while self._config.hold and self._settled < mine:
            self._settling.clear()
            await self._settling.wait()

    def subscribe(self, topics: Sequence[str], keys: Sequence[str] | None = None) -> None:
        """Request messages of `topics` under `keys` (None: all) from now on, in place of an earlier request.

        On a link that is connected it takes a new connection; what is not acknowledged then is sent again.

        Raises
        ------
        FormatError
            ``topic-unknown``.
        """
        self._inbox.subscribe(topics, keys)
        self._welcome.clear()
        if self._writer is not None:
            self._writer.transport.abort()
        self.start()

    async def subscribed(self, timeout_s: float) -> bool:
        """Whether the server has welcomed the subscription; waits for that at most `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._welcome.wait()
        return self._welcome.is_set()

    async def read(self, timeout_s: float) -> list[Message]:
        """Messages received since the last call, in order; waits for the first at most `timeout_s`.

        Raises
        ------
        BusError
            The link is closed and everything was read.
        """
        if not (found := self._inbox.take()):
            if self._closed:
                raise BusError("the link is closed")
            self._received.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._received.wait()
            found = self._inbox.take()
        return found

    async def close(self, timeout_s: float = 2.0) -> None:
        """Wait until all is acknowledged, at most `timeout_s`; what is not is counted as ``unsent-at-close``."""
        if self._closed:
            return
        self._closed = True
        self._received.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
        if not self._config.hold:  # there the caller knows, and has them still
            self.counters.add("unsent-at-close", n=len(self._waiting) + len(self._sent))

    def _buffer(self, frame: bytes) -> None:
        self._idle.clear()
        self._buffered += 1
        if self._may_write():
            self._write(frame)
            return
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        while self._waiting_bytes > self._config.buffer_bytes and not self._config.hold:
            self._waiting_bytes -= len(self._waiting.popleft())
            self._settled += 1
            self.counters.add("shed")
        self._wake.set()
        self._note_idle()

    def _may_write(self) -> bool:
        """Whether a frame can go at once: a turn of the loop and a wake-up of `_send` cost as much as its encoding."""
        writer = self._writer
        if writer is None or self._waiting or self._sent_bytes >= self._config.window_bytes:
            return False
        return not writer.transport.is_closing() and not writer.transport.get_write_buffer_size()

    def _write(self, frame: bytes) -> None:
        assert self._writer is not None
        self._sent.append(frame)
        self._sent_bytes += len(frame)
        self._writer.write(frame)

    def _note_idle(self) -> None:
        if not self._waiting and not self._sent:
            self._idle.set()

    async def _run(self) -> None:
        pause_s, longest_s = self._config.retry_s
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                self.counters.add("connect-failed")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)
                continue
            self.counters.add("connected")
            before = self._progress()
            self._writer = writer
            try:
                await self._exchange(reader, writer)
            except (OSError, EOFError):
                self.counters.add("disconnected")
            finally:
                self._writer = None
                self._welcome.clear()
                writer.transport.abort()
            if self._progress() > before:
                pause_s = self._config.retry_s[0]
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    def _progress(self) -> int:
        return self.counters.get("acknowledged") + self.counters.get("welcomed")

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counters.add("resent", n=len(self._sent))
        self._waiting.extendleft(reversed(self._sent))
        self._waiting_bytes += self._sent_bytes
        self._sent.clear()
        self._sent_bytes = 0
        writer.write(frames.opening(self._inbox.request()) if self._inbox.topics else frames.MAGIC)
        # not a TaskGroup: one whose task has just failed swallows the cancellation by which `close` ends us (3.11)
        both = [asyncio.create_task(self._receive(reader)), asyncio.create_task(self._send(writer))]
        try:
            ended, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        for task in ended:
            task.result()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        while True:
            while self._waiting and self._sent_bytes < self._config.window_bytes:
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._write(frame)
                await writer.drain()
            self._wake.clear()
            await self._wake.wait()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        done = 0
        if self._inbox.topics:
            await self._receive_welcome(reader)
        while True:
            (word,) = frames.ACK.unpack(await reader.readexactly(frames.ACK.size))
            if word == frames.DOWN:
                await self._receive_message(reader)
                continue
            refused, total = bool(word & frames.REFUSED), word & ~frames.REFUSED
            if not done <= total <= done + len(self._sent):
                raise ConnectionError("an acknowledgement of what was not sent")
            for _ in range(total - done):
                self._sent_bytes -= len(self._sent.popleft())
            self.counters.add("acknowledged", n=total - done - refused)
            self.counters.add("refused", "by-server", n=refused)
            self._settled += total - done
            self._settling.set()
            done = total
            self._note_idle()
            if self._waiting:
                self._wake.set()
            if refused:
                raise ConnectionError("the server refused a frame and will read no more")

    async def _receive_welcome(self, reader: asyncio.StreamReader) -> None:
        with _broken_by("welcome"):
            length = frames.parse_length(await reader.readexactly(frames.LENGTH.size))
            answer = frames.parse_welcome(await reader.readexactly(length))
        if answer.refused:
            self.counters.add("wish-refused", answer.refused)
            raise ConnectionError(f"the server refused our wish: {answer.refused}")
        self._inbox.welcomed(answer)
        self.counters.add("welcomed")
        self._welcome.set()

    async def _receive_message(self, reader: asyncio.StreamReader) -> None:
        lengths = await reader.readexactly(frames.LENGTHS.size)
        with _broken_by("message"):
            head_bytes, payload_bytes = frames.parse_lengths(lengths, 2 * self._config.max_message_bytes)
            head, payload = await reader.readexactly(head_bytes), await reader.readexactly(payload_bytes)
            self._inbox.add(head, payload)
        self._received.set()


@contextmanager
def _broken_by(what: str) -> Iterator[None]:
    """Bytes that cannot be read end the connection, as a broken wire does: nothing behind them can be trusted."""
    try:
        yield
    except FormatError as error:
        raise ConnectionError(f"the server sent an unreadable {what}: {error}") from error
