"""The server's end of messages down the link: one reader of the bus per topic, a queue per client.

A topic is read from its first request until the server closes, at the bus's pace: rings and queues are bounded and
never make the bus wait. A message is encoded once for all clients.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from sdfstream.bus import Bus, Subscription, codec
from sdfstream.bus.link import frames
from sdfstream.bus.link.downlink import ClientQueue, Packed, ReplayRing, packed
from sdfstream.bus.link.frames import SubscribeRequest, Welcome
from sdfstream.bus.link.write_io import write
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Message
from sdfstream.stats import Counters

RETRY_S: Final = 0.5
MOST_TOPICS: Final = 64


class Client:
    """One connected client: its queue, and the task that empties it into the socket."""

    def __init__(self, queue: ClientQueue, writer: asyncio.StreamWriter) -> None:
        self._queue = queue
        self._writer = writer
        self._wake = asyncio.Event()
        self.write_lock = asyncio.Lock()
        """Held from write to drain: acknowledgements use the same socket."""

    def offer(self, message: Packed) -> None:
        """Queue `message` if the client requested it."""
        if self._queue.offer(message):
            self._wake.set()

    async def send(self) -> None:
        """Send what is queued, for ever."""
        while True:
            while (raw := self._queue.take()) is not None:
                async with self.write_lock:
                    write(self._writer, raw)
                    await self._writer.drain()
            self._wake.clear()
            await self._wake.wait()


class Feed:
    """Reads requested topics of `bus` and hands their messages to the clients.

    Notes
    -----
    Counters: ``requests``, ``down-shed`` (topic: a client did not take it in time), ``down-failed`` (topic: the bus
    could not be read, tried again), ``down-unpackable`` (reason).
    """

    def __init__(self, bus: Bus, run_id: str, counters: Counters, *, ring_bytes: int, queue_bytes: int) -> None:
        self._bus = bus
        self._run_id = run_id
        self._counters = counters
        self._ring_bytes = ring_bytes
        self._queue_bytes = queue_bytes
        self._rings: dict[str, ReplayRing] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._clients: set[Client] = set()
        self._joining = asyncio.Lock()

    async def join(self, request: SubscribeRequest, writer: asyncio.StreamWriter) -> Client:
        """Add a client and send its welcome.

        Raises
        ------
        FormatError
            ``topic-unknown``, ``link-wish``; nothing was changed.
        BusError
            The bus could not be read.
        """
        if len(request.topics) > MOST_TOPICS:
            raise FormatError("link-wish", f"{len(request.topics)} topics; at most {MOST_TOPICS}")
        for topic in request.topics:
            codec.topic_of(topic)
        async with self._joining:
            for topic in request.topics:
                if topic not in self._readers:
                    await self._open(topic)
        self._counters.add("wishes")
        client = Client(ClientQueue(request, self._counters, self._queue_bytes), writer)
        # no await from here on: messages read so far are in the ring, later ones go to the client
        at = {topic: self._rings[topic].at() for topic in request.topics}
        lost = {}
        if request.bus == self._run_id:
            for topic in request.topics:
                missed, lost[topic] = self._rings[topic].behind(request.after.get(topic, ()))
                for message in missed:
                    client.offer(message)
        self._clients.add(client)
        write(writer, frames.welcome(Welcome(self._run_id, at, {t: n for t, n in lost.items() if n})))
        return client

    def leave(self, client: Client) -> None:
        """Forget a client."""
        self._clients.discard(client)

    async def close(self) -> None:
        """Stop reading."""
        for reader in self._readers.values():
            reader.cancel()
        await asyncio.gather(*self._readers.values(), return_exceptions=True)
        self._readers.clear()

    async def _open(self, topic: str) -> None:
        subscription = await self._bus.subscribe(self._group(topic), [topic])
        self._rings[topic] = ReplayRing(self._ring_bytes)
        self._readers[topic] = asyncio.create_task(self._read(topic, subscription), name=f"link-down {topic}")

    async def _read(self, topic: str, subscription: Subscription) -> None:
        while True:
            try:
                while True:
                    for message in await subscription.read(timeout_s=1.0):
                        self._hand_out(message)
                    await subscription.commit()
            except BusError:
                self._counters.add("down-failed", topic)
                await asyncio.sleep(RETRY_S)
                with suppress(BusError):
                    await subscription.close()
                    subscription = await self._bus.subscribe(self._group(topic), [topic])
            except asyncio.CancelledError:
                with suppress(BusError):
                    await subscription.close()
                raise

    def _hand_out(self, message: Message) -> None:
        try:
            made = packed(message)
        except FormatError as error:  # what is on the bus has passed the codec; a head may still be too large
            self._counters.add("down-unpackable", error.reason)
            return
        self._rings[made.topic].add(made)
        for client in self._clients:
            client.offer(made)

    def _group(self, topic: str) -> str:
        return f"link-{self._run_id}-{topic}"
