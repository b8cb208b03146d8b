"""One host of an agent: its packets, sessions and NICs. `loop_io` calls every method; none of them waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sdfstream.agent.commands.crossings import ProbePath
from sdfstream.agent.commands.orders import HostOrders
from sdfstream.agent.commands.path_watch import NO_WITNESS, WatchedRoutes
from sdfstream.agent.heartbeat import Heartbeat
from sdfstream.agent.large.sessions import large_ports
from sdfstream.agent.lateness import Rates
from sdfstream.agent.nics_io import NicMonitor, NicSurvey
from sdfstream.agent.numpy_packets_io import NumpyPackets, assess_pause_ns
from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.packets import MakePackets, RoceHost
from sdfstream.agent.planned import PlannedSessions
from sdfstream.agent.sessions import ChangingSessions, sender_sockets
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.probes.stamp.liveness import LIMIT_INTERVALS, event_data
from sdfstream.probes.trace.flows import FlowRequest
from sdfstream.probes.trace.raw_io import Made, discard
from sdfstream.probes.trace.routes import ForwardRoutes
from sdfstream.probes.trace.trace_io import Tracing
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.mesh import HostPlan
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import LIVENESS, PROBE
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Int64s, UInt8s
from sdfstream.stats import Counters

PACKETS_LOOK_NS: Final = 100 * NS_PER_MS
"""Pause between two looks at packets that work by themselves, beside those at what they call for: a change of liveness,
and what is ordered when it comes, waits for none."""
_UNREAD: Final = 64
_UNREAD_BYTES: Final = 500.0
"""So many answers of up to this size, or less of larger ones, may wait in one socket; the smallest usual buffer holds
250 of them, or 12 of the largest."""


@dataclass(slots=True)
class Survey:
    """What was found at a host's NICs, and the sockets that were opened."""

    nics: list[NicSurvey]
    raw: Made

    def discard(self) -> None:
        """Close the sockets: the survey is not applied."""
        for nic in self.nics:
            nic.discard()
        discard(self.raw)


