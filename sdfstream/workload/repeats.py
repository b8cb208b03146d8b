"""Repeated messages: delivery is at least once, and a repeat must not count its bytes again."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sdfstream.records.message import Message
from sdfstream.records.numbering import Step, follow

_MOST: Final = 16_384


class _Newest(NamedTuple):
    number: int
    seq: int
    """Its number on the bus."""
    tentative: int | None = None
    """See `numbering`."""


class Repeats:
    """Newest message of every producer (key and boot id), by its own number.

    A producer's numbers rise by one; the same or a lower one under another number of the bus is a repeat, but for jumps
    (`numbering`). Producers that do not number their messages are never taken for repeats.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], _Newest] = {}

    def is_repeat(self, message: Message) -> bool:
        """Whether this message came before; otherwise it becomes its producer's newest."""
        if message.batch_seq < 0 or not message.boot_id:
            return False
        producer = message.key, message.boot_id
        last = self._newest.pop(producer, _Newest(message.batch_seq - 1, -1))
        same = (message.batch_seq, message.bus_seq) == (last.number, last.seq)  # rows of it come in several pieces
        step, number, tentative, _ = follow(last.number, last.tentative, message.batch_seq)
        repeat = step is Step.REPEAT and not same
        seq = message.bus_seq if step is Step.NEXT else last.seq
        self._newest[producer] = _Newest(number, seq, tentative)
        if len(self._newest) > _MOST:
            del self._newest[next(iter(self._newest))]
        return repeat

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[*producer, *last] for producer, last in self._newest.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._newest = {(key, boot): _Newest(*rest) for key, boot, *rest in state}
