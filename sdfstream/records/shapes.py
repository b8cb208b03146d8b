"""The shapes of the rare topics' `data`, as JSON Schema (draft 2020-12); `publish` wraps them into their envelope.

Every object may carry more than is listed: a reader ignores what it does not know, and a later version adds fields.
"""

from __future__ import annotations

from typing import Any, Final, get_args, get_type_hints

from sdfstream.records.command import ACTIONS, MODES, STATES
from sdfstream.records.finding import CAUSES, FINDING_KINDS, Health, Severity, Status, Subject
from sdfstream.records.flow import FLOW_TYPE
from sdfstream.records.mesh import HOST_TYPE, PURPOSES
from sdfstream.records.topics import ANOMALY, COMMAND, FINDING, JOB, LIVENESS, MESH, NIC, OUTCOME, OVERRIDE, TOPOLOGY

Shape = dict[str, Any]


INSTANT: Final = "; ns since the Unix epoch"
"""How the description of every instant ends; `instants` knows them by it."""


def _instant(doc: str) -> Shape:
    return {"type": "integer", "description": f"{doc}{INSTANT}"}


def _text(doc: str = "") -> Shape:
    return {"type": "string", "description": doc} if doc else {"type": "string"}


def _one_of(values: dict[str, str]) -> Shape:
    """A string out of a list whose members are explained."""
    return {"oneOf": [{"const": value, "description": doc} for value, doc in values.items()]}


def _among(*values: str, doc: str = "") -> Shape:
    return {"enum": list(values), **({"description": doc} if doc else {})}


def _list(items: Shape, doc: str = "") -> Shape:
    return {"type": "array", "items": items, **({"description": doc} if doc else {})}


def _null(shape: Shape) -> Shape:
    """`shape` or null."""
    rest = {key: value for key, value in shape.items() if key != "type"}
    return {"type": [shape["type"], "null"], **rest}