class HostAgent:
    """Packets, sessions and NICs of one host.

    Parameters
    ----------
    config : AgentConfig
    host : HostConfig
        One of `config.hosts`.
    boot_id : str
    seed : int
        Of the pacing, and of what strangers must not guess of the reflector.
    packets_of : callable
        Makes what carries the host's packets.
    roce : RoceHost, optional
        Carries its RoCEv2 sessions.
    """

    def __init__(
        self,
        config: AgentConfig,
        host: HostConfig,
        boot_id: str,
        seed: int,
        packets_of: MakePackets = NumpyPackets,
        roce: RoceHost | None = None,
    ) -> None:
        self.name = host.host
        self.config = config
        self.counters = Counters("io")
        self._roce = roce
        self.clock = Clock(host.virtual_clock)
        self.nics: Mapping[str, NicConfig] = {n.nic: n for n in host.nics}
        socket_of = sender_sockets(config, host)
        self.packets = packets_of(config, host, socket_of, seed, self.counters)
        self.nic_monitor = NicMonitor(host.nics, self.packets.senders, self.packets.reflectors, self.counters)
        asking = (
            range(config.mesh_first_port, config.mesh_first_port + config.mesh_ports),
            range(config.large_port, config.large_port + (config.large_hz > 0)),
        )
        self._routes = routes = ForwardRoutes()
        self.sessions = ChangingSessions(
            config,
            host,
            socket_of,
            self.nic_monitor,
            self.packets,
            lambda: sum(self.packets.arriving_pps(ports) for ports in asking),
            self.counters,
            routes,
        )
        self._tracing = self._new_tracing(routes) if config.trace_interval_s > 0 else None
        self._boot_id = boot_id
        self._events = 0
        self._planned_senders: tuple[Mapping[str, KnownSender], Sequence[str]] = ({}, ())
        self._planned_roce: list[SessionConfig] = []
        self._heartbeat = Heartbeat(time.monotonic_ns())
        self.troubles: list[dict[str, Any]] = []
        """What is wrong with the agent, said with each heartbeat of its first host."""
        self._trace_at_ns = 0
        self._changes_of_paths = 0
        self.assess_at_ns = 0
        """Steady clock: when answers are to be read and liveness is to be assessed next."""
        self._paths_changed()

    def _new_tracing(self, routes: ForwardRoutes) -> Tracing:
        return Tracing(
            self.config,
            self.nics,
            self.packets.senders,
            event=self.event,
            clock=lambda: self.clock.at(time.time_ns()),
            counters=self.counters,
            routes=routes,
        )

    def _paths_changed(self) -> None:
        """Compute what depends on the paths that are probed."""
        self._changes_of_paths += 1
        self._slots = self.packets.probed()
        self._limits_ns = self._limits()
        intervals_ns = self.packets.probed_intervals_ns()
        self.shortest_ns = int(intervals_ns.min(initial=NS_PER_S))
        """The shortest probe interval; one second when nothing is probed."""
        weights = np.maximum(1.0, self.packets.paths.size_bytes / _UNREAD_BYTES)
        rates = np.bincount(self.packets.paths.socket, weights / intervals_ns)
        fill_ns = int(_UNREAD / rates.max()) if rates.any() else NS_PER_S
        # no probe times out, no socket overflows, no silence is reported late
        limit_ns = assess_pause_ns(self.sessions.liveness_ms)
        pause_ns = min(limit_ns, self.shortest_ns * 4 // 5, fill_ns)
        self.assess_pause_ns = PACKETS_LOOK_NS if self.packets.self_driven else pause_ns
        """Pause between two assessments of liveness."""
        if self._tracing is not None:
            self._tracing.adopt(self.packets.paths, self.packets.configured_paths)

    def _limits(self) -> Int64s:
        """(paths,) how long each may go without an answer until it is silent."""
        paths, configured = self.packets.paths, self.packets.configured_paths
        first = int(paths.session[:configured].max(initial=-1)) + 1
        slots = len(paths.sessions) - first
        limits_ms = [self.config.liveness_ms] * first + [self.sessions.liveness_ms_of(slot) for slot in range(slots)]
        limit_ns = np.array(limits_ms, np.int64)[paths.session] * NS_PER_MS
        result: Int64s = np.maximum(limit_ns, LIMIT_INTERVALS * paths.interval_ns)
        return result

    def start(self) -> None:
        """Open the sockets; raises ConfigError or UnavailableError when that can never work."""
        self._set_usable(self.nic_monitor.start())

    def close(self) -> None:
        """Close all sockets."""
        self.packets.close()
        if self._tracing is not None:
            self._tracing.raw.close_all()

    def survey(self) -> Callable[[], Survey]:
        """A function, for any thread, that surveys the NICs and opens sockets; `apply` takes what it returns."""
        nics = self.nic_monitor.survey()
        raw = self._tracing.raw.survey(self.nic_monitor.is_present) if self._tracing is not None else dict
        return lambda: Survey(nics(), raw())

    def apply(self, survey: Survey) -> None:
        """Use what a survey found."""
        changes = self.nic_monitor.apply(survey.nics)
        self._set_usable(changes)
        if self._tracing is not None:
            self._tracing.raw.apply(survey.raw)
            for nic, usable in changes:
                if not usable:
                    self._tracing.raw.close(nic)
        self._begin_sessions()

    def change_sessions(self, now_ns: int) -> bool:
        """End sessions that are not wanted any more, prepare those that are; whether a survey is needed now."""
        if self._roce is not None and self.planned.rocev2 != self._planned_roce:
            self._planned_roce = self.planned.rocev2
            self._roce.plan(self._planned_roce)
        if not self.sessions.step(now_ns):
            return False
        self._paths_changed()
        self._begin_sessions()
        return self.sessions.waiting

    def _begin_sessions(self) -> None:
        if self.sessions.begin_prepared(time.monotonic_ns()):
            self._paths_changed()

    def _set_usable(self, changes: list[tuple[str, bool]]) -> None:
        now_ns = time.monotonic_ns()
        for nic, usable in changes:
            self.packets.nic_usable(nic, usable, now_ns)
        if any(usable for _, usable in changes):
            self.sessions.nics_changed()

    def rows(self, now_ns: int) -> list[Output]:
        """Rows of finished exchanges."""
        batches = self.packets.rows(now_ns) + (self._roce.rows() if self._roce is not None else [])
        return [Output(PROBE.name, self.name, batch) for batch in batches]

    @property
    def has_changes(self) -> bool:
        """Whether `liveness` has changes to tell of, as far as that is known without looking."""
        return self.packets.has_changes or (self._roce is not None and self._roce.has_changes)

    def liveness(self, now_ns: int) -> list[Output]:
        """Assess liveness; the event, if there are changes or a heartbeat is due."""
        system_ns, complete = time.time_ns(), self._heartbeat.is_complete_due(now_ns)
        changes = self.packets.liveness(now_ns, system_ns, complete=complete)
        if self._roce is not None:
            changes = [*changes, *self._roce.liveness(complete=complete)]
        if not changes and not complete and not self._heartbeat.is_due(now_ns):
            return []
        self._heartbeat.published(now_ns, complete=complete, changed=bool(changes))
        return [self._statement(system_ns, changes, complete=complete)]

    def farewell(self) -> Output:
        """The last statement of an agent that is stopped in order: its silence from now on shows no dead host."""
        return self._statement(time.time_ns(), [], stopping=True)

    def _statement(
        self, system_ns: int, changes: Sequence[Mapping[str, Any]], *, complete: bool = False, stopping: bool = False
    ) -> Output:
        data = event_data(
            self.name, self._boot_id, self.clock.at(system_ns), changes,
            complete=complete, liveness_ms=self.config.liveness_ms, troubles=self.troubles, stopping=stopping,
        )  # fmt: skip
        return self.event(LIVENESS.name, LIVENESS.name, self.name, data)

    def step_traces(self, now_ns: int) -> list[Output]:
        """Go on tracing paths; events of finished traces."""
        if self._tracing is None or now_ns < self._trace_at_ns:
            return []
        events = self._tracing.step(self.packets, now_ns)
        self._trace_at_ns = now_ns + self._tracing.pause_ns()
        return events

    @property
    def generation(self) -> int:
        """Grows when slots are assigned anew, or a route is known anew."""
        return self._changes_of_paths + self._routes.version

    def routes(self, src: str) -> Mapping[ProbePath, tuple[str, ...]]:
        """Hops of the probe paths of a NIC to their reflectors, as far as they are traced."""
        paths = (ProbePath(dst, port, dscp) for nic, dst, port, dscp in self._slots if nic == src)
        traced = ((path, self._routes.probe(src, *path)) for path in paths)
        return {path: hops for path, hops in traced if hops is not None}

    def slot(self, src: str, dst: str, path: int, dscp: int) -> int:
        """Slot of a probe path; −1 when it is not probed; `NO_WITNESS` when its packets are as large as the MTU."""
        slot = self._slots.get((src, dst, path, dscp), -1)
        return NO_WITNESS if slot >= 0 and path in large_ports(self.config) else slot

    def states(self) -> UInt8s:
        """(slots,) state of every path that this host sends."""
        return self.packets.states()

    def steady_since_ns(self) -> Int64s:
        """(slots,) steady clock of the last change of state; silent: of the last answer."""
        return self.packets.steady_since_ns()

    def limit_ns(self, slot: int) -> int:
        """How long the path in `slot` may go without an answer until it is silent."""
        return int(self._limits_ns[slot])

    @property
    def orders(self) -> HostOrders | None:
        """What orders moves by itself; None: the packet engine does not serve."""
        return self.packets.orders

    def watch(self, requests: Sequence[WatchRequest]) -> None:
        """Take the watch sessions wanted from now on."""
        self.sessions.watches.take(requests)

    def cover(self, watched: WatchedRoutes) -> None:
        """Take the routes whose segments quick paths are to cross from now on."""
        self.sessions.watches.cover(watched)

    def follow(self, plan: HostPlan) -> bool:
        """Probe by `plan` from now on, as far as it is well-formed and fits the budget; whether it is a new plan."""
        followed = self.sessions.follow(plan)
        senders, networks = self.planned.senders, self.planned.networks
        if followed:  # those of the plan before may not have got theirs yet, and go on for a moment
            self._know("plan before", *self._planned_senders)
            self._planned_senders = senders, networks
        self._know("plan", senders, networks)
        return followed

    def _know(self, group: str, senders: Mapping[str, KnownSender], networks: Sequence[str] = ()) -> None:
        self.packets.know(group, senders, networks)
        if self._roce is not None:
            self._roce.know(group, senders, networks)

    @property
    def rdma_devices(self) -> Mapping[str, str]:
        """NIC id to RDMA device of those that answer by RoCEv2, or did when their device was last there."""
        return {} if self._roce is None else self._roce.devices

    def slow_down(self, rates: Rates) -> None:
        """Probe at these shares of the rates that are wanted, from now on."""
        self.planned.take_share(rates.planned)
        self.sessions.watches.take_share(rates.quick)

    def answer(self, senders: Mapping[str, str]) -> None:
        """Answer these senders (address to NIC id), which jobs name, from now on."""
        self._know("jobs", {address: KnownSender(nic) for address, nic in senders.items()})

    @property
    def planned(self) -> PlannedSessions:
        """The sessions of the mesh plan that are probed."""
        return self.sessions.planned

    @property
    def usable(self) -> frozenset[str]:
        """NICs that can send and receive now."""
        return frozenset(nic for nic in self.nics if self.nic_monitor.is_present(nic))

    def trace(self, requests: Sequence[FlowRequest]) -> None:
        """Take the flows to be traced from now on, most wanted first."""
        if self._tracing is not None:
            self._tracing.trace_flows(requests, time.monotonic_ns())
        else:
            self.counters.add("refused", "flow-tracing-off", len(requests))

    def event(self, topic: str, kind: str, key: str, data: Mapping[str, Any]) -> Output:
        """An event of this host, as of now."""
        self._events += 1
        number = f"{self._boot_id}-{self._events}"
        return Output(topic, key, Event(kind, self.name, number, self.clock.at(time.time_ns()), data))

    def all_counters(self) -> dict[str, int]:
        """Counters of sockets and engines."""
        return {**self.counters.as_dict(), **self.packets.counters()}
