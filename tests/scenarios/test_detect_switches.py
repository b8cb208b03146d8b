"""Counters of switches beside the probes: evidence about cables, and never an agent or a NIC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sdfstream.board.board import Board
from sdfstream.detect.stage import DetectStage
from sdfstream.records.topics import NIC
from tests.fixtures.drive import Reported, run
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape
from tests.fixtures.switch_rows import Read, with_switches

SHAPE = Shape(hosts=8, leaves=4, ports=2)
AT_S, UNTIL_S = 6.0, 11.0
S = 1_000_000_000


def steady(at_s: float) -> Mapping[str, Any]:
    return {"state": "up", "rx_bytes": round(at_s * 1e6), "rx_errors": 3, "rx_discards": 0, "rx_pause": 0}


def falls(state: str = "down", until_s: float = UNTIL_S) -> Read:
    return lambda at_s: {**steady(at_s), "state": state if AT_S <= at_s < until_s else "up"}


def rises(counter: str, hz: float) -> Read:
    return lambda at_s: {**steady(at_s), counter: round(hz * max(0.0, min(at_s, UNTIL_S) - AT_S))}


def reported(
    ports: Mapping[tuple[str, str], Read], faults: list[Fault] | None = None, seconds: float = 16, shape: Shape = SHAPE
) -> Reported:
    return run(DetectStage(), with_switches(Fabric(3, faults or [], shape).messages(seconds), ports))


def test_counters_that_stop_are_no_silent_agent() -> None:
    only_early: Read = lambda at_s: steady(at_s) if at_s < 5 else None  # noqa: E731
    ports = {(s, f"to-{far}"): only_early for s, far in (("s0", "l0"), ("s0", "l1"), ("l0", "s0"), ("l0", "h00/r0"))}
    found = reported(ports, seconds=20)
    assert found.findings() == []
    assert not [o for _, o in found.outputs if o.topic == NIC.name and o.key.startswith(("s0", "l0"))]


def test_without_its_sign_the_same_rows_are_an_agent() -> None:
    """What the sign is for: rows of the same switch, published as an agent would."""
    only_early: Read = lambda at_s: steady(at_s) if at_s < 5 else None  # noqa: E731
    messages = with_switches(Fabric(3, [], SHAPE).messages(20), {("s0", "to-l0"): only_early}, boot_id="0123")
    assert [f["kind"] for _, f in run(DetectStage(), messages).findings("open")] == ["agent-stale"]


def test_two_runs_of_the_reader_are_no_duplicate_host() -> None:
    fabric = Fabric(3, [], SHAPE).messages(20)
    once = with_switches(fabric, {("s0", "to-l0"): steady}, 0.5)
    both = with_switches(once, {("s0", "to-l0"): steady}, 0.7, "gnmi-4567")
    assert run(DetectStage(), both).findings() == []


def test_no_switch_is_on_the_board() -> None:
    ports = {("s0", "to-l0"): steady, ("l0", "to-h00/r0"): steady}
    messages = list(with_switches(Fabric(3, [], SHAPE).messages(5), ports))
    board, bare = Board(), Board()
    board.take(messages)
    bare.take(m for m in messages if not m.boot_id.startswith("gnmi-"))
    now_ns = EPOCH + 5 * S
    assert board.view(now_ns, full=True) == bare.view(now_ns, full=True)
    assert not [n for n in board.nics(now_ns) if n["host"] in ("s0", "l0")]


@pytest.mark.parametrize("counter", ["rx_errors", "tx_errors", "symbol_errors", "fec_uncorrectable"])
def test_errors_of_a_switch_port_are_a_finding_about_its_link(counter: str) -> None:
    ((_, opened),) = reported({("s1", "to-l2"): rises(counter, 50), ("l2", "to-s1"): steady}).findings("open")
    assert (opened["kind"], opened["cause"]) == ("port-errors", "degraded-link")
    way = "s1->l2" if counter.startswith("tx") else "l2->s1"
    assert opened["subject"] == {"type": "link", "id": "l2--s1", "direction": way}
    assert opened["evidence"][0]["what"] == counter.replace("_", "-")
    assert opened["evidence"][0]["where"] == "s1/to-l2:1"
    assert [s["id"] for s in opened["suspects"]] == ["s1/to-l2:1"]


def test_errors_at_both_ends_are_one_finding() -> None:
    ports = {("s1", "to-l2"): rises("rx_errors", 50), ("l2", "to-s1"): rises("rx_errors", 70)}
    opened = reported(ports).findings("open")
    assert [f["subject"]["id"] for _, f in opened] == ["l2--s1"]
    assert {e["where"] for e in opened[-1][1]["evidence"]} == {"s1/to-l2:1", "l2/to-s1:1"}


def test_discards_towards_a_host_are_a_finding_about_its_nic() -> None:
    leaf = Fabric(3, [], SHAPE).leaf["h01/r0"]
    ((_, opened),) = reported({(leaf, "to-h01/r0"): rises("tx_discards", 500)}).findings("open")
    assert (opened["kind"], opened["cause"]) == ("port-errors", "queueing")
    assert opened["subject"] == {"type": "nic", "id": "h01/r0", "direction": f"{leaf}->h01/r0"}


def test_errors_of_a_port_without_declared_cable_are_told_of_the_port() -> None:
    ((_, opened),) = reported({("s1", "Ethernet9"): rises("rx_errors", 50)}).findings("open")
    assert opened["subject"] == {"type": "port", "id": "s1/Ethernet9:1"}


@pytest.mark.parametrize(("state", "cause"), [("down", "link-failure"), ("disabled", "port-disabled")])
def test_a_link_that_only_its_switch_calls_down_is_found(state: str, cause: str) -> None:
    """Routing went around it before a probe was lost."""
    found = reported({("s1", "to-l2"): falls(state), ("l2", "to-s1"): falls(state)})
    ((told_s, opened),) = found.findings("open")
    assert (opened["kind"], opened["cause"], opened["severity"]) == ("link-down", cause, "warning")
    assert opened["subject"] == {"type": "link", "id": "l2--s1"}
    assert 2.0 < told_s - AT_S < 5.0
    ((over_s, _),) = found.findings("resolved")
    assert 0 < over_s - UNTIL_S < 4.0


def test_ports_that_were_never_up_are_no_fault() -> None:
    assert reported({("s1", "to-l2"): lambda _: {"state": "down", "rx_errors": 0}}).findings() == []


def test_a_link_that_probes_miss_is_one_finding_with_the_switches_word_as_evidence() -> None:
    fault = Fault(("l2->s1", "s1->l2"), AT_S, UNTIL_S, drop=1)
    ports = {("s1", "to-l2"): falls(), ("l2", "to-s1"): falls()}
    found = reported(ports, [fault], shape=Shape(hosts=6, leaves=6, ports=3))
    subjects = {(f["kind"], f["subject"]["id"]) for _, f in found.findings() if f["severity"] != "info"}
    assert subjects == {("link-down", "l2--s1")}
    told_s, opened = found.findings("open")[0]
    assert told_s - AT_S < 2.0 and opened["severity"] == "urgent"
    evidence = {(e["what"], e["where"]) for _, f in found.findings() for e in f["evidence"]}
    assert {("carrier", "s1/to-l2:1"), ("carrier", "l2/to-s1:1")} <= evidence


def test_a_dead_leaf_is_still_one_finding_though_spines_call_its_links_down() -> None:
    fabric = Fabric(3, [], SHAPE)
    touching = tuple(link for link in fabric.links if "l1" in link.split("->"))
    found = reported(
        {(f"s{i}", "to-l1"): falls() for i in range(SHAPE.spines)}, [Fault(touching, AT_S, UNTIL_S, drop=1)]
    )
    loud = [(f["kind"], f["subject"]["id"]) for _, f in found.findings("open") if f["severity"] != "info"]
    assert loud == [("link-down", "l1")]


def test_a_host_that_is_gone_is_not_told_again_by_its_leaf() -> None:
    nics = [nic for nic in Fabric(3, [], SHAPE).nics if nic.startswith("h02/")]
    leaf = Fabric(3, [], SHAPE).leaf
    ports = {(leaf[nic], f"to-{nic}"): falls(until_s=99) for nic in nics}
    found = reported(ports, [Fault(host="h02", at_s=AT_S, until_s=99)], seconds=20)
    assert {f["kind"] for _, f in found.findings("open") if f["severity"] != "info"} == {"host-silent"}


def test_a_storm_is_told_by_the_pauses_that_a_switch_receives() -> None:
    """As `test_detect_roots`, from a NIC that has no counters of its own for them."""
    nic, fabric = "h02/r0", Fabric(1, [], SHAPE)
    leaf = fabric.leaf[nic]
    fault = Fault((f"{leaf}->{nic}",), AT_S, UNTIL_S, delay_us=3000)
    ports = {(leaf, f"to-{nic}"): rises("rx_pause", 5000)}
    messages = with_switches(Fabric(1, [fault], SHAPE).messages(15), ports)
    causes = {(f["kind"], f["subject"]["id"], f["cause"]) for _, f in run(DetectStage(), messages).findings()}
    assert ("congestion", nic, "pause-storm") in causes


def test_a_stage_that_was_saved_goes_on() -> None:
    messages = list(with_switches(Fabric(3, [], SHAPE).messages(14), {("s1", "to-l2"): falls()}))
    whole = run(DetectStage(), messages).findings()
    stage = DetectStage()
    run(stage, [m for m in messages if m.bus_at_ns < EPOCH + 7 * S])
    again = DetectStage()
    again.restore(stage.snapshot())
    assert again.snapshot() == stage.snapshot() and whole
