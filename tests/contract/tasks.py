"""What tasks promise on every bus: the same tests run in process and against Kafka (`tests/contract/bus.py`)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sdfstream.bus import Bus, Task, Work
from sdfstream.errors import BusError, FencedError, FormatError
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.position import offset_of, partition_of
from sdfstream.records.shapes import SHAPES
from sdfstream.records.topics import CLOCK, FINDING, NIC
from sdfstream.runtime.control_io import CommitPolicy, RunControl
from sdfstream.runtime.driver import StageMaker
from sdfstream.runtime.stage_io import StageLoop
from sdfstream.stats import Counters
from tests.bus_samples import clock, finding, mark_of
from tests.contract.bus import MakeBus, marks, take
from tests.fixtures.poison import POISON
from tests.fixtures.shapes import sample

WORK = Work("echo", (CLOCK.name,))
PARTITION = (CLOCK.name, 0)


async def read(task: Task, n: int, within_s: float = 20.0, **given: object) -> list[Message]:
    """Read until `n` messages have come; fails when they do not."""
    found: list[Message] = []
    async with asyncio.timeout(within_s):
        while len(found) < n:
            found += await task.read(**given)
    assert len(found) == n
    return found


class TaskContract:
    """The promises of `sdfstream.bus.task.Task`."""

    async def test_a_new_unit_begins_now_and_goes_on_behind_its_last_commit(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        await bus.publish([clock(1)])
        task = await bus.task(WORK)
        await bus.publish([clock(n) for n in (2, 3, 4)])
        assert marks(await read(task, 3)) == [2, 3, 4]
        await task.commit()
        await bus.publish([clock(5)])
        assert marks(await read(task, 1)) == [5]
        await task.close()
        again = await bus.task(WORK)
        (found,) = await read(again, 1)
        assert mark_of(found.body) == 5, "read and not committed"
        assert again.saved.positions[PARTITION] <= offset_of(found) < again.positions()[PARTITION]

    async def test_from_the_start(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        await bus.publish([clock(1), clock(2)])
        task = await bus.task(replace(WORK, from_start=True))
        assert marks(await read(task, 2)) == [1, 2]

    async def test_a_task_without_topics_publishes_and_notes(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("ear", [FINDING.name])
        for n in range(3):
            task = await bus.task(Work("echo", ()))
            assert task.saved.notes == ({"n": b"%d" % (n - 1)} if n else {})
            await task.commit([finding(n)], notes={"n": b"%d" % n}, mark=True)
        former, task = task, await bus.task(Work("echo", ()))
        with pytest.raises(BusError):
            await former.commit()
        await task.commit()
        await task.close()
        assert marks(await take(reader, 3)) == [0, 1, 2]

    async def test_a_compacted_topic_is_read_whole(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        await bus.publish([nic(1), clock(2)])
        task = await bus.task(Work("echo", (CLOCK.name, NIC.name)))
        assert marks(await read(task, 1)) == [1], "what holds now is known to a unit that is new"

    async def test_outputs_positions_and_notes_are_committed_at_once(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("ear", [FINDING.name])
        task = await bus.task(WORK)
        await bus.publish([clock(1), clock(2)])
        await read(task, 2)
        await task.commit([finding(7)], notes={"a": b"1", "b": b"2"})
        await task.commit([finding(8)], notes={"b": None, "c": b"x" * 1_500_000})
        assert marks(await take(reader, 2)) == [7, 8]
        await task.close()
        again = await bus.task(WORK)
        assert again.saved.notes == {"a": b"1", "c": b"x" * 1_500_000}
        assert again.saved.positions[PARTITION] == again.positions()[PARTITION] >= 2
        assert await again.read(timeout_s=0.3) == []

    async def test_positions_may_be_committed_for_some_partitions(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        task = await bus.task(WORK)
        await bus.publish([clock(n) for n in range(4)])
        found = await read(task, 4)
        await task.commit(positions={partition_of(found[2]): offset_of(found[2])})
        await task.close()
        again = await bus.task(WORK)
        assert marks(await read(again, 2)) == [2, 3]

    async def test_an_output_that_does_not_fit_stops_the_whole_commit(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("ear", [FINDING.name])
        task = await bus.task(WORK)
        with pytest.raises(FormatError):
            await task.commit([finding(1), Output("no.such.topic", "k", clock(1).body)], notes={"n": b"1"})
        await task.commit([finding(2)])
        assert marks(await take(reader, 1)) == [2]
        await task.close()
        assert (await bus.task(WORK)).saved.notes == {}

    async def test_who_takes_a_unit_shuts_its_owner_out(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("ear", [FINDING.name])
        old = await bus.task(WORK)
        await old.commit([finding(1)], notes={"by": b"old"})
        new = await (await make_bus(again=True)).task(WORK)
        with pytest.raises(FencedError):
            await old.commit([finding(2)], notes={"by": b"zombie"})
        with pytest.raises(BusError):
            await old.commit([finding(3)])
        await new.commit([finding(4)])
        assert marks(await take(reader, 2)) == [1, 4]
        assert new.saved.notes == {"by": b"old"}

    async def test_a_mark_is_where_reading_begins_again(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        task = await bus.task(WORK)
        await bus.publish([clock(n) for n in range(6)])
        await read(task, 2, max_messages=1)
        await task.commit(notes={"state": b"2", "old": b""}, mark=True)
        await read(task, 2, max_messages=1)
        await task.commit(notes={"entry": b"4"})
        await task.close()
        again = await bus.task(WORK)
        assert again.saved.notes == {"state": b"2", "old": b"", "entry": b"4"}
        assert marks(await read(again, 2, upto=again.saved.positions)) == [2, 3]
        assert await again.read(upto=again.saved.positions) == []
        assert again.positions()[PARTITION] >= again.saved.positions[PARTITION]
        assert marks(await read(again, 2)) == [4, 5]
        await again.commit(notes={"state": b"6"}, mark=True)
        await again.close()
        assert (await bus.task(WORK)).saved.notes == {"state": b"6"}, "a mark's notes are all there are"

    async def test_repeats_are_dropped_also_behind_a_mark(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        task = await bus.task(WORK)
        sent = [replace(clock(n), boot_id="agent", batch_seq=n) for n in range(4)]
        await bus.publish([sent[0], sent[1], sent[0], sent[1]])
        await bus.publish([clock(9)])
        assert marks(await read(task, 3)) == [0, 1, 9]
        await task.commit(mark=True, notes={"s": b""})
        await bus.publish([sent[1], sent[2], sent[2], clock(10)])
        assert marks(await read(task, 2)) == [2, 10]
        await task.commit()
        await task.close()
        again = await bus.task(WORK)
        assert marks(await read(again, 2, upto=again.saved.positions)) == [2, 10], "the same as before"
        await bus.publish([sent[2], sent[3]])
        assert marks(await read(again, 1)) == [3]
        assert bus.counters.total("repeat") >= 4

    async def test_time_is_known_only_when_everything_was_read(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        task = await bus.task(WORK)
        await bus.publish([clock(1)])
        (seen,) = await read(task, 1)
        async with asyncio.timeout(10):
            while (known := task.known_until_ns()) is None or known < seen.bus_at_ns:
                await task.read(timeout_s=0.2)
        assert task.lag() == 0

    async def test_time_is_known_up_to_the_next_message_that_waits(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        task = await bus.task(WORK)
        await bus.publish([clock(1), clock(2)])
        await read(task, 1, max_messages=1)
        known = task.known_until_ns()
        (waiting,) = await read(task, 1)
        assert known is None or known < waiting.bus_at_ns

    @pytest.mark.parametrize("dies", ["", "before", "after"])
    async def test_a_message_at_which_a_stage_raises_is_set_aside_once(self, make_bus: MakeBus, dies: str) -> None:
        """Whoever owns the unit, and wherever the last owner died around the commit of the dead letter."""
        bus = await make_bus()
        reader = await bus.subscribe("ear", [FINDING.name])
        graves = await bus.subscribe("graves", [f"{CLOCK.name}.dlq"])
        loop = await _loop(bus)
        await bus.publish([replace(clock(n), key=POISON if n in (2, 5) else "mesh") for n in range(6)])
        await _turn(loop, 4 if dies == "after" else 6, commit=dies == "after")
        if dies:
            await loop.task.close()
            loop = await _loop(bus)
        await bus.publish([clock(n) for n in (6, 7)])
        await _turn(loop, 8, commit=True)
        await loop.task.close()
        assert marks(await take(reader, 6)) == [0, 1, 4, 8, 14, 21], "sums without what was set aside"
        aside = [m.body.data for m in await take(graves, 2) if isinstance(m.body, Event)]
        assert [(d["topic"], d["error"]) for d in aside] == [(CLOCK.name, "OverflowError")] * 2
        assert await graves.read(timeout_s=0.5) == []
        assert await reader.read(timeout_s=0.2) == []

    async def test_units_are_run_until_stopped(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("ear", [FINDING.name])
        stop, ready = asyncio.Event(), asyncio.Event()

        async def echo(task: Task) -> None:
            ready.set()
            while not stop.is_set():
                found = await task.read(timeout_s=0.1)
                if found:
                    await task.commit([finding(m) for m in marks(found)])

        running = asyncio.create_task(bus.shared(WORK, echo, stop))
        async with asyncio.timeout(30):
            await ready.wait()
        await bus.publish([clock(n) for n in range(3)])
        assert marks(await take(reader, 3)) == [0, 1, 2]
        stop.set()
        await asyncio.wait_for(running, 20)


class _Sums:
    """Says the sum of the marks it was given; raises at poison, when it has added it."""

    name, reads, writes = "sums", (CLOCK.name,), (FINDING.name,)

    def __init__(self) -> None:
        self.counters = Counters(self.name)
        self.sum = self.taken = 0

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        out = []
        for message in messages:
            self.sum += mark_of(message.body)
            self.taken += 1
            if message.key == POISON:
                raise OverflowError("too big")
            out.append(finding(self.sum))
        return out

    def finish(self, now_ns: int) -> list[Output]:
        return []

    def snapshot(self) -> bytes:
        counted = [[*key, n] for key, n in self.counters.values.items()]
        return json.dumps([self.sum, self.taken, counted]).encode()

    def restore(self, state: bytes) -> None:
        self.sum, self.taken, counted = json.loads(state)
        self.counters.values = {(what, reason): n for what, reason, n in counted}


async def _loop(bus: Bus) -> StageLoop:
    """A loop of `_Sums` over its task, which commits only when asked."""
    maker = StageMaker("sums", _Sums.reads, _Sums.writes, lambda _: _Sums(), identity="sums 1")
    task = await bus.task(Work("sums", _Sums.reads))
    commits = CommitPolicy(commit_s=0.0, idle_s=0.0, snapshot_s=1e9)
    held = CommitPolicy(commit_s=1e9, idle_s=1e9, snapshot_s=1e9)
    loop = StageLoop(maker, task, time.time_ns, RunControl(), held)
    loop.commit_now = lambda yes: setattr(loop, "_commits", commits if yes else held)  # type: ignore[attr-defined]
    await loop.resume()
    return loop


async def _turn(loop: StageLoop, taken: int, *, commit: bool) -> None:
    """Iterate until the stage has taken `taken` messages in all, those set aside among them; then commit."""
    async with asyncio.timeout(30):
        loop.commit_now(commit)  # type: ignore[attr-defined]
        while loop.stage.counters.total("set-aside") + loop.stage.stage.taken < taken:  # type: ignore[attr-defined]
            await loop.iterate()
        await loop.iterate()


def nic(mark: int) -> Output:
    """A state of a NIC."""
    event = Event(NIC.name, "detect", str(mark), mark, sample(SHAPES[NIC.name][NIC.name]) | {"mark": mark})
    return Output(NIC.name, f"h{mark:02}/r0", event)
