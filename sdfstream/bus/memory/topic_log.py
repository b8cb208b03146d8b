"""The messages of one topic of the in-process bus: numbered, sized, held until read, then a while longer.

Readers hold positions. What the slowest of them has not read yet is the **backlog**; behind it up to `replay_bytes`
of read messages stay, so that a member that resumes from its last commit finds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sdfstream.records.message import Message

OVERHEAD_BYTES: Final = 1024
"""Cost of a message beside its payload (objects, headers), so that a flood of tiny events is bounded too."""


@dataclass(slots=True)
class Position:
    """A reader's next message, and the bytes that entered the topic before it."""

    seq: int
    offset_bytes: int


@dataclass(slots=True)
class TopicLog:
    """An append-only log with a moving front.

    Invariant: the log holds the messages ``first_seq .. next_seq - 1`` and nothing else; its size is at most
    backlog + `replay_bytes` + one message.
    """

    replay_bytes: int
    next_seq: int = 0
    first_seq: int = 0
    end_bytes: int = 0
    """Bytes that ever entered."""
    _messages: dict[int, tuple[Message, int, int]] = field(default_factory=dict)
    """seq → (message, bytes that entered before it, bytes that entered with it)."""
    _readers: list[Position] = field(default_factory=list)

    def append(self, message: Message, size_bytes: int) -> None:
        """Add the message numbered `next_seq`."""
        start = self.end_bytes
        self.end_bytes = start + size_bytes + OVERHEAD_BYTES
        self._messages[self.next_seq] = (message, start, self.end_bytes)
        self.next_seq += 1
        self.trim()

    def backlog_bytes(self) -> int:
        """Bytes that the slowest reader has not read yet; 0 without readers."""
        return self.end_bytes - min((r.offset_bytes for r in self._readers), default=self.end_bytes)

    def held_bytes(self) -> int:
        """Bytes of the messages in the log."""
        if not self._messages:
            return 0
        return self.end_bytes - self._start_of(self.first_seq)

    def attach(self, seq: int) -> Position:
        """A reader whose next message is `seq`, or the first one in the log when that is gone."""
        at = min(max(seq, self.first_seq), self.next_seq)
        position = Position(at, self._start_of(at))
        self._readers.append(position)
        return position

    def detach(self, position: Position) -> None:
        """Forget a reader; messages that only it had not read may go."""
        self._readers = [r for r in self._readers if r is not position]
        self.trim()

    def peek(self, position: Position) -> Message | None:
        """The reader's next message."""
        entry = self._messages.get(position.seq)
        return entry[0] if entry else None

    def advance(self, position: Position) -> None:
        """Move `position` behind its next message."""
        position.offset_bytes = self._messages[position.seq][2]
        position.seq += 1

    def trim(self) -> None:
        """Drop what every reader has read and the replay ring has no room for."""
        keep_from = self.end_bytes - self.backlog_bytes() - self.replay_bytes
        while self.first_seq < self.next_seq and self._messages[self.first_seq][2] <= keep_from:
            del self._messages[self.first_seq]
            self.first_seq += 1

    def _start_of(self, seq: int) -> int:
        """Bytes that entered before message `seq`, which is here or is the next one."""
        return self._messages[seq][1] if seq < self.next_seq else self.end_bytes
