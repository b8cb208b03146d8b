"""The live loops over the bus: how they stop, when positions are committed, what is recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sdfstream.archive.http.endpoint_io import read_endpoint
from sdfstream.archive.query_io import Console
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.cli import main
from sdfstream.errors import BusError, ConfigError
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import FINDING, NIC, OWD, PROBE
from sdfstream.runtime import live_io
from sdfstream.runtime.control_io import RunControl
from sdfstream.runtime.live_io import Watcher
from sdfstream.runtime.record_io import record
from sdfstream.serve.stages_io import serve
from sdfstream.settings import Settings
from sdfstream.stats import Counters
from tests.bus_samples import clock, finding, mark_of
from tests.fixtures.leafspine import Fabric, Shape

CLOCK = clock(1).topic


class Held:
    """Counts messages and tells at the end."""

    name, reads, writes = "held", (CLOCK,), (FINDING.name,)

    def __init__(self) -> None:
        self.counters = Counters("held")
        self.seen = 0

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        self.seen += len(messages)
        return []

    def finish(self, now_ns: int) -> list[Output]:
        return [clock(99)]

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


class Relay(Held):
    """Says something for each message, a little late."""

    name = "relay"

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        super().step(messages, now_ns)
        time.sleep(0.002 * len(messages))
        return [finding() for _ in messages]

    def finish(self, now_ns: int) -> list[Output]:
        return [finding()]


@asynccontextmanager
async def busy(bus: MemoryBus) -> AsyncIterator[None]:
    """A bus that never falls quiet."""

    async def publish() -> None:
        n = 0
        while True:
            await bus.publish([clock(n := n + 1)])
            await asyncio.sleep(0.001)

    publishing = asyncio.create_task(publish())
    try:
        yield
    finally:
        publishing.cancel()
        with suppress(asyncio.CancelledError):
            await publishing


async def test_a_stage_of_a_busy_bus_stops_and_publishes_what_it_held_back() -> None:
    bus, stage, control = MemoryBus(time.time_ns), Held(), RunControl(drain=False)
    end = await bus.subscribe("test", [CLOCK])
    async with busy(bus):
        running = asyncio.create_task(live_io.run(bus, [stage], [], time.time_ns, control))
        while stage.seen < 10:  # noqa: ASYNC110 (what is waited for is no event)
            await asyncio.sleep(0.02)
        control.stop.set()
        await asyncio.wait_for(running, 5.0)
    published = await end.read(max_messages=10_000)
    assert clock(99).body in [m.body for m in published]
    await bus.close()


async def test_on_a_busy_bus_all_that_was_there_at_the_stop_is_read_and_then_no_more() -> None:
    bus, first, second, control = MemoryBus(time.time_ns), Relay(), Held(), RunControl()
    second.reads, received = (FINDING.name, CLOCK), []

    async def take(messages: Sequence[Message]) -> None:
        await asyncio.sleep(0.3)  # falls behind
        received.extend(messages)

    watchers = [Watcher(name, (CLOCK, FINDING.name), take) for name in ("w1", "w2")]
    running = asyncio.create_task(live_io.run(bus, [first, second], watchers, time.time_ns, control))
    await asyncio.sleep(0.05)
    async with busy(bus):
        while first.seen < 10:  # noqa: ASYNC110 (likewise)
            await asyncio.sleep(0.02)
        control.stop.set()
        await asyncio.wait_for(running, 20.0)
    said = [m for m in received if m.topic == FINDING.name]
    assert len(said) == 2 * (first.seen + 1), "what it said at its end too, to both watchers"
    assert second.seen >= 2 * first.seen + 1
    assert not control.active_stages
    await bus.close()


@pytest.mark.parametrize("singly", [False, True])
async def test_a_message_at_which_a_watcher_raises_is_set_aside(singly: bool) -> None:
    bus, control, taken = MemoryBus(time.time_ns), RunControl(), []

    async def take(messages: Sequence[Message]) -> None:
        if any(mark_of(m.body) == 2 for m in messages):
            raise KeyError("two")
        taken.extend(mark_of(m.body) for m in messages)

    ear = await bus.subscribe("ear", [f"{CLOCK}.dlq"])
    watcher = Watcher("w", (CLOCK,), take, singly=singly)
    running = asyncio.create_task(live_io.run(bus, [], [watcher], time.time_ns, control))
    await asyncio.sleep(0.05)
    await bus.publish([clock(n) for n in (1, 2, 3)])
    control.stop.set()
    await asyncio.wait_for(running, 20.0)
    assert taken == [1, 3]
    assert control.counters.get("set-aside", "w.KeyError") == 1
    (letter,) = await ear.read()
    assert letter.body.data["reason"] == "take-raised"
    await bus.close()


async def test_what_a_watcher_could_not_take_comes_again() -> None:
    bus, control, taken = MemoryBus(time.time_ns), RunControl(), []

    async def take(messages: Sequence[Message]) -> None:
        taken.append(len(messages))
        if len(taken) == 1:
            raise BusError("not now")

    watcher = Watcher("w", (CLOCK,), take)
    running = asyncio.create_task(live_io.run(bus, [], [watcher], time.time_ns, control))
    await asyncio.sleep(0.05)
    await bus.publish([clock(1)])
    await asyncio.sleep(0.8)
    control.stop.set()
    await asyncio.wait_for(running, 5.0)
    assert taken == [1, 1]
    assert control.counters.get("restarted", "w") == 1
    await bus.close()


async def test_what_a_producer_sends_again_reaches_the_archive_once() -> None:
    """An agent whose acknowledgement was lost, as at a run's end."""
    bus, control = MemoryBus(time.time_ns), RunControl()
    received: dict[bool, list[int]] = {False: [], True: []}

    def taker(once: bool) -> Any:
        async def take(messages: Sequence[Message]) -> None:
            received[once].extend(m.batch_seq for m in messages)

        return take

    watchers = [Watcher(f"w-{once}", (CLOCK,), taker(once), once=once) for once in received]
    running = asyncio.create_task(live_io.run(bus, [], watchers, time.time_ns, control))
    await asyncio.sleep(0.05)
    for number in (0, 1, 2, 1, 2, 3):
        await bus.publish([replace(clock(number), boot_id="agent", batch_seq=number)])
    await asyncio.sleep(0.05)
    control.stop.set()
    await asyncio.wait_for(running, 20.0)
    assert received == {False: [0, 1, 2, 1, 2, 3], True: [0, 1, 2, 3]}
    await bus.close()


