"""Several partitions read as one stream in bus order, whatever order the brokers hand them out in. Pure.

A partition that is **behind** (the brokers have more of it than has come) and has nothing waiting here holds all
others back: its next message may be older than theirs. So after an outage a stage meets what it missed in the order in
which it would have met it, and does not take an unread topic for a silent one. A partition that is read to its end
holds nobody back.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from sdfstream.records.position import Part, Positions

T = TypeVar("T")


class Held(NamedTuple, Generic[T]):
    """A message that waits for its turn."""

    at_ns: int
    offset: int
    size_bytes: int
    item: T


@dataclass(slots=True)
class Merge(Generic[T]):
    """The waiting messages of every partition of a task."""

    lanes: dict[Part, deque[Held[T]]] = field(default_factory=dict)
    bytes: dict[Part, int] = field(default_factory=dict)
    """Of what waits in each lane, for whoever limits it."""

    def open(self, parts: Iterable[Part]) -> None:
        """Begin with nothing waiting in `parts`."""
        self.lanes = {part: deque() for part in sorted(parts)}
        self.bytes = dict.fromkeys(self.lanes, 0)

    def put(self, part: Part, held: Iterable[Held[T]]) -> None:
        """Messages of `part`, behind those that came before; their times never go back."""
        lane = self.lanes[part]
        for one in held:
            lane.append(one)
            self.bytes[part] += one.size_bytes

    def waiting(self, part: Part) -> bool:
        """Whether something of `part` waits here."""
        return bool(self.lanes[part])

    def head(self, part: Part) -> Held[T] | None:
        """The next message of `part`."""
        lane = self.lanes[part]
        return lane[0] if lane else None

    def clear(self, part: Part) -> None:
        """Forget what waits of `part`."""
        self.lanes[part].clear()
        self.bytes[part] = 0

    def take(self, behind: set[Part], max_messages: int, max_bytes: int) -> list[tuple[Part, Held[T]]]:
        """The next messages in order of (time, partition, offset), at least one if any may go.

        Parameters
        ----------
        behind : set of Part
            Partitions of which the brokers have more than has come.
        max_messages, max_bytes : int
            Where to stop.
        """
        if any(not lane and part in behind for part, lane in self.lanes.items()):
            return []
        heads = [(lane[0].at_ns, part) for part, lane in self.lanes.items() if lane]
        heapq.heapify(heads)
        taken: list[tuple[Part, Held[T]]] = []
        size = 0
        while heads and len(taken) < max_messages and (size < max_bytes or not taken):
            _, part = heapq.heappop(heads)
            held = self._pop(part)
            size += held.size_bytes
            taken.append((part, held))
            if self.lanes[part]:
                heapq.heappush(heads, (self.lanes[part][0].at_ns, part))
            elif part in behind:
                break
        return taken

    def take_until(self, upto: Positions, max_messages: int, max_bytes: int) -> list[tuple[Part, Held[T]]]:
        """What waits before the offsets `upto`, partition by partition: for one who knows how far to read."""
        taken: list[tuple[Part, Held[T]]] = []
        size = 0
        for part, end in upto.items():
            lane = self.lanes[part]
            while lane and lane[0].offset < end and len(taken) < max_messages and (size < max_bytes or not taken):
                held = self._pop(part)
                size += held.size_bytes
                taken.append((part, held))
        return taken

    def _pop(self, part: Part) -> Held[T]:
        held = self.lanes[part].popleft()
        self.bytes[part] -= held.size_bytes
        return held
