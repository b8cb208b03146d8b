"""The shapes of the rare topics' `data`, as JSON Schema (draft 2020-12); `publish` wraps them into their envelope.

Here are those of observations and verdicts; `shapes_fabric` and `shapes_jobs` have the others.
"""

from __future__ import annotations

from typing import Final, get_args, get_type_hints

from sdfstream.records.fabric import DECLARED_TYPE, FLOW_TYPE, PATH_TYPE, SILENT_TYPE
from sdfstream.records.finding import CAUSES, FINDING_KINDS, Health, Severity, Status, Subject
from sdfstream.records.mesh import HOST_TYPE
from sdfstream.records.producer import PRODUCER_TYPE
from sdfstream.records.schema import (
    PATH,
    Shape,
    among,
    array,
    duration,
    ident,
    instant,
    nullable,
    one_of,
    record,
    sentence,
    text,
)
from sdfstream.records.shapes_fabric import (
    DECLARED_SHAPE,
    FLOW_SHAPE,
    HOST_SHAPE,
    MESH_SHAPE,
    PRODUCER_SHAPE,
    SILENT_SHAPE,
    TRACED_SHAPE,
)
from sdfstream.records.shapes_jobs import COMMAND_SHAPE, JOB_SHAPE, OUTCOME_SHAPE, OVERRIDE_SHAPE
from sdfstream.records.topics import ANOMALY, COMMAND, FINDING, JOB, LIVENESS, MESH, NIC, OUTCOME, OVERRIDE, TOPOLOGY

_EVIDENCE: Final = record(
    "one measured fact",
    {
        "what": text(),
        "value": {"type": "number"},
        "unit": text("of value and baseline"),
        "where": text(),
        "baseline": nullable({"type": "number", "description": "what is normal, where that is known"}),
    },
)

FINDING_SHAPE: Final = record(
    "one statement of a detector; an update repeats the id with a new status and newer evidence",
    {
        "id": text("the same in every statement about one matter"),
        "kind": one_of({kind: meaning for kind, (_, meaning) in FINDING_KINDS.items()}),
        "class": among("link", "node", "workload", "clock", "telemetry", "configuration"),
        "severity": among(*get_args(Severity)),
        "status": among(*get_args(Status)),
        "plane": nullable(ident("backend, frontend, …")),
        "since_at_ns": instant("when it began, reference time (bus time where no clock is known)"),
        "seen_at_ns": instant("bus time of this statement"),
        "resolved_at_ns": nullable(instant("when it ended")),
        "subject": record(
            "what it is about",
            {
                "type": among(*get_args(get_type_hints(Subject)["type"])),
                "id": text(),
                "direction": text(
                    "of a link or NIC at fault in one direction: a->b, or `host/nic tx` (what it sends), `host/nic rx` "
                    "where its switch is not known; absent: both directions, or not told apart"
                ),
            },
            optional=("direction",),
        ),
        "suspects": array(
            record("", {"id": text(), "probability": {"type": "number", "minimum": 0, "maximum": 1}}),
            "ambiguity set, most likely first",
        ),
        "cause": one_of(dict(CAUSES)),
        "confidence": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "probability that subject and cause are right",
        },
        "symptoms": array({"type": "object"}, "finding-like, grouped under this root cause"),
        "evidence": array(_EVIDENCE),
        "jobs": array(text(), "whom it hurts"),
        "remedy": sentence("a sentence a person can follow"),
        "runbook": text("where to read on"),
        "detail": sentence("what to know beside kind and subject: which direction, which rule fired"),
    },
)

LIVENESS_SHAPE: Final = record(
    "an agent's judgement of its paths",
    {
        "host": ident("the agent's host"),
        "boot_id": ident("the agent's run"),
        "seen_at_ns": instant("that host's clock"),
        "complete": {"type": "boolean", "description": "true: `changes` lists every path"},
        "limit_ns": duration(
            "the agent calls a path silent after so long, or three intervals if that is longer; one of a job's watch "
            "sessions sooner. Absent: an agent of a release that did not say"
        ),
        "changes": array(
            record(
                "one path as one end sees it",
                {
                    "observer": ident("NIC id that saw it"),
                    "role": one_of(
                        {
                            "sender": "the round trip of a session it sends",
                            "reflector": "whether a far sender's probes still arrive",
                        }
                    ),
                    **PATH,
                    "state": one_of(
                        {
                            "alive": "answered, or arriving",
                            "silent": "nothing for longer than the limit",
                            "unknown": "the local NIC is absent or cannot send, so nothing can be said",
                        }
                    ),
                    "since_at_ns": instant("in this state since, that host's clock"),
                    "interval_ns": duration("between probes of the path; ns"),
                    "missed": {"type": "integer", "minimum": 0, "description": "probes unanswered in a row"},
                },
            )
        ),
        "troubles": array(
            record(
                "something of the agent itself that fails",
                {
                    "what": text("part of the agent, and what of it"),
                    "why": text("in a sentence"),
                    "since_at_ns": instant("the agent's system clock"),
                },
            ),
            "none: absent",
        ),
        "stopping": {
            "type": "boolean",
            "description": "true: the agent is being stopped in order, and this is its last statement; false: one that "
            "falls silent without such a statement was killed, or its host is. Absent: an agent of a release that did "
            "not say",
        },
    },
    optional=("troubles", "limit_ns", "stopping"),
)

NIC_SHAPE: Final = record(
    "health of one NIC and direction",
    {
        "nic": ident("NIC id host/nic"),
        "direction": one_of({"tx": "what leaves the NIC", "rx": "what arrives at it"}),
        "state": among(*get_args(Health)),
        "since_at_ns": instant("in this state since, bus time"),
        "seen_at_ns": instant("bus time of this statement"),
        "why": sentence("the reason in words"),
    },
)

ANOMALY_SHAPE: Final = record(
    "the fixed delay of a path changed: packets take another way",
    {
        "kind": among("reroute"),
        "at_ns": instant("when it was believed, reference clock; at most some ten seconds after it happened"),
        **PATH,
        "change_ns": {
            "type": "number",
            "description": "by how much half the sum of both directions' fixed delays changed, ns; positive: longer",
        },
    },
)

SHAPES: Final[dict[str, dict[str, Shape]]] = {
    # topic: {CloudEvents type: shape of data}
    FINDING.name: {FINDING.name: FINDING_SHAPE},
    ANOMALY.name: {ANOMALY.name: ANOMALY_SHAPE},
    LIVENESS.name: {LIVENESS.name: LIVENESS_SHAPE},
    NIC.name: {NIC.name: NIC_SHAPE},
    TOPOLOGY.name: {
        DECLARED_TYPE: DECLARED_SHAPE,
        PATH_TYPE: TRACED_SHAPE,
        FLOW_TYPE: FLOW_SHAPE,
        SILENT_TYPE: SILENT_SHAPE,
        HOST_TYPE: HOST_SHAPE,
        PRODUCER_TYPE: PRODUCER_SHAPE,
    },
    MESH.name: {MESH.name: MESH_SHAPE},
    JOB.name: {JOB.name: JOB_SHAPE},
    COMMAND.name: {COMMAND.name: COMMAND_SHAPE},
    OUTCOME.name: {OUTCOME.name: OUTCOME_SHAPE},
    OVERRIDE.name: {OVERRIDE.name: OVERRIDE_SHAPE},
}
"""Of every event topic, each type it carries."""
