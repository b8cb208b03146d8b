"""A process on its own troubles: each finding opens once and ends once, whatever the bus does and whoever is killed."""

import asyncio
import time
from typing import Any

import pytest

from sdfstream.bus.kafka import roles
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.task import Work
from sdfstream.errors import BusError
from sdfstream.records.message import Event
from sdfstream.records.topics import FINDING
from sdfstream.serve import self_report_io
from sdfstream.serve.own_findings import INHERITED_S
from sdfstream.serve.self_report_io import SelfReport
from sdfstream.stats import Counters


class Part:
    def __init__(self) -> None:
        self.counters = Counters("archive")


class SlowTask:
    """A task that commits, but its answers come late or are errors."""

    def __init__(self, task: Any, answers: list[float | None]) -> None:
        self._task, self._answers = task, answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    async def commit(self, *given: Any, **named: Any) -> None:
        await self._task.commit(*given, **named)
        wait_s = self._answers.pop(0) if self._answers else 0.0
        if wait_s is None:
            raise BusError("it broke in mid-commit")
        await asyncio.sleep(wait_s)


class SlowBus:
    """A bus of `SlowTask`s; processes come and go on it."""

    def __init__(self, answers: list[float | None]) -> None:
        self.bus = MemoryBus(time.time_ns, boot_id="x")
        self.answers = answers

    async def task(self, work: Work, unit: int = 0) -> Any:
        return SlowTask(await self.bus.task(work, unit), self.answers)

    async def start(self) -> "SlowBus":
        self._reader = await self.bus.subscribe("ear", [FINDING.name])
        self._said: list[Event] = []
        return self

    async def said(self) -> list[tuple[str, str]]:
        """Status and finding of every statement."""
        self._said += [m.body for m in await self._reader.read(timeout_s=0.0) if isinstance(m.body, Event)]
        assert len({event.id for event in self._said}) == len(self._said)
        return [(event.data["status"], event.data["id"]) for event in self._said]

    async def statuses(self) -> list[str]:
        return [status for status, _ in await self.said()]


class Process:
    """A process with one part; `at_s` of its looks is since its start."""

    def __init__(self, bus: SlowBus, name: str = "up") -> None:
        self.part = Part()
        self.report = SelfReport(bus, "detect", name, [self.part])  # type: ignore[arg-type]
        self._began_s = self.report._began_s

    def begin(self, why: str) -> None:
        self.part.counters.troubles.begin("disk", why)

    def end(self) -> None:
        self.part.counters.troubles.end("disk")

    async def look(self, at_s: float) -> None:
        await self.report.look(self._began_s + at_s, round((self._began_s + at_s) * 1e9))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patient, where the bus is not slow on purpose: this machine may be."""
    monkeypatch.setattr(self_report_io, "_PUBLISH_S", 30.0)
    monkeypatch.setattr(self_report_io, "_AGAIN_S", 0.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, hurried: None) -> None:
    """A slow answer is not waited for."""
    monkeypatch.setattr(self_report_io, "_PUBLISH_S", 0.02)


@pytest.mark.usefixtures("impatient")
async def test_a_slow_bus_gets_each_statement_once() -> None:
    bus = await SlowBus([0.1]).start()
    process = Process(bus)
    process.begin("it is full")
    for at_s in range(8):
        await process.look(at_s)
    await asyncio.sleep(0.1)
    assert await bus.statuses() == ["open"]
    process.begin("it is still full")
    await process.look(8)
    await process.look(9)
    process.end()
    await process.look(20)
    assert await bus.statuses() == ["open", "update", "resolved"]
    process.begin("it is full again")
    await process.look(30)
    (_, first), *_, (status, second) = await bus.said()
    assert status == "open" and first != second


@pytest.mark.parametrize("ends", [True, False])
async def test_after_an_unknown_outcome_nothing_that_arrived_is_said_again(ends: bool) -> None:
    bus = await SlowBus([None]).start()
    process = Process(bus)
    process.begin("it is full")
    await process.look(0)
    if ends:
        process.end()
    for at_s in (20, 21):
        await process.look(at_s)
    assert await bus.statuses() == (["open", "resolved"] if ends else ["open"])


async def test_who_follows_a_killed_process_ends_what_it_left_open() -> None:
    bus = await SlowBus([]).start()
    killed = Process(bus)
    killed.begin("it is full")
    await killed.look(0)
    other = Process(bus, "detect.b")
    await other.look(INHERITED_S + 1)
    assert await bus.statuses() == ["open"], "it is another process's"
    follower = Process(bus)
    await follower.look(INHERITED_S - 1)
    assert await bus.statuses() == ["open"], "the trouble may still show"
    await follower.look(INHERITED_S)
    (_, opened), (status, resolved) = await bus.said()
    assert status == "resolved" and opened == resolved


async def test_who_follows_a_killed_process_and_has_its_trouble_goes_on_with_its_finding() -> None:
    bus = await SlowBus([]).start()
    killed = Process(bus)
    killed.begin("it is full")
    await killed.look(0)
    follower = Process(bus)
    follower.begin("it is full to the brim")
    await follower.look(2)
    follower.end()
    await follower.look(10)
    said = await bus.said()
    assert [status for status, _ in said] == ["open", "update", "resolved"]
    assert len({id_ for _, id_ in said}) == 1


async def test_a_live_process_takes_back_what_one_of_its_name_ended() -> None:
    bus = await SlowBus([]).start()
    one, other = Process(bus), Process(bus)
    one.begin("it is full")
    await one.look(0)
    await other.look(INHERITED_S)
    assert await bus.statuses() == ["open", "resolved"]
    one.begin("it is full")
    await one.look(INHERITED_S + 1)
    await one.look(INHERITED_S + 2)
    (_, first), *_, (status, last) = await bus.said()
    assert status == "open" and first == last


@pytest.mark.usefixtures("impatient")
async def test_the_end_of_the_process_ends_what_is_under_way() -> None:
    bus = await SlowBus([60.0]).start()
    process = Process(bus)
    process.begin("it is full")
    await process.look(0)
    await asyncio.wait_for(process.report.close(), 1.0)
    assert await bus.statuses() == ["open"]


@pytest.mark.parametrize(("stage", "role"), [("detect", "stage"), ("archive", "archive")])
def test_a_process_may_commit_what_it_says_of_itself(stage: str, role: str) -> None:
    report = SelfReport(None, stage, f"{stage}.a", [])  # type: ignore[arg-type]
    assert roles.whose_transactions(report._work.name) == roles.whose_group(report._work.name) == [role]
