"""Which sessions of a mesh plan this host runs: a plan in, sessions to begin and to end out.

The plan comes from outside, so it is checked (whose it is: `mesh_io`). A malformed session is left out and counted. No
address gets more than `mesh_target_pps`, however many sessions go there. The host's own budget decides: sessions are
taken in the plan's order (clocks' first), and behind them the large ones of their pairs (`large.sessions`), while the
probes they send, and the answers that others' probes ask of this host, stay within it. Answers are counted by the
plan's figure, or by the probes that arrive where these are clearly more.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from sdfstream.agent.slots import SessionChange, SessionSlots
from sdfstream.probes.config import AgentConfig, NicConfig, SessionConfig
from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.records.fabric import host_of
from sdfstream.records.mesh import HostPlan, PlannedSession
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

OWNER: Final = "plan"
MOST: Final = 4096
"""Planned sessions per host."""
_ARRIVE_MORE: Final = 1.25
"""Arriving probes above the plan's figure by more than this count as they are; below, it may be jitter."""
_STALE_NS: Final = 3600 * NS_PER_S
"""A plan drawn before the current one by less than this is a late repeat; by more, the controller's clock was set back,
and its plans would be refused for ever."""

_FIRST_ROCE_PORT: Final = 0xC000
_ROCE_BYTES: Final = 160
"""Of an IP packet: what a STAMP packet and its TLVs need inside RoCEv2's headers."""

PathKey = tuple[str, str, int, int]
"""NIC ids of sender and reflector, source port, DSCP."""


