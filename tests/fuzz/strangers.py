"""What strangers send to a broker: drawn, what must be refused of it known beforehand, no faster than it is taken."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from sdfstream.bus import codec
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.producer_io import idempotent
from sdfstream.errors import FormatError
from sdfstream.records.fabric import DECLARED_TYPE
from sdfstream.records.topics import ANOMALY, EDGE, ESTIMATE
from tests.fuzz.traffic import Traffic, Wire
from tests.fuzz.values import STRANGERS, Draw

UNREAD: Final = frozenset({ANOMALY.name, EDGE.name, ESTIMATE.name})
"""Topics that no process of `sdfstream up` reads: nobody refuses what stands there."""
_LAG: Final = 1_000
"""Messages that the slowest stage may be behind before the strangers pause."""
_LOOK_S: Final = 1.0
_TOGETHER: Final = 200


class Sent:
    """What strangers sent, by `digest`."""

    def __init__(self) -> None:
        self.count = 0
        self.messages: set[bytes] = set()
        """All different ones."""
        self.refused: dict[bytes, str] = {}
        """Those that the codec refuses, and their topic."""


def digest(topic: str, value: bytes) -> bytes:
    """Of a message."""
    return hashlib.blake2b(value, digest_size=10, person=topic[-16:].encode()).digest()


async def send(bus: KafkaBus, sent: Sent, seed: int, count: int, lag: Callable[[], Awaitable[int]]) -> None:
    """`count` messages of `seed`; waits while `lag` says that the slowest reader is far behind."""
    traffic = Traffic(Draw(random.Random(seed), STRANGERS), damaged=0.8, without=frozenset({DECLARED_TYPE}))
    producer = await idempotent(bus.config)
    looked_s = told_s = time.monotonic()
    try:
        while sent.count < count:
            waiting = []
            for _ in range(min(_TOGETHER, count - sent.count)):
                one = traffic.one()
                if len(one.value) <= bus.config.max_message_bytes:  # no broker takes more
                    _expect(sent, one)
                    waiting.append(await _put(bus, producer, one))
                sent.count += 1
            await asyncio.gather(*waiting)
            if time.monotonic() - looked_s > _LOOK_S:
                while await lag() > _LAG:  # noqa: ASYNC110 (what is waited for is no event)
                    await asyncio.sleep(0.2)
                looked_s = time.monotonic()
            if time.monotonic() - told_s > 60.0:
                told_s = time.monotonic()
                print(f"  {sent.count} sent", file=sys.stderr, flush=True)
    finally:
        await producer.stop()


def _expect(sent: Sent, one: Wire) -> None:
    name = digest(one.topic, one.value)
    sent.messages.add(name)
    if one.topic in UNREAD or name in sent.refused:
        return
    headers = [pair for pair in one.headers if pair[0] != "bus_at_ns"]  # the bus gives its own
    try:
        codec.decode_own(one.topic, headers, one.value, one.key)
    except FormatError:
        sent.refused[name] = one.topic


async def _put(bus: KafkaBus, producer: Any, one: Wire) -> Any:
    headers = [pair for pair in one.headers if pair[0] != "bus_at_ns"]
    headers.append(("bus_at_ns", b"%d" % bus.now_ns()))
    with suppress(UnicodeEncodeError):
        return await producer.send(bus.config.prefix + one.topic, one.value, key=one.key.encode(), headers=headers)
    return asyncio.sleep(0)
