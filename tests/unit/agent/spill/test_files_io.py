"""Buffer and spill together: what memory does not hold goes to disk and comes back in order, whatever the disk does."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sdfstream.agent import pressure, publish_io
from sdfstream.agent.publish_io import PublishBuffer
from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.bus.sequences import Numbers
from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Output
from sdfstream.stats import Counters

BULK, EVENTS = "sdf.raw.probe.v1", "sdf.raw.liveness.v1"


class Bus:
    def __init__(self) -> None:
        self.taken: list[Output] = []
        self.away = False
        self.silent = False
        self.poison: set[int] = set()

    async def publish(self, outputs: Sequence[Output]) -> None:
        while self.silent:  # noqa: ASYNC110 (as a Kafka producer without its broker)
            await asyncio.sleep(0.01)
        if self.away:
            raise ConnectionError("away")
        for output in outputs:
            if output.topic == BULK and output.batch_seq in self.poison:
                raise FormatError("oversize", "too large")
            self.taken.append(output)

    def numbers(self, topic: str = BULK, boot: str = "now") -> list[int]:
        return [o.batch_seq for o in self.taken if (o.topic, o.boot_id) == (topic, boot)]


def rows(n: int = 1000) -> Output:
    return Output(BULK, "h", pa.record_batch({"x": pa.array(range(n), pa.int64())}))


def event() -> Output:
    return Output(EVENTS, "h", Event("t", "s", "e", 0, {}))


class Agent:
    """A buffer with a spill of its own, as an agent has."""

    def __init__(self, bus: Bus, folder: Path, boot: str = "now", **more: Any) -> None:
        self.counters = Counters("agent")
        self.spill = SpillFolder(folder, more.pop("spill_bytes", 1 << 20))
        more = {"max_bytes": 64_000, "catch_up_bytes_s": 1 << 30} | more
        self.buffer = PublishBuffer(bus, self.counters, numbers=Numbers(), boot_id=boot, spill=self.spill, **more)
        self.task = asyncio.create_task(self.buffer.run())

    async def until(self, true: Callable[[], object], seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def feed(self, n: int, *, rest: bool = True) -> None:
        """Put `n` batches; with `rest` no faster than a busy machine's disk relieves so small a memory."""
        for _ in range(n):
            self.buffer.put([rows()])
            await asyncio.sleep(0.001)
            if rest:
                await self.until(lambda: 3 * self.buffer._held_bytes < 2 * self.buffer._max_bytes)

    async def stop(self, drain_s: float = 0.2) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.buffer.drain(drain_s)

    async def die(self) -> None:
        """Go without a word; the files stay as they are."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.spill.close()


@pytest.mark.parametrize("how", ["away", "silent"])
async def test_an_outage_that_memory_does_not_hold_costs_nothing(tmp_path: Path, how: str) -> None:
    bus = Bus()
    agent = Agent(bus, tmp_path / "s")
    setattr(bus, how, True)
    await agent.feed(100)
    agent.buffer.put([event()])
    await agent.until(lambda: agent.counters.get("spilled", BULK) > 50_000)
    setattr(bus, how, False)
    await agent.feed(20)
    await agent.until(lambda: len(bus.numbers()) == 120)
    await agent.stop()
    assert bus.numbers() == list(range(120))
    assert agent.counters.total("shed") == 0
    assert agent.counters.total("published") == 120_001
    assert not list((tmp_path / "s").glob("*.spill"))


async def test_what_comes_while_a_backlog_is_published_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such rows wait behind what is on disk, not because the bus cannot keep up."""
    monkeypatch.setattr(pressure, "LATE_NS", 100_000_000)
    bus = Bus()
    agent = Agent(bus, tmp_path / "s", max_bytes=512_000, catch_up_bytes_s=800_000)
    bus.away = True
    await agent.feed(100)
    await agent.until(lambda: agent.counters.get("spilled", BULK) > 20_000)
    bus.away = False
    for _ in range(20):
        agent.buffer.put([rows()])
        await asyncio.sleep(0.05)
    await agent.until(lambda: agent.counters.total("published") + agent.counters.total("shed") == 120_000)
    await agent.stop()
    assert agent.counters.total("shed") == 0
    assert bus.numbers() == list(range(120))


