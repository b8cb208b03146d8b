"""The one loop of a stage over a task: read, step, commit.

Without a `CommitPolicy` (one process) a stage's state ends with its process, and at the end the stage publishes what it
held back. With one, every commit stores a journal entry and some a snapshot, from which the unit's next owner goes on
as if nothing had happened (`bus/journal.py`); such a stage is never finished.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sdfstream.bus.journal import SNAPSHOT, Given, Journal, Snapshot
from sdfstream.bus.task import Task
from sdfstream.errors import BusError, FencedError, FormatError
from sdfstream.records.message import Message, Output
from sdfstream.records.position import Positions
from sdfstream.records.slices import in_calls
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.runtime import layouts
from sdfstream.runtime.aside import AsideStage
from sdfstream.runtime.control_io import CommitPolicy, RunControl, StopCondition
from sdfstream.runtime.driver import Driver, StageMaker

log = logging.getLogger("sdfstream.pipeline")

_READ_S = TICK_NS / NS_PER_S / 2
_TIME_SLICE_S = 0.02
"""A stage steps for at most about so long before the event loop's other tasks get their turn."""
_NOT_RESTORED = (FormatError, LookupError, ValueError, TypeError, ArithmeticError, AttributeError)
"""What a stage may raise at a state that is not one of its own."""
_ADVANCE_NS = NS_PER_S
_MOST_STRIDES = 100
"""Of a longer way only the beginning can cause anything (`aside.IDLE_NS`); the rest is taken in one."""
_REREAD_TIMEOUT_S = 60.0
"""Longest wait, without any message, for messages that are read a second time."""


async def run_stage(
    maker: StageMaker, task: Task, clock: Callable[[], int], control: RunControl, commits: CommitPolicy | None
) -> None:
    """Serve one unit of a stage until `control.stop` is set.

    Raises
    ------
    BusError
        The unit belongs to another process now, or the bus failed: begin again with a new task.
    """
    loop = StageLoop(maker, task, clock, control, commits)
    maker.running[task.unit] = loop.stage
    control.progress_at_s.setdefault(loop.name, asyncio.get_running_loop().time())
    keeps_unit = False
    try:
        if commits is not None:
            await loop.resume()
        while not await loop.iterate():
            pass
    except BusError as error:
        # a restart is no progress: the age of the last progress must go on growing
        keeps_unit = not isinstance(error, FencedError)
        raise
    finally:
        if not keeps_unit:
            control.forget(loop.name)


