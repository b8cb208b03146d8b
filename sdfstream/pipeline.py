"""READ FIRST: the path of a sample, stage by stage.

::

    agents ─► sdf.raw.* ─► sync ─► sdf.state.clock.v1, sdf.derived.owd.v1 ─► detect ─► sdf.event.finding.v1
    jobs ───┘    │           └─► workload ─► sdf.derived.qp.v1      │                       │
      ▲          └───────────┴──────────────┬─────────────────────┬─┴───────────────────────┘
      │                               archive (every topic), board, recorder
      └── sdf.control.command.v1 ◄── actuate ◄── jobs, ways, windows of queue pairs, outcomes, overrides
    agents ◄── sdf.state.mesh.v1 (who probes whom) ◄── plan ◄── agents' NICs, cabling, traces

The same stages run in three ways over one seam: live in one process (`run`), each on its own as a Kafka consumer
group (`run_stage`), and over a recording as fast as the machine allows (`replay`). A stage never reads a clock:
`Driver` steps it at every 100 ms boundary of bus time and at every message, so what a stage says depends only on
what was on the bus.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from sdfstream.actuate import keys_io
from sdfstream.actuate.stage import ActuateStage, Authority
from sdfstream.bus import Bus, joined_io
from sdfstream.detect.stage import DetectStage
from sdfstream.errors import SdfError
from sdfstream.plan.stage import PlanStage
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import ANOMALY, BELIEF, CLOCK, COMMAND, EDGE, FINDING, MESH, NIC, OUTCOME, OWD, QP_WINDOW
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.settings import Settings
from sdfstream.stats import Counters, Vitals
from sdfstream.sync.edge_stage import SyncEdgeStage
from sdfstream.sync.mesh_stage import SyncMeshStage
from sdfstream.sync.stage import SyncStage
from sdfstream.workload.stage import WorkloadStage

log = logging.getLogger("sdfstream.pipeline")

WRITES: Final[dict[str, tuple[str, ...]]] = {
    "sync": (CLOCK.name, OWD.name, ANOMALY.name),
    "sync-edge": (EDGE.name, OWD.name, ANOMALY.name),
    "sync-mesh": (CLOCK.name, BELIEF.name),
    "workload": (QP_WINDOW.name,),
    "detect": (FINDING.name, NIC.name),
    "actuate": (COMMAND.name, OUTCOME.name),
    "plan": (MESH.name,),
}
"""What each stage writes; a replay ignores these topics in its input when it runs the stage itself."""

FOR_ALL: Final[dict[str, tuple[str, ...]]] = {SyncEdgeStage.name: (BELIEF.name,)}
"""Topics of which every member of a stage's group reads all, where the other topics are dealt out among them."""

SHARED: Final = frozenset({OUTCOME.name})
"""Topics that agents write too: there a replay ignores only what the stage itself said (by the event's source)."""

LONGEST_GAP_NS: Final = 24 * 3600 * NS_PER_S
"""A message this far ahead of the last is refused in a replay: its time is wrong, and ticks up to it never end."""


