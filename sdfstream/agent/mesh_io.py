"""An agent and the mesh plan: says what the agent has, hands plans to its hosts.

It speaks at the start, when a NIC comes or goes, when it has taken a plan, every few seconds while it has none, and
once a minute otherwise. With what it says goes the version that it obeys, so a plan that got lost is said again. While
nobody plans, the last plan stays in force.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sdfstream.agent.companion import HostPort
from sdfstream.errors import FormatError
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.mesh import HOST_TYPE, HostHere, HostPlan, NicHere, host_plan
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import MESH, TOPOLOGY
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

SPEAK_NS: Final = 60 * NS_PER_S
"""Between two words of an agent that obeys a plan."""
ASK_NS: Final = 5 * NS_PER_S
"""Between two words of an agent without one."""
_LEAST_NS: Final = NS_PER_S
"""A NIC that flaps is not told more often."""
PLANNER: Final = "plan"
"""The source of plans that are obeyed."""


@dataclass(slots=True)
class _Host:
    port: HostPort
    clock: Clock
    spoke_at: int = -SPEAK_NS
    """Steady clock."""
    said: tuple[object, ...] = ()
    number: int = 0
    refused: set[str] = field(default_factory=set)


class MeshFollower:
    """Follows the mesh plan on every host of one agent process.

    Parameters
    ----------
    config : AgentConfig
    boot_id : str
    learned : callable
        Called with (NIC id, address) of those that a plan names.
    """

    def __init__(self, config: AgentConfig, boot_id: str, learned: Callable[[str, str], None]) -> None:
        self.counters = Counters("mesh")
        self._config = config
        self._boot_id = boot_id
        self._learned = learned
        self._clocks = {h.host: Clock(h.virtual_clock) for h in config.hosts}
        self._hosts: dict[str, _Host] = {}
        self._waiting: dict[str, HostPlan] = {}

    def attach(self, hosts: Sequence[HostPort]) -> None:
        """The hosts, open."""
        self._hosts = {host.name: _Host(host, self._clocks[host.name]) for host in hosts}
        waiting, self._waiting = self._waiting, {}
        for plan in waiting.values():
            self._follow(plan)

    def take(self, messages: Sequence[Message]) -> None:
        """Obey the plans among `messages`; what is none, or for others, is counted and changes nothing."""
        for message in messages:
            event = message.body
            try:
                if not isinstance(event, Event) or event.type != MESH.name:
                    raise FormatError("form")
                if event.source != PLANNER:
                    raise FormatError("foreign-source", event.source)
                if message.key not in self._clocks:
                    continue  # the bus gives the plans of other agents, too
                plan = host_plan(event.data)
                if plan.host != message.key:
                    raise FormatError("foreign-host", plan.host)
            except FormatError as error:
                self.counters.add("refused", error.reason)
                _log.warning("a plan is not obeyed: %s", error)
                continue
            self._follow(plan)

    def _follow(self, plan: HostPlan) -> None:
        host = self._hosts.get(plan.host)
        if host is None:
            self._waiting[plan.host] = plan
            return
        for session in plan.sessions:
            self._learned(session.dst, session.address)
        for address, nic in plan.probers.items():
            self._learned(nic, address)
        if host.port.follow(plan):
            self.counters.add("followed")
            _log.info("%s: plan %s of epoch %d: %d sessions", plan.host, plan.version, plan.epoch, len(plan.sessions))

    def judged(self, name: str, now_ns: int) -> list[Output]:
        """What host `name` has to say now (steady clock)."""
        host = self._hosts.get(name)
        if host is None:
            return []
        planned, usable = host.port.planned, host.port.usable
        plan = planned.plan
        state: tuple[object, ...] = (usable, plan.version if plan is not None else "", planned.beyond)
        age_ns = now_ns - host.spoke_at
        due = age_ns >= (ASK_NS if plan is None else SPEAK_NS) or (state != host.said and age_ns >= _LEAST_NS)
        if not due:
            return []
        host.spoke_at, host.said = now_ns, state
        host.number += 1
        at_ns = host.clock.at(time.time_ns())
        here = self._here(host.port, usable, at_ns)
        event = Event(HOST_TYPE, name, f"{self._boot_id}-here-{host.number}", at_ns, here.as_data())
        return [Output(TOPOLOGY.name, f"host:{name}", event)]

    def _here(self, port: HostPort, usable: frozenset[str], at_ns: int) -> HostHere:
        config, planned = self._config, port.planned
        return HostHere(
            host=port.name,
            boot_id=self._boot_id,
            seen_at_ns=at_ns,
            nics=tuple(
                NicHere(
                    nic, has.address, nic if config.hardware_stamps else port.name, has.plane, nic in usable
                )
                for nic, has in port.nics.items()
            ),
            budget_pps=config.mesh_budget_pps,
            reflector_port=config.reflector_port,
            first_port=config.mesh_first_port,
            ports=config.mesh_ports,
            plan=planned.plan.version if planned.plan is not None else "",
            sessions=len(planned.sessions),
            left_out=planned.left_out + planned.beyond,
        )  # fmt: skip
