"""Messages down the link, without I/O: the server's rings and queues, the client's inbox. All are bounded in bytes.

A message is identified by (topic, partition, bus_seq); the partition is the bits of bus_seq from 48 up, 0 in process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sdfstream.bus import codec
from sdfstream.bus.known_streams import KnownStreams
from sdfstream.bus.link import frames
from sdfstream.bus.link.frames import SubscribeRequest, Welcome
from sdfstream.errors import FormatError
from sdfstream.records.message import Message, Output
from sdfstream.records.position import PARTITION_BITS
from sdfstream.stats import Counters

OVERHEAD_BYTES: Final = 512
"""Cost of a held message beside its bytes."""


class Packed(NamedTuple):
    """A message in wire form; encoded once for all clients."""

    topic: str
    key: str
    seq: int
    raw: bytes


def packed(message: Message) -> Packed:
    """`message` in wire form; errors as `codec.encode`."""
    output = Output(message.topic, message.key, message.body, message.boot_id, message.batch_seq)
    headers, payload = codec.encode(output, message.boot_id, message.batch_seq)
    raw = frames.down(message.topic, message.key, headers, payload, message.bus_at_ns, message.bus_seq)
    return Packed(message.topic, message.key, message.bus_seq, raw)


def unpacked(head: bytes, payload: bytes, known: KnownStreams | None = None) -> Message:
    """The message of a frame from the server; `known`: of a reader of many, makes it cheaper and changes nothing else.

    Raises
    ------
    FormatError
        ``link-head`` (nothing behind it can be trusted), or as `codec.decode`.
    """
    (topic, key, headers), at_ns, seq = frames.parse_down_head(head)
    rows = None if known is None else known.read(topic, key, payload)
    decoded = codec.decode(topic, headers, payload, key, rows)
    if known is not None and rows is None and not decoded.refused_rows:
        known.learn(topic, key, payload, decoded.body)
    return Message(topic, key, decoded.body, at_ns, seq, decoded.boot_id, decoded.batch_seq)


@dataclass(slots=True)
class ReplayRing:
    """The newest messages of one topic, for clients that reconnect; holds at most `most_bytes` and one message."""

    most_bytes: int
    _held: deque[Packed] = field(default_factory=deque)
    _bytes: int = 0
    _last: dict[int, int] = field(default_factory=dict)
    """Partition → bus_seq of the last message that came."""
    _gone: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition → first and last bus_seq that were dropped."""

    def add(self, message: Packed) -> None:
        """Add `message`, and drop the oldest beyond the bound."""
        self._last[partition_number(message.seq)] = message.seq
        self._held.append(message)
        self._bytes += len(message.raw) + OVERHEAD_BYTES
        while self._bytes > self.most_bytes and len(self._held) > 1:
            old = self._held.popleft()
            self._bytes -= len(old.raw) + OVERHEAD_BYTES
            partition = partition_number(old.seq)
            self._gone[partition] = (self._gone.get(partition, (old.seq, 0))[0], old.seq)

    def at(self) -> tuple[int, ...]:
        """The last bus_seq of each partition."""
        return tuple(seq for _, seq in sorted(self._last.items()))

    def behind(self, after: Iterable[int]) -> tuple[list[Packed], int]:
        """(messages held behind the positions `after`, number of messages behind them that are gone).

        Every message of a partition without a position counts as behind.
        """
        seen = {partition_number(seq): seq for seq in sorted(after)}
        found = [m for m in self._held if m.seq > seen.get(partition_number(m.seq), -1)]
        lost = sum(max(0, last - max(seen.get(p, -1), first - 1)) for p, (first, last) in self._gone.items())
        return found, lost


