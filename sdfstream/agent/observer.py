"""The seam beside the probes: an observer in the agent's process sees liveness as soon as it is evaluated.

An agent that decides about a failover must not wait for a flush, a bus and a controller. So `loop_io.run_agent` takes
a `LivenessObserver`: it is given the hosts once, and called after every evaluation of a host's liveness, in the same
pass. It may request *watch sessions* (probes to the NICs that its flows go to, fast where the flows go), traces of
flows, and say which routes are watched. Each request replaces the one before; what cannot be done is counted and logged
by the agent, not raised.

A *slot* is one probe path (session and source port) of a host that sends it. `states` and `steady_since_ns` are indexed
by slot; a slot number means the same path as long as `generation` stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sdfstream.agent.commands.crossings import ProbePath
from sdfstream.agent.commands.orders import HostOrders
from sdfstream.agent.commands.path_watch import WatchedRoutes
from sdfstream.agent.planned import PlannedSessions
from sdfstream.probes.config import NicConfig
from sdfstream.probes.trace.flows import FlowRequest
from sdfstream.records.fabric import Flow
from sdfstream.records.mesh import HostPlan
from sdfstream.records.message import Output
from sdfstream.records.units import Int64s, UInt8s


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """Probes from one of the host's NICs to a far NIC, over `AgentConfig.watch_ports` source ports and some spare ones.

    Of these as many are fast as show what is watched (`quick_paths`).
    """

    src: str
    """NIC id, one of the host's."""
    dst: str
    """NIC id of the reflector."""
    dst_address: str
    dscp: int
    flows: tuple[Flow, ...] = ()
    """Of its queue pairs, as they go now."""
    quick: bool = True
    """Some of its probes are fast, whatever is known of routes; False: only those that routes of others need."""


class HostPort(Protocol):
    """What an observer may read of, and request from, one host of the agent."""

    @property
    def name(self) -> str:
        """The host's name."""

    @property
    def nics(self) -> Mapping[str, NicConfig]:
        """NIC id to its configuration."""

    @property
    def generation(self) -> int:
        """Grows when slots are assigned anew, or a route is known anew: what was looked up is looked up again then."""

    def slot(self, src: str, dst: str, path: int, dscp: int) -> int:
        """Slot of a probe path; −1 when it is not probed (now)."""

    def states(self) -> UInt8s:
        """(slots,) `liveness.UNKNOWN`, `ALIVE` or `SILENT`, of all paths this host sends; not to be written to."""

    def steady_since_ns(self) -> Int64s:
        """(slots,) steady clock of the last change of state; silent: of the last packet. Not to be written to."""

    def limit_ns(self, slot: int) -> int:
        """How long the path in `slot` may go without an answer until it is silent; changes only with `generation`."""

    def routes(self, src: str) -> Mapping[ProbePath, tuple[str, ...]]:
        """Hops of the probe paths of a NIC, there, as far as they are traced; changes with `generation`."""

    @property
    def orders(self) -> HostOrders | None:
        """What orders moves by itself once a path is found dead; None: nothing does."""

    def watch(self, requests: Sequence[WatchRequest]) -> None:
        """The watch sessions wanted from now on; others of the former request end."""

    def cover(self, watched: WatchedRoutes) -> None:
        """The routes whose segments fast probes are to cross from now on."""

    def trace(self, requests: Sequence[FlowRequest]) -> None:
        """The flows to be traced from now on, most wanted first."""

    @property
    def usable(self) -> frozenset[str]:
        """NICs that can send and receive now."""

    @property
    def rdma_devices(self) -> Mapping[str, str]:
        """NIC id to RDMA device of those that answer by RoCEv2, or did when their device was last there."""

    @property
    def planned(self) -> PlannedSessions:
        """The sessions of the mesh plan that are probed."""

    def answer(self, senders: Mapping[str, str]) -> None:
        """Answer the probes of these senders (address to NIC id), which jobs name, from now on."""

    def follow(self, plan: HostPlan) -> bool:
        """Probe by this plan from now on; False: it is for another host, or not a newer one."""


class LivenessObserver(Protocol):
    """Lives in the agent's process beside the probes. Its calls must be quick: probing waits."""

    def attach(self, hosts: Sequence[HostPort]) -> None:
        """Take the hosts, once their sockets are open; before the first `on_liveness`."""

    def on_liveness(self, host: str, now_ns: int) -> list[Output]:
        """Use the liveness of `host` as of `now_ns` (steady clock); what is to be published."""
