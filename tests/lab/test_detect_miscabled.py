"""Swapped cables of a lab host, found by real packets whose TTL runs out on the way."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace

import pytest

from sdfstream.detect.stage import DetectStage
from sdfstream.lab import Fabric
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import FINDING, TOPOLOGY
from tests.fixtures.lab import SMALL, udp, up_or_skip

pytestmark = pytest.mark.lab
IP_RECVERR, S = 11, 1_000_000_000


def hop(fabric: Fabric, src: str, dst: str, port: int, ttl: int) -> str | None:
    """Address of the router at which a packet of this TTL runs out."""
    with udp(fabric, src, port) as sender:
        sender.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
        sender.settimeout(0.5)
        sender.sendto(b"trace", (fabric.plan.nic(dst).a.address, 9))
        try:
            sender.recv(1)
        except TimeoutError:
            return None
        except OSError:
            pass
        _, control, _, _ = sender.recvmsg(1, 512, socket.MSG_ERRQUEUE)
        for level, kind, data in control:
            if (level, kind) == (socket.IPPROTO_IP, IP_RECVERR):
                return socket.inet_ntoa(struct.unpack_from("=IBBBBIIHH4s", data)[9])
    return None


def traces(fabric: Fabric, host: str, at_ns: int) -> list[Message]:
    """Traces from both NICs of a host to a host of the other pod, over several source ports."""
    found = []
    for rail in (0, 1):
        for port in range(49_160, 49_165):
            src, dst = f"{host}/r{rail}", f"h03/r{rail}"
            hops = [hop(fabric, src, dst, port, ttl) for ttl in (1, 2, 3)]
            data = {
                "src": src, "dst": dst, "transport": "udp", "path": port, "dscp": 0, "dir": "fwd", "hops": hops,
                "complete": None not in hops, "traced_at_ns": at_ns,
            }  # fmt: skip
            event = Event("sdf.state.topology.path.v1", host, str(len(found)), at_ns, data)
            found.append(Message(TOPOLOGY.name, str(len(found)), event, at_ns + len(found), len(found)))
    return found


def test_swapped_cables_are_one_finding_and_straight_ones_none() -> None:
    with up_or_skip(replace(SMALL, miscabled_hosts=("h00",))) as fabric:
        at_ns = 1_800_000_000 * S
        plan = Event("sdf.state.topology.declared.v1", "lab", "t", 0, fabric.topology())
        messages = [Message(TOPOLOGY.name, "declared", plan, at_ns, 0)]
        messages += traces(fabric, "h01", at_ns + S)
        swapped = traces(fabric, "h00", at_ns + 2 * S)
    assert all(m.body.data["complete"] for m in messages[1:] + swapped)
    stage = DetectStage()
    assert [o for o in stage.step(messages, at_ns + 2 * S) if o.topic == FINDING.name] == []
    said = [o.body.data for o in stage.step(swapped, at_ns + 4 * S) if o.topic == FINDING.name]
    assert [(f["kind"], f["subject"]) for f in said] == [("miscabled", {"type": "host", "id": "h00"})]
    assert "h00/r0 on l1, planned on l0" in said[0]["detail"]
