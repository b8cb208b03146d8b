"""Messages, programs and packets of the lab, byte for byte."""

from __future__ import annotations

import errno
import platform
import struct
from pathlib import Path

import pytest

from sdfstream.errors import ConfigError, FormatError
from sdfstream.lab import FabricSpec, traffic
from sdfstream.lab.kernel import ebpf, netlink, nft, queues, rtnl, wire
from sdfstream.lab.kernel.btf import Btf
from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.lab.plan import FabricPlan
from sdfstream.probes.net import netlink as nl

PLAN = FabricPlan(FabricSpec())


def test_golden_route_and_neighbour() -> None:
    route = rtnl.new_route("10.2.0.0", 16, "172.16.0.1", 7)
    assert route.body.hex() == "02100000fe040001000000000800010" + "00a020000" + "08000500ac100001" + "0800040007000000"
    link = PLAN.by_link["l0--s1"]
    neighbour = rtnl.new_neighbour(link.a, link.b)
    assert neighbour.body.hex() == (
        f"02000000{link.a.ifindex.to_bytes(4, 'little').hex()}80000000" + "08000100ac100003" + "0a000200"
        f"{link.b.mac.hex()}0000"
    )


def test_golden_token_bucket() -> None:
    body = queues.token_bucket(5, 50_000_000, 5_000, 250_000).body
    assert body[20:28] == b"\x08\x00\x01\x00tbf\x00"
    parms = nl.attributes(nl.attributes(body[20:])[2])
    rate, limit = struct.unpack_from("=I", parms[1], 8)[0], struct.unpack_from("=I", parms[1], 24)[0]
    assert (rate, limit, parms[1][1], len(parms[1])) == (6_250_000, 250_000, 1, 36)
    assert struct.unpack("=I", parms[6]) == (5_000,)


def test_golden_dscp_filter() -> None:
    """Expedited Forwarding, DSCP 46, is TOS 0xb8 in the second octet of IPv4."""
    spec = FabricSpec(class_dscp=46)
    selector = nl.attributes(nl.attributes(queues.classes(5, spec)[-1].body[20:])[2])[5]
    assert selector[16:24].hex() == "00fc000000b80000"
    six = nl.attributes(nl.attributes(queues.classes(5, FabricSpec(class_dscp=46, ip_version=6))[-1].body[20:])[2])[5]
    assert six[16:24].hex() == "0fc000000b800000"


def test_only_the_last_message_of_a_send_is_acknowledged() -> None:
    requests = [KernelRequest(24, 0x500, bytes(20), "x") for _ in range(10)]
    sends = list(netlink.batches(requests, 100, 120))
    assert [end for _, end in sends] == [102, 105, 108, 109]
    for data, end in sends:
        heads = [(kind, flags, seq) for _, kind, flags, seq, _ in _frames(data)]
        assert heads[-1][2] == end
        assert [bool(flags & nl.NLM_F_ACK) for _, flags, _ in heads] == [False] * (len(heads) - 1) + [True]


def _frames(data: bytes) -> list[tuple[int, ...]]:
    found, position = [], 0
    while position < len(data):
        found.append(struct.unpack_from("=IHHII", data, position))
        position += found[-1][0]
    return found


def test_refusals_name_the_request_and_tolerated_ones_do_not() -> None:
    requests = [KernelRequest(1, 0, b"", "first"), KernelRequest(1, 0, b"", "second", frozenset({errno.ENOENT}))]
    answers = [nl.Packet(nl.NLMSG_ERROR, 7 + i, struct.pack("=i", -errno.ENOENT)) for i in range(2)]
    refused = netlink.failures(requests, 7, answers)
    assert [request.what for request, _ in refused] == ["first"]
    assert netlink.error_sentence(*refused[0]) == "first: No such file or directory (ENOENT)"


def test_jumps_reach_their_labels() -> None:
    a = ebpf.Assembler()
    a.op(ebpf.JEQ_IMM, dst=1, imm=0, to="end")
    a.load_map(1, 3)
    a.label("end")
    a.op(ebpf.EXIT)
    assert a.bytecode().hex() == "1501020000000000" + "1811000003000000" + "00" * 8 + "9500000000000000"
    a.op(ebpf.JUMP, to="nowhere")
    with pytest.raises(ValueError, match="nowhere"):
        a.bytecode()


def test_rules_are_what_the_program_reads() -> None:
    assert wire.PortRule(1.0, 50_000, 46).packed().hex() == "0000000001000000" + "50c30000" + "2e000000"
    assert wire.PortRule(0.5).packed()[:8] == (1 << 31).to_bytes(8, "little")
    assert wire.Counts.unpacked(bytes([3] + [0] * 7 + [4] + [0] * 7)) == wire.Counts(3, 4)


@pytest.mark.parametrize("version", [4, 6])
def test_the_program_is_short_and_ends(version: int) -> None:
    code = wire.program(wire.Offsets(16, 1064, 196), 3, 4, version, -1)
    assert len(code) % 8 == 0 and len(code) // 8 < 100
    assert code[-8:] == bytes.fromhex("9500000000000000")


