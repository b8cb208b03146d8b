"""Shapes of jobs and of what is done to them: job shards, commands, outcomes, operators' overrides."""

from __future__ import annotations

from typing import Final

from sdfstream.records.command import ACTIONS, MODES, OVERRIDES, STATES
from sdfstream.records.schema import (
    NATURAL,
    PATH,
    PORT_NUMBER,
    among,
    array,
    ident,
    instant,
    nullable,
    one_of,
    record,
    sentence,
    text,
)

_QP: Final = record(
    "the sending end of a queue pair, or a kernel flow that is treated as one",
    {
        "qp": ident("host/nic#number"),
        "rank": NATURAL,
        "peer_rank": NATURAL,
        "src": ident("NIC id that sends"),
        "dst": ident("NIC id that receives"),
        "dst_address": ident("IP address"),
        "path": {**PORT_NUMBER, "description": "source port now: what steering changes"},
        "dst_port": PORT_NUMBER,
        "protocol": among("udp", "tcp"),
        "transport": among("udp", "rocev2", "ib"),
        "dscp": PATH["dscp"],
        "answer_path": nullable({**PORT_NUMBER, "description": "source port of the answers; null: as path"}),
        "answer_port": nullable({**PORT_NUMBER, "description": "destination port of the answers; null: dst_port"}),
        "steering": one_of(
            {
                "socket": "by the control socket of the process that owns it",
                "kernel": "its source port is rewritten on the host",
                "none": "not at all",
            }
        ),
        "alternates": array(PORT_NUMBER, "source ports that it may be moved to"),
        "rate_bps": nullable({"type": "integer", "description": "limit in force; null: none"}),
        "src_address": text("IP address that it sends from; empty: not told"),
        "peer_qp": text("id of the queue pair at its far end, whose own packets the answers are; empty: none is known"),
        "counted": one_of(
            {
                "sent": "a kernel flow's throughput is counted by the sending host",
                "received": "by the receiving host, since its program sends on whatever arrives (UDP)",
            }
        ),
    },
    optional=("src_address", "peer_qp", "counted"),
)

JOB_SHAPE: Final = record(
    "one host's share of a job",
    {
        "job": ident("job id"),
        "host": ident(),
        "state": among("running", "ended"),
        "name": ident("what a person calls it"),
        "since_at_ns": instant("in this state since, the host's clock"),
        "seen_at_ns": instant("the host's clock"),
        "source": one_of({"dropdir": "a file in the agent's drop directory", "process": "the job's own process"}),
        "ranks": array(
            record("", {"rank": NATURAL, "nics": array(ident("NIC id")), "pid": nullable({"type": "integer"})})
        ),
        "qps": array(_QP, "queue pairs whose sending end is on this host"),
        "receives": array(_QP, "queue pairs whose receiving end is on this host"),
        "control": text("unix socket of the process that owns them; empty: none"),
    },
)

_TARGET: Final = record(
    "what it is done to",
    {"type": among("qp", "job", "command"), "id": text(), "host": ident("where it is done"), "job": ident()},
    optional=("host", "job"),
)
_OPEN: Final = {"type": "object"}
_SIGNED: Final = {
    "key_id": ident("first 16 hex digits of the SHA-256 of the raw public key"),
    "signature": text("Ed25519, base64, over the RFC 8785 canonical JSON of data without signature; integers of any "
                       "size as their digits"),
}  # fmt: skip

COMMAND_SHAPE: Final = record(
    "a leased, signed, reversible command",
    {
        "id": text("the same in every renewal"),
        "epoch": {"type": "integer", "description": "fencing: agents refuse any lower than the highest they have seen"},
        "issued_at_ns": instant("bus time; the later of two statements counts, an equal or earlier one is a replay"),
        "expires_at_ns": instant("end of the lease, bus time"),
        "mode": among(*MODES),
        "action": one_of(dict(ACTIONS)),
        "target": _TARGET,
        "expected": {**_OPEN, "description": "what must be in force, else it is refused"},
        "set": {**_OPEN, "description": "what to do; by action, see sdfstream.records.command.Command"},
        "undo": {**_OPEN, "description": "how it is taken back"},
        "reason": array(text("finding id")),
        **_SIGNED,
    },
)

OUTCOME_SHAPE: Final = record(
    "what became of a command",
    {
        "command": text("command id"),
        "state": one_of(dict(STATES)),
        "why": sentence("a sentence"),
        "host": ident("an agent's host, or controller"),
        "at_ns": instant("when it was said: the agent's clock, or bus time from the controller"),
        "action": text(),
        "target": _OPEN,
        "applied_at_ns": nullable(instant("when it was done, the agent's clock")),
        "before": {**_OPEN, "description": "settings and measurements before"},
        "after": {**_OPEN, "description": "settings and measurements after"},
        "reason": array(text("finding id")),
    },
    optional=("action", "target", "applied_at_ns", "before", "after", "reason"),
)

OVERRIDE_SHAPE: Final = record(
    "an operator's hand",
    {
        "id": text(),
        "issued_at_ns": instant("bus time"),
        "expires_at_ns": instant("after this it has no force"),
        "what": among(*OVERRIDES),
        "operator": ident("who"),
        "command": text("command id"),
        "target": _OPEN,
        "set": _OPEN,
        **_SIGNED,
    },
    optional=("command", "target", "set"),
)
