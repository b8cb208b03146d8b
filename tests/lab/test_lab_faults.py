"""Each fault does what it says to real packets, and healing restores every route, neighbour and queue."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sdfstream.errors import ConfigError, LabUnavailableError
from sdfstream.lab import Fabric
from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.lab.kernel.wire_io import EbpfWire, NftWire, start
from tests.fixtures.lab import SMALL, routes, send, udp

pytestmark = pytest.mark.lab
SRC, DST = "h00/r0", "h02/r0"


def arrived(fabric: Fabric, src: str, dst: str, port: int, packets: int) -> int:
    """How many of `packets` over one source port arrive."""
    with udp(fabric, dst, 9000) as receiver:
        send(fabric, src, dst, port, packets)
        receiver.settimeout(0.05)
        got = 0
        try:
            while got < packets:
                receiver.recv(128)
                got += 1
        except TimeoutError:
            pass
        return got


@pytest.mark.parametrize(
    ("target", "end"),
    [
        ("l0--s1", None),
        ("l0--s1", "s1"),
        ("s0", None),
        ("h00/r0", None),
        ("h00/r0", "h00/r0"),
        ("l2", None),
    ],
)
def test_link_down_cuts_its_paths_and_heals_exactly(fabric: Fabric, target: str, end: str | None) -> None:
    ports = range(49_152, 49_152 + 32)
    before, kernel = [fabric.path(SRC, DST, port) for port in ports], routes(fabric)
    fault = fabric.inject(target, "link-down", end=end)
    cut = [fabric.path(SRC, DST, port) for port in ports]
    assert cut != before
    if target == "l0--s1":
        assert not any("l0->s1" in path for path in cut)
        assert [fabric.path(DST, SRC, port)[-1] for port in ports] != ["l0->h00/r0"] * 32  # nobody tells l2
    fabric.heal(fault.id)
    assert [fabric.path(SRC, DST, port) for port in ports] == before
    assert routes(fabric) == kernel
    assert arrived(fabric, SRC, DST, 49_152, 20) == 20


def test_overlapping_faults_heal_one_by_one(fabric: Fabric) -> None:
    kernel = routes(fabric)
    faults = [fabric.inject(target) for target in ("l0--s0", "s0", "l0--s1")]
    assert len(fabric.path(SRC, DST, 49_152)) == 1
    fabric.heal(faults[0].id)
    assert len(fabric.path(SRC, DST, 49_152)) == 1  # still down by the spine's fault
    fabric.heal(faults[2].id)
    assert fabric.path(SRC, DST, 49_152)[1] == "l0->s1"
    fabric.heal()
    assert routes(fabric) == kernel


def test_black_hole_of_one_direction_drops_that_direction_only(fabric: Fabric) -> None:
    port = fabric.ports_via("l0->s1", SRC, DST, 1, 9000)[0]
    back = fabric.ports_via("s1->l0", DST, SRC, 1, 9000)[0]
    fabric.inject("l0->s1", "black-hole")
    assert arrived(fabric, SRC, DST, port, 50) == 0
    assert arrived(fabric, DST, SRC, back, 50) == 50
    assert fabric.done_to("l0->s1").dropped == 50
    assert fabric.path(SRC, DST, port, 9000)[1] == "l0->s1"  # routes and carrier do not know
    fabric.heal()
    assert arrived(fabric, SRC, DST, port, 50) == 50


@pytest.mark.parametrize("direction", ["h00/r0->l0", "l2->h02/r0", "s1->l2"])
def test_black_hole_works_at_every_kind_of_port(fabric: Fabric, direction: str) -> None:
    port = fabric.ports_via("l0->s1", SRC, DST, 1, 9000)[0]
    fabric.inject(direction, "black-hole")
    assert arrived(fabric, SRC, DST, port, 30) == 0
    fabric.heal()
    assert arrived(fabric, SRC, DST, port, 30) == 30


def test_gray_loss_drops_its_share(fabric: Fabric) -> None:
    """600 packets at 20 %: 5 sigma is 49."""
    port = fabric.ports_via("l0->s1", SRC, DST, 1, 9000)[0]
    fabric.inject("l0--s1", "gray-loss", share=0.2)
    got = sum(arrived(fabric, SRC, DST, port, 50) for _ in range(12))
    assert 431 <= got <= 529
    assert fabric.done_to("l0->s1").dropped == 600 - got


def test_swapped_cables_lead_through_the_wrong_leaf_and_back(fabric: Fabric) -> None:
    kernel, planned = routes(fabric), fabric.topology()
    fault = fabric.inject("h00", "miscabled")
    assert fabric.path(SRC, DST, 49_152)[0] == "h00/r0->l1"
    assert fabric.path(DST, SRC, 49_152)[-1] == "l1->h00/r0"
    assert fabric.topology() == planned  # the plan does not know
    for src, dst in ((SRC, DST), (DST, SRC), ("h00/r1", "h03/r1"), ("h01/r0", "h00/r0")):
        assert arrived(fabric, src, dst, 49_152, 10) == 10
    fabric.inject("h00/r0->l1", "black-hole")
    assert arrived(fabric, SRC, DST, 49_152, 10) == 0
    fabric.heal("h00/r0->l1")
    fabric.heal(fault.id)
    assert fabric.path(SRC, DST, 49_152)[0] == "h00/r0->l0"
    assert routes(fabric) == kernel
    assert arrived(fabric, SRC, DST, 49_152, 10) == 10


def test_flap_goes_down_as_often_as_asked_and_heals_itself(fabric: Fabric) -> None:
    kernel = routes(fabric)
    fault = fabric.flap("h00/r0", times=4, period_s=0.1, down_s=0.04)
    end = time.monotonic() + 10
    while fault.healed_at_ns is None and time.monotonic() < end:
        time.sleep(0.01)
    states = [step["state"] for step in fault.parameters["transitions"]]
    assert states == ["down", "up"] * 4
    assert routes(fabric) == kernel


def test_healing_ends_a_flap(fabric: Fabric) -> None:
    fault = fabric.flap("l0--s0", times=1000, period_s=0.02)
    time.sleep(0.05)
    fabric.heal(fault.id)
    assert fault.healed_at_ns is not None
    time.sleep(0.1)
    assert not fabric.dead_ports


def test_truth_has_a_line_per_fault(tmp_path: Path) -> None:
    with Fabric.up(SMALL, tmp_path / "truth") as fabric:
        before = time.time_ns()
        fault = fabric.inject("l0->s1", "gray-loss", share=0.25)
        fabric.inject("h03/r1")
        fabric.heal(fault.id)
    lines = [json.loads(line) for line in (tmp_path / "truth" / "faults.jsonl").read_text().splitlines()]
    assert [(x["kind"], x["target"], x["direction"]) for x in lines] == [
        ("gray-loss", "l0->s1", "l0->s1"),
        ("link-down", "h03/r1", None),
    ]
    assert lines[0]["parameters"] == {"share": 0.25}
    assert before <= lines[0]["at_ns"] <= lines[0]["healed_at_ns"] <= time.time_ns()
    assert lines[1]["healed_at_ns"] is None


@pytest.mark.parametrize(
    ("target", "kind", "share"),
    [
        ("h99/r0", "link-down", 1.0),
        ("l0->s1", "link-down", 1.0),
        ("l0--s1", "gray-loss", 0.0),
        ("l0--s1", "meteor", 1.0),
        ("l0->s1", "mtu", 1.0),
        ("s1", "miscabled", 1.0),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(fabric: Fabric, target: str, kind: str, share: float) -> None:
    kernel = routes(fabric)
    with pytest.raises(ConfigError):
        fabric.inject(target, kind, share=share)
    assert fabric.faults.active == []
    assert routes(fabric) == kernel


def test_what_the_machine_cannot_do_is_said_and_undone(fabric: Fabric) -> None:
    """Without any engine that drops packets a black hole is refused; nothing of it is left, and others still work."""
    fabric.wire = None
    with pytest.raises(LabUnavailableError, match="drop packets"):
        fabric.inject("l0--s1", "black-hole")
    assert fabric.faults.active == []
    fault = fabric.inject("l0--s1", "link-down")
    assert [f.id for f in fabric.heal()] == [fault.id]


def test_the_next_engine_takes_over_where_one_cannot_attach(fabric: Fabric) -> None:
    if fabric.features.drops != "ebpf":
        pytest.skip(f"the fabric runs on the last engine already: {'; '.join(fabric.features.missing)}")

    class NoClassifier(EbpfWire):
        def attach(self, ports: object) -> list[KernelRequest]:
            raise LabUnavailableError("no such module")

    wire, reasons = start(fabric.plan, fabric.namespaces, {}, engines=(NoClassifier, NftWire))
    assert wire is not None and wire.name == "nft"
    assert reasons == ["CE marks by true backlog (eBPF): no such module"]
    fabric.wire = wire
    port = fabric.ports_via("l0->s1", SRC, DST, 1, 9000)[0]
    for direction in ("l0->s1", "h00/r0->l0"):
        fabric.inject(direction, "black-hole")
        assert arrived(fabric, SRC, DST, port, 20) == 0
        assert fabric.done_to(direction).dropped == 20
        fabric.heal()
        assert arrived(fabric, SRC, DST, port, 20) == 20
    assert start(fabric.plan, fabric.namespaces, {}, engines=()) == (None, [])
