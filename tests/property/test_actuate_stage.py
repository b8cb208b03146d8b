"""The stage battery over the controller: determinism, split invariance, snapshots in mid-stream."""

from __future__ import annotations

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.stage import ActuateStage, Authority
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import COMMAND, OUTCOME
from tests.checks import check_stage
from tests.fixtures.plant import CONTROLLER, EPOCH, OPERATOR, Plan, Plant


def make() -> ActuateStage:
    return ActuateStage(ActuateConfig(mode="enforce"), Authority(CONTROLLER, KeyRing([OPERATOR.public]), EPOCH))


def busy(mode: str = "enforce") -> Plant:
    """Two jobs, a dead link, a healed one, overrides, an agent that falls silent: everything the stage reads."""
    plant = Plant(Plan(hosts=4, probe_ports=tuple(range(50_000, 50_012)), trace_s=2.0), ActuateConfig(mode=mode))
    ports = tuple(range(51_001, 51_009))
    first, second = plant.qp("h00", "h02", 1, 51_000, ports), plant.qp("h01", "h03", 2, 51_000, ports)
    plant.run(3)
    plant.job("one", [first])
    plant.job("two", [second])
    plant.run(5)
    dead = plant.route(first.flow())[1]
    plant.dead.add(dead)
    plant.run(2)
    plant.override("hold", target={"type": "job", "id": "two"}, for_s=3)
    plant.override("silence", target={"type": "job", "id": "two"}, set={"maintenance": True}, for_s=3, id="quiet")
    plant.override("label", target={"type": "finding", "id": "f1"}, set={"cause": "cabling"})
    plant.override("lift", target={"type": "override", "id": "quiet"})
    plant.dead.clear()
    plant.run(7)
    plant.deaf.add("h01")
    plant.end("one")
    plant.run(3)
    return plant


def test_the_battery() -> None:
    plant = busy()
    out = check_stage(make, plant.messages, end_ns=plant.now)
    assert {o.topic for _, o in out} == {COMMAND.name, OUTCOME.name}
    assert [m.why for m in plant.moves] == ["failover", "failback"]


def contended() -> Plant:
    """Collisions under ``approve``, an approval, then ``enforce``: steers, their measurement, limits, an undo."""
    config = ActuateConfig(mode="approve", throttle_incast=True)
    plant = Plant(Plan(probe_ports=tuple(range(50_000, 50_012)), trace_s=2.0), config)
    ports = tuple(range(52_001, 52_009))
    first = plant.qp("h00", "h02", 1, next(iter(plant.ports_via("h00", "h02", "s1"))), ports)
    second = plant.qp("h01", "h02", 2, next(iter(plant.ports_via("h01", "h02", "s1"))), ports)
    plant.run(3)
    plant.job("one", [first])
    plant.job("two", [second])
    plant.finding("congestion", "l1->h02/r0", name="f1")
    plant.run(5)
    for waiting in plant.said("steer", "approve"):
        plant.override("approve", command=waiting["id"])
    plant.run(2)
    plant.override("mode", set={"mode": "enforce"})
    plant.run(6)
    plant.override("undo", command=plant.said("steer")[0]["id"])
    plant.run(3)
    return plant


def test_the_battery_under_contention() -> None:
    plant = contended()
    assert plant.said("throttle") and plant.said("undo")
    assert any(o["why"].startswith("effect:") for o in plant.outcomes)

    def make() -> ActuateStage:
        return ActuateStage(plant.config, Authority(CONTROLLER, KeyRing([OPERATOR.public]), EPOCH))

    check_stage(make, plant.messages, end_ns=plant.now)
