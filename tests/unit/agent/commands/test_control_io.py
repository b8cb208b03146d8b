"""The journal is written after changes, again where it could not be, and costs nothing while nothing changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sdfstream.agent.commands.actuator import ActuatorAnswer, MemoryActuator
from sdfstream.agent.commands.control_io import JOURNAL_S, AgentControl
from sdfstream.agent.commands.journal_io import JournalFile
from sdfstream.agent.commands.orders import GivenOrder, Order
from sdfstream.agent.commands.path_watch import WatchLayout
from sdfstream.records.message import Event
from sdfstream.records.signature import KeyRing
from tests.fixtures import control as c


class File(JournalFile):
    def __init__(self, failures: int = 0) -> None:
        super().__init__(Path("unused"))
        self.written, self.failures = 0, failures

    def write(self, data: Mapping[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        self.written += 1


@pytest.mark.parametrize("failures", [0, 2])
async def test_the_journal_is_written_once_a_change_and_no_timer_runs_meanwhile(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr("sdfstream.agent.commands.control_io.asyncio.sleep", counted)
    file = File(failures)
    control = AgentControl(["h0"], KeyRing({}), {}, file, "boot")
    task = asyncio.create_task(control.keep_journal())
    await sleep(5 * JOURNAL_S)
    assert (slept, file.written) == ([], 0)
    control.executor.dirty = True
    control.take_jobs({})
    for _ in range(200):
        if file.written:
            break
        await sleep(JOURNAL_S)
    await sleep(5 * JOURNAL_S)
    task.cancel()
    assert file.written == 1 and slept == [JOURNAL_S] * (1 + failures)
    assert "journal" not in control.counters.troubles.open


@dataclass
class Orders:
    """The twin of `HostOrders`: what it is told to have ordered."""

    ordered: list[GivenOrder] = field(default_factory=list)
    offered: list[list[str]] = field(default_factory=list)
    replies: list[ActuatorAnswer] = field(default_factory=list)

    def offer(self, layout: WatchLayout, orders: Sequence[Order] | None) -> set[str]:
        if orders is not None:
            self.offered.append([order.command for order in orders])
        return set(self.offered[-1]) if layout.routes else set()

    def given(self, note: Callable[[GivenOrder], int | None], now_ns: int) -> None:
        for order in self.ordered:
            number = note(order)
            assert number is not None
            self.replies.append(ActuatorAnswer(number, True, "", {}, {"path": order.path}))
        self.ordered.clear()

    def answers(self, now_ns: int) -> list[ActuatorAnswer]:
        taken, self.replies = self.replies, []
        return taken


def test_what_was_ordered_is_noted_before_the_executor_looks_and_answered_in_the_same_pass() -> None:
    slots, orders, twin = c.FakeSlots(), Orders(), MemoryActuator()
    for path in c.PATHS:
        slots.set(path + 100, c.ALIVE)
    control = AgentControl(["h0"], c.KEYS, {"socket": twin}, None, "boot")
    control.attach("h0", slots, orders)
    control.take_jobs({"h0": [c.shard(c.queue_pair())]})
    now_ns = time.monotonic_ns()
    control.executor.take_commands([c.Controller().failover("f", now_ns)], now_ns)
    control.on_liveness("h0", now_ns)
    assert orders.offered[-1] == ["f"]
    assert set(control.executor.host_states["h0"].handed_over) == {"f"}
    slots.set(c.PATHS[0] + 100, c.SILENT)
    orders.ordered = [GivenOrder("f", c.PATHS[1])]
    said = control.on_liveness("h0", now_ns + 1)
    assert [output.body.data["state"] for output in said if isinstance(output.body, Event)][-1] == "applied"
    assert (twin.asked, orders.offered[-1]) == ([], [])