class Stage(Protocol):
    """A sans-IO engine: messages and the time in, outputs out. Time enters only here.

    The same messages with the same `now_ns` give the same outputs, byte for byte; cutting the stream of messages
    into calls anywhere changes nothing. `now_ns` never goes back. Input is never mutated.
    """

    name: str
    reads: tuple[str, ...]
    """Topics the stage subscribes to."""
    counters: Counters

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` (none: a tick) that entered the bus up to `now_ns`; return what they cause."""

    def finish(self, now_ns: int) -> list[Output]:
        """The input has ended: return what was held back."""

    def snapshot(self) -> bytes:
        """The whole state, so that `restore` in a fresh stage goes on as if nothing had happened."""

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot`."""


@dataclass(slots=True)
class Ticker:
    """The 100 ms boundaries of bus time; `upto` yields each one once, in order."""

    tick_ns: int = TICK_NS
    last_ns: int | None = None

    def upto(self, now_ns: int) -> Iterator[int]:
        """Every boundary after the last one given out and not after `now_ns`; the first call only sets the start."""
        if self.last_ns is None:
            self.last_ns = now_ns // self.tick_ns * self.tick_ns
            return
        while self.last_ns + self.tick_ns <= now_ns:
            self.last_ns += self.tick_ns
            yield self.last_ns


@dataclass(slots=True)
class Driver:
    """Steps one stage along bus time; now never goes back, whatever order messages of several topics come in."""

    stage: Stage
    ticker: Ticker = field(default_factory=Ticker)
    now_ns: int = 0

    def take(self, messages: Sequence[Message]) -> list[Output]:
        """Step at every boundary before each message, then at the message."""
        outputs: list[Output] = []
        for message in messages:
            outputs += self.advance(message.bus_at_ns)
            outputs += self.stage.step([message], self.now_ns)
        return outputs

    def advance(self, to_ns: int) -> list[Output]:
        """Step with nothing at every boundary up to `to_ns`."""
        outputs: list[Output] = []
        for boundary_ns in self.ticker.upto(to_ns):
            outputs += self.stage.step([], boundary_ns)
        self.now_ns = max(self.now_ns, to_ns)
        return outputs


# --- live ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watcher:
    """Something that only reads: the archive, the board, a recorder."""

    name: str
    topics: tuple[str, ...]
    take: Callable[[Sequence[Message]], Awaitable[None]]
    settle: Callable[[], Awaitable[None]] | None = None
    """Returns when all that was taken is safe; called before positions are committed."""
    commit_s: float = 0.0
    """Shortest time between two commits, for a watcher whose settling is dear."""
    from_start: bool = False
    """A group without a position begins with the oldest message, not at the end."""


@dataclass(slots=True)
class Control:
    """What the pipeline is told and what it tells while it runs."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    drain: bool = True
    """Once told to stop, first read on until nothing comes; False: the rest is left to the group's next member."""
    counters: Counters = field(default_factory=lambda: Counters("pipeline"))
    lag: dict[str, int] = field(default_factory=dict)
    """Messages on the bus that each reader had not read when it last looked."""
    vitals: Vitals = field(default_factory=Vitals)
    """Signs of life of every reader, for metrics and the health check."""


def stages(settings: Settings, authority: Authority | None = None) -> list[Stage]:
    """The stages of the path, in order; without `authority` (a replay) the controller enforces nothing."""
    path: list[Stage] = [SyncStage(settings.sync), WorkloadStage(settings.workload), DetectStage(settings.detect)]
    if settings.actuate.mode != "off":
        path.append(ActuateStage(settings.actuate, authority))
    if settings.plan.mesh == "auto" or (settings.agent is not None and settings.agent.mesh == "auto"):
        path.append(PlanStage(settings.plan))
    return path


def sync_parts(settings: Settings, member: str) -> list[Stage]:
    """Sync in parts: any number of processes with the first, one with the second (docs/sync-scale.md).

    `member` names this process among those of its stage's group.
    """
    return [SyncEdgeStage(settings.sync, member), SyncMeshStage(settings.sync)]


def authority(settings: Settings, started_at_ns: int) -> Authority | None:
    """What a live controller acts by: its keys in the data folder (made on first use), its start as its epoch.

    Raises
    ------
    ConfigError
        A key file cannot be read or written, or others may read the private one.
    """
    if settings.actuate.mode == "off":
        return None
    keys = keys_io.load(settings.data)
    return Authority(keys.signer, keys.operators, started_at_ns)


async def run(
    bus: Bus,
    path: Sequence[Stage],
    watchers: Sequence[Watcher],
    clock: Callable[[], int],
    control: Control,
) -> None:
    """The whole pipeline in one process until told to stop; what is on the bus by then still reaches the watchers."""
    async with asyncio.TaskGroup() as group:
        readers = [
            *((stage.name, partial(run_stage, stage, bus, clock, control)) for stage in path),
            *((watcher.name, partial(run_watcher, watcher, bus, control)) for watcher in watchers),
        ]
        for name, task in readers:
            group.create_task(supervise(name, task, control), name=name)


