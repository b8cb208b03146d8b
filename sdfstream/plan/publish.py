"""A plan as one event per host, signed: an agent probes whom it is told to, so it must know who tells it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sdfstream.plan.config import PlanConfig
from sdfstream.plan.draw import COVERAGE, PURPOSES, Plan
from sdfstream.plan.networks import covering
from sdfstream.records.mesh import TRANSPORTS, HostPlan, PlannedSession
from sdfstream.records.message import Event, Output
from sdfstream.records.signature import Signer
from sdfstream.records.topics import MESH
from sdfstream.records.units import NS_PER_S, Int64s

VALID_NS: Final = 600 * NS_PER_S
"""A statement of a plan is refused when it comes later than this after it was made. Said again it is signed anew."""
_DIGITS: Final = 16


def host_plans(plan: Plan, config: PlanConfig, drawn_at_ns: int) -> Iterator[HostPlan]:
    """The plan of each host."""
    c = plan.columns
    sender, answerer = c.host[plan.src], c.host[plan.dst]
    send = np.bincount(sender, plan.rate_hz, len(c.hosts))
    answer = np.bincount(answerer, plan.rate_hz, len(c.hosts))
    networks = covering(nic.address for nic in c.nics)
    by_sender, by_answerer = _rows(sender, len(c.hosts)), _rows(answerer, len(c.hosts))
    for number, host in enumerate(c.hosts):
        mine = by_sender[number]
        mine = mine[np.argsort(plan.purpose[mine], kind="stable")]
        sessions = tuple(_sessions(plan, mine))
        senders = [c.nics[i] for i in np.unique(plan.src[by_answerer[number]]).tolist()]
        probers = {nic.address: nic.id for nic in senders}
        ports = {nic.address: nic.port for nic in senders}
        shortfall: dict[str, float] = {}
        if 0 < plan.clock_rate_hz[number] < config.clock_rate_hz:
            shortfall["clock_rate_hz"] = config.clock_rate_hz
        if plan.unpaid[number]:
            shortfall["coverage_sessions"] = float(plan.unpaid[number])
        figures = (float(plan.budget_pps[number]), float(send[number]), float(answer[number]))
        yield HostPlan(
            host, _version(sessions, probers, shortfall, figures), plan.epoch, drawn_at_ns, sessions, probers,
            *figures, shortfall, ports, networks,
        )  # fmt: skip


def nothing(host: str, epoch: int, drawn_at_ns: int) -> HostPlan:
    """The plan of a host that has left, should it still listen: no session."""
    return HostPlan(host, _version((), {}, {}, ()), epoch, drawn_at_ns, ())


def output(plan: HostPlan, source: str, now_ns: int, signer: Signer) -> Output:
    """The event of one host's plan; said again it has the same id, and a later end."""
    data = signer.sign(replace(plan, expires_at_ns=now_ns + VALID_NS).as_data())
    event = Event(MESH.name, source, f"mesh-{plan.host}-{plan.drawn_at_ns}", now_ns, data)
    return Output(MESH.name, plan.host, event)


def _rows(host: Int64s, hosts: int) -> list[Int64s]:
    order = np.argsort(host, kind="stable")
    return np.split(order, np.cumsum(np.bincount(host, minlength=hosts))[:-1]) if hosts else []


def _sessions(plan: Plan, rows: Int64s) -> Iterator[PlannedSession]:
    nics = plan.columns.nics
    columns = (plan.src, plan.dst, plan.path, plan.dscp, plan.rate_hz, plan.purpose, plan.transport)
    for s, d, path, dscp, rate, purpose, by in zip(*(x[rows].tolist() for x in columns), strict=True):
        far = nics[d]
        what = PURPOSES[purpose], TRANSPORTS[by]
        yield PlannedSession(nics[s].id, far.id, far.address, far.port, path, dscp, rate, *what)


def _version(*fields: Any) -> str:
    text = json.dumps(fields, default=_plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _plain(value: Any) -> Any:
    """A session's fields; without its transport where that is UDP, so that such a plan's version stays."""
    fields = [getattr(value, name) for name in value.__slots__]
    return fields[:-1] if fields[-1] == "udp" else fields


assert PURPOSES[COVERAGE] == "coverage"
