"""The lab on paper: sizes, names, addresses, routes, declared topology, mesh, faults as data."""

from __future__ import annotations

import dataclasses
from math import gcd

import pytest

from sdfstream.errors import ConfigError
from sdfstream.lab import FabricSpec, MeshSpec, faults, mesh, setup, topology
from sdfstream.lab.features import describe
from sdfstream.lab.kernel import sysctls
from sdfstream.lab.plan import GROUP_ID, FabricPlan
from sdfstream.probes.config import VirtualClock

PLAN = FabricPlan(FabricSpec())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"hosts": 1}, "lab.hosts"),
        ({"hosts": 257}, "lab.hosts"),
        ({"leaves": 3}, "lab.leaves"),
        ({"hosts": 2, "leaves": 8}, "lab.hosts"),
        ({"spines": 129}, "lab.spines"),
        ({"hosts": 256, "rails": 8, "leaves": 256, "spines": 128}, "cables"),
        ({"burst_bytes": 1_400}, "lab.burst_bytes"),
        ({"class_dscp": 64}, "lab.class_dscp"),
        ({"class_dscp": 46, "class_rate_bps": 50_000_000}, "lab.class_rate_bps"),
        ({"ip_version": 5}, "lab.ip_version"),
        ({"name": "../etc"}, "lab.name"),
        ({"miscabled_hosts": ("h99",)}, "h99"),
        ({"rails": 1, "leaves": 2, "miscabled_hosts": ("h00",)}, "two rails"),
        ({"host_rate_bps": 0}, "lab.host_rate_bps"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")):
        FabricSpec(**wrong)  # type: ignore[arg-type]


def test_addresses_are_as_written_in_the_plan() -> None:
    nic, link = PLAN.by_nic["h05/r1"], PLAN.by_link["l2--s1"]
    assert (nic.a.address, nic.b.address, nic.link) == ("10.3.5.1", "10.3.5.0", "h05/r1--l3")
    assert (link.a.address, link.b.address) == ("172.16.2.2", "172.16.2.3")
    assert (link.a.device, link.b.device) == ("u1", "d2")
    assert (nic.a.device, nic.b.device) == ("r1", "h05-r1")
    six = FabricPlan(FabricSpec(ip_version=6))
    assert six.by_nic["h05/r1"].a.address == "fd00:0:3:5::1"
    assert six.by_link["l2--s1"].b.address == "fd00:ffff:2:1::1"


def test_hosts_reach_each_rail_by_its_own_nic_first() -> None:
    prefixes = {(r.prefix, r.gateway) for r in PLAN.routes("h00") if not r.metric}
    assert prefixes == {
        ("10.0.0.0", "10.0.0.0"),
        ("10.2.0.0", "10.0.0.0"),
        ("10.1.0.0", "10.1.0.0"),
        ("10.3.0.0", "10.1.0.0"),
    }
    others = {(r.prefix, r.gateway, r.metric) for r in PLAN.routes("h00") if r.metric}
    assert others == {
        ("10.1.0.0", "10.0.0.0", 4_096),
        ("10.3.0.0", "10.0.0.0", 4_096),
        ("10.0.0.0", "10.1.0.0", 4_097),
        ("10.2.0.0", "10.1.0.0", 4_097),
    }


def test_probes_across_rails_turn_off_at_the_spine() -> None:
    spec = MeshSpec(peers_per_nic=1, cross_rail_peers=1, ports_per_peer=1)
    config = mesh.agent_config(PLAN, spec, lambda node: f"/ns/{node}", ["h00"])
    ends = [(s.src, s.dst, s.dst_address) for s in config.hosts[0].sessions]
    assert ends == [
        ("h00/r0", "h03/r0", PLAN.nic("h03/r0").a.address),
        ("h00/r0", "h03/r1", PLAN.nic("h03/r1").a.address),
        ("h00/r1", "h03/r1", PLAN.nic("h03/r1").a.address),
        ("h00/r1", "h03/r0", PLAN.nic("h03/r0").a.address),
    ]
    one_rail = FabricPlan(FabricSpec(rails=1, leaves=2))
    alone = mesh.agent_config(one_rail, spec, lambda node: f"/ns/{node}", ["h00"])
    assert [s.dst for s in alone.hosts[0].sessions] == ["h03/r0"]


def test_leaves_route_by_group_and_spines_by_leaf() -> None:
    assert {(r.prefix, r.gateway) for r in PLAN.routes("l0")} == {(f"10.{i}.0.0", None) for i in (1, 2, 3)}
    assert [(r.prefix, r.gateway) for r in PLAN.routes("s3")] == [(f"10.{i}.0.0", f"172.16.{i}.6") for i in range(4)]


def test_a_swapped_host_is_announced_by_its_real_leaf() -> None:
    plan = FabricPlan(FabricSpec(), frozenset({"h00"}))
    assert plan.by_nic["h00/r0"].link == "h00/r0--l1"
    assert plan.by_nic["h00/r0"].planned == "h00/r0--l0"
    assert plan.by_nic["h00/r0"].a.address == "10.0.0.1"
    assert [(r.prefix, r.bits) for r in plan.routes("l0")][-1] == ("10.0.0.0", 31)
    assert ("10.0.0.0", 31, "172.16.1.0") in {(r.prefix, r.bits, r.gateway) for r in plan.routes("s0")}
    assert ("10.0.0.0", 31) not in {(r.prefix, r.bits) for r in plan.routes("l1")}
    gone = setup.obsolete_routes(plan, PLAN, "s0")
    assert len(gone) == 2
    assert topology.declared(plan) == topology.declared(PLAN)


@pytest.mark.parametrize(
    ("target", "links"),
    [
        ("h03/r1", ["h03/r1--l1"]),
        ("l0--s1", ["l0--s1"]),
        ("s1->l2", ["l2--s1"]),
        ("s1", ["l0--s1", "l1--s1", "l2--s1", "l3--s1"]),
        ("h03", ["h03/r0--l0", "h03/r1--l1"]),
    ],
)
def test_targets(target: str, links: list[str]) -> None:
    assert [cable.link for cable in PLAN.targets(target)] == links


def test_declared_topology_has_the_contract_s_shape() -> None:
    said = topology.declared(PLAN)
    assert said["nodes"][0] == {"id": "h00", "kind": "host"}
    assert len(said["links"]) == 32
    assert {
        "id": "l0--s1",
        "a": {"node": "l0", "port": "u1", "address": "172.16.0.2"},
        "b": {"node": "s1", "port": "d0", "address": "172.16.0.3"},
        "speed_mbps": 50,
    } in said["links"]
    nic = {"id": "h00/r0", "host": "h00", "address": "10.0.0.1", "link": "h00/r0--l0", "rail": 0, "plane": "backend"}
    assert nic in said["nics"]
    assert {link["a"]["node"] for link in said["links"]} >= {"h00/r0", "l0"}


def test_dead_ports_get_no_nexthop_and_no_route() -> None:
    link = PLAN.by_link["l0--s1"]
    dead = faults.dead_ports(PLAN, [link.b.ifindex])
    assert dead == {link.a.ifindex, link.b.ifindex}
    asked = [request.what for request in setup.restore(PLAN, "l0", dead)]
    assert f"nexthop group {GROUP_ID} of [1, 3, 4]" in asked
    assert not any(what.startswith("nexthop 2 ") for what in asked)
    assert "route 10.0.0.0/16 via 172.16.0.2" not in [r.what for r in setup.restore(PLAN, "s1", dead)]
    every = faults.dead_ports(PLAN, [cable.a.ifindex for _, cable in PLAN.ports["l0"] if cable.is_fabric])
    assert not [r.what for r in setup.restore(PLAN, "l0", every) if "group" in r.what]


def test_independent_losses_multiply() -> None:
    one, two = (faults.effects(PLAN, "gray-loss", target, 0.5, None) for target in ("l0->s1", "l0--s1"))
    both = faults.combined([one, two])
    link = PLAN.by_link["l0--s1"]
    assert both.loss == {link.a.ifindex: 0.75, link.b.ifindex: 0.5}
    assert faults.combined([]) == faults.Effects()


def test_link_down_is_done_at_the_leaf_unless_asked() -> None:
    nic = PLAN.by_nic["h03/r1"]
    assert faults.effects(PLAN, "link-down", "h03/r1", 1.0, None).down == {nic.b.ifindex}
    assert faults.effects(PLAN, "link-down", "h03/r1", 1.0, "h03/r1").down == {nic.a.ifindex}
    with pytest.raises(ConfigError, match="no end"):
        faults.effects(PLAN, "link-down", "h03/r1", 1.0, "l0")


def test_a_small_mtu_is_both_ends_and_of_several_the_least_counts() -> None:
    link = PLAN.by_link["l0--s1"]
    ends = {link.a.ifindex, link.b.ifindex}
    usual = faults.effects(PLAN, "mtu", "l0--s1", 1.0, None)
    assert usual.mtu_bytes == dict.fromkeys(ends, 1_300)
    spine = faults.effects(PLAN, "mtu", "s1", 1.0, None, 1_400)
    assert {i: m for i, m in faults.combined([spine, usual]).mtu_bytes.items() if i in ends} == usual.mtu_bytes
    nic = PLAN.by_nic["h03/r1"]
    assert set(faults.effects(PLAN, "mtu", "h03/r1", 1.0, None).mtu_bytes) == {nic.a.ifindex, nic.b.ifindex}
    for octets in (1_279, 1_500):
        with pytest.raises(ConfigError, match=r"must be 1280\.\.1499 octets"):
            faults.effects(PLAN, "mtu", "l0--s1", 1.0, None, octets)


def test_sysctls_leave_the_source_port_out_on_request() -> None:
    fields = {
        flag: sysctls.settings("leaf", FabricSpec(hash_ignores_source_port=flag))["net/ipv4/fib_multipath_hash_fields"]
        for flag in (False, True)
    }
    assert fields == {False: "55", True: "39"}
    assert "net/ipv4/ip_forward" not in sysctls.settings("host", FabricSpec())


def test_marks_only_where_there_is_a_queue() -> None:
    spec = FabricSpec(class_dscp=46)
    plan = FabricPlan(spec)
    fabric, host = plan.by_link["l0--s1"], plan.by_nic["h00/r0"]
    assert setup.base_rule(plan, fabric.b).ce_threshold_bytes == spec.ce_threshold_bytes
    assert setup.base_rule(plan, fabric.a).ce_dscp == 46
    assert setup.base_rule(plan, host.b).ce_threshold_bytes == 0
    assert setup.base_rule(plan, host.a).ce_threshold_bytes == 0
    incast = FabricPlan(dataclasses.replace(spec, host_rate_bps=10_000_000))
    assert setup.base_rule(incast, incast.by_nic["h00/r0"].b).ce_threshold_bytes > 0


@pytest.mark.parametrize("members", range(2, 40))
def test_one_peer_each_keeps_the_mesh_in_one_piece(members: int) -> None:
    steps = mesh.peer_offsets(members, None)
    assert sorted(steps) == list(range(1, members))
    assert gcd(steps[0], members) == 1
    assert mesh.peer_offsets(members, 0) == []


def test_mesh_carries_its_parameters() -> None:
    spec = MeshSpec(
        peers_per_nic=2,
        ports_per_peer=3,
        dscps=(0, 46),
        rate_hz=50.0,
        size_bytes=200,
        reflector_port=8620,
        large_hz=2.0,
        virtual_clocks={"h01": VirtualClock(offset_ns=5.0)},
    )
    config = mesh.agent_config(PLAN, spec, lambda node: f"/ns/{node}", ["h00", "h01"])
    assert [host.host for host in config.hosts] == ["h00", "h01"]
    assert (config.reflector_port, config.large_hz) == (8620, 2.0)
    assert config.hosts[0].virtual_clock is None and config.hosts[1].virtual_clock == VirtualClock(offset_ns=5.0)
    assert len(config.hosts[0].sessions) == 2 * 2 * 2
    session = config.hosts[0].sessions[1]
    assert (session.source_ports, session.dscp, session.rate_hz, session.size_bytes) == (
        (49_152, 49_153, 49_154),
        46,
        50.0,
        200,
    )
    assert (session.dst_port, session.dst_address) == (8620, PLAN.by_nic[session.dst].a.address)
    assert config.hosts[1].nics[1].netns == "/ns/h01"


class Marker:
    name = "nft"

    def marks(self, spec: FabricSpec) -> bool:
        return spec.ip_version == 4


def test_what_a_machine_lacks_is_said_in_sentences() -> None:
    whole = describe(FabricSpec(), Marker(), set(), ())
    assert (whole.ce_marks, whole.drops, whole.missing, whole.exact_paths) == ("packet-rate", "nft", (), True)
    six = describe(FabricSpec(ip_version=6), Marker(), set(), ())
    assert (six.ce_marks, len(six.missing)) == (None, 2)
    assert describe(FabricSpec(ce_threshold_bytes=0), Marker(), set(), ()).ce_marks is None
    old = {"net/ipv4/fib_multipath_hash_seed", "net/ipv4/fib_multipath_hash_fields"}
    poor = describe(FabricSpec(), None, old, ("x",))
    assert (poor.ce_marks, poor.exact_paths, poor.fixed_hash_seed, len(poor.missing)) == (None, False, False, 3)
