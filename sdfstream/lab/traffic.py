"""Cross traffic as planned: the NICs that load a direction, and the bytes they send."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from sdfstream.errors import ConfigError
from sdfstream.lab.plan import FabricPlan

DISCARD_PORT = 9
"""Where cross traffic goes: the discard port (RFC 863)."""
PAYLOAD_BYTES = 1_400
FIRST_PORT = 32_768
_PORTS_TRIED = 512
_ETHERNET_BYTES = 14
_ECT0 = 2
_UPSTREAM_SHARE = 0.9
"""No queue that feeds the target may be fuller than this, else the delay arises there."""


@dataclass(frozen=True, slots=True)
class Load:
    """Cross traffic over one direction."""

    direction: str
    flows: tuple[tuple[str, str, int], ...]
    """(src NIC, dst NIC, source port); every flow crosses the direction."""
    packets_per_s: float
    """Sum over all flows."""
    load: float
    """Multiple of the queue's rate."""
    dscp: int


def plan_load(
    plan: FabricPlan,
    route: Callable[[str, str, int], list[str]],
    direction: str,
    load: float,
    dscp: int,
    flows: int = 8,
) -> Load:
    """Flows between lab hosts that bring `load` times the rate of `direction`'s queue over it.

    Parameters
    ----------
    plan : FabricPlan
        Cabling as it is now.
    route : callable
        (src NIC, dst NIC, source port) to the directions of the path; the oracle.
    direction : str
        A direction with a queue: leaf->spine, spine->leaf, or leaf->host where the spec limits that.
    load : float
        Multiple of the queue's rate (of the class's, when `dscp` has a class of its own).
    dscp : int
        Class of the cross traffic.
    flows : int
        How many flows share the load.

    Raises
    ------
    ConfigError
        No queue there, or the lab's leaves cannot bring so much to it without queueing before it.
    """
    if direction not in plan.by_direction:
        raise ConfigError(f"no such direction in the lab: {direction!r}")
    if not 0.0 < load <= 100.0:
        raise ConfigError(f"load must be above 0 and at most 100 times the link's rate, not {load}")
    rate_bps = _queue_rate_bps(plan, direction, dscp)
    pairs = _pairs(plan, direction)
    chosen: list[tuple[str, str, int]] = []
    for src, dst in pairs:
        port = next((p for p in range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED) if direction in route(src, dst, p)), None)
        if port is not None:
            chosen.append((src, dst, port))
        if len(chosen) == flows:
            break
    if not chosen:
        raise ConfigError(f"no path between lab hosts crosses {direction} now")
    _check_upstream(plan, direction, load, chosen)
    return Load(direction, tuple(chosen), load * rate_bps / 8 / frame_bytes(plan), load, dscp)


def frame_bytes(plan: FabricPlan) -> int:
    """Bytes of one cross-traffic frame as the queues count it, Ethernet header included."""
    return _ETHERNET_BYTES + (20 if plan.spec.ip_version == 4 else 40) + 8 + PAYLOAD_BYTES


def _queue_rate_bps(plan: FabricPlan, direction: str, dscp: int) -> int:
    sending, receiving = plan.by_direction[direction]
    spec = plan.spec
    if plan.kinds[sending.node] == "host":
        raise ConfigError(f"{direction} has no queue: a host's own port is not limited in the lab")
    if plan.kinds[receiving.node] == "host":
        if spec.host_rate_bps is None:
            raise ConfigError(f"{direction} has no queue: set host_rate_bps to limit the ports towards hosts")
        return spec.host_rate_bps
    if spec.class_dscp is None:
        return spec.rate_bps
    return spec.class_rate_bps if dscp == spec.class_dscp else spec.rate_bps - spec.class_rate_bps


def _pairs(plan: FabricPlan, direction: str) -> list[tuple[str, str]]:
    """NIC pairs that may cross a direction, leaves taken in turn so that no other queue fills first."""
    sending, receiving = plan.by_direction[direction]
    at_leaf: dict[str, list[str]] = {leaf: [] for leaf in plan.spec.leaf_names}
    for nic, cable in plan.by_nic.items():
        at_leaf[cable.b.node].append(nic)
    if plan.kinds[receiving.node] == "host":
        sources = _in_turn({leaf: n for leaf, n in at_leaf.items() if leaf != sending.node})
        return [(src, receiving.end) for src in sources]
    near = sending.node if plan.kinds[sending.node] == "leaf" else receiving.node
    others = _in_turn({leaf: n for leaf, n in at_leaf.items() if leaf != near})
    count = max(len(others), len(at_leaf[near]))
    if not others or not at_leaf[near]:
        return []
    mates = [(at_leaf[near][i % len(at_leaf[near])], others[i % len(others)]) for i in range(count)]
    return mates if near == sending.node else [(far, own) for own, far in mates]


def _in_turn(groups: dict[str, list[str]]) -> list[str]:
    depth = max((len(group) for group in groups.values()), default=0)
    return [group[i] for i in range(depth) for group in groups.values() if i < len(group)]


def _check_upstream(plan: FabricPlan, direction: str, load: float, flows: list[tuple[str, str, int]]) -> None:
    sending, _ = plan.by_direction[direction]
    if plan.kinds[sending.node] != "spine":
        return
    leaves = [plan.by_nic[src].b.node for src, _, _ in flows]
    busiest = max(leaves.count(leaf) for leaf in leaves) / len(leaves)
    if load * busiest > _UPSTREAM_SHARE:
        raise ConfigError(
            f"{direction} cannot be loaded {load} times: {len(set(leaves))} leaves feed it, and their own uplinks "
            f"would queue first; at most {_UPSTREAM_SHARE / busiest:.1f} here"
        )


def frame(plan: FabricPlan, flow: tuple[str, str, int], dscp: int) -> bytes:
    """One IP packet of a flow: UDP to the discard port, ECT(0), checksums filled in."""
    src, dst, source_port = flow
    source = ip_address(plan.nic(src).a.address).packed
    dest = ip_address(plan.nic(dst).a.address).packed
    size = 8 + PAYLOAD_BYTES
    udp = struct.pack("!4H", source_port, DISCARD_PORT, size, 0) + bytes(PAYLOAD_BYTES)
    pseudo = source + dest + struct.pack("!HH", 17, size)
    udp = udp[:6] + struct.pack("!H", checksum(pseudo + udp) or 0xFFFF) + udp[8:]
    traffic_class = dscp << 2 | _ECT0
    if plan.spec.ip_version == 6:
        return struct.pack("!IHBB", 6 << 28 | traffic_class << 20, size, 17, 64) + source + dest + udp
    head = struct.pack("!BBHHHBBH", 0x45, traffic_class, 20 + size, 0, 0x4000, 64, 17, 0) + source + dest
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + udp


def checksum(data: bytes) -> int:
    """Internet checksum (RFC 1071) of an even number of bytes.

    >>> hex(checksum(bytes.fromhex("0001f203f4f5f6f7")))
    '0x220d'
    """
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def truth(loads: list[Load]) -> dict[str, Any]:
    """Parameters of the line of truth."""
    return {
        "load": loads[0].load,
        "dscp": loads[0].dscp,
        "packets_per_s": [round(one.packets_per_s) for one in loads],
        "directions": [one.direction for one in loads],
        "flows": [list(flow) for one in loads for flow in one.flows],
    }