async def run_stage(stage: Stage, bus: Bus, clock: Callable[[], int], control: Control) -> None:
    """Read, step, publish, commit, until told to stop and nothing is left to read: the one loop.

    Positions are committed after the outputs are on the bus, so a crash repeats output at most; readers tell a
    repeat by boot id and batch sequence.
    """
    subscription = await joined_io.subscribe(bus, stage.name, stage.reads, FOR_ALL.get(stage.name, ()))
    driver = Driver(stage)
    try:
        while True:
            messages = await subscription.read(timeout_s=TICK_NS / NS_PER_S / 2)
            control.lag[stage.name] = subscription.lag()
            stopping = control.stop.is_set() and not (messages and control.drain)
            outputs = driver.take(messages) if messages else driver.advance(clock())
            if stopping:
                outputs += stage.finish(max(driver.now_ns, clock()))
            if outputs:
                await bus.publish(outputs)
            if messages:
                await subscription.commit()
            control.vitals.turned(
                stage.name,
                time.monotonic(),
                lag=control.lag[stage.name],
                moved=bool(messages),
                reached_at_ns=driver.now_ns or None,
            )
            if stopping:
                return
    finally:
        await subscription.close()


async def run_watcher(watcher: Watcher, bus: Bus, control: Control) -> None:
    """Hand every message to the watcher, then commit; once told to stop, until the bus was quiet for a second.

    Without `Control.drain` a watcher that is told to stop reads once more, so that what was published just before
    still reaches it.
    """
    subscription = await bus.subscribe(watcher.name, watcher.topics, from_start=watcher.from_start)
    loop = asyncio.get_running_loop()
    committed_s, taken = loop.time(), False
    oldest_at_ns: int | None = None
    try:
        while True:
            stopping = control.stop.is_set()
            messages = await subscription.read(timeout_s=1.0)
            control.lag[watcher.name] = subscription.lag()
            if messages:
                await watcher.take(messages)
                taken, oldest_at_ns = True, oldest_at_ns or messages[0].bus_at_ns
            ending = stopping and not (messages and control.drain)
            if taken and (ending or loop.time() - committed_s >= watcher.commit_s):
                if watcher.settle is not None:
                    await watcher.settle()
                await subscription.commit()
                committed_s, taken, oldest_at_ns = loop.time(), False, None
            control.vitals.turned(
                watcher.name,
                time.monotonic(),
                lag=control.lag[watcher.name],
                moved=bool(messages),
                oldest_at_ns=oldest_at_ns,
            )
            if ending:
                return
    finally:
        await subscription.close()


async def supervise(name: str, task: Callable[[], Awaitable[None]], control: Control) -> None:
    """Run `task` to its end: an expected failure is logged, counted, and answered by a restart with back-off.

    Once told to stop, a failure is the end: with a bus that is away there is nothing more to be had.
    """
    delay_s = 0.5
    while True:
        started_s = asyncio.get_running_loop().time()
        try:
            await task()
            return
        except SdfError as error:
            if asyncio.get_running_loop().time() - started_s > 30:
                delay_s = 0.5
            control.counters.add("restarted", name)
            log.warning("%s stopped (%s); restarting in %.1f s", name, error, delay_s)
        with suppress(TimeoutError):
            await asyncio.wait_for(control.stop.wait(), delay_s)
        if control.stop.is_set():
            return
        delay_s = min(delay_s * 2, 30.0)


