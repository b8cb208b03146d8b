"""An agent's buffer over a link whose pipeline goes away, and a bus that is not there yet when the agent starts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sdfstream.agent import bus_io
from sdfstream.agent.bus_io import WaitingBus
from sdfstream.agent.publish_io import PublishBuffer
from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.bus.link.client_io import LinkConfig, LinkPublisher
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.sequences import Numbers
from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK
from sdfstream.stats import Counters
from tests.bus_samples import clock

HOLD = LinkConfig(hold=True, retry_s=(0.01, 0.05))


async def test_a_link_that_holds_gives_up_nothing_and_says_when_it_is_there(tmp_path: Path) -> None:
    bus = MemoryBus(lambda: 1, boot_id="pipeline")
    reader = await bus.subscribe("g", [CLOCK.name])
    async with LinkPublisher(tmp_path / "link", boot_id="agent", config=HOLD) as link:
        publishing = asyncio.create_task(link.publish([clock(i, rows=2000) for i in range(3)]))
        await asyncio.sleep(0.1)
        assert not publishing.done(), "nobody listens yet"
        server = LinkServer(bus, tmp_path / "link")
        await server.start()
        await asyncio.wait_for(publishing, 10)
        assert [m.batch_seq for m in await reader.read()] == [0, 1, 2]
        assert link.counters.get("shed") == 0
        await server.close()
    await bus.close()


async def test_a_pipeline_that_goes_and_comes_gets_every_row_once(tmp_path: Path) -> None:
    bus = MemoryBus(lambda: 1, boot_id="pipeline")
    reader = await bus.subscribe("g", [CLOCK.name])
    server = LinkServer(bus, tmp_path / "link")
    await server.start()
    counters = Counters("agent")
    spill = SpillFolder(tmp_path / "spill", 1 << 20)
    seen: list[tuple[str, int]] = []
    async with LinkPublisher(tmp_path / "link", config=HOLD) as link:
        buffer = PublishBuffer(link, counters, 200_000, numbers=Numbers(), boot_id="agent", spill=spill)
        task = asyncio.create_task(buffer.run())
        for i in range(60):
            buffer.put([clock(i, rows=200)])
            await asyncio.sleep(0.01)
            # beyond 200,000 the oldest would be shed, as they are where a starved machine's disk is slow
            while buffer._held_bytes > 120_000:  # noqa: ASYNC110 - tasks of the product's move them
                await asyncio.sleep(0.01)
            if i == 10:
                await server.close()
            if i == 50:
                assert counters.get("spilled", CLOCK.name) > 0
                server = LinkServer(bus, tmp_path / "link")
                await server.start()
        async with asyncio.timeout(20):
            while ("agent", 59) not in seen:
                seen += [(m.boot_id, m.batch_seq) for m in await reader.read()]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await buffer.drain(1.0)
    await server.close()
    await bus.close()
    assert list(dict.fromkeys(seen)) == [("agent", i) for i in range(60)], "in order, without a hole, repeats aside"
    assert counters.total("shed") == 0
    assert not list((tmp_path / "spill").glob("*.spill"))


class Opening:
    """Opens a bus after some failures."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.taken: list[str] = []

    async def __call__(self) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return self

    async def publish(self, outputs: Sequence[Output]) -> None:
        self.taken += [o.key for o in outputs]

    async def close(self) -> None:
        self.taken.append("closed")


async def test_an_agent_begins_without_its_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_io, "_AGAIN_S", (0.01, 0.02))
    opening = Opening(UnavailableError("away"), UnavailableError("still"), ConfigError("no right yet"))
    bus = WaitingBus(opening)
    await bus.start()
    assert not bus.is_there()
    await asyncio.wait_for(bus.publish([clock(0, "k")]), 5)
    assert bus.is_there()
    await bus.close()
    assert opening.taken == ["k", "closed"]
    assert bus.counters.as_dict() == {"waiting-bus.open-failed.config": 1, "waiting-bus.open-failed.unavailable": 1}


async def test_what_can_never_work_is_an_error_at_the_start() -> None:
    with pytest.raises(ConfigError, match="no right"):
        await WaitingBus(Opening(ConfigError("no right"))).start()