class PlannedSessions:
    """The planned sessions of one host.

    Parameters
    ----------
    host : str
    config : AgentConfig
    nics : NIC id to NicConfig
        The host's.
    configured : collection of (src, dst, source port, DSCP)
        Paths that the configuration probes anyway.
    counters : Counters
        Gets ``refused.plan-…``, ``shed.plan-budget``, ``shed.plan-target``, ``shed.plan-large``, ``shed.plan-room``
        (sessions), ``planned`` (plans taken).
    slots : SessionSlots
        Those of the host's sender.
    large_beside : callable, optional
        Sessions to the large ones that go with them.
    """

    def __init__(
        self,
        host: str,
        config: AgentConfig,
        nics: Mapping[str, NicConfig],
        configured: Collection[PathKey],
        counters: Counters,
        slots: SessionSlots,
        large_beside: Callable[[Iterable[SessionConfig]], list[SessionConfig]] = lambda sessions: [],
    ) -> None:
        self._host, self._config, self._nics = host, config, nics
        self._configured = frozenset(configured)
        self._counters = counters
        self._slots = slots
        self._large_beside = large_beside
        self._allowed = [ipaddress.ip_network(n) for n in config.mesh_allow]
        self.plan: HostPlan | None = None
        """The current plan."""
        self.left_out = 0
        """Its malformed sessions."""
        self._good: list[SessionConfig] = []
        self._wanted: dict[SessionConfig, None] = {}
        self.rocev2: list[SessionConfig] = []
        """Those that queue pairs carry (`agent.packets.RoceProbes`)."""
        self.large: list[SessionConfig] = []
        """Large ones of planned pairs that fit; a new list whenever they are chosen anew."""
        self._answer_pps = 0.0
        self._share = 1.0
        self._changed = self._short = False

    @property
    def sessions(self) -> list[SessionConfig]:
        """Those that run."""
        return list(self._slots.running(OWNER))

    @property
    def senders(self) -> dict[str, KnownSender]:
        """By address: those that are to probe this host by the current plan, or are probed by it."""
        if self.plan is None:
            return {}
        ports = self.plan.prober_ports
        found = {a: KnownSender(nic, ports.get(a, 0)) for a, nic in self.plan.probers.items() if self._is_allowed(a)}
        return {s.dst_address: KnownSender(s.dst, s.dst_port) for s in self._good} | found

    @property
    def networks(self) -> tuple[str, ...]:
        """Networks whose senders are answered by the current plan; where `mesh_allow` is set, that alone says it."""
        return self.plan.networks if self.plan is not None and not self._allowed else ()

    def take(self, plan: HostPlan, arriving_pps: float = 0.0) -> bool:
        """Take `plan`; whether it is a new one for this host. `arriving_pps`: planned probes that arrive."""
        before = self.plan
        if plan.host != self._host:
            return self._refuse("plan-foreign")
        if before is not None and 0 < before.drawn_at_ns - plan.drawn_at_ns < _STALE_NS:
            return self._refuse("plan-stale")
        self.plan = plan
        if before is not None and before.version == plan.version:
            return False
        self._counters.add("planned")
        good: dict[SessionConfig, None] = {}
        self.left_out = 0
        seen: set[tuple[str, PathKey]] = set()
        for session in plan.sessions:
            key = (session.src, session.dst, session.path, session.dscp)
            why = self._refusal(session) or ("plan-twice" if (session.transport, key) in seen else "")
            seen.add((session.transport, key))
            if why:
                self._counters.add("refused", why)
                self.left_out += 1
            elif session.transport != "udp" or key not in self._configured:
                good[self._session(session)] = None
        self._good = list(good)
        self._cut(self._answers(arriving_pps))
        return True

    def take_arrivals(self, pps: float) -> None:
        """Take the rate of planned probes that arrive: sessions are given up where answering takes their share."""
        if self.plan is not None:
            answers = self._answers(pps)
            if abs(answers - self._answer_pps) > 0.1 * max(answers, self._answer_pps):
                self._cut(answers)

    def take_share(self, share: float) -> None:
        """Run so much of the probes per second that plan and budget come to; what is first in the plan stays."""
        if share != self._share:
            self._share = share
            self._cut(self._answer_pps)

    def nics_changed(self) -> None:
        """NICs came back, perhaps with other MTUs, by which large sessions are chosen."""
        if self.plan is not None and self._config.large_hz > 0:
            self._cut(self._answer_pps)

    def change(self, now_ns: int) -> SessionChange:
        """What is to be done to fulfil the plan, as far as there is room now."""
        if not self._changed and not self._short:
            return SessionChange()
        change = self._slots.change_to(self._wanted, OWNER, MOST, now_ns)
        self._counters.add("shed", "plan-room", 0 if self._short else change.lacking)
        self._changed, self._short = False, change.lacking > 0
        return change

    def _answers(self, arriving_pps: float) -> float:
        planned_pps = self.plan.answer_pps if self.plan is not None else 0.0
        return arriving_pps if arriving_pps > _ARRIVE_MORE * planned_pps + 1.0 else planned_pps

    def _cut(self, answer_pps: float) -> None:
        """Take sessions while they fit into the budget beside `answer_pps`."""
        self._answer_pps = answer_pps
        room = _Room(self._config.mesh_budget_pps - answer_pps, self._config.mesh_target_pps)
        wanted = room.take(self._good)
        crowded = room.crowded
        self._warn_of_target(crowded)
        beyond = len(self._good) - len(wanted) - crowded
        asked = self._large_beside(wanted)
        large = room.take(asked)
        self._warn_of_large(len(asked) - len(large), len(asked))
        running = _first([*wanted, *large], self._share)
        self.large = [s for s in large if s in running]
        wanted = {s: None for s in wanted if s in running}
        by_udp = {s: None for s in wanted if s.transport == "udp"}
        self.rocev2 = [s for s in wanted if s.transport != "udp"]
        self._changed |= list(by_udp) != list(self._wanted)
        self._wanted = by_udp
        if not beyond:
            self._counters.troubles.end("sessions")
        else:
            self._counters.add("shed", "plan-budget", beyond)
            self._counters.troubles.begin(
                "sessions",
                f"{beyond} of {len(self._good)} planned sessions of {self._host} are left out: mesh_budget_pps is "
                f"{self._config.mesh_budget_pps:g}",
            )
            _log.warning(
                "%s: %d of %d planned sessions are left out: mesh_budget_pps is %g, and others ask for %g answers/s",
                self._host, beyond, len(self._good), self._config.mesh_budget_pps, answer_pps,
            )  # fmt: skip

    def _warn_of_target(self, crowded: int) -> None:
        if crowded:
            self._counters.add("shed", "plan-target", crowded)
            _log.warning(
                "%s: %d of %d planned sessions are left out: mesh_target_pps, to one address, is %g",
                self._host, crowded, len(self._good), self._config.mesh_target_pps,
            )  # fmt: skip

    def _warn_of_large(self, left_out: int, asked: int) -> None:
        if not left_out:
            self._counters.troubles.end("large")
            return
        self._counters.add("shed", "plan-large", left_out)
        self._counters.troubles.begin(
            "large",
            f"{left_out} of {asked} sessions of {self._host} with packets as large as the MTU are left out: "
            f"mesh_budget_pps is {self._config.mesh_budget_pps:g}, mesh_target_pps {self._config.mesh_target_pps:g}",
        )

    @property
    def beyond(self) -> int:
        """Sessions of the plan left out for want of budget, of room for their address, or of time."""
        return len(self._good) - len(self._wanted) - len(self.rocev2)

    def _refuse(self, why: str) -> bool:
        self._counters.add("refused", why)
        return False

    def _refusal(self, session: PlannedSession) -> str:
        if session.src not in self._nics:
            return "plan-foreign-nic"
        if host_of(session.dst) == self._host:
            return "plan-own-nic"
        if session.transport not in self._config.transports:
            return "plan-transport"
        first = self._config.mesh_first_port
        if session.transport != "udp":
            if session.path < _FIRST_ROCE_PORT:
                return "plan-port"
        elif not first <= session.path < first + self._config.mesh_ports:
            return "plan-port"
        near = ipaddress.ip_address(self._nics[session.src].address)
        far = ipaddress.ip_address(session.address)
        usual = not (far.is_multicast or far.is_unspecified or far.is_reserved)
        if not usual or far.version != near.version or far.is_loopback != near.is_loopback:
            return "plan-address"
        return "" if self._is_allowed(session.address) else "plan-not-allowed"

    def _is_allowed(self, address: str) -> bool:
        parsed = ipaddress.ip_address(address)
        return not self._allowed or any(parsed.version == n.version and parsed in n for n in self._allowed)

    def _session(self, session: PlannedSession) -> SessionConfig:
        found = SessionConfig(
            src=session.src,
            dst=session.dst,
            dst_address=session.address,
            dst_port=session.port,
            source_ports=(session.path,),
            dscp=session.dscp,
            rate_hz=session.rate_hz,
        )
        return found if session.transport == "udp" else replace(found, transport="rocev2", size_bytes=_ROCE_BYTES)


