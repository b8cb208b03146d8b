"""One finding per root cause: a storm, the death of a leaf or a spine, and what seems to be beside it."""

from __future__ import annotations

import pytest

from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import Reported, run
from tests.fixtures.leafspine import Fabric, Fault, Shape

SHAPE = Shape(hosts=8, leaves=4, ports=2)
AT_S, UNTIL_S = 6.0, 11.0


def touching(fabric: Fabric, node: str) -> tuple[str, ...]:
    return tuple(link for link in fabric.links if node in link.split("->"))


def storm(seed: int, at_s: float, spread_s: float) -> Fabric:
    """A NIC that pauses its leaf; the queue spreads against the flow of packets until it stands everywhere."""
    fabric, nic = Fabric(seed, [], SHAPE), "h02/r0"
    leaf = fabric.leaf[nic]
    before = tuple(link for link in fabric.links if link.endswith(f"->{leaf}"))
    far = tuple(link for link in fabric.links if "->s" in link and not link.startswith(leaf))
    senders = tuple(link for link in fabric.links if "/" in link.split("->")[0] and not link.endswith(leaf))
    queues = ((f"{leaf}->{nic}",), 0.0, 3000), (before, 1.0, 1500), (far, 2.0, 700), (senders, 4.0, 300)
    faults = [Fault(nic=nic, at_s=at_s, until_s=UNTIL_S, pause_hz=5000)]
    faults += [Fault(links, at_s + n * spread_s, UNTIL_S, delay_us=us) for links, n, us in queues]
    return Fabric(seed, faults, SHAPE)


def loud(reported: Reported) -> list[tuple[float, str, str]]:
    """What was opened above info."""
    found = reported.findings("open")
    return [(t, f["kind"], f["subject"]["id"]) for t, f in found if f["severity"] != "info"]


@pytest.mark.parametrize(("seed", "at_s", "spread_s"), [(1, 6.0, 0.5), (2, 6.2, 0.05), (3, 6.5, 0.2)])
def test_a_pause_storm_is_one_finding_about_the_nic_that_pauses(seed: int, at_s: float, spread_s: float) -> None:
    reported = run(DetectStage(), storm(seed, at_s, spread_s).messages(15))
    ((told_s, kind, subject),) = loud(reported)
    assert (kind, subject) == ("congestion", "h02/r0") and told_s - at_s < 1.5
    last = reported.findings()[-1][1]
    assert (last["status"], last["cause"]) == ("resolved", "pause-storm")
    assert {"tx-pause"} <= {e["what"] for e in last["evidence"]}
    assert len([s for s in last["symptoms"] if s["subject"]["type"] != "path"]) >= 3, "the queues that spread from it"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_dead_leaf_is_one_finding_though_all_its_nics_lose_their_carrier(seed: int) -> None:
    fabric = Fabric(seed, [], SHAPE)
    faults = [Fault(touching(fabric, "l1"), AT_S, UNTIL_S, drop=1)]
    nics = [nic for nic in fabric.nics if fabric.leaf[nic] == "l1"]
    faults += [Fault(nic=nic, port="down", at_s=AT_S, until_s=UNTIL_S) for nic in nics]
    reported = run(DetectStage(), Fabric(seed, faults, SHAPE).messages(15))
    ((told_s, kind, subject),) = loud(reported)
    assert (kind, subject) == ("link-down", "l1") and told_s - AT_S < 1.8
    assert set(nics) <= {s["subject"]["id"] for s in reported.findings()[-1][1]["symptoms"]}


def test_a_nic_that_loses_its_carrier_is_told_as_soon_as_ever_where_its_leaf_works() -> None:
    nic = "h02/r1"
    links = (f"{nic}->l1", f"l1->{nic}")
    faults = [Fault(links, AT_S, UNTIL_S, drop=1), Fault(nic=nic, port="down", at_s=AT_S, until_s=UNTIL_S)]
    ((told_s, kind, subject),) = loud(run(DetectStage(), Fabric(1, faults, SHAPE).messages(14)))
    assert (kind, subject) == ("nic-down", nic) and told_s - AT_S < 1.0


def test_a_spine_that_follows_one_of_its_links_is_one_finding_in_the_end() -> None:
    """A link told before its spine is resolved as a symptom as soon as the spine is told."""
    shape = Shape(hosts=6, leaves=6, ports=3)
    dying = [Fault((f"l{i}->s1", f"s1->l{i}"), AT_S + 1.6 * (i > 0), 12, drop=1) for i in range(6)]
    reported = run(DetectStage(), Fabric(3, dying, shape).messages(11.9))
    standing: dict[str, str] = {}
    for _, finding in reported.findings():
        standing[finding["id"]] = finding["subject"]["id"] if finding["status"] != "resolved" else ""
    assert [subject for subject in standing.values() if subject] == ["s1"]
    closed = [f for _, f in reported.findings("resolved") if f["kind"] == "link-down"]
    assert [f["detail"] for f in closed] == ["symptom of link-down s1"]