def test_offsets_of_the_running_kernel_are_plausible() -> None:
    blob = Path("/sys/kernel/btf/vmlinux")
    if not blob.exists():
        pytest.skip(f"kernel {platform.release()} publishes no BTF")
    kernel = Btf(blob.read_bytes())
    offsets = wire.Offsets.of(kernel)
    # struct sk_buff begins with next, prev, dev on every kernel since 4.17.
    assert offsets.device == 16
    assert 0 < offsets.backlog < 1024 and offsets.queue % 8 == 0
    with pytest.raises(FormatError, match="no structure"):
        kernel.offset_bytes("no_such_structure_at_all", ["x"])
    with pytest.raises(FormatError, match="no member"):
        kernel.offset_bytes("sk_buff", ["no_such_member"])


def btf_blob(*types: tuple[int, ...], text: bytes) -> bytes:
    words = b"".join(struct.pack(f"={len(t)}I", *t) for t in types)
    return struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(words), len(words), len(text)) + words + text


def test_members_are_found_through_anonymous_unions() -> None:
    text = b"\0outer\0inner\0field\0"
    outer, inner, field = 1, 7, 13
    blob = btf_blob(
        (0, 1 << 24, 4, 32),  # 1: an int
        (0, 5 << 24 | 1, 8, field, 1, 32),  # 2: an anonymous union with `field` at bit 32
        (inner, 4 << 24 | 1, 16, 0, 2, 64),  # 3: struct inner { union at bit 64 }
        (outer, 4 << 24 | 1, 64, inner, 3, 128),  # 4: struct outer { struct inner inner at bit 128 }
        text=text,
    )
    assert Btf(blob).offset_bytes("outer", ["inner", "field"]) == 16 + 8 + 4


def test_nft_tables_count_what_they_did() -> None:
    requests = nft.replace_table(7, "u0", ingress=False, loss=0.25, ce_over_pps=5_000, existed=True)
    assert [r.what for r in requests] == ["delete table", "add table", "hook on u0", "add rule", "add rule"]
    assert [nft.counted(r.body)[0] for r in requests[3:]] == [("dropped"), ("marked")]
    assert len(nft.replace_table(7, "u0", ingress=True, loss=0.0, ce_over_pps=0, existed=False)) == 2
    share = nl.attributes(requests[3].body[4:])[4]
    assert (250_000).to_bytes(4, "big") in share


def test_a_nft_counter_is_read_back() -> None:
    counter = nl.nested(1, nl.text(1, "counter"), nl.nested(2, nl.attribute(2, (42).to_bytes(8, "big"))))
    verdict = nl.nested(1, nl.text(1, "immediate"), nl.nested(2))
    assert nft.counted(bytes(4) + nl.nested(4, counter, verdict)) == ("dropped", 42)
    assert nft.counted(bytes(4) + nl.nested(4, counter)) == ("marked", 42)


@pytest.mark.parametrize("version", [4, 6])
def test_cross_traffic_packets_have_right_checksums(version: int) -> None:
    plan = FabricPlan(FabricSpec(ip_version=version))
    packet = traffic.frame(plan, ("h00/r0", "h04/r0", 40_000), 46)
    head = 20 if version == 4 else 40
    assert len(packet) + 14 == traffic.frame_bytes(plan)
    source, dest = (packet[12:16], packet[16:20]) if version == 4 else (packet[8:24], packet[24:40])
    assert traffic.checksum(source + dest + struct.pack("!HH", 17, len(packet) - head) + packet[head:]) == 0
    tos = packet[1] if version == 4 else (int.from_bytes(packet[:2], "big") >> 4) & 0xFF
    assert tos == 46 << 2 | 2
    if version == 4:
        assert traffic.checksum(packet[:20]) == 0
    assert struct.unpack("!HH", packet[head : head + 4]) == (40_000, 9)


def every_path(src: str, dst: str, port: int) -> list[str]:
    """A stand-in for the oracle: the port's remainder is the spine."""
    a, b, spine = PLAN.by_nic[src], PLAN.by_nic[dst], f"s{port % 4}"
    return [f"{src}->{a.b.node}", f"{a.b.node}->{spine}", f"{spine}->{b.b.node}", f"{b.b.node}->{dst}"]


def test_load_is_the_rate_over_the_frame_and_crosses_its_target() -> None:
    load = traffic.plan_load(PLAN, every_path, "s1->l2", 1.2, 0)
    assert load.packets_per_s == pytest.approx(1.2 * 50e6 / 8 / 1442)
    assert all("s1->l2" in every_path(*flow) for flow in load.flows)
    leaves = [PLAN.by_nic[src].b.node for src, _, _ in load.flows]
    assert {leaf: leaves.count(leaf) for leaf in set(leaves)}.keys() == {"l0", "l1", "l3"}


@pytest.mark.parametrize(
    ("direction", "load", "why"),
    [
        ("h00/r0->l0", 1.0, "no queue"),
        ("l0->h00/r0", 1.0, "host_rate_bps"),
        ("l0->s9", 1.0, "no such direction"),
        ("l0->s1", 0.0, "load"),
        ("s1->l2", 50.0, "uplinks"),
    ],
)
def test_loads_that_cannot_be_are_refused(direction: str, load: float, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        traffic.plan_load(PLAN, every_path, direction, load, 0)


def test_a_class_has_its_own_rate() -> None:
    plan = FabricPlan(FabricSpec(class_dscp=46, class_rate_bps=20_000_000))
    rates = [traffic.plan_load(plan, every_path, "l0->s1", 1.0, dscp).packets_per_s * 8 * 1442 for dscp in (46, 0)]
    assert rates == pytest.approx([20e6, 30e6])
