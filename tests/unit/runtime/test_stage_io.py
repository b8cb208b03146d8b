"""A stage's loop steps its stage at a boundary of bus time as soon as all that entered before it was taken."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.task import Work
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import NS_PER_MS
from sdfstream.runtime.control_io import CommitPolicy, RunControl
from sdfstream.runtime.live_io import maker_of
from sdfstream.runtime.stage_io import StageLoop
from sdfstream.stats import Counters
from tests.bus_samples import clock

BEGIN_NS = 1_800_000_000 * 10**9
"""A boundary."""


class Steps:
    """Notes its steps: how many messages, and at which ms."""

    name, reads, writes = "steps", (CLOCK.name,), ()

    def __init__(self, step_ms: int) -> None:
        self.step_ns = step_ms * NS_PER_MS
        self.counters = Counters(self.name)
        self.seen: list[tuple[int, float]] = []

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        self.seen.append((len(messages), (now_ns - BEGIN_NS) // NS_PER_MS))
        return []

    def finish(self, now_ns: int) -> list[Output]:
        return []

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


@pytest.mark.parametrize(
    ("step_ms", "steps"), [(100, [(1, 10), (0, 100)]), (50, [(1, 10), (0, 50), (0, 100)])], ids=["100", "50"]
)
async def test_boundaries_do_not_wait_for_the_next_message(step_ms: int, steps: list[tuple[int, int]]) -> None:
    now_ns = [BEGIN_NS + 10 * NS_PER_MS]
    bus = MemoryBus(lambda: now_ns[0])
    stage = Steps(step_ms)
    task = await bus.task(Work(stage.name, stage.reads))
    loop = StageLoop(maker_of(stage), task, bus.now_ns, RunControl(), CommitPolicy())
    await loop.resume()
    await bus.publish([clock(1)])
    now_ns[0] = BEGIN_NS + 120 * NS_PER_MS
    await loop.iterate()
    assert stage.seen == steps
    await bus.publish([clock(2)])  # at 120 ms
    now_ns[0] = BEGIN_NS + 199 * NS_PER_MS
    await loop.iterate()
    assert stage.seen[len(steps) :][:1] == [(1, 120)], "no boundary twice"
    assert [n for n, at_ms in stage.seen if at_ms == 100] == [0]
