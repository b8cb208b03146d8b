"""Stages on a bus that outlives them, killed at chosen steps: what they say must be what they say when nobody dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from sdfstream import demo, pipeline
from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.stage import Authority
from sdfstream.bus import codec
from sdfstream.bus.memory.bus_io import MemoryBus, MemoryBusConfig
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.bus.task import Task, Work
from sdfstream.records.message import Message, Output
from sdfstream.records.position import Positions
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import COMMAND, TOPICS, TOPOLOGY
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.control_io import CommitPolicy, RunControl
from sdfstream.runtime.driver import StageMaker
from sdfstream.runtime.stage_io import StageLoop
from sdfstream.score.clock.sim import mesh
from sdfstream.settings import Settings
from tests.fixtures.plant import CONTROLLER, EPOCH, OPERATOR, Plan, Plant
from tests.fixtures.poison import poisonable, poisoned

NEVER = float("inf")
Decide = Callable[[str, str], bool]
"""Whether the stage (by name) dies at this step (``read``, ``was-read``, ``commit``, ``committed``)."""


class KilledError(Exception):
    """A process died here."""


@dataclass
class Mortal:
    """A task whose owner may die before and after everything it does with it."""

    task: Task
    decide: Decide
    deaths: Counter[str] = field(default_factory=Counter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    async def read(self, *args: Any, **given: Any) -> list[Message]:
        self._step("read")
        found = await self.task.read(*args, **given)
        self._step("was-read")
        return found

    async def commit(
        self,
        outputs: Sequence[Output] = (),
        *,
        positions: Positions | None = None,
        notes: Mapping[str, bytes | None] | None = None,
        mark: bool = False,
    ) -> None:
        kind = "commit" if not mark else "mark"
        self._step(kind)
        await self.task.commit(outputs, positions=positions, notes=notes, mark=mark)
        self._step(f"{kind}ted" if kind == "commit" else "marked")

    def _step(self, what: str) -> None:
        if self.decide(self.task.work.name, what):
            self.deaths[f"{self.task.work.name} {what}"] += 1
            raise KilledError(what)


@dataclass
class World:
    """Makers over one bus, driven along given messages."""

    makers: Sequence[StageMaker]
    decide: Decide = lambda stage, what: False
    snapshot_every: float = NEVER
    """Turns of a stage between two snapshots."""
    deaths: Counter[str] = field(default_factory=Counter)

    async def run(self, inputs: Sequence[Message]) -> dict[str, list[bytes]]:
        """Everything the stages said, by topic, in order, as bytes."""
        self._now_ns = inputs[0].bus_at_ns
        self._turns = {maker.name: count() for maker in self.makers}
        big = MemoryBusConfig(max_topic_bytes=1 << 30, replay_bytes=1 << 30)
        self.bus = MemoryBus(lambda: self._now_ns, boot_id="stages", config=big)
        said = sorted({t for t in TOPICS if not t.startswith("sdf.raw")} | {t.dead_letters for t in TOPICS.values()})
        ear = await self.bus.subscribe("ear", said)
        loops: dict[str, StageLoop | None] = {maker.name: None for maker in self.makers}
        for maker in self.makers:
            await self._turn(maker, loops)
        for message in inputs:
            self._now_ns = max(self._now_ns, message.bus_at_ns)
            given = Output(message.topic, message.key, message.body, "agent", message.bus_seq)
            await self.bus.publish([given])
            for maker in self.makers:
                await self._turn(maker, loops)
        heard = await ear.read(max_messages=1 << 30)
        await self.bus.close()
        mine = [m for m in heard if m.boot_id == "stages"]
        return {t: [codec.encode_body(t, m.body, m.key) for m in mine if m.topic == t] for t in said}

    async def _turn(self, maker: StageMaker, loops: dict[str, StageLoop | None]) -> None:
        """Let a stage do all that it can do now, however often it dies of it."""
        while True:
            try:
                loop = loops[maker.name]
                if loop is None:
                    loop = loops[maker.name] = await self._begin(maker)
                for _ in range(2):  # what has come, then the time
                    await loop.iterate()
                if loop.task.lag() == 0:
                    return
            except KilledError:
                loops[maker.name] = None

    async def _begin(self, maker: StageMaker) -> StageLoop:
        work = Work(maker.name, tuple(t for t in maker.reads if t not in maker.for_all), maker.for_all)
        task = Mortal(await self.bus.task(work), self.decide, self.deaths)
        turns = self._turns[maker.name]
        commits = CommitPolicy(commit_s=0.0, idle_s=0.0, snapshot_s=self.snapshot_every)
        loop = StageLoop(
            maker, task, lambda: self._now_ns, RunControl(), commits, read_s=0.0, time_s=lambda: float(next(turns))
        )
        maker.running[0] = loop.stage
        await loop.resume()
        return loop


# --- stories -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """Inputs and the stages that make something of them."""

    name: str
    make_inputs: Callable[[], Sequence[Message]]
    makers: Callable[[], Sequence[StageMaker]]

    @cached_property
    def inputs(self) -> Sequence[Message]:
        """Made when first asked for: seconds that whoever only collects tests need not spend."""
        return self.make_inputs()

    def run(self, decide: Decide, snapshot_every: float) -> tuple[dict[str, list[bytes]], Counter[str]]:
        """What is said, and who died where."""
        world = World(self.makers(), decide, snapshot_every)
        return asyncio.run(world.run(self.inputs)), world.deaths


def stories() -> list[Story]:
    """Clocks in parts; a real recording through sync and detect; the controller over a link that dies; a recording of
    which some messages make the stages raise."""
    return [
        Story(
            "sync in parts",
            lambda: [*mesh(4, 3, "A", 16.0, seed=1).messages(4.0)],
            lambda: _named("sync-edge", "sync-mesh"),
        ),
        Story("recording", lambda: _recorded(6.0), lambda: _named("sync", "detect")),
        Story("controller", _controlled, lambda: _named("actuate")),
        Story(
            "poison",
            lambda: poisoned(_recorded(4.0), 23),
            lambda: [poisonable(maker) for maker in _named("sync", "detect")],
        ),
    ]


def _named(*names: str) -> list[StageMaker]:
    settings = Settings(actuate=ActuateConfig(mode="enforce"))
    every = [*pipeline.makers(settings, Authority(CONTROLLER, KeyRing([OPERATOR.public]), EPOCH))]
    every += pipeline.split_sync(settings)
    return [replace(m, by_partition="") for m in every if m.name in names]


def _recorded(seconds: float) -> list[Message]:
    recording = open_recording(Path(demo.__file__).parent / "shipped_recording")
    messages = [m for m in recording.messages() if m.topic.startswith("sdf.raw.") or m.topic == TOPOLOGY.name]
    return [m for m in messages if m.bus_at_ns < messages[0].bus_at_ns + seconds * NS_PER_S]


def _controlled() -> list[Message]:
    """What a controller was given while a link died under a job; its own words are left out."""
    plant = Plant(Plan(), ActuateConfig(mode="enforce"))
    pair = plant.qp("h00", "h02", 1, next(iter(plant.ports_via("h00", "h02", "s1"))), tuple(range(52_001, 52_009)))
    plant.run(4)
    plant.job("one", [pair])
    plant.run(4)
    plant.dead.add(plant.route(pair.flow())[1])
    plant.run(3)
    return [m for m in plant.messages if m.topic != COMMAND.name and getattr(m.body, "source", "") != "actuate"]


@dataclass
class Tally:
    """What came of killing stages."""

    placed: int = 0
    by_step: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    doubled: int = 0
    failures: list[str] = field(default_factory=list)


def kill_stages(seed: int, n: int, told: Sequence[Story] | None = None) -> Tally:
    """Kill stages about `n` times at random steps, and hold what they say against what they say undisturbed."""
    rng = np.random.default_rng(seed)
    # commits are rarer than reads: without more weight few would ever be hit
    chance = {"read": 0.005, "was-read": 0.005, "commit": 0.02, "committed": 0.02, "mark": 0.05, "marked": 0.05}
    tally = Tally()
    told = told if told is not None else stories()
    undisturbed = {story.name: story.run(lambda stage, what: False, NEVER)[0] for story in told}
    while tally.placed < n:
        for story in told:
            every = float(rng.integers(4, 20))
            said, deaths = story.run(lambda _, what: bool(rng.random() < chance[what]), every)
            tally.placed += deaths.total()
            tally.by_step += deaths
            for topic, whole in undisturbed[story.name].items():
                tally.lost += (Counter(whole) - Counter(said[topic])).total()
                tally.doubled += (Counter(said[topic]) - Counter(whole)).total()
                if said[topic] != whole:
                    tally.failures.append(f"{story.name}, seed {seed}: {topic} differs after {deaths.total()} kills")
    return tally
