"""A producer's numbers, and a reader's count of what is missing or repeated in them.

A producer numbers its messages per topic and key, since only those keep their order on a partitioned bus. A reader
that sees 4 after 2 has met a gap of one; 2 after 2 is a repeat (at-least-once delivery). Both are bounded in keys.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from sdfstream.records.numbering import Step, follow
from sdfstream.stats import Counters

MAX_KEYS: Final = 65_536
"""Keys one producer numbers per topic, and streams one reader follows: 10 MB of memory, far above hosts × topics."""


class Numbers:
    """Gives out ``batch_seq`` per topic and key, from 0.

    Once a topic has more than `max_keys` keys, further keys get −1 (not numbered) rather than a number that would
    later look like a gap or a repeat; only topics keyed by finding can have that many.
    """

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._next: dict[str, dict[str, int]] = {}

    def take(self, topic: str, key: str) -> int:
        """The next number of (topic, key)."""
        keys = self._next.setdefault(topic, {})
        number = keys.get(key, 0 if len(keys) < self._max_keys else -1)
        if number >= 0:
            keys[key] = number + 1
        return number


class SequenceWatch:
    """Counts ``gap``, ``repeat`` and ``jump`` in the numbers of each (topic, key, boot_id), under ``group:topic``.

    The first number of a stream is taken as it comes, since a reader may join late; what a jump is: `numbering`. Beyond
    `max_streams` the stream unseen for longest is forgotten.
    """

    def __init__(self, counters: Counters, group: str, max_streams: int = MAX_KEYS) -> None:
        self._counters = counters
        self._group = group
        self._max_streams = max_streams
        self._last: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._tentative: dict[tuple[str, str, str], int] = {}
        """Numbers of streams that have just jumped; not among what is dumped."""

    def see(self, topic: str, key: str, boot_id: str, batch_seq: int) -> bool:
        """Count one message, in order of arrival; False for a repeat."""
        if batch_seq < 0:
            return True
        stream = (topic, key, boot_id)
        step, last, tentative, missing = follow(
            self._last.get(stream, batch_seq - 1), self._tentative.pop(stream, None), batch_seq
        )
        if step is not Step.NEXT:
            self._counters.add(step.value, f"{self._group}:{topic}")
        self._counters.add("gap", f"{self._group}:{topic}", missing)
        self._last[stream] = last
        if tentative is not None:
            self._tentative[stream] = tentative
        self._last.move_to_end(stream)
        if len(self._last) > self._max_streams:
            self._tentative.pop(self._last.popitem(last=False)[0], None)
        return step is not Step.REPEAT

    def forget(self) -> None:
        """Clear the memory, as after a rebalance: another member may have read messages in between."""
        self._last.clear()
        self._tentative.clear()

    def dump(self) -> list[list[str | int]]:
        """The last number of every stream, for `load`; the stream unseen for longest first."""
        return [[*stream, last] for stream, last in self._last.items()]

    def load(self, dumped: Iterable[Sequence[str | int]]) -> None:
        """Replace the memory by what `dump` gave."""
        self._last = OrderedDict(((str(t), str(k), str(b)), int(n)) for t, k, b, n in dumped)
        self._tentative.clear()
