"""Laws of the lab's paper work, and decoders that bad bytes cannot break."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from sdfstream.errors import FormatError
from sdfstream.lab import FabricSpec
from sdfstream.lab.kernel import netlink, nft
from sdfstream.lab.kernel.btf import Btf
from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.lab.plan import FIRST_IFINDEX, FabricPlan
from sdfstream.lab.traffic import checksum
from sdfstream.probes.net import netlink as nl


@st.composite
def specs(draw: st.DrawFn) -> FabricSpec:
    rails = draw(st.integers(1, 4))
    pods = draw(st.integers(1, 4))
    return FabricSpec(
        hosts=draw(st.integers(max(2, pods), 24)),
        rails=rails,
        leaves=rails * pods,
        spines=draw(st.integers(1, 8)),
        ip_version=draw(st.sampled_from([4, 6])),
    )


@given(specs(), st.data())
def test_every_plan_has_unique_ports_and_routes_that_lead_on(spec: FabricSpec, data: st.DataObject) -> None:
    """Walk every pair of a rail by the plan's own routes, whichever spine is taken: it arrives."""
    swapped = data.draw(st.frozensets(st.sampled_from(spec.host_names), max_size=3)) if spec.rails > 1 else frozenset()
    plan = FabricPlan(spec, swapped)
    ports = [port for cable in plan.cables for port in (cable.a, cable.b)]
    assert sorted(port.ifindex for port in ports) == list(range(FIRST_IFINDEX, FIRST_IFINDEX + len(ports)))
    assert len({port.address for port in ports}) == len(ports)
    assert len({(port.node, port.device) for port in ports}) == len(ports)
    assert all(cable.b.ifindex == cable.a.ifindex + 1 for cable in plan.cables)
    src, dst = data.draw(st.sampled_from(plan.nics)), data.draw(st.sampled_from(plan.nics))
    if src.partition("/")[0] != dst.partition("/")[0] and plan.rail_of(src) == plan.rail_of(dst):
        spine = data.draw(st.integers(0, spec.spines - 1))
        assert _walk(plan, src, dst, spine)[-1] == dst.partition("/")[0]


def _walk(plan: FabricPlan, src: str, dst: str, spine: int) -> list[str]:
    """Nodes on the way from `src` to `dst` by longest prefix, taking uplink `spine` where a group decides."""
    target = plan.by_nic[dst].a
    nodes = [plan.by_nic[src].a.node]
    device = None
    while nodes[-1] != target.node and len(nodes) < 8:
        device = _next(plan, nodes[-1], target.address, spine)
        nodes.append(plan.by_ifindex[device][1].node)
    return nodes


def _next(plan: FabricPlan, node: str, address: str, spine: int) -> int:
    best_bits, best = -1, 0
    for port, _ in plan.ports[node]:
        if ip_address(address) in ip_network(f"{port.address}/{plan.link_bits}", strict=False):
            best_bits, best = plan.link_bits, port.ifindex
    for route in plan.routes(node):
        if ip_address(address) in ip_network(f"{route.prefix}/{route.bits}") and route.bits > best_bits:
            best_bits = route.bits
            best = route.ifindex if route.gateway else plan.uplinks(node)[spine][1].ifindex
    return best


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=30), st.integers(64, 4096))
def test_cutting_requests_into_sends_changes_nothing(bodies: list[bytes], limit: int) -> None:
    requests = [KernelRequest(16, 0, body, str(i)) for i, body in enumerate(bodies)]
    sends = list(netlink.batches(requests, 1, limit))
    seen = [reply for data, _ in sends for reply in nl.packets(data)]
    assert [reply.body for reply in seen] == bodies
    assert [reply.seq for reply in seen] == list(range(1, len(bodies) + 1))
    assert all(len(data) <= limit or len(list(nl.packets(data))) == 1 for data, _ in sends)


@given(st.binary(max_size=300), st.integers(0, 3))
def test_bad_btf_is_refused_with_its_reason(data: bytes, cut: int) -> None:
    import struct

    tail = data[: len(data) // 4 * 4]
    head = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(tail), len(tail), 9)
    for blob in (data, head + tail + b"\0sk_buff\0", (head + tail)[: 24 + len(tail) - cut]):
        try:
            Btf(blob).offset_bytes("sk_buff", ["dev"])
        except FormatError as error:
            assert error.reason == "btf"


@given(st.binary(min_size=2, max_size=64).filter(lambda b: len(b) % 2 == 0))
def test_a_packet_with_its_checksum_sums_to_zero(data: bytes) -> None:
    assert checksum(data + checksum(data).to_bytes(2, "big")) == 0


@given(st.floats(0, 1), st.integers(0, 1_000_000), st.booleans())
def test_nft_tables_of_any_share_are_well_formed(loss: float, pps: int, ingress: bool) -> None:
    for request in nft.replace_table(9, "u0", ingress=ingress, loss=loss, ce_over_pps=pps, existed=False):
        assert nl.attributes(request.body[4:])[1] == b"sdfstream_9\0"
