"""What the items of each list hold: names, types and meanings, as JSON Schema for OpenAPI. Pure.

``?`` behind a type: null where it is not known. Findings, commands and evidence have more members than are listed; the
whole of a finding is ``schemas/sdf.event.finding.v1.schema.json``.
"""

from __future__ import annotations

from typing import Any, Final

_AGE: Final = ("integer?", "age of the newest message behind it [ns]")
_STATE: Final = ("string", "healthy, unhealthy, unknown or absent")

ITEMS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "nics": {
        "nic": ("string", "NIC id"),
        "host": ("string", "its host"),
        "rail": ("any?", "rail as declared"),
        "tx": _STATE,
        "rx": _STATE,
        "state": ("string", "the worse of tx and rx; unknown where nothing was heard for 5 s"),
        "port": ("string", "state of its port: up, down, disabled, absent, mixed, unknown"),
        "why": ("string", "the reason in words"),
        "since_at_ns": ("integer?", "in this state since [ns since the Unix epoch]"),
        "age_ns": _AGE,
    },
    "paths": {
        "id": ("string", "path id in one text"),
        "src": ("string", "NIC id of the session's sender"),
        "dst": ("string", "NIC id of the session's reflector"),
        "transport": ("string", "udp, rocev2, ib"),
        "path": ("integer", "path selector (UDP source port)"),
        "dscp": ("integer", "class"),
        "dir": ("string", "fwd: sender to reflector; rev: back"),
        "state": ("string", "measured; lost: no exchange came back lately; unknown: no row for 5 s"),
        "owd_p50_ns": ("number?", "one-way delay, mean of the windows' medians, half-life 3 s [ns]"),
        "excess_p50_ns": ("number?", "delay over the path's floor [ns]"),
        "loss": ("number?", "share of exchanges lost; null on rev, since a loss has no direction and is told on fwd"),
        "ce": ("number?", "share of packets that arrived with CE"),
        "err_ns": ("number?", "error bar of the delay [ns]"),
        "age_ns": ("integer", _AGE[1]),
    },
    "links": {
        "link": ("string", "link id"),
        "a": ("string", "one end: NIC id or switch"),
        "b": ("string", "the other end"),
        "speed_bps": ("integer?", "as declared [bit/s]"),
        "state": ("string", "the worse of both directions"),
        "directions": ("array", "a->b and b->a: state, findings, paths known to cross it, paths measured of them"),
        "findings": ("array", "ids of open findings that blame it"),
    },
    "findings": {
        "id": ("string", "finding id"),
        "kind": ("string", "what it is"),
        "status": ("string", "open, update or resolved"),
        "severity": ("string?", "info, warning, urgent"),
        "subject": ("object?", "type and id of what it is about; the direction of what is at fault in one only"),
        "since_at_ns": ("integer?", "began [ns since the Unix epoch]"),
        "resolved_at_ns": ("integer?", "ended [ns since the Unix epoch]"),
        "cause": ("string?", "see the list of causes"),
        "confidence": ("number?", "probability that subject and cause are right"),
        "left_open": ("boolean?", "an earlier run left it open: whether it still holds is unknown"),
        "silence": ("object?", "that covers it now: id, by, until_ns, reason, maintenance; null: none does"),
        "label": ("object?", "what it turned out to be: cause (or false-alarm), by, note, at_ns; null: nobody said"),
    },
    "silences": {
        "id": ("string", "of the override that began it"),
        "state": ("string", "planned, in-force, lifted, over"),
        "type": ("string", "of its subject: finding, nic, link, switch, host, job, clock, path, all"),
        "subject": ("string", "name of its subject; * of all"),
        "kinds": ("array", "kinds of findings that it covers; empty: all"),
        "from_at_ns": ("integer", "begins [ns since the Unix epoch]"),
        "until_ns": ("integer", "over, unless lifted earlier [ns since the Unix epoch]"),
        "by": ("string", "operator"),
        "reason": ("string", "as given"),
        "maintenance": ("boolean", "the loop starts nothing new there meanwhile"),
        "said_at_ns": ("integer", "the controller took it up [ns since the Unix epoch]"),
        "lifted_at_ns": ("integer?", "ended early [ns since the Unix epoch]; null: it was not"),
        "lifted_by": ("string?", "operator who did"),
    },
    "commands": {
        "id": ("string", "command id"),
        "action": ("string", "steer, failover, …"),
        "target": ("object", "type and id of what it changes"),
        "job": ("string?", "job of the target"),
        "mode": ("string?", "observe, dry-run, approve, enforce; null: a proposal that was refused"),
        "state": ("string?", "last outcome; null: none yet"),
        "waits": ("string?", "why there is no outcome yet"),
        "why": ("string?", "the reason of the last outcome"),
        "began_at_ns": ("integer?", "first statement [ns since the Unix epoch]"),
        "in_force": ("boolean", "its lease runs, and agents are to obey it"),
        "lease_left_ns": ("integer?", "[ns]"),
        "gain": ("number?", "throughput after over throughput before"),
    },
    "alerts": {
        "id": ("string", "receiver and fingerprint"),
        "fingerprint": ("string", "Alertmanager's, of the labels"),
        "receiver": ("string", "by whose webhook it came"),
        "status": ("string", "firing, resolved"),
        "labels": ("object", "as given"),
        "annotations": ("object", "as given"),
        "finding": ("string?", "id of the finding that it is; null: it is none of ours"),
        "starts_at_ns": ("integer", "began [ns since the Unix epoch]"),
        "ends_at_ns": ("integer?", "ended [ns since the Unix epoch]; null: it goes on"),
        "received_at_ns": ("integer", "the webhook came [ns since the Unix epoch]"),
    },
    "jobs": {
        "job": ("string", "job id"),
        "name": ("string", "its name"),
        "state": ("string", "running, ended"),
        "hosts": ("array", "its hosts"),
        "stale_hosts": ("array", "those of them whose agent is silent: nothing is known of them now"),
        "ranks": ("integer", "number of ranks"),
        "qps": ("integer", "number of queue pairs"),
        "throughput_bps": ("number?", "payload acknowledged, newest 5 s [bit/s]"),
        "usual_bps": ("number?", "median of the stretches before [bit/s]"),
        "slow": ("boolean?", "below 80 % of what is usual; null: not known"),
        "slowest_qp": ("string?", "queue pair that got least"),
        "slowest_bps": ("number?", "[bit/s]"),
        "findings": ("array", "ids of open findings that hurt it"),
        "commands": ("integer", "commands in force"),
    },
    "topology": {
        "id": ("string", "type and name"),
        "type": ("string", "node, nic, route"),
    },
    "clocks": {
        "clock": ("string", "clock id"),
        "status": ("string", "synced, holdover, unsynced, faulty; unknown: not told for 5 s"),
        "offset_ns": ("number?", "that clock − reference [ns]"),
        "skew_ppb": ("number?", "positive: fast [ppb]"),
        "err_ns": ("number?", "|true error| is at most this at 99.9 % [ns]"),
        "age_ns": _AGE,
    },
    "mesh": {
        "host": ("string", "host"),
        "state": ("string", "obeyed, another (plan), waiting (for one), unknown (no agent said anything)"),
        "plan": ("string?", "version"),
        "epoch": ("integer?", "redraw of the graph"),
        "drawn_at_ns": ("integer?", "[ns since the Unix epoch]"),
        "clock_sessions": ("integer?", "sessions planned for clocks"),
        "coverage_sessions": ("integer?", "sessions planned for coverage"),
        "send_pps": ("number?", "probes sent by this plan [1/s]"),
        "answer_pps": ("number?", "answers asked of it [1/s]"),
        "budget_pps": ("number?", "most that it may send [1/s]"),
        "shortfall": ("object", "what the budget did not allow"),
        "left_out": ("integer?", "sessions that the agent does not run"),
    },
    "cells": {
        "src": ("string", "sending host or leaf"),
        "by": ("string", "host or leaf"),
        "left_out": ("integer", "groups beyond the most that a map has"),
        "dst": ("array", "receiving hosts or leaves; the lists below are in the same order"),
        "values": ("array", "the percentile over the cell's paths; null: not known"),
        "floor_ns": ("array", "least delay without queues [ns]; null: not known"),
        "paths": ("array", "paths known"),
        "measured": ("array", "paths of which the figure is known now"),
        "lost": ("array", "paths of which every exchange is lost now"),
    },
    "qps": {
        "id": ("string", "job and queue pair"),
        "qp": ("string", "queue pair id"),
        "job": ("string", "its job"),
        "src": ("string", "NIC that sends"),
        "dst": ("string", "NIC that receives"),
        "path": ("integer?", "source port now"),
        "rank": ("integer", "rank that sends"),
        "peer_rank": ("integer", "rank that receives"),
        "rate_bps": ("number?", "payload acknowledged while it had something to send; null: it had nothing [bit/s]"),
        "owd_ns": ("number?", "mean of the windows' median one-way delays [ns]"),
        "err_ns": ("number?", "error bar of the delay [ns]"),
        "ce_share": ("number?", "of its packets"),
        "resent_share": ("number?", "of its packets"),
        "chunks": ("integer", "chunks acknowledged"),
        "elements": ("array", "elements of the fabric that data and answers cross, as far as traced"),
        "armed": ("boolean", "a failover is armed for it"),
    },
    "why": {
        "job": ("string", "job id"),
        "network": ("string", "whether the network holds it up: yes, no, cannot tell"),
        "case": ("string", "which case of the answer it is"),
        "sentences": ("array", "the answer"),
        "advice": ("string", "what a person should do"),
        "where": ("string", "subject of the first finding"),
        "since_at_ns": ("integer?", "since when [ns since the Unix epoch]"),
        "findings": ("array", "ids of the findings behind it"),
        "commands": ("array", "ids of the commands that concern it"),
        "jobs": ("array", "other jobs that are hurt or slow too"),
    },
    "loop": {
        "id": ("string", "mode, or type and id"),
        "type": ("string", "mode, override"),
        "mode": ("string?", "as an operator set it last; null: the mode of the settings is in force"),
        "operator": ("string?", "who"),
        "said_at_ns": ("integer?", "when [ns since the Unix epoch]"),
        "waiting": ("integer?", "commands that wait for approval"),
    },
    "pipeline": {
        "id": ("string", "type and name"),
        "type": ("string", "topic, reader, counter, hosts"),
        "name": ("string", "its name"),
        "messages_per_s": ("number?", "of a topic"),
        "rows_per_s": ("number?", "of a topic"),
        "age_ns": ("integer?", "of the newest message [ns]"),
        "lag": ("integer?", "messages that a reader has not read yet"),
        "count": ("integer?", "of what was counted; hosts known"),
        "stale": ("integer?", "hosts that are silent"),
    },
}


def schema_of(resource: str) -> dict[str, Any]:
    """JSON Schema of an item."""
    fields = {name: _type(kind) | {"description": doc} for name, (kind, doc) in ITEMS[resource].items()}
    required = [name for name in fields if name not in _MAY_BE_ABSENT]
    return {"type": "object", "properties": fields, "required": required}


_MAY_BE_ABSENT: Final = frozenset(
    {"left_open", "resolved_at_ns", "severity", "subject", "since_at_ns", "cause", "confidence"}
)


def _type(kind: str) -> dict[str, Any]:
    name = kind.removesuffix("?")
    if name == "any":
        return {}
    return {"type": [name, "null"] if kind.endswith("?") else name}
