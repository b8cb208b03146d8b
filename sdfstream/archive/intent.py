"""The messages of one insert, written to the bus before the insert is made: the archive's log of intents.

An `Intent` names a topic, the insert's deduplication token, and per partition the range of offsets with the runs of
offsets whose messages are in it. Offsets of the range outside the runs were left out when the batch was first read
(the bus's own marks, repeats by a producer), so the insert is repeated with the same messages, whatever the reader of
the next owner remembers of repeats.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.records.message import Message
from sdfstream.records.position import offset_of, partition_of

NOTE_PREFIX: Final = "intent/"
_VERSION: Final = 1
_UINT64: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Span:
    """The share of one partition in a batch."""

    start: int
    """The position before it: every message before is in earlier batches. -1: there were none."""
    end: int
    """The position behind it."""
    runs: tuple[tuple[int, int], ...]
    """Offsets whose messages are in the batch: [first, behind the last), rising."""

    def has(self, offset: int) -> bool:
        """Whether the message at `offset` is in the batch."""
        at = bisect_right(self.runs, (offset, 1 << 62)) - 1
        return at >= 0 and offset < self.runs[at][1]


@dataclass(frozen=True, slots=True)
class Intent:
    """One insert to be made."""

    topic: str
    token: str
    rows: int
    spans: Mapping[int, Span]
    """By partition. Empty for rows that are on no bus any more."""
    at_ns: int = 0
    """Bus time of the oldest message; 0 when not known."""

    @property
    def note(self) -> str:
        """Name of the note that holds the intent."""
        return NOTE_PREFIX + self.topic

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(behind - first for span in self.spans.values() for first, behind in span.runs)

    def to_bytes(self) -> bytes:
        """As JSON; `from_bytes` reads it."""
        spans = {str(p): [s.start, s.end, [n for run in s.runs for n in run]] for p, s in self.spans.items()}
        fields: dict[str, Any] = {
            "v": _VERSION,
            "topic": self.topic,
            "token": self.token,
            "rows": self.rows,
            "spans": spans,
        }
        fields["at"] = self.at_ns
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Intent:
        """An intent as `to_bytes` wrote it.

        Raises
        ------
        FormatError
            ``intent``: it is none, or of a later version.
        """
        try:
            fields = strict_json.loads(data)
            if fields["v"] != _VERSION:
                raise ValueError(f"version {fields['v']}")
            spans = {int(p): _span(*given) for p, given in fields["spans"].items()}
            return cls(str(fields["topic"]), str(fields["token"]), int(fields["rows"]), spans, int(fields.get("at", 0)))
        except (FormatError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError("intent", f"{error!r}") from error


def _span(start: int, end: int, numbers: Sequence[int]) -> Span:
    flat = [int(n) for n in numbers]
    runs = tuple(zip(flat[::2], flat[1::2], strict=True))
    edges = [e for run in runs for e in run]
    if edges != sorted(edges) or any(a == b for a, b in runs):
        raise ValueError("runs do not rise")
    return Span(int(start), int(end), runs)


def by_partition(messages: Sequence[Message]) -> dict[int, list[int]]:
    """The offsets of `messages` of one topic, by partition, in their order."""
    found: dict[int, list[int]] = {}
    for message in messages:
        found.setdefault(partition_of(message)[1], []).append(offset_of(message))
    return found


def runs_of(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Rising offsets as runs.

    >>> runs_of([3, 4, 5, 9])
    ((3, 6), (9, 10))
    """
    numbers = np.unique(np.asarray(offsets, dtype=np.int64))
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    firsts = numbers[np.concatenate(([0], breaks))] if numbers.size else numbers
    lasts = numbers[np.concatenate((breaks, [numbers.size])) - 1] if numbers.size else numbers
    return tuple((int(a), int(b) + 1) for a, b in zip(firsts, lasts, strict=True))


def token(bus_id: str, topic: str, messages: Sequence[Message]) -> str:
    """The deduplication token of one insert: bus, topic, partitions and offsets.

    Ends and number of the messages are for the human reader; a digest of every message's position and bus time tells
    apart sets with the same ends, and a topic from one that was made anew under its name.
    """
    positions = np.array([(m.bus_seq & _UINT64, m.bus_at_ns & _UINT64) for m in messages], dtype="<u8")
    digest = hashlib.blake2s(positions.tobytes(), digest_size=8).hexdigest()
    partitions = sorted({partition_of(m)[1] for m in messages})
    where = f"{partitions[0]}" if len(partitions) == 1 else f"{partitions[0]}..{partitions[-1]}"
    ends = f"{offset_of(messages[0])}-{offset_of(messages[-1])}"
    return f"{bus_id}/{topic}/{where}/{ends}/{len(messages)}-{digest}"
