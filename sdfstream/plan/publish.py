"""A plan as one event per host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from sdfstream.plan.config import PlanConfig
from sdfstream.plan.draw import COVERAGE, PURPOSES, Plan
from sdfstream.records.mesh import HostPlan, PlannedSession
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import MESH
from sdfstream.records.units import Int64s

_DIGITS: Final = 16


def host_plans(plan: Plan, config: PlanConfig, drawn_at_ns: int) -> Iterator[HostPlan]:
    """The plan of each host."""
    c = plan.columns
    sender, answerer = c.host[plan.src], c.host[plan.dst]
    send = np.bincount(sender, plan.rate_hz, len(c.hosts))
    answer = np.bincount(answerer, plan.rate_hz, len(c.hosts))
    by_sender, by_answerer = _rows(sender, len(c.hosts)), _rows(answerer, len(c.hosts))
    for number, host in enumerate(c.hosts):
        mine = by_sender[number]
        mine = mine[np.argsort(plan.purpose[mine], kind="stable")]
        sessions = tuple(_sessions(plan, mine))
        probers = {c.nics[i].address: c.nics[i].id for i in np.unique(plan.src[by_answerer[number]]).tolist()}
        shortfall: dict[str, float] = {}
        if 0 < plan.clock_rate_hz[number] < config.clock_rate_hz:
            shortfall["clock_rate_hz"] = config.clock_rate_hz
        if plan.unpaid[number]:
            shortfall["coverage_sessions"] = float(plan.unpaid[number])
        figures = (float(plan.budget_pps[number]), float(send[number]), float(answer[number]))
        yield HostPlan(
            host, _version(sessions, probers, shortfall, figures), plan.epoch, drawn_at_ns, sessions, probers,
            *figures, shortfall,
        )  # fmt: skip


def nothing(host: str, epoch: int, drawn_at_ns: int) -> HostPlan:
    """The plan of a host that has left, should it still listen: no session."""
    return HostPlan(host, _version((), {}, {}, ()), epoch, drawn_at_ns, ())


def output(plan: HostPlan, source: str, now_ns: int) -> Output:
    """The event of one host's plan; said again it has the same id."""
    event = Event(MESH.name, source, f"mesh-{plan.host}-{plan.drawn_at_ns}", now_ns, plan.as_data())
    return Output(MESH.name, plan.host, event)


def _rows(host: Int64s, hosts: int) -> list[Int64s]:
    order = np.argsort(host, kind="stable")
    return np.split(order, np.cumsum(np.bincount(host, minlength=hosts))[:-1]) if hosts else []


def _sessions(plan: Plan, rows: Int64s) -> Iterator[PlannedSession]:
    nics = plan.columns.nics
    columns = (plan.src, plan.dst, plan.path, plan.dscp, plan.rate_hz, plan.purpose)
    for s, d, path, dscp, rate, purpose in zip(*(x[rows].tolist() for x in columns), strict=True):
        far = nics[d]
        yield PlannedSession(nics[s].id, far.id, far.address, far.port, path, dscp, rate, PURPOSES[purpose])


def _version(*fields: Any) -> str:
    text = json.dumps(fields, default=_plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _plain(value: Any) -> Any:
    return [getattr(value, name) for name in value.__slots__]


assert PURPOSES[COVERAGE] == "coverage"
