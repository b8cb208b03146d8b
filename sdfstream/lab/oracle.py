"""The links that a packet takes, by the kernel's own routing hop by hop: truth for tests, never for a stage."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

from sdfstream.errors import ConfigError
from sdfstream.lab.kernel import rtnl
from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.lab.plan import FabricPlan
from sdfstream.records.fabric import direction_id

Ask = Callable[[str, KernelRequest], list[bytes]]
"""(node, request) to the bodies of the kernel's answers in that node's namespace."""
PROTOCOLS: Final = {"icmp": 1, "tcp": 6, "udp": 17}
_MAX_HOPS: Final = 8


def path(plan: FabricPlan, dead: Set[int], ask: Ask, flow: tuple[str, str, int, int, str]) -> list[str]:
    """The directions a packet of `flow` takes; the list ends early where a router has no route.

    Parameters
    ----------
    plan : FabricPlan
        Cabling as it is now.
    dead : set of int
        Interface indexes without carrier: routers that do not notice still send there, and nothing arrives.
    ask : callable
        Puts a route query to a node's kernel.
    flow : (src NIC, dst NIC, source port, destination port, protocol name)

    Raises
    ------
    ConfigError
        No such NIC or protocol.
    """
    src, dst, source_port, dest_port, protocol = flow
    if protocol not in PROTOCOLS:
        raise ConfigError(f"no such protocol: {protocol!r}; one of {', '.join(PROTOCOLS)}")
    sending, receiving = plan.nic(src).a, plan.nic(src).b
    target = plan.nic(dst).a
    if sending.ifindex in dead:
        return []
    hops = [direction_id(sending.end, receiving.end)]
    for _ in range(_MAX_HOPS):
        if receiving.node == target.node:
            break
        request = rtnl.ask_route(
            plan.nic(src).a.address,
            target.address,
            receiving.ifindex,
            PROTOCOLS[protocol],
            source_port,
            dest_port,
        )
        bodies = ask(receiving.node, request)
        ifindex = rtnl.out_ifindex(bodies[0]) if bodies else 0
        if ifindex not in plan.by_ifindex or ifindex in dead:
            break
        sending, receiving = plan.by_ifindex[ifindex]
        hops.append(direction_id(sending.end, receiving.end))
    return hops
