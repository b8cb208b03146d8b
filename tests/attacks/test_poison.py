"""A message at which a stage raises ended the process, and each restart again; a bus clock may jump by an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sdfstream import demo, pipeline
from sdfstream.board.board import Board
from sdfstream.board.status_text import text_of
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.detect.stage import DetectStage
from sdfstream.records.fabric import PATH_TYPE
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import FINDING, OWD, TOPOLOGY
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime import live_io
from sdfstream.runtime.aside import IDLE_NS, AsideStage
from sdfstream.runtime.control_io import CommitPolicy, RunControl
from sdfstream.runtime.driver import Driver, Stage
from sdfstream.runtime.live_io import Watcher
from sdfstream.runtime.replay import replay
from sdfstream.settings import Settings
from tests.fixtures.poison import POISON, Poisonable, poisonable, poisoned

EVERY = 29


@cache
def recorded(seconds: float) -> list[Message]:
    """The beginning of the shipped recording."""
    recording = open_recording(Path(demo.__file__).parent / "shipped_recording")
    messages = [m for m in recording.messages() if m.topic not in pipeline.WRITTEN]
    return [m for m in messages if m.bus_at_ns < messages[0].bus_at_ns + seconds * NS_PER_S]


def chain() -> list[Stage]:
    """The stages, made to raise at poison after they have taken it."""
    return [Poisonable(stage) for stage in pipeline.stages(Settings())]


def letters(messages: Sequence[Message]) -> list[Message]:
    """Dead letters."""
    return [m for m in messages if m.topic.endswith(".dlq")]


def test_poison_changes_nothing_but_what_it_says_itself() -> None:
    told = poisoned(recorded(2.0), EVERY)
    clean = [m for m in told if not m.key.startswith(POISON)]
    first = list(replay(told, chain(), told[0].bus_at_ns, told[-1].bus_at_ns))
    again = list(replay(told, chain(), told[0].bus_at_ns, told[-1].bus_at_ns))
    without = list(replay(clean, chain(), told[0].bus_at_ns, told[-1].bus_at_ns))
    assert [m for m in first if m not in letters(first)] == without, "the state is as before each of them"
    assert first == again, "a replay sets the same messages aside, with the same bytes"
    blamed = {(m.body.data["topic"], m.body.data["bus_seq"]) for m in letters(first) if isinstance(m.body, Event)}
    assert blamed == {(m.topic, m.bus_seq) for m in told if m.key.startswith(POISON)}


@pytest.mark.parametrize("path", [2**63, 1e400, "\ud800"])
def test_a_number_out_of_range_in_a_traced_path(path: Any) -> None:
    told = recorded(1.0)
    real = next(m for m in told if isinstance(m.body, Event) and m.body.type == PATH_TYPE)
    assert isinstance(real.body, Event)
    bad = replace(real, body=replace(real.body, data={**real.body.data, "path": path}))
    out = list(replay([*told, replace(bad, bus_at_ns=told[-1].bus_at_ns + 1)], [DetectStage()], None, None))
    assert all(m.topic.endswith(".dlq") for m in out[-1:]) or not letters(out)


class Heard:
    """What a pipeline says on the in-process bus, live."""

    def __init__(self, commits: CommitPolicy | None) -> None:
        self.commits = commits
        self.control = RunControl()
        self.messages: list[Message] = []
        self.now_ns = 0

    async def run(self, told: Sequence[Message]) -> list[Message]:
        """Give the messages to a pipeline, with their times; everything that it says until it has ended."""
        self.now_ns = told[0].bus_at_ns
        bus = MemoryBus(lambda: self.now_ns, boot_id="pipeline")
        makers = [poisonable(maker) for maker in pipeline.makers(Settings())]
        hears = (FINDING.name, OWD.name, *(f"{topic}.dlq" for topic in {m.topic for m in told}))
        ear = Watcher("ear", hears, self._take)
        running = asyncio.create_task(
            live_io.run(bus, makers, [ear], lambda: self.now_ns, self.control, commits=self.commits)
        )
        await asyncio.sleep(0.05)
        for message in told:
            self.now_ns = max(self.now_ns, message.bus_at_ns)
            await bus.publish([Output(message.topic, message.key, message.body, "agent", message.bus_seq)])
            await asyncio.sleep(0)
        self.control.stop.set()
        await asyncio.wait_for(running, 60)
        self.set_aside = sum(maker.counters.total("set-aside") for maker in makers)
        return self.messages

    async def _take(self, messages: Sequence[Message]) -> None:
        self.messages += messages


@pytest.mark.parametrize("commits", [None, CommitPolicy(snapshot_s=0.2)], ids=["alone", "shared"])
def test_the_process_goes_on_and_tells_what_it_set_aside(commits: CommitPolicy | None) -> None:
    told = poisoned(recorded(1.0), 7)
    heard = Heard(commits)
    said = asyncio.run(heard.run(told))
    aside = letters(said)
    poison = [m for m in told if m.key.startswith(POISON)]
    assert len(aside) >= len(poison), "each by every stage that reads it"
    assert {(m.key) for m in aside} == {m.key for m in poison}
    assert heard.control.counters.get("restarted", "sync") == 0
    assert heard.set_aside == len(aside)


@pytest.mark.parametrize("hours", [1])
def test_a_clock_that_jumps_costs_a_stage_some_seconds_of_ticks(hours: int) -> None:
    told = recorded(1.5)
    jumped = [replace(m, bus_at_ns=m.bus_at_ns + hours * 3600 * NS_PER_S) for m in recorded(2.5)[len(told) :]]
    stepped: dict[str, int] = {}

    class Counted(Poisonable):
        def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
            stepped[self.stage.name] = stepped.get(self.stage.name, 0) + (not messages)
            return self.stage.step(messages, now_ns)

    stages = [Counted(stage) for stage in pipeline.stages(Settings())]
    out = list(replay([*told, *jumped], stages, told[0].bus_at_ns, jumped[-1].bus_at_ns))
    most = 3 * 10 + 2 * IDLE_NS * 10 // NS_PER_S + 50
    assert stepped
    assert all(n <= most for n in stepped.values()), stepped
    found = [m.body.data for m in out if m.topic == FINDING.name and isinstance(m.body, Event)]
    before = {d["kind"] for d in _findings(told)} | {"nic-down", "link-flap"}  # faults of the recording
    assert {d["kind"] for d in found} <= before | {"agent-stale"}, "nobody knows is not a fault of the fabric"


def _findings(told: Sequence[Message]) -> list[Any]:
    out = replay(told, pipeline.stages(Settings()), told[0].bus_at_ns, told[-1].bus_at_ns)
    return [m.body.data for m in out if m.topic == FINDING.name and isinstance(m.body, Event)]


def test_boundaries_within_detect_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told = recorded(1.0)
    stage = DetectStage()
    evaluated: list[int] = []
    boundary = stage._evaluation.boundary
    monkeypatch.setattr(
        stage._evaluation, "boundary", lambda tick, now_ns: (evaluated.append(tick), boundary(tick, now_ns))[1]
    )
    driver = Driver(AsideStage(stage))
    driver.take(told)
    evaluated.clear()
    driver.take([replace(told[-1], bus_at_ns=told[-1].bus_at_ns + 3600 * NS_PER_S)])
    assert len(evaluated) < 200
    assert stage.counters.get("ticks-skipped") > 35_000
    assert TOPOLOGY.name in stage.reads


def test_the_status_says_what_was_set_aside() -> None:
    board = Board()
    board.take([])
    view = board.view(1, counters={"detect.set-aside.OverflowError": 3, "detect.received": 9})
    assert view["pipeline"]["aside"] == {"detect.set-aside.OverflowError": 3}
    assert "set aside  detect.set-aside.OverflowError 3" in text_of(view)
