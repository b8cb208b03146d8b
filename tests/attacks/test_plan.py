"""Mesh plans of strangers: unsigned, forged, replayed, expired, foreign ones, and ones that aim at a victim."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from sdfstream.agent.mesh_io import MeshFollower
from sdfstream.agent.planned import PlannedSessions
from sdfstream.agent.slots import SessionSlots
from sdfstream.plan import publish
from sdfstream.probes.config import AgentConfig
from sdfstream.records.mesh import HostPlan
from sdfstream.records.message import Event, Message
from sdfstream.records.signature import REPLAY_KEY, KeyRing, Signer
from sdfstream.stats import Counters
from tests.fixtures.host_plans import CONFIG, KEYS, NICS, SIGNER, plan, plan_message, session, signed

VICTIM = "198.51.100.7"
AT_VICTIM = plan([session(f"v{i}/r0", 50_000 + i % 8, 60.0, address=VICTIM) for i in range(64)], at=10)


class Host:
    """A host as an observer sees it, with a real `PlannedSessions`."""

    def __init__(self, config: AgentConfig) -> None:
        self.name, self.nics, self.usable = "h0", NICS, frozenset(NICS)
        self.planned = PlannedSessions("h0", config, NICS, (), Counters("io"), SessionSlots())

    def follow(self, plan: HostPlan) -> bool:
        return self.planned.take(plan)

    def pps(self, now_ns: int = 0) -> float:
        self.planned.change(now_ns)
        return sum(s.rate_hz * len(s.source_ports) for s in self.planned.sessions)


def follower(keys: KeyRing | None, **settings: Any) -> tuple[MeshFollower, Host]:
    config = replace(CONFIG, mesh_budget_pps=10_000.0, **settings)
    made, host = MeshFollower(config, "boot", lambda nic, address: None, keys), Host(config)
    made.attach([host])  # type: ignore[list-item]
    return made, host


def of_bus_time(message: Message, bus_at_ns: int) -> Message:
    return replace(message, bus_at_ns=bus_at_ns)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (AT_VICTIM.as_data(), "unsigned"),
        (signed(AT_VICTIM, signer=Signer(b"x" * 32)), "unknown-key"),
        (signed(AT_VICTIM, signer=Signer(REPLAY_KEY)), "unknown-key"),
        ({**signed(plan([session()], at=10)), "sessions": AT_VICTIM.as_data()["sessions"]}, "forged"),
        ({**signed(AT_VICTIM), "expires_at_ns": 1 << 61}, "forged"),
        (signed(AT_VICTIM, expires_at_ns=0), "expired"),
        (signed(AT_VICTIM, expires_at_ns=5), "expired"),
        (signed(replace(AT_VICTIM, host="h1")), "foreign-host"),
    ],
)
def test_a_plan_that_the_controller_did_not_sign_for_this_host_now_is_not_followed(
    data: dict[str, Any], reason: str
) -> None:
    made, host = follower(KEYS)
    made.take([of_bus_time(plan_message(data), 5)])
    assert (host.planned.plan, host.pps()) == (None, 0.0)
    assert made.counters.as_dict() == {f"mesh.refused.{reason}": 1}


def test_a_former_plan_of_the_controller_does_not_come_back() -> None:
    made, host = follower(KEYS)
    former = plan_message(signed(plan([session("h2/r0")], at=1)))
    made.take([former, plan_message(signed(plan([session("h3/r0")], at=2))), former])
    assert [s.dst for s in host.planned.plan.sessions] == ["h3/r0"]  # type: ignore[union-attr]
    assert host.planned._counters.get("refused", "plan-stale") == 1


def test_without_a_trusted_key_only_the_allowed_networks_are_probed(caplog: pytest.LogCaptureFixture) -> None:
    made, host = follower(None)
    made.take([plan_message(AT_VICTIM.as_data()), plan_message(signed(AT_VICTIM))])
    assert host.pps() == 0.0
    assert made.counters.as_dict() == {"mesh.refused.no-signer": 2}
    assert not made.announce("h0", 1 << 40), "a host that follows no plan stands in none"
    assert "set trusted_keys" in caplog.text
    assert "or mesh_allow" in caplog.text
    made, host = follower(None, mesh_allow=("10.0.0.0/8",))
    made.take([plan_message(replace(AT_VICTIM, sessions=(*AT_VICTIM.sessions, session("h1/r0"))).as_data())])
    host.pps()
    assert [s.dst_address for s in host.planned.sessions] == ["10.0.0.2"]
    assert host.planned._counters.get("refused", "plan-not-allowed") == len(AT_VICTIM.sessions)


@pytest.mark.parametrize("spelling", [[VICTIM], ["2001:db8::7", "2001:0db8::0007"]])
def test_no_address_gets_more_than_its_rate_whatever_a_plan_says(spelling: list[str]) -> None:
    nics = {n: replace(c, address="2001:db8::1") for n, c in NICS.items()} if ":" in spelling[0] else NICS
    found = PlannedSessions("h0", CONFIG_RICH, nics, (), Counters("io"), SessionSlots())
    many = [session(f"v{i}/r0", 50_000 + i % 8, 60.0, address=spelling[i % len(spelling)]) for i in range(64)]
    found.take(plan(many))
    found.change(0)
    assert sum(s.rate_hz for s in found.sessions) <= CONFIG_RICH.mesh_target_pps
    assert found._counters.get("shed", "plan-target") == 64 - len(found.sessions) > 0


CONFIG_RICH = replace(CONFIG, mesh_budget_pps=10_000.0)


def test_a_thousand_plans_of_strangers_cost_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    made, _ = follower(KEYS)
    with caplog.at_level(logging.WARNING):
        made.take([plan_message(AT_VICTIM.as_data())] * 1_000)
    assert len(caplog.records) == 1
    assert made.counters.get("refused", "unsigned") == 1_000


def test_a_statement_said_again_is_signed_anew_with_a_later_end() -> None:
    first, again = (publish.output(plan([session()]), "plan", now, SIGNER) for now in (5, 6))
    assert isinstance(first.body, Event)
    assert isinstance(again.body, Event)
    assert first.body.id == again.body.id
    assert again.body.data["expires_at_ns"] == 6 + publish.VALID_NS
    assert not KEYS.refuses(first.body.data)
    assert not KEYS.refuses(again.body.data)
    assert publish.output(plan([session()]), "plan", 5, SIGNER) == first, "a replay gives the same bytes"
