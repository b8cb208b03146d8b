"""The shapes of the rare topics' `data`, as JSON Schema (draft 2020-12); `publish` wraps them into their envelope.

Every object may carry more than is listed: a reader ignores what it does not know, and a later version adds fields.
"""

from __future__ import annotations

from typing import Any, Final, get_args, get_type_hints

from sdfstream.records.finding import CAUSES, FINDING_KINDS, Health, Severity, Status, Subject
from sdfstream.records.topics import FINDING, LIVENESS, NIC, TOPOLOGY

Shape = dict[str, Any]


def _instant(doc: str) -> Shape:
    return {"type": "integer", "description": f"{doc}; ns since the Unix epoch"}


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

SHAPES: Final[dict[str, dict[str, Shape]]] = {
    # topic: {CloudEvents type: shape of data}
    FINDING.name: {FINDING.name: _FINDING},
    LIVENESS.name: {LIVENESS.name: _LIVENESS},
    NIC.name: {NIC.name: _NIC},
    TOPOLOGY.name: {"sdf.state.topology.declared.v1": _DECLARED, "sdf.state.topology.path.v1": _TRACED},
}
"""Of every event topic, each type it carries."""