# --- replay ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Chain:
    """Several stages in a row over one message stream, as a replay runs them."""

    stages: Sequence[Stage]
    ticker: Ticker = field(default_factory=Ticker)
    counters: Counters = field(default_factory=lambda: Counters("replay"))
    _seq: dict[str, int] = field(default_factory=dict)
    _now_ns: int = 0

    def start(self, at_ns: int) -> None:
        """Begin bus time at `at_ns`; the first tick is the boundary after it."""
        self.ticker.last_ns = at_ns // self.ticker.tick_ns * self.ticker.tick_ns
        self._now_ns = at_ns

    def advance(self, to_ns: int) -> Iterator[Message]:
        """Tick all stages at every boundary up to `to_ns`; yields what they cause."""
        for boundary_ns in self.ticker.upto(to_ns):
            self._now_ns = max(self._now_ns, boundary_ns)
            yield from self._step([], tick=True)

    def take(self, message: Message) -> Iterator[Message]:
        """Advance to `message`, then let the stages see it; yields what they cause, in order."""
        if message.bus_at_ns - self._now_ns > LONGEST_GAP_NS:
            self.counters.add("refused", "time-jump")
            return
        yield from self.advance(message.bus_at_ns)
        self._now_ns = max(self._now_ns, message.bus_at_ns)
        yield from self._step([message], tick=False)

    def finish(self, end_ns: int) -> Iterator[Message]:
        """Advance to the end and let every stage hand out what it held back."""
        if end_ns - self._now_ns <= LONGEST_GAP_NS:
            yield from self.advance(end_ns)
            self._now_ns = max(self._now_ns, end_ns)
        made: list[Message] = []
        for stage in self.stages:
            late = [m for m in made if m.topic in stage.reads]
            outputs = stage.step(late, self._now_ns) if late else []
            made += self._messages([*outputs, *stage.finish(self._now_ns)])
        yield from made

    def _step(self, messages: list[Message], *, tick: bool) -> Iterator[Message]:
        seen = messages
        for stage in self.stages:
            mine = [m for m in seen if m.topic in stage.reads]
            if mine or tick:
                made = self._messages(stage.step(mine, self._now_ns))
                seen = seen + made
                yield from made

    def _messages(self, outputs: Iterable[Output]) -> list[Message]:
        made = []
        for output in outputs:
            seq = self._seq.get(output.topic, 0)
            self._seq[output.topic] = seq + 1
            made.append(Message(output.topic, output.key, output.body, self._now_ns, seq))
        return made


def _made_by(message: Message, stage: str) -> bool:
    """Whether `stage`, a writer of the message's topic, wrote it."""
    body = message.body
    return message.topic not in SHARED or (isinstance(body, Event) and body.source == stage)


def replay(
    messages: Iterable[Message], stages: Sequence[Stage], start_at_ns: int | None, end_at_ns: int | None
) -> Iterator[Message]:
    """Run `stages` over recorded messages; the same input gives the same output.

    Parameters
    ----------
    messages : iterable of Message
        In order of (bus_at_ns, topic, bus_seq).
    stages : sequence of Stage
        In the order of the path; a topic that one of them writes is ignored in `messages`.
    start_at_ns, end_at_ns : int or None
        Of the recording; None: the first and the last message. A start more than a day before the first message
        is taken for the first message.

    Yields
    ------
    Message
        What the stages put on the bus, `bus_at_ns` being the step's now.
    """
    own = {topic: stage.name for stage in stages for topic in WRITES.get(stage.name, ())}
    chain = Chain(stages)
    started = False
    for message in messages:
        if message.topic in own and _made_by(message, own[message.topic]):
            continue
        if not started:
            first_ns = message.bus_at_ns
            near = start_at_ns is not None and 0 <= first_ns - start_at_ns <= LONGEST_GAP_NS
            chain.start(start_at_ns if near and start_at_ns is not None else first_ns)
            started = True
        yield from chain.take(message)
    if started or start_at_ns is not None:
        if not started and start_at_ns is not None:
            chain.start(start_at_ns)
        yield from chain.finish(end_at_ns if end_at_ns is not None else 0)
