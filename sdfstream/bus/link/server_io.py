"""The link from agents' processes to a pipeline's process, for use without Kafka: the server's end.

A unix stream socket that only its owner may open. A frame whose lengths or head cannot be read is refused with its
reason, counted, and ends the connection, since nothing behind it can be trusted; a well-framed message that the codec
cannot read goes to ``<topic>.dlq`` and the connection goes on. So does one of a host that another process speaks for
(`owners`), or of a topic that no agent writes. A frame is acknowledged once the bus has taken it, so
a slow pipeline slows the agent's sending and never grows this process. A client of version 2 also gets the
messages it requested, from `feed_io`.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from sdfstream.bus import Bus
from sdfstream.bus.link import frames
from sdfstream.bus.link.acknowledge_io import Acknowledgements
from sdfstream.bus.link.admission_io import Admission
from sdfstream.bus.link.feed_io import Client, Feed
from sdfstream.bus.link.owners import Process
from sdfstream.bus.link.peer_io import process_at
from sdfstream.bus.link.write_io import write
from sdfstream.errors import BusError, ConfigError, FormatError, UnavailableError
from sdfstream.records.topics import TOPICS
from sdfstream.stats import Counters

_BULK = frozenset(topic.name for topic in TOPICS.values() if topic.columns is not None)
MAX_PATH_BYTES = 107
"""Size of ``sun_path`` (unix(7)), less its final zero."""


class LinkServer:
    """Takes frames from `LinkPublisher`s and puts them on `bus`; sends them the topics they subscribed to.

    Parameters
    ----------
    bus : Bus
    path : Path or str
        The unix socket.
    topics : collection of str, optional
        Topics that clients may write; None: all.
    max_message_bytes : int
        The largest payload taken.
    ring_bytes, queue_bytes : int
        Per topic, messages held for clients that reconnect; per client, messages it may leave unread before the
        oldest are shed. Memory is at most topics · ring_bytes + clients · queue_bytes and one message each.
    behind_s : callable, optional
        By how much the pipeline is behind the bus; then agents are slowed down.

    Notes
    -----
    Counters: ``connected``, ``disconnected``, ``received``, ``refused`` by reason (``link-magic``, ``link-oversize``,
    ``link-head``, ``link-wish``, ``topic-unknown``, ``link-truncated``, and those of `admission_io.Admission`), and
    those of `feed_io.Feed`.
    """

    def __init__(
        self,
        bus: Bus,
        path: Path | str,
        *,
        topics: Collection[str] | None = None,
        max_message_bytes: int = 8 << 20,
        ring_bytes: int = 1 << 20,
        queue_bytes: int = 8 << 20,
        behind_s: Callable[[], float] | None = None,
    ) -> None:
        self._behind_s = behind_s
        self.counters = Counters("link-server")
        self._admission = Admission(bus, topics, self.counters)
        self._path = Path(path)
        self._max_bytes = max_message_bytes
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        run_id = uuid.uuid4().hex  # a bus that starts afresh numbers afresh, and so does its server
        self._feed = Feed(bus, run_id, self.counters, ring_bytes=ring_bytes, queue_bytes=queue_bytes)

    async def start(self) -> None:
        """Listen.

        Raises
        ------
        ConfigError
            The path is longer than a unix socket's may be, or holds something that is no socket.
        UnavailableError
            Another process listens there, or the folder cannot be written.
        """
        self._check_path()
        try:
            listener = _listen_privately(self._path)
        except OSError as error:
            raise UnavailableError(f"cannot listen at {self._path}: {error}") from error
        self._server = await asyncio.start_unix_server(self._accept, sock=listener)

    async def close(self) -> None:
        """Stop listening and end every connection; publishers still have what was not acknowledged."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._feed.close()
        await self._server.wait_closed()
        self._server = None
        self._path.unlink(missing_ok=True)

    def _check_path(self) -> None:
        if len(str(self._path).encode()) > MAX_PATH_BYTES - 16:  # 16: the private folder it is first made in
            raise ConfigError(f"the link's path {self._path} is longer than a unix socket's may be")
        if not self._path.exists():
            return
        if not self._path.is_socket():
            raise ConfigError(f"the link's path {self._path} holds something that is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(self._path)) == 0:
                raise UnavailableError(f"another process listens at {self._path}")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.counters.add("connected")
        process = process_at(writer.get_extra_info("socket"))
        self._admission.owners.connected(process)
        try:
            await self._serve(process, reader, writer)
        except (OSError, BusError):
            pass  # not acknowledged: the publisher sends it again
        except asyncio.CancelledError:
            pass  # closing; ending the task quietly is what cancels a streams handler
        finally:
            self.counters.add("disconnected")
            self._admission.owners.disconnected(process)
            self._connections.discard(task)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            magic = await reader.readexactly(len(frames.MAGIC))
            if magic == frames.MAGIC:
                await self._take_all(process, reader, writer, asyncio.Lock())
            elif magic == frames.MAGIC_V2:
                await self._serve_v2(process, reader, writer)
            else:
                self.counters.add("refused", "link-magic")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                self.counters.add("refused", "link-truncated")

    async def _serve_v2(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Version 2: the request, then both directions until either ends."""
        client = await self._welcome(reader, writer)
        if client is None:
            return
        sending = asyncio.create_task(client.send(), name="link-down-client")
        taking = asyncio.create_task(self._take_all(process, reader, writer, client.write_lock), name="link-up-client")
        try:
            await asyncio.wait((sending, taking), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feed.leave(client)
            sending.cancel()
            taking.cancel()
            results = await asyncio.gather(sending, taking, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Client | None:
        try:
            length = frames.parse_length(await _rest(reader, frames.LENGTH.size))
            request = frames.parse_request(await _rest(reader, length))
            return await self._feed.join(request, writer)
        except FormatError as error:
            self.counters.add("refused", error.reason)
            write(writer, frames.welcome(frames.Welcome("", refused=error.reason)))
            await writer.drain()
            await _drain(reader)
            return None

    async def _take_all(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, write_lock: asyncio.Lock
    ) -> None:
        async def answer(word: int) -> None:
            async with write_lock:
                write(writer, frames.ACK.pack(word))
                await writer.drain()

        acknowledgements = Acknowledgements(answer, self._behind_s)
        answering = asyncio.create_task(acknowledgements.run(), name="link-acknowledgements")
        try:
            while True:
                topic = await self._take(process, reader)
                acknowledgements.take(bulk=topic in _BULK)
        except FormatError as error:
            self.counters.add("refused", error.reason)
            acknowledgements.end()
            await _ended(answering)
            await answer((acknowledgements.taken + 1) | frames.REFUSED)
            await _drain(reader)
        finally:
            if acknowledgements.pending:  # what the bus has taken need not come again
                with suppress(ConnectionResetError):
                    write(writer, frames.ACK.pack(acknowledgements.taken))
            acknowledgements.end()
            await _ended(answering)

    async def _take(self, process: Process, reader: asyncio.StreamReader) -> str:
        """Take a frame; its topic."""
        raw = await reader.readexactly(frames.LENGTHS.size)
        head_bytes, payload_bytes = frames.parse_lengths(raw, self._max_bytes)
        head = frames.parse_head(await _rest(reader, head_bytes))
        payload = await _rest(reader, payload_bytes)
        await self._admission.take(process, head, payload)
        self.counters.add("received")
        return head.topic


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel `task` and wait for its end; the connection's end is found elsewhere."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _rest(reader: asyncio.StreamReader, size: int) -> bytes:
    """`size` bytes of a frame that has begun: an end of stream is a truncation even before the first of them."""
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise asyncio.IncompleteReadError(error.partial or b"\0", size) from error


async def _drain(reader: asyncio.StreamReader) -> None:
    """Read on until the publisher hangs up, since closing with unread bytes would lose our last answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while await reader.read(1 << 16):
                pass


def _listen_privately(path: Path) -> socket.socket:
    """A listening socket at `path` that only its owner can open, at no moment otherwise.

    It is made inside a folder of mode 0700, given mode 0600, and moved into place (which also replaces a stale one).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as private:
            made = Path(private) / "s"
            listener.bind(str(made))
            made.chmod(0o600)
            listener.listen(64)
            made.rename(path)
    except OSError:
        listener.close()
        raise
    return listener
