"""The mesh plan as the board shows it: what hosts were told, and what their agents say they do."""

from __future__ import annotations

from typing import Any

from sdfstream.records.mesh import HostHere, HostPlan, host_here, host_plan
from sdfstream.records.message import Event


class MeshBoard:
    """The last plan of every host, and its agent's last word."""

    def __init__(self) -> None:
        self._plans: dict[str, HostPlan] = {}
        self._here: dict[str, HostHere] = {}

    def take(self, event: Event) -> None:
        """A plan; FormatError when it is none. A host that probes nobody and that nobody probes has left."""
        plan = host_plan(event.data)
        if plan.sessions or plan.probers:
            self._plans[plan.host] = plan
        else:
            self._plans.pop(plan.host, None)
            self._here.pop(plan.host, None)

    def hear(self, event: Event) -> None:
        """An agent's word; FormatError when it is none."""
        here = host_here(event.data)
        self._here[here.host] = here

    def view(self) -> dict[str, Any]:
        """Figures over all hosts."""
        plans = self._plans.values()
        sessions = [s for p in plans for s in p.sessions]
        obeyed = sum(h in self._here and self._here[h].plan == p.version for h, p in self._plans.items())
        return {
            "hosts": len(self._plans),
            "waiting": len(self._here.keys() - self._plans.keys()),
            "obeyed": obeyed,
            "epoch": max((p.epoch for p in plans), default=None),
            "clock_sessions": sum(s.purpose == "clock" for s in sessions),
            "coverage_sessions": sum(s.purpose == "coverage" for s in sessions),
            "worst_share": max(
                ((p.send_pps + p.answer_pps) / p.budget_pps for p in plans if p.budget_pps > 0), default=None
            ),
            "short": sum(bool(p.shortfall) for p in plans),
            "left_out": sum(here.left_out for here in self._here.values()),
        }