class _Room:
    """Packets per second that are left for sessions: of the budget, and to each address."""

    def __init__(self, budget_pps: float, target_pps: float) -> None:
        self._left_pps, self._most_pps = budget_pps + 1e-6, target_pps + 1e-6
        self._there_pps: dict[bytes, float] = {}
        self.crowded = 0
        """Sessions that would have been too much for their address."""

    def take(self, sessions: Iterable[SessionConfig]) -> dict[SessionConfig, None]:
        """Those of `sessions` that fit, in their order."""
        found: dict[SessionConfig, None] = {}
        for session in sessions:
            target = address_octets(session.dst_address)
            there_pps = self._there_pps.get(target, 0.0) + session.rate_hz
            if there_pps > self._most_pps:
                self.crowded += 1
            elif session.rate_hz <= self._left_pps:
                self._left_pps -= session.rate_hz
                self._there_pps[target] = there_pps
                found[session] = None
        return found


def _first(sessions: Collection[SessionConfig], share: float) -> dict[SessionConfig, None]:
    """The first of `sessions` that come to `share` of their probes per second."""
    left_pps = share * sum(session.rate_hz for session in sessions) + 1e-6
    found: dict[SessionConfig, None] = {}
    for session in sessions:
        left_pps -= session.rate_hz
        if left_pps < 0:
            break
        found[session] = None
    return found


def plan_ports(config: AgentConfig) -> tuple[int, ...]:
    """Source ports that planned sessions may use; none where the configuration alone says what is probed."""
    if config.mesh != "auto":
        return ()
    return tuple(range(config.mesh_first_port, config.mesh_first_port + config.mesh_ports))