def _thing(doc: str, properties: dict[str, Shape], *, optional: tuple[str, ...] = ()) -> Shape:
    """An object all of whose properties but `optional` must be there."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "description": doc, "properties": properties, "required": required}


_PATH: Final = {
    "src": _text("NIC id of the Session-Sender"),
    "dst": _text("NIC id of the Session-Reflector"),
    "transport": _among("udp", "rocev2", "ib"),
    "path": {"type": "integer", "minimum": 0, "description": "path selector (UDP source port)"},
    "dscp": {"type": "integer", "minimum": 0, "maximum": 63, "description": "class, DSCP as sent"},
}

_EVIDENCE: Final = _thing(
    "one measured fact",
    {
        "what": _text(),
        "value": {"type": "number"},
        "unit": _text("of value and baseline"),
        "where": _text(),
        "baseline": _null({"type": "number", "description": "what is normal, where that is known"}),
    },
)

_FINDING: Final = _thing(
    "one statement of a detector; an update repeats the id with a new status and newer evidence",
    {
        "id": _text("the same in every statement about one matter"),
        "kind": _one_of({kind: meaning for kind, (_, meaning) in FINDING_KINDS.items()}),
        "class": _among("link", "node", "workload", "clock", "telemetry", "configuration"),
        "severity": _among(*get_args(Severity)),
        "status": _among(*get_args(Status)),
        "plane": _null(_text("backend, frontend, …")),
        "since_at_ns": _instant("when it began, reference time (bus time where no clock is known)"),
        "seen_at_ns": _instant("bus time of this statement"),
        "resolved_at_ns": _null(_instant("when it ended")),
        "subject": _thing(
            "what it is about",
            {"type": _among(*get_args(get_type_hints(Subject)["type"])), "id": _text()},
        ),
        "suspects": _list(
            _thing("", {"id": _text(), "probability": {"type": "number", "minimum": 0, "maximum": 1}}),
            "ambiguity set, most likely first",
        ),
        "cause": _one_of(dict(CAUSES)),
        "confidence": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "probability that subject and cause are right",
        },
        "symptoms": _list({"type": "object"}, "finding-like, grouped under this root cause"),
        "evidence": _list(_EVIDENCE),
        "jobs": _list(_text(), "whom it hurts"),
        "remedy": _text("a sentence a person can follow"),
        "runbook": _text("where to read on"),
        "detail": _text("what to know beside kind and subject: which direction, which rule fired"),
    },
)

_LIVENESS: Final = _thing(
    "an agent's judgement of its paths",
    {
        "host": _text("the agent's host"),
        "boot_id": _text("the agent's run"),
        "seen_at_ns": _instant("that host's clock"),
        "complete": {"type": "boolean", "description": "true: `changes` lists every path"},
        "changes": _list(
            _thing(
                "one path as one end sees it",
                {
                    "observer": _text("NIC id that saw it"),
                    "role": _one_of(
                        {
                            "sender": "the round trip of a session it sends",
                            "reflector": "whether a far sender's probes still arrive",
                        }
                    ),
                    **_PATH,
                    "state": _one_of(
                        {
                            "alive": "answered, or arriving",
                            "silent": "nothing for longer than the limit",
                            "unknown": "the local NIC is absent or cannot send, so nothing can be said",
                        }
                    ),
                    "since_at_ns": _instant("in this state since, that host's clock"),
                    "interval_ns": {"type": "integer", "description": "between probes of the path; ns"},
                    "missed": {"type": "integer", "minimum": 0, "description": "probes unanswered in a row"},
                },
            )
        ),
    },
)

_NIC: Final = _thing(
    "health of one NIC and direction",
    {
        "nic": _text("NIC id host/nic"),
        "direction": _one_of({"tx": "what leaves the NIC", "rx": "what arrives at it"}),
        "state": _among(*get_args(Health)),
        "since_at_ns": _instant("in this state since, bus time"),
        "seen_at_ns": _instant("bus time of this statement"),
        "why": _text("the reason in words"),
    },
)

_END: Final = _thing(
    "one end of a link",
    {"node": _text("host, leaf or spine"), "port": _text(), "address": _null(_text("IP address"))},
    optional=("address",),
)

_DECLARED: Final = _thing(
    "the cabling as planned; never the truth of a lab or twin",
    {
        "nodes": _list(_thing("", {"id": _text(), "kind": _among("host", "leaf", "spine")})),
        "links": _list(
            _thing("", {"id": _text("a--b"), "a": _END, "b": _END, "speed_mbps": {"type": "integer", "minimum": 0}})
        ),
        "nics": _list(
            _thing(
                "",
                {
                    "id": _text("host/nic"),
                    "host": _text(),
                    "address": _text("IP address"),
                    "link": _text("the NIC's link to its leaf"),
                    "rail": {"type": "integer", "minimum": 0},
                    "plane": _text("backend, frontend, …"),
                },
            )
        ),
    },
)

_TRACED: Final = _thing(
    "a path traced hop by hop",
    {
        **_PATH,
        "dir": _among("fwd", "rev"),
        "hops": _list(_null(_text()), "address of each router that answered; null where none did"),
        "complete": {"type": "boolean", "description": "every hop up to the reflector answered"},
        "traced_at_ns": _instant("the tracing host's clock"),
    },
)

_PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
_FLOW: Final = _thing(
    "the way of a flow, traced hop by hop with packets whose TTL runs out before the far host",
    {
        "src": _text("NIC id that sends"),
        "dst": _text("NIC id that receives"),
        "protocol": _among("udp", "tcp"),
        "source_port": _PORT,
        "destination_port": _PORT,
        "dscp": _PATH["dscp"],
        "hops": _list(_null(_text()), "address of each router that answered; null where none did"),
        "complete": {"type": "boolean", "description": "every hop up to the far host answered"},
        "traced_at_ns": _instant("the tracing host's clock"),
    },
)

_whole: Final = {"type": "integer", "minimum": 0}
_positive: Final = {"type": "number", "minimum": 0}
_HOST: Final = _thing(
    "an agent that takes its sessions from the mesh plan, and what it may be told to do",
    {
        "host": _text("the agent's host"),
        "boot_id": _text("the agent's run"),
        "seen_at_ns": _instant("the host's clock"),
        "nics": _list(
            _thing(
                "",
                {
                    "id": _text("NIC id host/nic"),
                    "address": _text("IP address"),
                    "clock": _text("clock id of its stamps: the host, or the NIC itself"),
                    "plane": _null(_text("backend, frontend, …")),
                    "usable": {"type": "boolean", "description": "false: its device, address or namespace is away"},
                },
                optional=("plane", "usable"),
            )
        ),
        "budget_pps": {**_positive, "description": "packets/s that it will send for a plan, probes and answers"},
        "reflector_port": _PORT,
        "first_port": {**_PORT, "description": "first source port that it can use for planned sessions"},
        "ports": {"type": "integer", "minimum": 1, "description": "how many source ports from there"},
        "plan": _text("version of the plan that it obeys; empty: none"),
        "sessions": {**_whole, "description": "sessions of the plan that it runs"},
        "left_out": {**_whole, "description": "sessions of the plan that it does not run"},
    },
    optional=("boot_id", "seen_at_ns", "reflector_port", "first_port", "ports", "plan", "sessions", "left_out"),
)

_MESH: Final = _thing(
    "what one host probes",
    {
        "host": _text("the agent's host"),
        "version": _text("changes when anything but epoch and drawn_at_ns does"),
        "epoch": {**_whole, "description": "which redraw of the graph it is of"},
        "drawn_at_ns": _instant("when it was drawn, bus time; of two plans the later counts"),
        "sessions": _list(
            _thing(
                "one NIC probes another over one source port",
                {
                    "src": _text("NIC id of the Session-Sender, one of the host's"),
                    "dst": _text("NIC id of the Session-Reflector"),
                    "address": _text("IP address of the reflector"),
                    "port": {**_PORT, "description": "UDP port of the reflector"},
                    "path": {**_PORT, "description": "path selector (UDP source port)"},
                    "dscp": _PATH["dscp"],
                    "rate_hz": {"type": "number", "exclusiveMinimum": 0, "description": "probes per second"},
                    "purpose": _one_of(dict(PURPOSES)),
                },
            ),
            "clocks' sessions first",
        ),
        "probers": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "address to NIC id of those that are told to probe this host",
        },
        "budget_pps": {**_positive, "description": "packets/s that it may send by a plan, probes and answers"},
        "send_pps": {**_positive, "description": "probes/s that it sends by this one"},
        "answer_pps": {**_positive, "description": "answers/s that others' sessions of this one ask of it"},
        "shortfall": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": "what its budget did not allow: clock_rate_hz (wanted, where less was given), "
            "coverage_sessions (left out); empty: nothing",
        },
    },
    optional=("probers", "budget_pps", "send_pps", "answer_pps", "shortfall"),
)
_QP: Final = _thing(
    "the sending end of a queue pair, or a kernel flow that is treated as one",
    {
        "qp": _text("host/nic#number"),
        "rank": _whole,
        "peer_rank": _whole,
        "src": _text("NIC id that sends"),
        "dst": _text("NIC id that receives"),
        "dst_address": _text("IP address"),
        "path": {**_PORT, "description": "source port now: what steering changes"},
        "dst_port": _PORT,
        "protocol": _among("udp", "tcp"),
        "transport": _among("udp", "rocev2", "ib"),
        "dscp": _PATH["dscp"],
        "answer_path": _null({"type": "integer", "description": "source port of the answers; null: as path"}),
        "answer_port": _null({"type": "integer", "description": "destination port of the answers; null: dst_port"}),
        "steering": _one_of(
            {
                "socket": "by the control socket of the process that owns it",
                "kernel": "its source port is rewritten on the host",
                "none": "not at all",
            }
        ),
        "alternates": _list(_PORT, "source ports that it may be moved to"),
        "rate_bps": _null({"type": "integer", "description": "limit in force; null: none"}),
    },
)

_JOB: Final = _thing(
    "one host's share of a job",
    {
        "job": _text("job id"),
        "host": _text(),
        "state": _among("running", "ended"),
        "name": _text("what a person calls it"),
        "since_at_ns": _instant("in this state since, the host's clock"),
        "seen_at_ns": _instant("the host's clock"),
        "source": _one_of({"dropdir": "a file in the agent's drop directory", "process": "the job's own process"}),
        "ranks": _list(_thing("", {"rank": _whole, "nics": _list(_text("NIC id")), "pid": _null({"type": "integer"})})),
        "qps": _list(_QP, "queue pairs whose sending end is on this host"),
        "receives": _list(_QP, "queue pairs whose receiving end is on this host"),
        "control": _text("unix socket of the process that owns them; empty: none"),
    },
)

_TARGET: Final = _thing(
    "what it is done to",
    {"type": _among("qp", "job", "command"), "id": _text(), "host": _text("where it is done"), "job": _text()},
    optional=("host", "job"),
)
_OPEN: Final = {"type": "object"}
_SIGNED: Final = {
    "key_id": _text("first 16 hex digits of the SHA-256 of the raw public key"),
    "signature": _text("Ed25519, base64, over the RFC 8785 canonical JSON of data without signature; integers of any "
                       "size as their digits"),
}  # fmt: skip

_COMMAND: Final = _thing(
    "a leased, signed, reversible command",
    {
        "id": _text("the same in every renewal"),
        "epoch": {"type": "integer", "description": "fencing: agents refuse any lower than the highest they have seen"},
        "issued_at_ns": _instant("bus time; the later of two statements counts, an equal or earlier one is a replay"),
        "expires_at_ns": _instant("end of the lease, bus time"),
        "mode": _among(*MODES),
        "action": _one_of(dict(ACTIONS)),
        "target": _TARGET,
        "expected": {**_OPEN, "description": "what must be in force, else it is refused"},
        "set": {**_OPEN, "description": "what to do; by action, see sdfstream.records.command.Command"},
        "undo": {**_OPEN, "description": "how it is taken back"},
        "reason": _list(_text("finding id")),
        **_SIGNED,
    },
)

_OUTCOME: Final = _thing(
    "what became of a command",
    {
        "command": _text("command id"),
        "state": _one_of(dict(STATES)),
        "why": _text("a sentence"),
        "host": _text("an agent's host, or controller"),
        "at_ns": _instant("when it was said: the agent's clock, or bus time from the controller"),
        "action": _text(),
        "target": _OPEN,
        "applied_at_ns": _null(_instant("when it was done, the agent's clock")),
        "before": {**_OPEN, "description": "settings and measurements before"},
        "after": {**_OPEN, "description": "settings and measurements after"},
        "reason": _list(_text("finding id")),
    },
    optional=("action", "target", "applied_at_ns", "before", "after", "reason"),
)

_OVERRIDE: Final = _thing(
    "an operator's hand",
    {
        "id": _text(),
        "issued_at_ns": _instant("bus time"),
        "expires_at_ns": _instant("after this it has no force"),
        "what": _among("approve", "refuse", "undo", "mode", "hold"),
        "operator": _text("who"),
        "command": _text("command id"),
        "target": _OPEN,
        "set": _OPEN,
        **_SIGNED,
    },
    optional=("command", "target", "set"),
)

_ANOMALY: Final = _thing(
    "the fixed delay of a path changed: packets take another way",
    {
        "kind": _among("reroute"),
        "at_ns": _instant("when it was believed, reference clock; at most some ten seconds after it happened"),
        **_PATH,
        "change_ns": {
            "type": "number",
            "description": "by how much half the sum of both directions' fixed delays changed, ns; positive: longer",
        },
    },
)

SHAPES: Final[dict[str, dict[str, Shape]]] = {
    # topic: {CloudEvents type: shape of data}
    FINDING.name: {FINDING.name: _FINDING},
    ANOMALY.name: {ANOMALY.name: _ANOMALY},
    LIVENESS.name: {LIVENESS.name: _LIVENESS},
    NIC.name: {NIC.name: _NIC},
    TOPOLOGY.name: {
        "sdf.state.topology.declared.v1": _DECLARED,
        "sdf.state.topology.path.v1": _TRACED,
        FLOW_TYPE: _FLOW,
        HOST_TYPE: _HOST,
    },
    MESH.name: {MESH.name: _MESH},
    JOB.name: {JOB.name: _JOB},
    COMMAND.name: {COMMAND.name: _COMMAND},
    OUTCOME.name: {OUTCOME.name: _OUTCOME},
    OVERRIDE.name: {OVERRIDE.name: _OVERRIDE},
}
"""Of every event topic, each type it carries."""