async def test_a_bus_that_never_was_away_meets_no_disk(tmp_path: Path) -> None:
    for attempt in range(5):  # a stall of the machine looks like a bus that is away
        bus = Bus()
        agent = Agent(bus, tmp_path / f"s{attempt}")
        await agent.feed(50)
        await agent.until(lambda: len(bus.taken) == 50)  # noqa: B023 - used in this turn only
        await agent.stop()
        if not (tmp_path / f"s{attempt}").exists():
            return
    raise AssertionError("it met the disk five times")


async def test_what_a_stopped_agent_could_not_publish_the_next_one_does(tmp_path: Path) -> None:
    bus = Bus()
    bus.away = True
    first = Agent(bus, tmp_path / "s", boot="then")
    await first.feed(30)
    first.buffer.put([event()])
    await first.stop()
    assert first.counters.total("shed") == 0
    bus.away = False
    second = Agent(bus, tmp_path / "s")
    await second.feed(3)
    await second.until(lambda: len(bus.taken) == 34)
    await second.stop()
    assert bus.numbers(boot="then") == list(range(30))
    assert bus.numbers(EVENTS, "then") == [0]
    assert bus.numbers() == [0, 1, 2]
    assert [o.boot_id for o in bus.taken if o.topic == BULK] == ["then"] * 30 + ["now"] * 3
    assert second.counters.get("recovered", BULK) == 30_000


async def test_what_is_in_flight_when_an_agent_stops_goes_before_what_was_spilled(tmp_path: Path) -> None:
    bus = Bus()
    bus.silent = True
    first = Agent(bus, tmp_path / "s", boot="then")
    await first.feed(30)
    await first.until(lambda: first.counters.get("spilled", BULK) > 10_000)
    await first.stop(0.05)
    bus.silent = False
    second = Agent(bus, tmp_path / "s")
    await second.until(lambda: len(bus.taken) == 30)
    await second.stop()
    assert bus.numbers(boot="then") == list(range(30))


async def test_a_killed_agent_sends_again_at_most_what_was_not_acknowledged(tmp_path: Path) -> None:
    bus = Bus()
    bus.away = True
    first = Agent(bus, tmp_path / "s", boot="then")
    await first.feed(60)
    await first.until(lambda: first.counters.get("spilled", BULK) > 20_000)
    bus.away = False
    await first.until(lambda: len(bus.taken) > 10)
    bus.away = True
    await first.die()
    bus.away = False
    on_disk = first.counters.get("spilled", BULK) // 1000
    second = Agent(bus, tmp_path / "s")
    await second.until(lambda: on_disk - 1 in bus.numbers(boot="then"))
    await second.stop()
    seen = bus.numbers(boot="then")
    assert list(dict.fromkeys(seen)) == list(range(max(seen) + 1)), "in order and without a hole, repeats aside"


async def test_beyond_the_bound_the_oldest_rows_go_and_are_counted_and_events_stay(tmp_path: Path) -> None:
    bus = Bus()
    bus.silent = True
    agent = Agent(bus, tmp_path / "s", spill_bytes=40_000)
    for _ in range(30):
        await agent.feed(10, rest=False)
        agent.buffer.put([event()])
        await asyncio.sleep(0.005)
    await agent.until(lambda: agent.counters.get("shed", BULK) > 10_000)
    bus.silent = False
    await agent.until(lambda: agent.counters.total("published") + agent.counters.total("shed") == 300_030)
    await agent.stop()
    assert bus.numbers(EVENTS) == list(range(30))
    assert bus.numbers() == sorted(bus.numbers())
    assert len(bus.numbers()) * 1000 + agent.counters.get("shed", BULK) == 300_000
    assert bus.numbers()[-1] == 299, "the newest are kept"


async def test_a_disk_that_cannot_be_used_leaves_memory(tmp_path: Path) -> None:
    bus = Bus()
    bus.away = True
    (tmp_path / "s").write_text("no folder")
    agent = Agent(bus, tmp_path / "s")
    await agent.feed(20, rest=False)
    await agent.until(lambda: agent.counters.get("shed", BULK) > 0)
    bus.away = False
    await agent.until(lambda: len(bus.taken) * 1000 + agent.counters.get("shed", BULK) == 20_000)
    assert agent.counters.total("spill-failed") == 1, "and is left alone for a while"
    await agent.stop()


