"""What strangers send to a broker: drawn, what must be refused of it known beforehand, no faster than it is taken."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
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
"""Messages that the slowest stage may be behind before the strangers pause: backlogs are another question."""
_LOOK_S: Final = 1.0
_PATIENCE_S: Final = 300.0
"""A reader that is so long behind with nothing new coming does not catch up."""
_TOGETHER: Final = 200


class Sent:
    """What strangers sent, by `digest`."""

    def __init__(self) -> None:
        self.count = 0
        """Drawn: what is left out counts too."""
        self.refusals = 0
        """Messages that the codec refuses, equal ones too."""
        self.messages: set[bytes] = set()
        """All different ones."""
        self.refused: dict[bytes, str] = {}
        """Those that the codec refuses, and their topic."""


def digest(topic: str, value: bytes) -> bytes:
    """Of a message."""
    return hashlib.blake2b(value, digest_size=10, person=topic[-16:].encode()).digest()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send."""

    seed: int = 0
    count: int = 0
    refused_too: bool = True
    """False: only what the codec takes, all else left out."""
    within_s: float = 0.0
    """Spread evenly over this time; 0: as fast as it is taken."""


async def send(bus: KafkaBus, sent: Sent, plan: Plan, lag: Callable[[], Awaitable[int]]) -> None:
    """The messages of `plan`; waits while `lag` says that the slowest reader is far behind."""
    traffic = Traffic(Draw(random.Random(plan.seed), STRANGERS), damaged=0.8, without=frozenset({DECLARED_TYPE}))
    producer = await idempotent(bus.config)
    began_s = looked_s = told_s = time.monotonic()
    try:
        while sent.count < plan.count:
            waiting = []
            for _ in range(min(_TOGETHER, plan.count - sent.count)):
                one = traffic.one()
                if len(one.value) <= bus.config.max_message_bytes:  # no broker takes more
                    name, refused = digest(one.topic, one.value), _refusal(one)
                    sent.messages.add(name)
                    sent.refusals += refused is not None
                    if refused is not None and plan.refused_too and one.topic not in UNREAD:
                        sent.refused[name] = one.topic
                    if plan.refused_too or refused is None:
                        waiting.append(await _put(bus, producer, one))
                sent.count += 1
            await asyncio.gather(*waiting)
            await asyncio.sleep(max(0.0, began_s + plan.within_s * sent.count / plan.count - time.monotonic()))
            if time.monotonic() - looked_s > _LOOK_S:
                await _caught_up(lag)
                looked_s = time.monotonic()
            if time.monotonic() - told_s > 60.0:
                told_s = time.monotonic()
                print(f"  {sent.count} sent", file=sys.stderr, flush=True)
    finally:
        await producer.stop()


async def _caught_up(lag: Callable[[], Awaitable[int]]) -> None:
    """Wait until the slowest reader is near enough.

    Raises
    ------
    TimeoutError
        It was not within `_PATIENCE_S`.
    """
    async with asyncio.timeout(_PATIENCE_S):
        while await lag() > _LAG:  # noqa: ASYNC110 (what is waited for is no event)
            await asyncio.sleep(0.2)


def _refusal(one: Wire) -> str | None:
    """Why the codec refuses a message; None: it does not."""
    headers = [pair for pair in one.headers if pair[0] != "bus_at_ns"]  # the bus gives its own
    try:
        codec.decode_own(one.topic, headers, one.value, one.key)
    except FormatError as error:
        return error.reason
    return None


async def _put(bus: KafkaBus, producer: Any, one: Wire) -> Any:
    headers = [pair for pair in one.headers if pair[0] != "bus_at_ns"]
    headers.append(("bus_at_ns", b"%d" % bus.now_ns()))
    with suppress(UnicodeEncodeError):
        return await producer.send(bus.config.prefix + one.topic, one.value, key=one.key.encode(), headers=headers)
    return asyncio.sleep(0)