class StageLoop:
    """A stage, its driver, and its outputs since the last commit.

    Parameters
    ----------
    read_s : float
        How long a read waits where there is no message.
    time_s : callable, optional
        Clock of the intervals of `CommitPolicy`, seconds; None: the event loop's clock.
    """

    def __init__(
        self,
        maker: StageMaker,
        task: Task,
        clock: Callable[[], int],
        control: RunControl,
        commits: CommitPolicy | None,
        *,
        read_s: float = _READ_S,
        time_s: Callable[[], float] | None = None,
    ) -> None:
        self.maker = maker
        self.task = task
        self.stage = AsideStage(maker.make(f"{task.unit}"))
        self.driver = Driver(self.stage)
        self.name = maker.name if task.work.units == 1 else f"{maker.name}/{task.unit}"
        self._clock = clock
        self._read_s = read_s
        self._time_s = time_s or asyncio.get_running_loop().time
        self._control = control
        self._stop_condition = StopCondition(control, maker.name, clock)
        self._commits = commits
        self._journal = Journal()
        self._outputs: list[Output] = []
        self._committed_at_s = self._snapshot_at_s = self._time_s()

    async def resume(self) -> None:
        """Restore the state of the last commit; without a usable one begin with an empty state at its positions."""
        saved = self.task.saved
        try:
            if SNAPSHOT not in saved.notes:
                raise FormatError("snapshot-absent")
            await self._repeat(Snapshot.unpack(saved.notes[SNAPSHOT]))
        except _NOT_RESTORED as error:
            if saved.notes:
                self._control.counters.add("begun-anew", self.maker.name)
                log.warning("%s begins with an empty state: %s", self.name, error)
            self.stage = AsideStage(self.maker.make(f"{self.task.unit}"))
            self.maker.running[self.task.unit] = self.stage
            self.driver = Driver(self.stage)
            self._journal = Journal()
            self.task.seek(saved.positions)
            await self._commit(mark=True)

    async def _repeat(self, snapshot: Snapshot) -> None:
        layouts.check(snapshot.maker, self.maker.identity, self.maker.formerly)
        calls = self._journal.resume(self.task.saved.notes)
        self.stage.restore(snapshot.state)
        self.driver.ticker.last_ns, self.driver.now_ns = snapshot.tick_ns, snapshot.now_ns
        for call in calls:  # the outputs are on the bus already
            if isinstance(call, Given):
                await self._take(await reread(self.task, call.upto))
            else:
                await self._advance(call.to_ns)
        self._control.counters.add("repeated-calls", self.maker.name, len(calls))

    async def iterate(self) -> bool:
        """Read, step and commit once; True when the stage is to stop and nothing is left to do."""
        self._stop_condition.before_read()
        before = self.task.positions()
        messages = await self.task.read(timeout_s=self._read_s)
        now_s = self._time_s()
        lag = self._control.lag[self.name] = self.task.lag()
        if messages or not lag:
            self._control.progress_at_s[self.name] = now_s
        stopping = self._stop_condition.is_met(messages)
        await self._step(before, messages)
        self._control.reached_at_ns[self.name] = self.driver.now_ns
        if self._commits is None:
            await self._publish(stopping, bool(messages))
        elif stopping or now_s - self._snapshot_at_s >= self._commits.snapshot_s:
            await self._commit(mark=True)
        elif now_s - self._committed_at_s >= (self._commits.commit_s if self._outputs else self._commits.idle_s):
            await self._commit(mark=False)
        return stopping

    async def _step(self, before: Positions, messages: list[Message]) -> None:
        after = self.task.positions()
        if after != before:
            self._outputs += await self._take(messages)
            self._journal.given(before, after)
        known_ns = self.task.known_until_ns()
        if (
            known_ns is not None
            and known_ns > self.driver.now_ns
            and (not messages or self.driver.ticker.is_due(known_ns))
        ):
            self._outputs += await self._advance(known_ns)
            self._journal.moved(known_ns)

    async def _take(self, messages: list[Message]) -> list[Output]:
        """`Driver.take` in time slices: heartbeats must go out in between, or the group expels the process."""
        outputs: list[Output] = []
        time_slice = _TimeSlice()
        for call in in_calls(messages):
            outputs += self.driver.take(call)
            await time_slice.yield_if_over()
        return outputs

    async def _advance(self, to_ns: int) -> list[Output]:
        """`Driver.advance` in time slices."""
        outputs: list[Output] = []
        time_slice = _TimeSlice()
        strides = min((to_ns - self.driver.now_ns) // _ADVANCE_NS, _MOST_STRIDES) if self.driver.now_ns else 0
        for _ in range(strides):
            outputs += self.driver.advance(self.driver.now_ns + _ADVANCE_NS)
            await time_slice.yield_if_over()
        return outputs + self.driver.advance(to_ns)

    async def _publish(self, stopping: bool, read: bool) -> None:
        """Without a `CommitPolicy`: publish outputs at once; at the end also what the stage held back."""
        if stopping:
            self._outputs += self.stage.finish(max(self.driver.now_ns, self._clock()))
        if self._outputs or read:
            await self.task.commit(self._outputs)
        self._outputs.clear()
        self._journal = Journal()

    async def _commit(self, *, mark: bool) -> None:
        if not mark and self._journal.empty:
            return
        if mark:
            state = self.stage.snapshot()
            last_ns = self.driver.ticker.last_ns
            snapshot = Snapshot(self.maker.identity, last_ns, self.driver.now_ns, state)
            notes = {SNAPSHOT: snapshot.pack()}
        else:
            notes = self._journal.entry()
        await self.task.commit(self._outputs, notes=notes, mark=mark)
        self._outputs.clear()
        self._journal.committed(mark=mark)
        self._committed_at_s = self._time_s()
        if mark:
            self._snapshot_at_s = self._committed_at_s


class _TimeSlice:
    """Yields to the event loop's other tasks whenever `_TIME_SLICE_S` are used up."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()

    async def yield_if_over(self) -> None:
        """Yield, if the time slice is used up, and begin the next one."""
        if self._loop.time() - self._began_s > _TIME_SLICE_S:
            await asyncio.sleep(0)
            self._began_s = self._loop.time()


async def reread(task: Task, upto: Positions) -> list[Message]:
    """Every message from the positions of `task` to `upto`, as one earlier call of `Task.read` gave them.

    Raises
    ------
    BusError
        Some did not come within `_REREAD_TIMEOUT_S`.
    """
    found: list[Message] = []
    loop = asyncio.get_running_loop()
    last_received_s = loop.time()
    while any(task.positions().get(partition, end) < end for partition, end in upto.items()):
        more = await task.read(timeout_s=0.5, upto=upto)
        found += more
        last_received_s = loop.time() if more else last_received_s
        if loop.time() - last_received_s > _REREAD_TIMEOUT_S:
            raise BusError(f"what {task.work.name} has read before does not come again")
    return sorted(found, key=lambda m: (m.bus_at_ns, m.topic, m.bus_seq))
