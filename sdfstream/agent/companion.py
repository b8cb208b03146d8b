"""The seam beside the probes: what lives in the agent's process sees liveness the moment it is judged.

An agent that decides about a failover must not wait for a flush, a bus and a controller. So `loop_io.run_agent` takes
a `Companion`: it is shown the hosts once, and called after every judgement of a host's liveness, in the same pass. It
may wish for *watch sessions* (fast probes to the NICs that its flows go to) and for flows to be traced. Both are
wishes: each call replaces the one before, and what cannot be done is counted and said by the agent, not raised.

A *slot* is one probe path (session and source port) of a host that sends it. `states` and `steady_since_ns` are indexed
by slot; a slot number keeps its meaning as long as `generation` stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sdfstream.agent.planned import Planned
from sdfstream.probes.config import NicConfig
from sdfstream.probes.trace.flows import FlowWish
from sdfstream.records.mesh import HostPlan
from sdfstream.records.message import Output
from sdfstream.records.units import Int64s, UInt8s


@dataclass(frozen=True, slots=True)
class WatchWish:
    """Fast probes from one of the host's NICs to a far NIC, over `AgentConfig.watch_ports` source ports."""

    src: str
    """NIC id, one of the host's."""
    dst: str
    """NIC id of the reflector."""
    dst_address: str
    dscp: int


class HostPort(Protocol):
    """What a companion may see of, and ask from, one host of the agent."""

    @property
    def name(self) -> str:
        """The host's name."""

    @property
    def nics(self) -> Mapping[str, NicConfig]:
        """NIC id to its configuration."""

    @property
    def generation(self) -> int:
        """Grows when slots are given out anew: whoever keeps slot numbers looks them up again then."""

    def slot(self, src: str, dst: str, path: int, dscp: int) -> int:
        """Slot of a probe path; −1 when it is not probed (now)."""

    def states(self) -> UInt8s:
        """(slots,) `liveness.UNKNOWN`, `ALIVE` or `SILENT`, of all paths this host sends; not to be written to."""

    def steady_since_ns(self) -> Int64s:
        """(slots,) steady clock of the last change of state; silent: when it was last heard. Not to be written to."""

    def watch(self, wishes: Sequence[WatchWish]) -> None:
        """The watch sessions wanted from now on; those of the former wish that are not among them end."""

    def trace(self, wishes: Sequence[FlowWish]) -> None:
        """The flows to be traced from now on, most wanted first."""

    @property
    def usable(self) -> frozenset[str]:
        """NICs that can send and receive now."""

    @property
    def planned(self) -> Planned:
        """What of the mesh plan is probed."""

    def follow(self, plan: HostPlan) -> bool:
        """Probe what this plan says from now on; whether it was for this host and said something new."""


class Companion(Protocol):
    """Something that lives in the agent's process beside the probes. Its calls must be quick: probing waits."""

    def attach(self, hosts: Sequence[HostPort]) -> None:
        """The hosts, once everything is open; before the first `judged`."""

    def judged(self, host: str, now_ns: int) -> list[Output]:
        """The liveness of `host` was judged just now (steady clock); what is to be published."""