async def test_a_full_disk_keeps_what_it_took_and_memory_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 30_000

    def pwrite(file: int, data: memoryview, at: int) -> int:
        n = min(len(data), room - os.fstat(file).st_size)
        if n <= 0:
            raise OSError(28, "No space left on device")
        return int(real(file, data[:n], at))

    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", pwrite)
    bus = Bus()
    bus.away = True
    agent = Agent(bus, tmp_path / "s")
    await agent.feed(60, rest=False)
    await agent.until(lambda: agent.counters.get("shed", BULK) > 0)
    assert agent.counters.get("spill-failed", "ENOSPC") >= 1
    bus.away = False
    await agent.until(lambda: len(bus.taken) * 1000 + agent.counters.get("shed", BULK) == 60_000)
    assert bus.numbers() == sorted(bus.numbers())
    await agent.stop()


async def test_a_slow_disk_does_not_stop_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *a: (time.sleep(0.5), real(*a))[1])
    bus = Bus()
    bus.away = True
    agent = Agent(bus, tmp_path / "s")
    worst = 0.0
    for _ in range(50):
        before = time.monotonic()
        agent.buffer.put([rows()])
        await asyncio.sleep(0.001)
        worst = max(worst, time.monotonic() - before)
    assert worst < 0.5 * 0.9
    bus.away = False
    await agent.until(lambda: len(bus.taken) * 1000 + agent.counters.total("shed") == 50_000, 20)
    await agent.stop()


async def test_two_agents_do_not_share_a_folder(tmp_path: Path) -> None:
    bus = Bus()
    bus.away = True
    first = Agent(bus, tmp_path / "s")
    await first.feed(20)
    await first.until(lambda: first.counters.get("spilled", BULK) > 0)
    second = Agent(Bus(), tmp_path / "s")
    await second.until(lambda: second.counters.total("spill-failed") == 1)
    await second.feed(3)
    await second.stop()
    await first.stop()
    assert second.counters.get("spill-failed", "EAGAIN") == 1
    assert second.counters.total("published") == 3000


async def test_an_output_that_can_never_be_taken_costs_only_itself(tmp_path: Path) -> None:
    bus = Bus()
    bus.poison = {3}
    bus.away = True
    agent = Agent(bus, tmp_path / "s", max_bytes=1 << 20)
    await agent.feed(8)
    bus.away = False
    await agent.until(lambda: len(set(bus.numbers())) == 7)
    await agent.stop()
    assert list(dict.fromkeys(bus.numbers())) == [0, 1, 2, 4, 5, 6, 7]
    assert agent.counters.get("refused", "oversize") == 1000


async def test_once_the_bus_is_away_for_long_everything_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_AWAY_S", 0.05), ("_SPILL_AFTER_S", 0.1), ("_SWEEP_S", 0.05)):
        monkeypatch.setattr(publish_io, name, value)
    bus = Bus()
    bus.silent = True
    agent = Agent(bus, tmp_path / "s", max_bytes=16 << 20)
    await agent.feed(5)
    agent.buffer.put([event()])
    await agent.until(lambda: agent.counters.get("spilled", BULK) > 0)
    bus.silent = False
    await agent.until(lambda: len(bus.taken) == 6)
    await agent.stop()
    assert bus.numbers() == list(range(5))


async def test_catching_up_leaves_room_for_what_is_new(tmp_path: Path) -> None:
    bus = Bus()
    bus.away = True
    agent = Agent(bus, tmp_path / "s", catch_up_bytes_s=200_000)
    await agent.feed(60)
    await agent.until(lambda: agent.counters.get("spilled", BULK) > 30_000)
    await asyncio.sleep(1.1)  # the rate at which rows came is over
    bus.away = False
    await agent.until(lambda: bus.numbers())
    agent.buffer.put([event()])
    await agent.until(lambda: bus.numbers(EVENTS))
    assert len(bus.numbers()) < 40, "the event did not wait for the rows"
    await agent.until(lambda: len(bus.numbers()) == 60)
    await agent.stop()
    assert bus.numbers() == list(range(60))
