"""Records of a process's topics, decoded once however many of its stages read them.

In one process sync, detect, the archive, the board and others each fetch a record of their own from the brokers, with
the same bytes. Decoding is a pure function of those bytes and costs more than all else that a reader does with a
record, so its outcome is retained for the readers behind, of a topic that has several. An outcome is given out only for
equal bytes: offsets begin anew where a topic was deleted and made again.

So is the dead letter of a record that is refused: each reader queues it, and leaves it out once a task has it in its
commit: that task's position passes the record only with the letter, and if it fails the record is refused again. Of a
reader outside a task only a letter that was stored counts, for it may end before.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sdfstream.bus import codec
from sdfstream.bus.kafka import unreadable_io
from sdfstream.bus.known_streams import KnownStreams
from sdfstream.errors import FormatError

MOST_BYTES: Final = 16 << 20
"""Of values retained and what they became: nearly a second of 64 hosts at the agents' own rate."""
_RECORD_BYTES: Final = 2048
"""What a retained record costs beside its value."""
_EVENT_GROWTH: Final = 10
"""JSON becomes Python objects of five to ten times its size; of empty ones alone, twenty-four."""


@dataclass(slots=True)
class ReadRecord:
    """A record in the types of the codec, and what came of decoding it."""

    key: str
    headers: codec.Headers
    value: bytes
    outcome: codec.Decoded | FormatError
    has_dead_letter: bool = False
    """Whether its dead letter is in a task's commit, or was stored: other readers need not write it again."""


class _Retained(NamedTuple):
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    key: bytes
    read: ReadRecord
    outcome_bytes: int
    """Memory of the outcome, beyond the value in which it may lie."""


class DecodedRecords:
    """The newest records that any reader of this process has decoded, within `most_bytes`. For one event loop."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._retained: OrderedDict[tuple[str, int, int], _Retained] = OrderedDict()
        self._known = KnownStreams()
        self._readers: dict[str, Counter[str]] = {}
        """By topic: how many tasks or subscriptions of each name read it."""

    def begin(self, name: str, topics: Iterable[str]) -> None:
        """`name`, a stage or a group, reads `topics` from now on; several of one name share their partitions."""
        for topic in topics:
            self._readers.setdefault(topic, Counter())[name] += 1

    def end(self, name: str, topics: Iterable[str]) -> None:
        """One of those called `name` has ended."""
        for topic in topics:
            readers = self._readers[topic]
            readers[name] -= 1
            if not readers[name]:
                del readers[name]

    def of(self, topic: str, partition: int, record: Any) -> ReadRecord:
        """`record` of `topic` (without the prefix), decoded now or by another reader before.

        What is refused is no exception here: its dead letter needs key, headers and value as well.
        """
        where = (topic, partition, record.offset)
        retained = self._retained.get(where)
        if retained is not None and _is_same(retained, record):
            return retained.read
        read = _read(topic, record, self._known)
        if self._is_for_others(topic, read) and not isinstance(record.value, unreadable_io.Unreadable):
            size = _outcome_bytes(read)
            self._retain(where, _Retained(record.value or b"", tuple(record.headers), record.key or b"", read, size))
        return read

    def _is_for_others(self, topic: str, read: ReadRecord) -> bool:
        """Whether another reader may ask; one that rewinds asks again, and must know of the dead letter."""
        sound = isinstance(read.outcome, codec.Decoded) and not read.outcome.refused_rows
        return not sound or len(self._readers.get(topic, ())) > 1

    def _retain(self, where: tuple[str, int, int], retained: _Retained) -> None:
        before = self._retained.pop(where, None)
        if before is not None:
            self._bytes -= _cost_bytes(before)
        if _cost_bytes(retained) > self._most_bytes:
            return
        self._retained[where] = retained
        self._bytes += _cost_bytes(retained)
        while self._bytes > self._most_bytes:
            self._bytes -= _cost_bytes(self._retained.popitem(last=False)[1])


def _is_same(retained: _Retained, record: Any) -> bool:
    """Whether `record` has the bytes of `retained`: a comparison of 15 kB costs a thousandth of decoding them."""
    return bool(
        retained.value == record.value
        and retained.headers == tuple(record.headers)
        and retained.key == (record.key or b"")
        and not isinstance(record.value, unreadable_io.Unreadable)
    )


def _read(topic: str, record: Any, known: KnownStreams) -> ReadRecord:
    headers = [(name, raw or b"") for name, raw in record.headers]
    key = (record.key or b"").decode(errors="replace")
    value = record.value or b""
    try:
        unreadable_io.check(record)
        return ReadRecord(key, headers, value, codec.decode_own(topic, headers, value, key, known))
    except FormatError as error:
        # without the frames that it and its causes passed: they hold what was half decoded, a JSON error all the text
        error.__cause__ = error.__context__ = None
        return ReadRecord(key, headers, value, error.with_traceback(None))


def _cost_bytes(retained: _Retained) -> int:
    headers = sum(len(name) + len(raw or b"") for name, raw in retained.headers)
    return len(retained.value) + len(retained.key) + headers + retained.outcome_bytes + _RECORD_BYTES


def _outcome_bytes(read: ReadRecord) -> int:
    """What was compressed is many times its value, and what was not lies within it."""
    if isinstance(read.outcome, FormatError):
        return 0
    if isinstance(read.outcome.body, pa.RecordBatch):
        buffers = int(read.outcome.body.get_total_buffer_size())
        return buffers if buffers > len(read.value) else 0
    return _EVENT_GROWTH * len(read.value)
