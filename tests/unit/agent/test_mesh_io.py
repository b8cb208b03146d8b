"""The mesh plan on an agent: its announcements, and the plans that it follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sdfstream.agent.mesh_io import ANNOUNCE_PLANNED_NS, ANNOUNCE_UNPLANNED_NS, MeshFollower, PlanSieve
from sdfstream.agent.planned import PlannedSessions
from sdfstream.agent.slots import SessionSlots
from sdfstream.records.mesh import HostPlan, host_here
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, MESH
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from tests.fixtures.host_plans import CONFIG, KEYS, NICS, SIGNER, plan, plan_message, session, signed

S = NS_PER_S


class FakePort:
    """A host as an observer sees it, with a real `PlannedSessions`."""

    def __init__(self) -> None:
        self.name, self.nics, self.usable = "h0", NICS, frozenset(NICS)
        self.planned = PlannedSessions("h0", CONFIG, NICS, (), Counters("io"), SessionSlots())
        self.rdma_devices: dict[str, str] = {}

    def follow(self, plan: HostPlan) -> bool:
        return self.planned.take(plan)


def follower() -> tuple[MeshFollower, Any, dict[str, str]]:
    learned: dict[str, str] = {}
    made, port = MeshFollower(CONFIG, "boot", learned.__setitem__, KEYS), FakePort()
    made.attach([port])  # type: ignore[list-item]
    return made, port, learned


def test_a_host_is_announced_often_until_it_has_a_plan_and_then_rarely() -> None:
    made, _, learned = follower()
    first = made.announce("h0", 0)
    assert len(first) == 1
    assert first[0].key == "host:h0"
    here = host_here(first[0].body.data)  # type: ignore[union-attr]
    assert (here.plan, here.budget_pps, here.first_port, here.ports) == ("", 100.0, 50_000, 8)
    assert [(n.id, n.address, n.clock, n.usable) for n in here.nics] == [
        (n, c.address, "h0", True) for n, c in NICS.items()
    ]
    assert not made.announce("h0", ANNOUNCE_UNPLANNED_NS - 1)
    assert made.announce("h0", ANNOUNCE_UNPLANNED_NS)
    made.take([plan_message(signed(plan([session()], probers={"10.0.0.9": "h9/r0"})))])
    assert learned == {"h1/r0": "10.0.0.2", "h9/r0": "10.0.0.9"}
    [output] = made.announce("h0", ANNOUNCE_UNPLANNED_NS + S)
    assert host_here(output.body.data).plan == "v1-1"  # type: ignore[union-attr]
    assert not made.announce("h0", ANNOUNCE_UNPLANNED_NS + S + ANNOUNCE_PLANNED_NS - 1)
    assert made.announce("h0", ANNOUNCE_UNPLANNED_NS + S + ANNOUNCE_PLANNED_NS)


def test_a_nic_that_goes_is_announced_soon() -> None:
    made, port, _ = follower()
    made.announce("h0", 0)
    port.usable = frozenset(["h0/r1"])
    assert not made.announce("h0", S // 2)
    [output] = made.announce("h0", S)
    assert [n.usable for n in host_here(output.body.data).nics] == [False, True]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (plan_message(SIGNER.sign({"host": "h0"})), "mesh-plan"),
        (plan_message(signed(plan([session()])), source="h7"), "foreign-source"),
        (plan_message(signed(plan([session()], host="h1"))), "foreign-host"),
        (plan_message(signed(plan([session()])), kind="other"), "form"),
    ],
)
def test_a_refused_plan_changes_nothing(message: Message, reason: str) -> None:
    made, port, _ = follower()
    made.take([plan_message(signed(plan([session()], at=1))), message])
    assert port.planned.plan == replace(plan([session()], at=1), expires_at_ns=1 << 60)
    assert made.counters.get("refused", reason) == 1


def test_plans_of_other_agents_are_ignored() -> None:
    made, port, _ = follower()
    made.take([plan_message(signed(plan([session()], host="h1")), key="h1")])
    assert port.planned.plan is None
    assert not made.counters.as_dict()


async def test_a_sieve_gives_plans_to_the_follower_and_the_rest_to_its_reader() -> None:
    made, port, _ = follower()
    command = Message(COMMAND.name, "c", Event(COMMAND.name, "controller", "1", 1, {}), 1, 1)

    class Downlink:
        async def read(self, timeout_s: float) -> list[Message]:
            return [command, plan_message(signed(plan([session()])))]

    assert await PlanSieve(Downlink(), made).read(0.1) == [command]
    assert port.planned.plan == replace(plan([session()]), expires_at_ns=1 << 60)


async def test_a_plan_at_which_the_code_raises_is_left() -> None:
    follower = SimpleNamespace(counters=Counters("mesh"))
    taken: list[str] = []

    def take(messages: Sequence[Message]) -> None:
        taken.extend(m.key for m in messages)
        if messages[0].key == "bad":
            raise OverflowError("too big")

    follower.take = take
    plans = [Message(MESH.name, key, Event(MESH.name, "plan", "i", 0, {}), 0, 0) for key in ("bad", "h0")]

    class Given:
        async def read(self, timeout_s: float) -> list[Message]:
            return plans

    assert await PlanSieve(Given(), follower).read(0.1) == []
    assert taken == ["bad", "h0"]
    assert follower.counters.get("set-aside", "OverflowError") == 1


@pytest.mark.parametrize(("transports", "told"), [(("udp", "rocev2"), "mlx5_0"), (("udp",), None)])
def test_rdma_devices_are_announced_at_once_where_rocev2_is_offered(
    transports: tuple[str, ...], told: str | None
) -> None:
    made = MeshFollower(replace(CONFIG, transports=transports), "boot", lambda *_: None, KEYS)
    port: Any = FakePort()
    made.attach([port])
    [before] = made.announce("h0", 0)
    assert [n.rdma for n in host_here(before.body.data).nics] == [None, None]  # type: ignore[union-attr]
    assert "rdma" not in before.body.data["nics"][0]  # type: ignore[union-attr, index]
    port.rdma_devices = {"h0/r0": "mlx5_0"}
    [output] = made.announce("h0", S)
    assert [n.rdma for n in host_here(output.body.data).nics] == [told, None]  # type: ignore[union-attr]