class ClientQueue:
    """Messages not yet sent to one client; sheds the oldest beyond `most_bytes` and counts that as ``down-shed``."""

    def __init__(self, request: SubscribeRequest, counters: Counters, most_bytes: int) -> None:
        self._topics = frozenset(request.topics)
        self._keys = request.keys
        self._counters = counters
        self._most_bytes = most_bytes
        self._waiting: deque[bytes] = deque()
        self._bytes = 0

    def offer(self, message: Packed) -> bool:
        """Queue `message` if the client requested it."""
        if message.topic not in self._topics or (self._keys is not None and message.key not in self._keys):
            return False
        self._waiting.append(message.raw)
        self._bytes += len(message.raw) + OVERHEAD_BYTES
        while self._bytes > self._most_bytes and len(self._waiting) > 1:
            self._bytes -= len(self._waiting.popleft()) + OVERHEAD_BYTES
            self._counters.add("down-shed", message.topic)
        return True

    def take(self) -> bytes | None:
        """The next frame to send."""
        if not self._waiting:
            return None
        raw = self._waiting.popleft()
        self._bytes -= len(raw) + OVERHEAD_BYTES
        return raw


class LinkInbox:
    """The client's end: messages received and not read yet, and what to request after a break.

    Notes
    -----
    Counters: ``downlink`` (topic), ``down-repeat`` (seen before), ``down-shed`` (not read in time, the oldest goes),
    ``down-refused`` (reason), ``down-lost`` (topic: gone before the reconnect, or the server's run is another one: 1
    stands for an unknown number).
    """

    def __init__(self, counters: Counters, most_bytes: int) -> None:
        self.topics: tuple[str, ...] = ()
        self._keys: frozenset[str] | None = None
        self._counters = counters
        self._most_bytes = most_bytes
        self._waiting: deque[tuple[Message, int]] = deque()
        self._bytes = 0
        self._bus = ""
        self._seen: dict[tuple[str, int], int] = {}
        self._known = KnownStreams()

    def subscribe(self, topics: Sequence[str], keys: Sequence[str] | None) -> None:
        """Request `topics` under `keys` (None: all) from now on.

        Raises
        ------
        FormatError
            ``topic-unknown``.
        """
        for topic in topics:
            codec.topic_of(topic)
        self.topics = tuple(dict.fromkeys(topics))
        self._keys = None if keys is None else frozenset(keys)
        self._seen = {partition: seq for partition, seq in self._seen.items() if partition[0] in self.topics}

    def request(self) -> SubscribeRequest:
        """The request that opens a connection."""
        after: dict[str, tuple[int, ...]] = {}
        for (topic, _), seq in sorted(self._seen.items()):
            after[topic] = (*after.get(topic, ()), seq)
        return SubscribeRequest(self.topics, self._keys, self._bus, after)

    def welcomed(self, answer: Welcome) -> None:
        """Take the server's answer to the request."""
        if answer.bus != self._bus:
            self._seen = {(topic, partition_number(seq)): seq for topic, seqs in answer.at.items() for seq in seqs}
            for topic in self.topics if self._bus else ():
                self._counters.add("down-lost", topic)
        self._bus = answer.bus
        for topic, n in answer.lost.items():
            self._counters.add("down-lost", topic, n)

    def add(self, head: bytes, payload: bytes) -> None:
        """Take a frame.

        Raises
        ------
        FormatError
            ``link-head``; a payload that cannot be read is counted, and the rest goes on.
        """
        try:
            message = unpacked(head, payload, self._known)
        except FormatError as error:
            self._counters.add("down-refused", error.reason)
            if error.reason == "link-head":
                raise
            return
        partition = (message.topic, partition_number(message.bus_seq))
        if message.bus_seq <= self._seen.get(partition, -1) or message.topic not in self.topics:
            self._counters.add("down-repeat", message.topic)
            return
        self._seen[partition] = message.bus_seq
        self._counters.add("down", message.topic)
        self._waiting.append((message, len(payload) + OVERHEAD_BYTES))
        self._bytes += len(payload) + OVERHEAD_BYTES
        while self._bytes > self._most_bytes and len(self._waiting) > 1:
            self._bytes -= self._waiting.popleft()[1]
            self._counters.add("down-shed")

    def take(self) -> list[Message]:
        """Every message received and not read yet, in order."""
        found = [message for message, _ in self._waiting]
        self._waiting.clear()
        self._bytes = 0
        return found


def partition_number(seq: int) -> int:
    """The partition that a bus_seq belongs to."""
    return seq >> PARTITION_BITS
