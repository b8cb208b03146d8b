"""Repeated messages: delivery is at least once, and a repeat must not count its bytes again."""

from __future__ import annotations

from typing import Any, Final

from sdfstream.records.message import Message

_MOST: Final = 16_384


class Repeats:
    """Newest message of every producer (key and boot id), by its own number.

    A producer's numbers rise by one; the same or a lower one under another number of the bus is a repeat. Producers
    that do not number their messages are never taken for repeats.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], tuple[int, int]] = {}

    def is_repeat(self, message: Message) -> bool:
        """Whether this message came before; otherwise it becomes its producer's newest."""
        if message.batch_seq < 0 or not message.boot_id:
            return False
        producer = message.key, message.boot_id
        last = self._newest.pop(producer, None)
        repeat = last is not None and (
            message.batch_seq < last[0] or (message.batch_seq == last[0] and message.bus_seq != last[1])
        )
        self._newest[producer] = last if repeat and last is not None else (message.batch_seq, message.bus_seq)
        if len(self._newest) > _MOST:
            del self._newest[next(iter(self._newest))]
        return repeat

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[*producer, *last] for producer, last in self._newest.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._newest = {(key, boot): (number, seq) for key, boot, number, seq in state}
