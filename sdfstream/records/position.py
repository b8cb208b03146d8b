"""Where a message stands: its partition and its offset there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from sdfstream.records.message import Message

Partition: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""
Positions: TypeAlias = Mapping[Partition, int]
"""Per partition the offset of the next message to read."""

PARTITION_BITS: Final = 48
"""``Message.bus_seq`` is the message's offset in its partition, with the partition's number above these bits."""


def partition_of(message: Message) -> Partition:
    """The partition that `message` was read from."""
    return message.topic, message.bus_seq >> PARTITION_BITS


def offset_of(message: Message) -> int:
    """Its offset there."""
    return message.bus_seq & ((1 << PARTITION_BITS) - 1)
