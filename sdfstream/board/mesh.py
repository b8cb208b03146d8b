"""The mesh plan as the board shows it: each host's plan, and the plan that its agent follows."""

from __future__ import annotations

from typing import Any

from sdfstream.records.mesh import HostHere, HostPlan, host_here, host_plan
from sdfstream.records.message import Event


class MeshBoard:
    """The last plan of every host, and its agent's last announcement."""

    def __init__(self) -> None:
        self._plans: dict[str, HostPlan] = {}
        self._agents: dict[str, HostHere] = {}

    def take_plan(self, event: Event) -> None:
        """Take a host's plan; FormatError when it is none. A host without sessions and probers has left the mesh."""
        plan = host_plan(event.data)
        if plan.sessions or plan.probers:
            self._plans[plan.host] = plan
        else:
            self._plans.pop(plan.host, None)
            self._agents.pop(plan.host, None)

    def take_agent(self, event: Event) -> None:
        """Take what an agent announces of its host; FormatError when it is none."""
        here = host_here(event.data)
        self._agents[here.host] = here

    def view(self) -> dict[str, Any]:
        """Figures over all hosts."""
        plans = self._plans.values()
        sessions = [s for p in plans for s in p.sessions]
        obeyed = sum(h in self._agents and self._agents[h].plan == p.version for h, p in self._plans.items())
        return {
            "hosts": len(self._plans),
            "waiting": len(self._agents.keys() - self._plans.keys()),
            "obeyed": obeyed,
            "epoch": max((p.epoch for p in plans), default=None),
            "clock_sessions": sum(s.purpose == "clock" for s in sessions),
            "coverage_sessions": sum(s.purpose == "coverage" for s in sessions),
            "worst_share": max(
                ((p.send_pps + p.answer_pps) / p.budget_pps for p in plans if p.budget_pps > 0), default=None
            ),
            "short": sum(bool(p.shortfall) for p in plans),
            "left_out": sum(here.left_out for here in self._agents.values()),
        }

    def hosts(self) -> list[dict[str, Any]]:
        """Every host with a plan or an agent that waits for one."""
        return [self._host(host) for host in sorted(self._plans.keys() | self._agents.keys())]

    def _host(self, host: str) -> dict[str, Any]:
        plan, here = self._plans.get(host), self._agents.get(host)
        return {
            "host": host,
            "state": "unknown" if here is None else "waiting" if plan is None else _obeys(plan, here),
            "plan": plan.version if plan else None,
            "epoch": plan.epoch if plan else None,
            "drawn_at_ns": plan.drawn_at_ns if plan else None,
            "clock_sessions": sum(s.purpose == "clock" for s in plan.sessions) if plan else None,
            "coverage_sessions": sum(s.purpose == "coverage" for s in plan.sessions) if plan else None,
            "send_pps": plan.send_pps if plan else None,
            "answer_pps": plan.answer_pps if plan else None,
            "budget_pps": plan.budget_pps if plan else here.budget_pps if here else None,
            "shortfall": dict(plan.shortfall) if plan else {},
            "left_out": here.left_out if here else None,
        }


def _obeys(plan: HostPlan, here: HostHere) -> str:
    return "obeyed" if here.plan == plan.version else "another"
