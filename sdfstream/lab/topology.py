"""The lab's declared topology (``sdf.state.topology.v1``): the plan, never the truth."""

from __future__ import annotations

from typing import Any

from sdfstream.lab.plan import Cable, FabricPlan, Port

_HOST_LINK_MBPS = 10_000
"""Speed that a veth reports; host links are not limited unless the spec says so."""


def declared(plan: FabricPlan) -> dict[str, Any]:
    """Nodes, links and NICs as planned; a mis-cabled host looks here as it should be.

    Parameters
    ----------
    plan : FabricPlan
        Of the fabric; its swapped cables are ignored.

    Returns
    -------
    dict
        Data of ``sdf.state.topology.declared.v1``.
    """
    planned = FabricPlan(plan.spec)
    return {
        "nodes": [{"id": node, "kind": kind} for node, kind in planned.kinds.items()],
        "links": [_link(cable, planned) for cable in planned.cables],
        "nics": [_nic(nic, cable, planned) for nic, cable in planned.by_nic.items()],
    }


def _link(cable: Cable, plan: FabricPlan) -> dict[str, Any]:
    if cable.is_fabric:
        speed_mbps = plan.spec.rate_bps // 1_000_000
    else:
        speed_mbps = (plan.spec.host_rate_bps or _HOST_LINK_MBPS * 1_000_000) // 1_000_000
    return {"id": cable.link, "a": _end(cable.a), "b": _end(cable.b), "speed_mbps": speed_mbps}


def _end(port: Port) -> dict[str, str]:
    return {"node": port.end, "port": port.device, "address": port.address}


def _nic(nic: str, cable: Cable, plan: FabricPlan) -> dict[str, Any]:
    return {
        "id": nic,
        "host": cable.a.node,
        "address": cable.a.address,
        "link": cable.link,
        "rail": plan.rail_of(nic),
        "plane": "backend",
    }
