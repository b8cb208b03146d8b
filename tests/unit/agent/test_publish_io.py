"""The buffer between agent and bus: nothing lost while there is room, the oldest bulk shed when there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pytest

from sdfstream.agent.pressure import Pressure
from sdfstream.agent.publish_io import PublishBuffer
from sdfstream.records.message import Event, Output
from sdfstream.stats import Counters


class Bus:
    def __init__(self) -> None:
        self.taken: list[str] = []
        self.away = False
        self.slow: asyncio.Event | None = None

    async def publish(self, outputs: Sequence[Output]) -> None:
        if self.slow is not None:
            await self.slow.wait()
        if self.away:
            raise ConnectionError("away")
        self.taken += [o.key for o in outputs]


def rows(key: str, n: int = 1000) -> Output:
    return Output("sdf.raw.probe.v1", key, pa.record_batch({"x": pa.array(range(n), pa.int64())}))


def event(key: str) -> Output:
    return Output("sdf.raw.liveness.v1", key, Event("t", "s", key, 0, {}))


async def settle(buffer: PublishBuffer, seconds: float = 0.2) -> None:
    task = asyncio.create_task(buffer.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_events_go_first_and_in_order() -> None:
    bus = Bus()
    buffer = PublishBuffer(bus, Counters("agent"))
    buffer.put([rows("1"), event("a"), rows("2"), event("b")])
    await settle(buffer, 0.05)
    assert bus.taken == ["a", "b", "1", "2"]


async def test_a_bus_that_comes_back_gets_everything_in_order() -> None:
    bus, counters = Bus(), Counters("agent")
    buffer = PublishBuffer(bus, counters)
    bus.away = True
    task = asyncio.create_task(buffer.run())
    for i in range(5):
        buffer.put([rows(str(i))])
        await asyncio.sleep(0.02)
    bus.away = False
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bus.taken == ["0", "1", "2", "3", "4"]
    assert counters.get("publish-failed", "ConnectionError") > 0
    assert counters.total("shed") == 0
    assert counters.total("published") == 5000


async def test_the_oldest_bulk_is_shed_and_counted() -> None:
    bus, counters = Bus(), Counters("agent")
    buffer = PublishBuffer(bus, counters, max_bytes=32_000)  # three batches of 9,024 and an event
    bus.away = True
    buffer.put([event("e"), *(rows(str(i)) for i in range(6))])
    bus.away = False
    await settle(buffer, 0.05)
    assert bus.taken == ["e", "3", "4", "5"]
    assert counters.get("shed", "sdf.raw.probe.v1") == 3000


async def test_what_a_slow_bus_makes_go_is_told_from_what_goes_for_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pressure, "is_late", lambda *_: True)
    bus, counters = Bus(), Counters("agent")
    buffer = PublishBuffer(bus, counters)
    buffer.put([rows("h") for _ in range(300)])  # 116 go at once
    await settle(buffer, 0.05)
    thinned = counters.get("thinned", "sdf.raw.probe.v1")
    assert 0 < thinned == counters.get("shed", "sdf.raw.probe.v1") == 300_000 - counters.total("published")
    assert len(bus.taken) * 1000 == counters.total("published")


async def test_what_is_in_flight_when_the_agent_stops_is_published() -> None:
    bus, counters = Bus(), Counters("agent")
    bus.slow = asyncio.Event()
    buffer = PublishBuffer(bus, counters)
    buffer.put([rows("1")])
    await settle(buffer, 0.05)  # cancelled in the middle of publishing
    assert bus.taken == []
    bus.slow.set()
    await buffer.drain(1.0)
    assert bus.taken == ["1"]


async def test_a_bus_that_never_answers_does_not_keep_the_agent() -> None:
    bus, counters = Bus(), Counters("agent")
    bus.slow = asyncio.Event()
    buffer = PublishBuffer(bus, counters)
    buffer.put([rows("1"), event("e")])
    await buffer.drain(0.05)
    assert counters.total("shed") == 1001
