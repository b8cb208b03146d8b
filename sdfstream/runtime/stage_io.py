"""The one loop of a stage over a task: read, step, commit.

Without a `Keep` (one process) a stage's state ends with its process, and at the end the stage says what it held back.
With one, every commit keeps a journal entry and some a snapshot, so that whoever has the unit next goes on as if
nothing had happened (`bus/journal.py`); then a stage is never finished, only put down.
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
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.runtime.control_io import Control, Ending, Keep
from sdfstream.runtime.driver import Driver, StageMaker

log = logging.getLogger("sdfstream.pipeline")

_READ_S = TICK_NS / NS_PER_S / 2
_TURN_S = 0.02
"""A stage steps at most about so long while everything else in its process waits."""
_SLICE_NS = NS_PER_S
_PATIENCE_S = 60.0
"""How long what is to be read again may take to come."""


async def run_stage(
    maker: StageMaker, task: Task, clock: Callable[[], int], control: Control, keep: Keep | None
) -> None:
    """Serve one unit of a stage until told to stop (module's page).

    Raises
    ------
    BusError
        The unit is another process's now, or the bus failed: begin again with a new task.
    """
    loop = StageLoop(maker, task, clock, control, keep)
    maker.running[task.unit] = loop.stage
    control.progress_s.setdefault(loop.name, asyncio.get_running_loop().time())
    ours = False
    try:
        if keep is not None:
            await loop.resume()
        while not await loop.turn():
            pass
    except BusError as error:
        # begun again and again without getting on is no progress: the last one's age goes on to be told
        ours = not isinstance(error, FencedError)
        raise
    finally:
        if not ours:
            control.forget(loop.name)


class StageLoop:
    """A stage, its driver, and what they did since the last commit.

    Parameters
    ----------
    read_s : float
        How long a read waits when there is nothing.
    time_s : callable, optional
        What the times of `Keep` are measured by; None: the event loop's clock.
    """

    def __init__(
        self,
        maker: StageMaker,
        task: Task,
        clock: Callable[[], int],
        control: Control,
        keep: Keep | None,
        *,
        read_s: float = _READ_S,
        time_s: Callable[[], float] | None = None,
    ) -> None:
        self.maker = maker
        self.task = task
        self.stage = maker.make(f"{task.unit}")
        self.driver = Driver(self.stage)
        self.name = maker.name if task.work.units == 1 else f"{maker.name}/{task.unit}"
        self._clock = clock
        self._read_s = read_s
        self._time_s = time_s or asyncio.get_running_loop().time
        self._control = control
        self._ending = Ending(control, maker.name, clock)
        self._keep = keep
        self._journal = Journal()
        self._outputs: list[Output] = []
        self._committed_s = self._marked_s = self._time_s()

    async def resume(self) -> None:
        """Take up what the last commit left; a unit without a usable state begins one at its positions."""
        saved = self.task.saved
        try:
            if SNAPSHOT not in saved.notes:
                raise FormatError("snapshot-absent")
            await self._repeat(Snapshot.unpack(saved.notes[SNAPSHOT]))
        except (FormatError, KeyError, ValueError, TypeError) as error:
            if saved.notes:
                self._control.counters.add("begun-anew", self.maker.name)
                log.warning("%s begins with an empty state: %s", self.name, error)
            self.stage = self.maker.running[self.task.unit] = self.maker.make(f"{self.task.unit}")
            self.driver = Driver(self.stage)
            self._journal = Journal()
            self.task.seek(saved.positions)
            await self._commit(mark=True)

    async def _repeat(self, snapshot: Snapshot) -> None:
        if snapshot.maker != self.maker.identity:
            raise FormatError("snapshot-foreign", f"it is of {snapshot.maker}, this is {self.maker.identity}")
        calls = self._journal.resume(self.task.saved.notes)
        self.stage.restore(snapshot.state)
        self.driver.ticker.last_ns, self.driver.now_ns = snapshot.tick_ns, snapshot.now_ns
        for call in calls:  # what comes of it is on the bus already
            if isinstance(call, Given):
                await self._take(await read_again(self.task, call.upto))
            else:
                await self._advance(call.to_ns)
        self._control.counters.add("repeated-calls", self.maker.name, len(calls))

    async def turn(self) -> bool:
        """Once round; True when told to stop and done."""
        self._ending.look()
        before = self.task.positions()
        messages = await self.task.read(timeout_s=self._read_s)
        now_s = self._time_s()
        lag = self._control.lag[self.name] = self.task.lag()
        if messages or not lag:
            self._control.progress_s[self.name] = now_s
        stopping = self._ending.reached(messages)
        await self._step(before, messages)
        self._control.reached_ns[self.name] = self.driver.now_ns
        if self._keep is None:
            await self._publish(stopping, bool(messages))
        elif stopping or now_s - self._marked_s >= self._keep.snapshot_s:
            await self._commit(mark=True)
        elif now_s - self._committed_s >= (self._keep.commit_s if self._outputs else self._keep.idle_s):
            await self._commit(mark=False)
        return stopping

    async def _step(self, before: Positions, messages: list[Message]) -> None:
        after = self.task.positions()
        if after != before:
            self._outputs += await self._take(messages)
            self._journal.given(before, after)
        if not messages:
            known_ns = self.task.known_until_ns()
            if known_ns is not None and known_ns > self.driver.now_ns:
                self._outputs += await self._advance(known_ns)
                self._journal.moved(known_ns)

    async def _take(self, messages: list[Message]) -> list[Output]:
        """`Driver.take` in slices: heartbeats must go out in between, or the group takes a busy process for dead."""
        outputs: list[Output] = []
        turn = _Turn()
        for message in messages:
            outputs += self.driver.take([message])
            await turn.over()
        return outputs

    async def _advance(self, to_ns: int) -> list[Output]:
        """`Driver.advance` in slices."""
        outputs: list[Output] = []
        turn = _Turn()
        while self.driver.now_ns and self.driver.now_ns + _SLICE_NS < to_ns:
            outputs += self.driver.advance(self.driver.now_ns + _SLICE_NS)
            await turn.over()
        return outputs + self.driver.advance(to_ns)

    async def _publish(self, stopping: bool, read: bool) -> None:
        """In one process: what was said is published as it comes; at the end, what was held back."""
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
        self._committed_s = self._time_s()
        if mark:
            self._marked_s = self._committed_s


class _Turn:
    """Gives the event loop to others now and then."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()

    async def over(self) -> None:
        """Let others have their turn, if ours has lasted."""
        if self._loop.time() - self._since_s > _TURN_S:
            await asyncio.sleep(0)
            self._since_s = self._loop.time()


async def read_again(task: Task, upto: Positions) -> list[Message]:
    """Every message from where `task` stands up to `upto`, as one earlier call of `Task.read` gave them.

    Raises
    ------
    BusError
        They do not come.
    """
    found: list[Message] = []
    loop = asyncio.get_running_loop()
    heard_s = loop.time()
    while any(task.positions().get(part, end) < end for part, end in upto.items()):
        more = await task.read(timeout_s=0.5, upto=upto)
        found += more
        heard_s = loop.time() if more else heard_s
        if loop.time() - heard_s > _PATIENCE_S:
            raise BusError(f"what {task.work.name} has read before does not come again")
    return sorted(found, key=lambda m: (m.bus_at_ns, m.topic, m.bus_seq))
