"""The plan carried out on the house, one line on stderr for each thing done."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer

from tests.chaos import poison
from tests.chaos.house import House
from tests.chaos.onbus import Poison
from tests.chaos.plan import AGENTS, Act
from tests.chaos.story import Clock

FILLER = "filler"


@dataclass(slots=True)
class Hand:
    """Does what is planned, and remembers what was done."""

    house: House
    rng: np.random.Generator
    say: Callable[[str], None]
    sample: pa.RecordBatch | None = None
    """A good batch of probe rows, from which poison is made."""
    kills: dict[str, int] = field(default_factory=dict)
    poisons: dict[str, Poison] = field(default_factory=dict)
    """By fingerprint."""
    outages: list[dict[str, Any]] = field(default_factory=list)
    """Of broker and ClickHouse: who, from when to when (monotonic seconds)."""
    done: list[str] = field(default_factory=list)
    _undo: set[Callable[[], None]] = field(default_factory=set)

    async def carry_out(self, acts: Sequence[Act], clock: Clock) -> None:
        """Everything in its time; an act that fails ends all."""
        async with asyncio.TaskGroup() as group:
            for act in acts:
                while clock.now_s < act.at_s:  # noqa: ASYNC110 - the story may be told late
                    await asyncio.sleep(min(1.0, max(0.02, act.at_s - clock.now_s)))
                group.create_task(self._do(act, clock), name=f"{act.what} {act.whom}")

    def undo(self) -> None:
        """Whatever is frozen, cut or full is so no more."""
        for step in list(self._undo):
            step()

    async def _do(self, act: Act, clock: Clock) -> None:
        verbs = {
            "kill": self._kill,
            "away": self._away,
            "freeze": self._freeze,
            "cut": self._cut,
            "full": self._full,
            "step": self._step,
            "poison": self._poison,
        }
        line = f"{clock.now_s:6.1f} s  {act.what} {act.whom}"
        told = await verbs[act.what](act)
        line += f": {told}" if told else f" for {act.for_s:g} s" if act.for_s else ""
        self.done.append(line.strip())
        self.say(line)

    async def _kill(self, act: Act) -> str:
        agent = self.house.agents.get(act.whom)
        child = agent.child if agent is not None else self.house.stages[act.whom]
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                while not child.alive:  # noqa: ASYNC110 - killed a moment ago: it is about to be started again
                    await asyncio.sleep(0.05)
        if not child.alive:
            return "was not alive"
        await child.kill()
        self._count(act.whom)
        await asyncio.sleep(act.for_s)
        await (agent.start() if agent is not None else child.start())
        return f"killed, started again after {act.for_s:g} s"

    async def _away(self, act: Act) -> str:
        began_s = time.monotonic()
        if act.whom == "broker":
            await asyncio.to_thread(self.house.broker.kill)
            self._count(act.whom)
            await asyncio.sleep(act.for_s)
            await asyncio.to_thread(self.house.start_broker)
        else:
            await self.house.clickhouse.kill()
            self._count(act.whom)
            await asyncio.sleep(act.for_s)
            await self.house.clickhouse.start()
        self.outages.append({"who": act.whom, "from_s": began_s, "until_s": time.monotonic()})
        return f"killed, back after {time.monotonic() - began_s:.1f} s"

    async def _freeze(self, act: Act) -> str:
        child = self.house.stages[act.whom]
        return await self._held(act, lambda: child.send(signal.SIGSTOP), lambda: child.send(signal.SIGCONT))

    async def _cut(self, act: Act) -> str:
        relay = self.house.relay
        return await self._held(act, lambda: relay.send(signal.SIGSTOP), lambda: relay.send(signal.SIGCONT))

    async def _full(self, act: Act) -> str:
        disk = self.house.disks.get(act.whom)
        if disk is None:
            return "there is no disk to fill"
        return await self._held(act, lambda: _fill(disk), lambda: (disk / FILLER).unlink(missing_ok=True))

    async def _step(self, act: Act) -> str:
        if self.house.missing and any("faketime" in m for m in self.house.missing):
            return "there is no clock to step"
        step = self.house.step_clock
        told = await self._held(act, lambda: step(act.whom, act.number), lambda: step(act.whom, 0))
        return f"by {act.number:+d} s {told}"

    async def _held(self, act: Act, do: Callable[[], object], undo: Callable[[], object]) -> str:
        def back() -> None:
            undo()

        do()
        self._undo.add(back)
        await asyncio.sleep(act.for_s)
        self._undo.discard(back)
        back()
        return f"for {act.for_s:g} s"

    async def _poison(self, act: Act) -> str:
        assert self.sample is not None
        hosts = [host for several in AGENTS.values() for host in several]
        key = str(self.rng.choice(hosts))
        made = poison.make(act.number, len(self.poisons), self.rng, self.sample, key)
        self.poisons[made.fingerprint] = made
        await asyncio.to_thread(_put, self.house.broker.address, made)
        return made.name

    def _count(self, whom: str) -> None:
        self.kills[whom] = self.kills.get(whom, 0) + 1


def _fill(disk: Path) -> None:
    with suppress(OSError), (disk / FILLER).open("wb", buffering=0) as file:
        while file.write(bytes(65536)):
            pass


def _put(servers: str, made: Poison) -> None:
    """Put it on the bus once, however often the broker goes away meanwhile."""
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "message.max.bytes": 9_000_000, "log_level": 0}
    )
    failed: list[Any] = []
    producer.produce(
        made.topic,
        made.value,
        key=made.key.encode(),
        headers=list(made.headers),
        on_delivery=lambda error, _: failed.append(error) if error else None,
    )
    left = producer.flush(90)
    if failed or left:
        raise RuntimeError(f"poison {made.name} could not be put on the bus: {failed or 'no answer'}")
