"""The mesh plan on an agent: announces the agent's NICs and budget, hands plans to its hosts.

A host is announced at the start, when a NIC comes or goes, when a plan was taken, every few seconds while there is
none, and once a minute otherwise. The announcement names the version of the plan in force, so that a lost plan is sent
again. While nobody plans, the last plan stays in force.

Whom to probe is said by a plan, so an agent follows only what one of its trusted keys has signed. Without such keys it
follows any plan, but only within `mesh_allow`; without that, none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sdfstream.agent.commands.admission import BusTimeBound
from sdfstream.agent.downlink import Downlink
from sdfstream.agent.observer import HostPort
from sdfstream.errors import FormatError
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.mesh import HOST_TYPE, HostHere, HostPlan, NicHere, host_plan
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import MESH, TOPOLOGY
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.raised import is_of_message
from sdfstream.stats import Counters

if TYPE_CHECKING:
    from sdfstream.records.signature import KeyRing

_log = logging.getLogger("sdfstream.agent")

ANNOUNCE_PLANNED_NS: Final = 60 * NS_PER_S
"""Between two announcements of a host that has a plan."""
ANNOUNCE_UNPLANNED_NS: Final = 5 * NS_PER_S
"""Between two announcements of a host without one."""
_LEAST_NS: Final = NS_PER_S
"""Between two announcements at least, however fast a NIC flaps."""
PLANNER: Final = "plan"
"""The source of plans that are obeyed."""
_DISTRUST: Final = "it is not signed with one of trusted_keys"
_NO_SIGNER: Final = (
    "mesh is auto, but no plan will be followed, since nobody is trusted to make one: set trusted_keys to the public "
    "key of the controller (keys/controller.pub in its data folder), or mesh_allow to the networks of the mesh"
)
_UNSIGNED: Final = (
    "mesh is auto without trusted_keys: anybody's plan is followed within mesh_allow; set trusted_keys to the public "
    "key of the controller (keys/controller.pub in its data folder)"
)


@dataclass(slots=True)
class _Host:
    port: HostPort
    clock: Clock
    announced_at_ns: int = -ANNOUNCE_PLANNED_NS
    """Steady clock."""
    announced: tuple[object, ...] = ()
    """Usable NICs, plan and rejected sessions of the last announcement."""
    announcements: int = 0


class MeshFollower:
    """Follows the mesh plan on every host of one agent process.

    Parameters
    ----------
    config : AgentConfig
    boot_id : str
    learned : callable
        Called with (NIC id, address) of those that a plan names.
    keys : KeyRing, optional
        The trusted keys.
    """

    def __init__(
        self, config: AgentConfig, boot_id: str, learned: Callable[[str, str], None], keys: KeyRing | None = None
    ) -> None:
        self.counters = Counters("mesh")
        self._config = config
        self._keys = keys
        self._bus = BusTimeBound()
        if keys is None:
            _log.warning("%s", _UNSIGNED if config.mesh_allow else _NO_SIGNER)
        self._boot_id = boot_id
        self._learned = learned
        self._clocks = {h.host: Clock(h.virtual_clock) for h in config.hosts}
        self._hosts: dict[str, _Host] = {}
        self._waiting: dict[str, HostPlan] = {}
        self._refused: set[str] = set()

    def attach(self, hosts: Sequence[HostPort]) -> None:
        """Take the hosts of the agent, once their sockets are open; plans that came before are followed now."""
        self._hosts = {host.name: _Host(host, self._clocks[host.name]) for host in hosts}
        waiting, self._waiting = self._waiting, {}
        for plan in waiting.values():
            self._follow(plan)

    def take(self, messages: Sequence[Message]) -> None:
        """Follow the plans among `messages`; one that is malformed or of another source is counted and left."""
        for message in messages:
            self._bus.take(message.bus_at_ns, time.monotonic_ns())
            if message.key not in self._clocks:
                continue  # the bus carries the plans of other agents, too
            try:
                plan = self._plan(message)
            except FormatError as error:
                self._refuse(error)
            else:
                self._follow(plan)

    def _plan(self, message: Message) -> HostPlan:
        """The plan in `message`; FormatError when it is not to be followed. The cheap checks come first."""
        event = message.body
        if not isinstance(event, Event) or event.type != MESH.name:
            raise FormatError("form")
        if event.source != PLANNER:
            raise FormatError("foreign-source", event.source)
        if self._keys is None and not self._config.mesh_allow:
            raise FormatError("no-signer", "neither trusted_keys nor mesh_allow is set")
        if self._keys is not None and (why := self._keys.refuses(event.data)):
            raise FormatError("unsigned" if "signature" not in event.data else why, _DISTRUST)
        plan = host_plan(event.data)
        if plan.host != message.key:
            raise FormatError("foreign-host", plan.host)
        if plan.expires_at_ns and plan.expires_at_ns <= self._bus.now(time.monotonic_ns()):
            raise FormatError("expired", "it was signed long ago")
        if self._keys is not None and not plan.expires_at_ns:
            raise FormatError("expired", "it has no end")
        return plan

    def _refuse(self, error: FormatError) -> None:
        """Count it; the log is told of each reason once: strangers may send as many plans as they like."""
        self.counters.add("refused", error.reason)
        if error.reason not in self._refused:
            self._refused.add(error.reason)
            _log.warning("a plan is not obeyed, and others for this reason are only counted: %s", error)

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

    def announce(self, name: str, now_ns: int) -> list[Output]:
        """The announcement of host `name`, if one is due at `now_ns` (steady clock)."""
        host = self._hosts.get(name)
        if host is None or (self._keys is None and not self._config.mesh_allow):
            return []  # a host that follows no plan must stand in none: its peers would find it silent
        planned, usable = host.port.planned, host.port.usable
        plan = planned.plan
        devices = tuple(sorted(host.port.rdma_devices.items()))
        state: tuple[object, ...] = (usable, devices, plan.version if plan is not None else "", planned.beyond)
        age_ns = now_ns - host.announced_at_ns
        due_ns = ANNOUNCE_UNPLANNED_NS if plan is None else ANNOUNCE_PLANNED_NS
        if age_ns < due_ns and (state == host.announced or age_ns < _LEAST_NS):
            return []
        host.announced_at_ns, host.announced = now_ns, state
        host.announcements += 1
        at_ns = host.clock.at(time.time_ns())
        here = self._here(host.port, usable, at_ns)
        event = Event(HOST_TYPE, name, f"{self._boot_id}-here-{host.announcements}", at_ns, here.as_data())
        return [Output(TOPOLOGY.name, f"host:{name}", event)]

    def _here(self, port: HostPort, usable: frozenset[str], at_ns: int) -> HostHere:
        config, planned, devices = self._config, port.planned, port.rdma_devices
        return HostHere(
            host=port.name,
            boot_id=self._boot_id,
            seen_at_ns=at_ns,
            nics=tuple(
                NicHere(
                    nic, has.address, nic if config.hardware_stamps else port.name, has.plane, nic in usable,
                    devices.get(nic) if "rocev2" in config.transports else None,
                )
                for nic, has in port.nics.items()
            ),
            budget_pps=config.mesh_budget_pps,
            reflector_port=config.reflector_port,
            first_port=config.mesh_first_port,
            ports=config.mesh_ports,
            plan=planned.plan.version if planned.plan is not None else "",
            sessions=len(planned.sessions) + len(planned.rocev2),
            left_out=planned.left_out + planned.beyond,
        )  # fmt: skip


class PlanSieve:
    """A downlink without the mesh plans: these go to the follower as they are read."""

    def __init__(self, downlink: Downlink, follower: MeshFollower) -> None:
        self._downlink, self._follower = downlink, follower

    async def read(self, timeout_s: float) -> list[Message]:
        """The messages that are no plans."""
        messages = await self._downlink.read(timeout_s)
        for message in messages:
            if message.topic == MESH.name:
                try:
                    self._follower.take([message])
                except Exception as error:  # the plan before it stays in force
                    if not is_of_message(error):
                        raise
                    self._follower.counters.add("set-aside", type(error).__name__)
        return [m for m in messages if m.topic != MESH.name]