async def test_a_stop_while_the_bus_is_away_stops_it() -> None:
    control = RunControl()

    async def fails() -> None:
        raise BusError("away")

    running = asyncio.create_task(live_io.supervise("s", fails, control))
    await asyncio.sleep(0.05)
    assert not running.done()
    control.stop.set()
    await asyncio.wait_for(running, 0.3)


async def test_everything_on_a_bus_is_recorded(tmp_path: Path) -> None:
    bus, control = MemoryBus(time.time_ns), RunControl(drain=False)
    running = asyncio.create_task(record(bus, tmp_path / "out", "c1", control))
    await asyncio.sleep(0.05)
    sent = list(Fabric(1, shape=Shape(hosts=2, ports=1, rate_hz=4.0)).messages(2.0))
    await bus.publish([Output(m.topic, m.key, m.body) for m in sent])
    await asyncio.sleep(0.2)
    control.stop.set()
    result = await asyncio.wait_for(running, 3.0)
    await bus.close()
    recording = open_recording(tmp_path / "out")
    received = list(recording.messages())
    assert len(received) == len(sent)
    assert result["rows"] == sum(m.rows for m in sent)
    assert recording.cluster == "c1"
    assert {m.topic for m in received} == {m.topic for m in sent}
    with pytest.raises(ConfigError, match="recording already"):
        await record(bus, tmp_path / "out", "c1", control)


async def test_stages_and_archive_run_on_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bus, control = MemoryBus(time.time_ns, boot_id="b"), RunControl(drain=False)
    settings = Settings(data=tmp_path)
    runs = [
        asyncio.create_task(serve(bus, settings, names, control, bus_id="b"))
        for names in (["sync"], ["detect", "archive"])
    ]
    await asyncio.sleep(1.0)
    for message in Fabric(1, shape=Shape(hosts=2, ports=1, owd=False, clocks=False)).messages(3.0):
        await bus.publish([Output(message.topic, message.key, message.body)])
        await asyncio.sleep(0.005)
    async with asyncio.timeout(30):  # a busy machine opens the archive late
        while control.lag.get("archive") != 0:  # noqa: ASYNC110 (what is waited for is no event)
            await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)
    assert read_endpoint(tmp_path) is not None, "other processes ask this one"
    assert (await asyncio.to_thread(Console.open(str(tmp_path)).answer, "SELECT 1 AS one")).rows == [{"one": 1}]
    control.stop.set()
    counters: dict[str, Any] = {}
    for run in runs:
        counters |= await asyncio.wait_for(run, 10.0)
    await bus.close()
    capsys.readouterr()
    for table in (PROBE, OWD, NIC):
        name = table.name.removeprefix("sdf.").removesuffix(".v1").replace(".", "_")
        assert main(["sql", "--json", "--data", str(tmp_path), f"SELECT count() > 0 AS any FROM {name}"]) == 0
        assert '"any":1' in capsys.readouterr().out.replace(" ", ""), name
    assert counters["archive.messages"] > 0
