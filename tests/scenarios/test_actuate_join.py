"""Controller and executor joined back to back: what one says the other obeys, and the other way round.

The agents of the small fabric are replaced by the real executor with an actuator in memory, so every command passes its
checks, every move its own watch, and every outcome is as agents say it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sdfstream.actuate.config import ActuateConfig
from sdfstream.agent.commands.actuator import MemoryActuator
from sdfstream.agent.commands.executor import Executor
from sdfstream.records.fabric import QueuePair
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import COMMAND, OUTCOME
from tests.fixtures.plant import AHEAD, CONTROLLER, EPOCH, Move, Plan, Plant, PlantLiveness

PORTS = tuple(range(52_001, 52_009))


class Gone:
    """A controller that was killed."""

    def take(self, messages: object) -> list[Output]:
        return []

    def advance(self, to_ns: int) -> list[Output]:
        return []


class Joined(Plant):
    """The small fabric with real executors on its hosts."""

    def __post_init__(self) -> None:
        self.executor: Executor | None = None
        super().__post_init__()
        self.executor = Executor(self.hosts, KeyRing([CONTROLLER.public]))
        self.executor.realtime_offset_ns = EPOCH + AHEAD["h"]
        self.actuator = MemoryActuator()
        for host in self.hosts:
            self.executor.attach(host, PlantLiveness(self, host))

    @property
    def steady(self) -> int:
        return self.now - EPOCH

    def obey(self, data: dict[str, Any]) -> None:
        host = data["target"]["host"]
        if host in self.deaf or self.executor is None:
            return
        event = Event(COMMAND.name, "actuate", f"{data['id']}-{data['issued_at_ns']}", self.now, data)
        self.executor.take_commands([Message(COMMAND.name, host, event, self.now, 0)], self.steady)
        self.settle()

    def watch(self) -> None:
        if self.executor is None:
            return
        for host in self.hosts:
            if host not in self.deaf:
                self.executor.take_jobs(host, [p for p in self.shards.values() if p.host == host], self.steady)
                self.executor.on_liveness(host, self.steady)
        self.settle()

    def settle(self) -> None:
        """Requests are done at once; outcomes go to the bus."""
        assert self.executor is not None
        while True:
            requests, outcomes = self.executor.drain()
            for request in requests:
                answer = self.actuator.apply(request, self.steady)
                assert answer is not None
                if answer.ok and request.path is not None:
                    self.moves.append(Move(request.qp.qp, request.path, self.now, request.do))
                    self._now_on(request.qp.qp, request.path)
                self.executor.take_answers([answer], self.steady)
            for outcome in outcomes:
                self.put(OUTCOME.name, outcome.command, OUTCOME.name, outcome.host, outcome.as_data())
            if not requests and not outcomes:
                return

    def _now_on(self, qp: str, path: int) -> None:
        for key, shard in self.shards.items():
            qps = tuple(replace(q, path=path) if q.qp == qp else q for q in shard.qps)
            self.shards[key] = replace(shard, qps=qps)

    def job(self, name: str, pairs: list[QueuePair]) -> None:
        self.actuator.paths |= {p.qp: p.path for p in pairs}
        super().job(name, pairs)

    def states(self) -> list[str]:
        """What became of commands, by the agents."""
        return [m.body.data["state"] for m in self.messages if m.topic == OUTCOME.name and m.body.source != "actuate"]  # type: ignore[union-attr]


def on(plant: Plant, src: str, dst: str, number: int, spine: str) -> QueuePair:
    return plant.qp(src, dst, number, next(iter(plant.ports_via(src, dst, spine))), PORTS)


def test_failover_and_failback() -> None:
    plant = Joined()
    a = on(plant, "h00", "h02", 1, "s1")
    plant.run(4)
    plant.job("one", [a])
    plant.run(5)
    assert plant.states() == ["accepted"]
    plant.dead.add(plant.route(a.flow())[1])
    plant.run(20)
    assert len(plant.moves) == 1 and plant.find(a.qp).path != a.path
    assert not plant.qp_dead(a, plant.find(a.qp).path)
    plant.dead.clear()
    plant.run(9)
    assert [m.path for m in plant.moves][1:] == [a.path]
    assert plant.states() == ["accepted", "applied", "undone", "accepted"], "and armed again"


def test_a_second_fault_moves_on_and_a_lost_controller_leaves_nothing() -> None:
    plant = Joined()
    a = on(plant, "h00", "h02", 1, "s1")
    plant.run(4)
    plant.job("one", [a])
    plant.run(5)
    plant.dead.add(plant.route(a.flow())[1])
    plant.run(3)
    second = plant.find(a.qp).path
    plant.dead.add(plant.route(a.flow(second))[1])
    plant.run(3)
    third = plant.find(a.qp).path
    assert len({a.path, second, third}) == 3 and not plant.qp_dead(a, third)
    plant.driver = Gone()  # type: ignore[assignment]
    plant.run(40)
    assert plant.states()[-1] == "held" and plant.find(a.qp).path == third, "its lease is over, its former path dead"
    plant.dead.clear()
    plant.run(12)  # two moves: its hold-down was doubled
    assert plant.find(a.qp).path == a.path and plant.states()[-1] == "undone"
    assert plant.executor is not None and not plant.executor.leases("h00")


def test_a_collision_is_parted_and_the_armed_failovers_follow() -> None:
    plant = Joined(Plan(), ActuateConfig(mode="enforce"))
    a, b = on(plant, "h00", "h02", 1, "s1"), on(plant, "h01", "h03", 2, "s1")
    plant.run(4)
    plant.job("one", [a])
    plant.job("two", [b])
    plant.run(14)
    assert len(plant.moves) == 1 and min(plant.rates().values()) == 100e6
    assert any(o["why"].startswith("effect:") for o in plant.outcomes)
    moved = plant.find(plant.moves[0].qp)
    plant.dead.add(plant.route(moved.flow())[1])
    plant.run(3)
    assert len(plant.moves) == 2 and not plant.qp_dead(moved, plant.find(moved.qp).path)
    assert "refused" not in plant.states() and "failed" not in plant.states()


def test_no_gain_is_taken_back_by_the_agent_once_the_former_path_was_clean() -> None:
    plant = Joined()
    a, b = on(plant, "h00", "h02", 1, "s1"), on(plant, "h01", "h03", 2, "s1")
    plant.gain = lambda qp: 45e6
    plant.run(4)
    plant.job("one", [a])
    plant.job("two", [b])
    plant.run(9)
    first = plant.moves[0]
    plant.run(10)
    back = [m for m in plant.moves if m.qp == first.qp][1]
    assert back.path == (a if first.qp == a.qp else b).path
    assert "undone" in plant.states()
