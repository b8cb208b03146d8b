"""The netlink requests that turn bare namespaces into the planned fabric, and restore a node after a fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from sdfstream.lab.kernel import queues, rtnl
from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.lab.kernel.wire import ALL_CLASSES, PortRule
from sdfstream.lab.plan import GROUP_ID, Cable, FabricPlan, Port

MTU_BYTES = 1500
"""Of every port while nothing is broken."""
LEAST_MTU_BYTES = 1280
"""IPv6 ends on a device that has less."""


def cables(plan: FabricPlan, leaf: str, netns_fds: Mapping[str, int]) -> list[KernelRequest]:
    """Every cable of a leaf (and so, over all leaves, every cable), made from the leaf's namespace."""
    requests = []
    for port, cable in plan.ports[leaf]:
        peer = cable.far(port)
        fd = netns_fds[peer.node]
        requests.append(rtnl.veth(port, peer, fd, MTU_BYTES, peer_no_offload=not cable.is_fabric))
    return requests


def node(plan: FabricPlan, name: str) -> list[KernelRequest]:
    """All that a node with its cables in place needs: ports up, addresses, queues, neighbours, routes.

    Hosts and spines go before leaves: a leaf's nexthops need the carrier that their ports give.
    """
    requests = [rtnl.link_up(1, True, "lo")]
    requests += [rtnl.link_up(port.ifindex, True, port.device) for port, _ in plan.ports[name]]
    for port, cable in plan.ports[name]:
        requests.append(rtnl.new_address(port, plan.link_bits))
        requests += queue(plan, port, cable)
    return requests + restore(plan, name, frozenset())


def queue(plan: FabricPlan, port: Port, cable: Cable) -> list[KernelRequest]:
    """The queue in front of a port: on both ends of leaf-spine cables, and towards hosts where asked for."""
    spec = plan.spec
    if cable.is_fabric and spec.class_dscp is not None:
        return queues.classes(port.ifindex, spec)
    if cable.is_fabric:
        return [queues.token_bucket(port.ifindex, spec.rate_bps, spec.burst_bytes, spec.queue_bytes)]
    if spec.host_rate_bps and port is cable.b:
        return [queues.token_bucket(port.ifindex, spec.host_rate_bps, spec.burst_bytes, spec.queue_bytes)]
    return []


def plug_in(plan: FabricPlan, port: Port, cable: Cable, *, up: bool) -> list[KernelRequest]:
    """All that a port needs which was moved into another node."""
    requests = [rtnl.link_up(port.ifindex, True, port.device)] if up else []
    return [*requests, rtnl.new_address(port, plan.link_bits), *queue(plan, port, cable)]


def base_rule(plan: FabricPlan, port: Port) -> PortRule:
    """A port's rule while nothing is broken: CE marks wherever there is a queue."""
    spec = plan.spec
    _, far = plan.by_ifindex[port.ifindex]
    queued = plan.kinds[port.node] != "host" and (far.end == far.node or spec.host_rate_bps)
    if not queued:
        return PortRule()
    return PortRule(0.0, spec.ce_threshold_bytes, ALL_CLASSES if spec.class_dscp is None else spec.class_dscp)


def obsolete_routes(old: FabricPlan, new: FabricPlan, name: str) -> list[KernelRequest]:
    """Routes of a node that the new plan no longer has."""
    planned = {(route.prefix, route.bits, route.metric) for route in new.routes(name)}
    gone = [(r.prefix, r.bits, r.metric) for r in old.routes(name) if (r.prefix, r.bits, r.metric) not in planned]
    return [rtnl.delete_route(*key) for key in gone]


def restore(plan: FabricPlan, name: str, dead: Set[int]) -> list[KernelRequest]:
    """Neighbours, nexthops, group and routes of a node; what stands already is replaced by itself.

    The kernel deletes nexthops when the carrier goes, and neighbours and routes when a port is set down; none of
    them comes back by itself. `dead` holds the interface indexes that have no carrier now: the kernel takes no
    nexthop over those.
    """
    live = [(port, cable) for port, cable in plan.ports[name] if port.ifindex not in dead]
    requests = [rtnl.new_neighbour(port, cable.far(port)) for port, cable in live]
    group = list(_group(plan, name, dead)) if plan.kinds[name] == "leaf" else []
    requests += group
    live_indexes = {port.ifindex for port, _ in live}
    for route in plan.routes(name):
        if route.gateway is None and group:
            requests.append(rtnl.new_group_route(route.prefix, route.bits, GROUP_ID))
        elif route.gateway is not None and route.ifindex in live_indexes:
            requests.append(rtnl.new_route(route.prefix, route.bits, route.gateway, route.ifindex, route.metric))
    return requests


def _group(plan: FabricPlan, leaf: str, dead: Set[int]) -> Iterator[KernelRequest]:
    live = [(i, own, far) for i, own, far in plan.uplinks(leaf) if own.ifindex not in dead]
    for nexthop_id, own, far in live:
        yield rtnl.new_nexthop(nexthop_id, far.address, own.ifindex)
    if live:
        yield rtnl.new_group(GROUP_ID, [nexthop_id for nexthop_id, _, _ in live])
