"""What an agent asks the packet engine for, and when."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import numpy as np
import pytest

from sdfstream.agent.engine.thread_io import EngineThread
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig
from sdfstream.probes.engine import layouts

CONFIG = AgentConfig((HostConfig("h1", (NicConfig("h1/n", "lo", "127.0.0.2"),), ()),))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def take_events(_: object) -> layouts.Records:
        found.append("events")
        return np.zeros(0, dtype=layouts.EVENT)

    monkeypatch.setattr("sdfstream.probes.engine.engine_io.PacketEngine.take_events", take_events)
    return found


@pytest.fixture
def thread() -> Iterator[EngineThread]:
    made = EngineThread(CONFIG, 1)
    yield made
    made.close()


def test_events_are_asked_for_in_each_pass_where_nobody_is_told_of_them(thread: EngineThread, asked: list[str]) -> None:
    for now_ns in (1, 1, 2):
        thread.collect(now_ns)
    assert len(asked) == 2  # once a pass


async def test_they_are_asked_for_once_the_engine_says_that_there_are_some(
    thread: EngineThread, asked: list[str]
) -> None:
    told = asyncio.Event()
    thread.on_found(asyncio.get_running_loop(), told.set)
    thread.collect(1)  # what came before anybody was told
    thread.collect(2)
    assert len(asked) == 1
    os.eventfd_write(thread.shell.found_fd, 1)
    async with asyncio.timeout(5):
        await told.wait()
    thread.collect(3)
    thread.collect(4)
    assert len(asked) == 2
