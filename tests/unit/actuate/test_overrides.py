"""Silences, labels and lifts: checked, answered by an outcome that repeats them whole, and what the loop then does."""

from __future__ import annotations

from typing import Any

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.stage import ActuateStage
from sdfstream.records.topics import OUTCOME
from sdfstream.records.units import NS_PER_S
from tests.fixtures.plant import Plan, Plant


def plant(**more: Any) -> Plant:
    made = Plant(Plan(hosts=4, spines=2), ActuateConfig(mode="enforce"), **more)
    made.run(1)
    return made


def controller_said(of: Plant) -> list[dict[str, Any]]:
    return [output.body.data for _, output in of.outputs if output.topic == OUTCOME.name]  # type: ignore[union-attr]


def answers(of: Plant) -> list[dict[str, Any]]:
    """Outcomes that the controller gave to overrides, in order."""
    return [said for said in controller_said(of) if "override" in said["target"]]


def last(of: Plant) -> dict[str, Any]:
    of.run(0.2)
    return answers(of)[-1]


def test_a_label_is_answered_by_an_outcome_that_says_all_of_it() -> None:
    of = plant()
    of.override("label", target={"type": "finding", "id": "f1"}, set={"cause": "cabling", "note": "swapped"})
    said = last(of)
    assert (said["state"], said["action"], said["host"]) == ("applied", "label", "controller")
    assert said["target"] == {"type": "finding", "id": "f1", "override": said["command"]}
    assert said["after"] == {"cause": "cabling", "operator": "ann", "note": "swapped"}
    of.override("label", target={"type": "finding", "id": "f1"}, set={"cause": "false-alarm"})
    assert last(of)["after"] == {"cause": "false-alarm", "operator": "ann"}
    of.override("label", target={"type": "finding", "id": "f1"}, set={"cause": "gremlins"})
    assert last(of)["why"].startswith("unknown-cause: set.cause is one of link-failure, ")
    of.override("label", target={"type": "nic", "id": "h00/r0"}, set={"cause": "cabling"})
    assert last(of)["why"].startswith("malformed: the target of a label")


def test_a_silence_is_answered_whole_and_lifted() -> None:
    of = plant()
    from_at_ns = of.now + 60 * NS_PER_S
    set_ = {"reason": "firmware", "kinds": ["loss"], "from_at_ns": from_at_ns, "maintenance": True}
    of.override("silence", target={"type": "link", "id": "s1--l0"}, set=set_)
    said = last(of)
    assert (said["state"], said["action"]) == ("applied", "silence")
    assert said["target"] == {"type": "link", "id": "l0--s1", "override": said["command"]}
    assert said["after"] == {
        "kinds": ["loss"], "from_at_ns": from_at_ns, "until_at_ns": said["after"]["until_at_ns"], "maintenance": True,
        "reason": "firmware", "operator": "ann",
    }  # fmt: skip
    of.override("lift", target={"type": "override", "id": said["command"]})
    over = last(of)
    assert (over["state"], over["action"], over["after"]) == (
        "applied",
        "lift",
        {"lifted": "silence", "operator": "ann"},
    )
    of.override("lift", target={"type": "override", "id": said["command"]})
    assert last(of)["why"].startswith("unknown-override: ")
    of.override("silence", target={"type": "rack", "id": "7"})
    assert last(of)["why"].startswith("malformed: target.type is one of finding, nic, ")


def test_a_hold_is_lifted_early() -> None:
    of = plant()
    of.override("hold", target={"type": "host", "id": "h00"})
    hold = last(of)["command"]
    of.override("lift", target={"type": "override", "id": hold})
    assert last(of)["after"]["lifted"] == "hold"


def test_in_maintenance_nothing_new_is_armed_and_afterwards_it_is() -> None:
    of = plant()
    of.override("silence", target={"type": "host", "id": "h02"}, set={"maintenance": True}, for_s=8)
    of.override("silence", target={"type": "host", "id": "h03"}, set={"maintenance": False}, for_s=8)
    of.run(0.5)
    of.job("j", [of.qp("h00", "h02", 0, 51_000, tuple(range(52_001, 52_005)))])
    of.job("k", [of.qp("h01", "h03", 0, 51_000, tuple(range(52_001, 52_005)))])
    of.run(5)
    assert {c["target"]["job"] for c in of.commands} == {"k"}, "a silence alone changes nothing of what the loop does"
    refused = [s for s in controller_said(of) if s["why"].startswith("maintenance: host h02 is in maintenance by ann")]
    assert refused
    of.run(6)
    assert {c["target"]["job"] for c in of.commands} == {"j", "k"}


def test_silences_outlive_a_snapshot() -> None:
    of = plant()
    of.override("silence", target={"type": "nic", "id": "h00/r0"}, set={"kinds": ["loss"], "maintenance": True})
    of.run(0.2)
    again = ActuateStage(of.stage.config)
    again.restore(of.stage.snapshot())
    assert again._context.facts.silences == of.stage._context.facts.silences != []
    assert again.snapshot() == of.stage.snapshot()


def test_no_failover_leads_over_what_is_in_maintenance() -> None:
    plan = Plan(hosts=4, spines=3, probe_ports=tuple(range(50_000, 50_012)), trace_s=2.0)
    of = Plant(plan, ActuateConfig(mode="enforce"))
    of.run(3)
    pair = of.qp("h00", "h02", 0, next(iter(of.ports_via("h00", "h02", "s0"))), tuple(range(52_001, 52_009)))

    def crosses_s1(port: int) -> bool:
        return any("s1" in one for flow in (pair.flow(port), pair.answers(port)) for one in of.route(flow))

    over_s1 = set(filter(crosses_s1, pair.alternates))
    assert 0 < len(over_s1) < len(pair.alternates)
    of.override("silence", target={"type": "switch", "id": "s1"}, set={"maintenance": True}, for_s=8)
    of.run(0.2)
    of.job("j", [pair])

    def offered() -> set[int]:
        return {alternate["path"] for alternate in of.commands[-1]["set"]["alternates"]}

    of.run(5)
    assert offered()
    assert not offered() & over_s1
    of.run(15)
    assert offered() & over_s1, "the next renewal after it is over may use it again"
