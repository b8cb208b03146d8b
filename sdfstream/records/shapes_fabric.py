"""Shapes of what is declared, traced and planned: ``sdf.state.topology.v1`` and ``sdf.state.mesh.v1``."""

from __future__ import annotations

from typing import Final

from sdfstream.records.mesh import PURPOSES
from sdfstream.records.schema import (
    NATURAL,
    NON_NEGATIVE,
    PATH,
    PORT_NUMBER,
    among,
    array,
    ident,
    instant,
    nullable,
    one_of,
    record,
    text,
)

_END: Final = record(
    "one end of a link",
    {"node": ident("host, leaf or spine"), "port": ident(), "address": nullable(ident("IP address"))},
    optional=("address",),
)

DECLARED_SHAPE: Final = record(
    "the cabling as planned; never the truth of a lab or twin",
    {
        "nodes": array(record("", {"id": ident(), "kind": among("host", "leaf", "spine")})),
        "links": array(
            record("", {"id": text("a--b"), "a": _END, "b": _END, "speed_mbps": {"type": "integer", "minimum": 0}})
        ),
        "nics": array(
            record(
                "",
                {
                    "id": ident("host/nic"),
                    "host": ident(),
                    "address": ident("IP address"),
                    "link": ident("the NIC's link to its leaf"),
                    "rail": {"type": "integer", "minimum": 0},
                    "plane": ident("backend, frontend, …"),
                },
            )
        ),
    },
)

TRACED_SHAPE: Final = record(
    "a path traced hop by hop",
    {
        **PATH,
        "dir": among("fwd", "rev"),
        "hops": array(nullable(ident()), "address of each router that answered; null where none did"),
        "complete": {"type": "boolean", "description": "every hop up to the reflector answered"},
        "traced_at_ns": instant("the tracing host's clock"),
    },
)

SILENT_SHAPE: Final = record(
    "how far packets of a path got, traced hop by hop once it had fallen silent; its route is what was traced before",
    {
        **PATH,
        "dir": among("fwd"),
        "hops": array(nullable(ident()), "address of each router that answered; null where none did"),
        "traced_at_ns": instant("the tracing host's clock, at the end"),
    },
)

FLOW_SHAPE: Final = record(
    "the way of a flow, traced hop by hop with packets whose TTL runs out before the far host",
    {
        "src": ident("NIC id that sends"),
        "dst": ident("NIC id that receives"),
        "protocol": among("udp", "tcp"),
        "source_port": PORT_NUMBER,
        "destination_port": PORT_NUMBER,
        "dscp": PATH["dscp"],
        "hops": array(nullable(ident()), "address of each router that answered; null where none did"),
        "complete": {"type": "boolean", "description": "every hop up to the far host answered"},
        "traced_at_ns": instant("the tracing host's clock"),
    },
)

HOST_SHAPE: Final = record(
    "an agent that takes its sessions from the mesh plan, and what it may be told to do",
    {
        "host": ident("the agent's host"),
        "boot_id": ident("the agent's run"),
        "seen_at_ns": instant("the host's clock"),
        "nics": array(
            record(
                "",
                {
                    "id": ident("NIC id host/nic"),
                    "address": ident("IP address"),
                    "clock": ident("clock id of its stamps: the host, or the NIC itself"),
                    "plane": nullable(ident("backend, frontend, …")),
                    "usable": {"type": "boolean", "description": "false: its device, address or namespace is away"},
                    "rdma": nullable(ident("RDMA device by which it answers RoCEv2 probes; absent: none")),
                },
                optional=("plane", "usable", "rdma"),
            )
        ),
        "budget_pps": {**NON_NEGATIVE, "description": "packets/s that it will send for a plan, probes and answers"},
        "reflector_port": PORT_NUMBER,
        "first_port": {**PORT_NUMBER, "description": "first source port that it can use for planned sessions"},
        "ports": {"type": "integer", "minimum": 1, "description": "how many source ports from there"},
        "plan": text("version of the plan that it obeys; empty: none"),
        "sessions": {**NATURAL, "description": "sessions of the plan that it runs"},
        "left_out": {**NATURAL, "description": "sessions of the plan that it does not run"},
    },
    optional=("boot_id", "seen_at_ns", "reflector_port", "first_port", "ports", "plan", "sessions", "left_out"),
)

MESH_SHAPE: Final = record(
    "what one host probes",
    {
        "host": ident("the agent's host"),
        "version": text("changes when anything but epoch and drawn_at_ns does"),
        "epoch": {**NATURAL, "description": "which redraw of the graph it is of"},
        "drawn_at_ns": instant("when it was drawn, bus time; of two plans the later counts"),
        "sessions": array(
            record(
                "one NIC probes another over one source port",
                {
                    "src": ident("NIC id of the Session-Sender, one of the host's"),
                    "dst": ident("NIC id of the Session-Reflector"),
                    "address": ident("IP address of the reflector"),
                    "port": {**PORT_NUMBER, "description": "UDP port of the reflector"},
                    "path": {**PORT_NUMBER, "description": "path selector (UDP source port)"},
                    "dscp": PATH["dscp"],
                    "rate_hz": {"type": "number", "exclusiveMinimum": 0, "description": "probes per second"},
                    "purpose": one_of(dict(PURPOSES)),
                    "transport": one_of({"udp": "as ever; also where it is absent", "rocev2": "by queue pairs"}),
                },
                optional=("transport",),
            ),
            "clocks' sessions first",
        ),
        "probers": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "address to NIC id of those that are told to probe this host",
        },
        "budget_pps": {**NON_NEGATIVE, "description": "packets/s that it may send by a plan, probes and answers"},
        "send_pps": {**NON_NEGATIVE, "description": "probes/s that it sends by this one"},
        "answer_pps": {**NON_NEGATIVE, "description": "answers/s that others' sessions of this one ask of it"},
        "shortfall": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": "what its budget did not allow: clock_rate_hz (wanted, where less was given), "
            "coverage_sessions (left out); empty: nothing",
        },
        "prober_ports": {
            "type": "object",
            "additionalProperties": PORT_NUMBER,
            "description": "address to UDP port of the reflectors of probers",
        },
        "networks": array(text("10.0.0.0/8"), "networks that hold the mesh's NICs: senders from there are answered"),
        "expires_at_ns": instant("bus time from which on this statement is refused; one in force stays; 0: no end"),
        "key_id": text("of the key that signed it"),
        "signature": text("Ed25519 over the RFC 8785 canonical JSON of data without signature, base64"),
    },
    optional=(
        *("probers", "budget_pps", "send_pps", "answer_pps", "shortfall"),
        *("prober_ports", "networks", "expires_at_ns", "key_id", "signature"),
    ),
)

PRODUCER_SHAPE: Final = record(
    "a second producer of a host, which the link refuses",
    {
        "host": ident("the host that both speak for"),
        "refused": text("the process whose messages are refused"),
        "owner": text("the process that spoke for the host first"),
    },
)
