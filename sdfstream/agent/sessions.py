"""The sessions of one host that come and go: requests, a mesh plan and MTUs in, changes to its sender and sockets out.

A session begins in two steps: `step` asks for its sockets to be opened, which takes a survey of the NICs, and
`begin_prepared` begins it once they are open. It ends at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from sdfstream.agent.large.sessions import LargeSessions, large_ports
from sdfstream.agent.planned import PlannedSessions, plan_ports
from sdfstream.agent.quick_paths import spare_ports, watch_ports
from sdfstream.agent.slots import SessionChange, SessionSlots
from sdfstream.agent.watches import QUICK, WatchSessions
from sdfstream.probes.config import AgentConfig, HostConfig, SessionConfig
from sdfstream.probes.trace.routes import ForwardRoutes
from sdfstream.records.mesh import HostPlan
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_ARRIVALS_NS: Final = 10 * NS_PER_S
"""Pause between two readings of the rate of planned probes that arrive."""


class SendingSockets(Protocol):
    """Opens and closes sockets of the sender (`NicMonitor`)."""

    def want(self, slots: Sequence[int], wanted: bool) -> None:
        """Whether these slots are to be open."""

    def settled(self, slots: Sequence[int]) -> bool:
        """Whether each of these slots is open, or cannot be now."""

    def mtu_bytes(self, nic: str) -> int | None:
        """MTU of this NIC's device when it was last looked at; None: not known."""


class ProbingSessions(Protocol):
    """Begins and ends sessions (`HostPackets`)."""

    def change_sessions(
        self, begin: Mapping[int, SessionConfig], end: Sequence[int], now_ns: int, *, liveness_ms: int, in_step: bool
    ) -> None:
        """Begin and end sessions, by slot."""


class _Manner(NamedTuple):
    """How sessions are probed and assessed."""

    liveness_ms: int
    in_step: bool
    """Quick ones at the full rate are: sessions in step have one rate."""


class ChangingSessions:
    """The watch, planned and large sessions of one host.

    Parameters
    ----------
    config : AgentConfig
    host : HostConfig
        Its configured sessions never change.
    socket_of : (NIC id, source port) to socket
        As `sender_sockets` makes it.
    sockets : SendingSockets
    sender : ProbingSessions
    arriving_pps : callable
        Rate of planned probes that arrive at the reflector.
    counters : Counters
    routes : ForwardRoutes
        Of the host's own packets, by its traces.
    """

    def __init__(
        self,
        config: AgentConfig,
        host: HostConfig,
        socket_of: Mapping[tuple[str, int], int],
        sockets: SendingSockets,
        sender: ProbingSessions,
        arriving_pps: Callable[[], float],
        counters: Counters,
        routes: ForwardRoutes,
    ) -> None:
        self._config = config
        self._socket_of = socket_of
        self._sockets = sockets
        self._sender = sender
        self._arriving_pps = arriving_pps
        self._configured = frozenset(self._sockets_of(host.sessions))
        nics = {n.nic: n for n in host.nics}
        self._slots = slots = SessionSlots()
        far_ports = {s.dst: s.dst_port for s in host.sessions}
        self.watches = WatchSessions(config, nics, far_ports, counters, slots, routes)
        configured = [(s.src, s.dst, port, s.dscp) for s in host.sessions for port in s.source_ports]
        self.large = LargeSessions(config, host, sockets.mtu_bytes, counters, slots)
        self.planned = PlannedSessions(host.host, config, nics, configured, counters, slots, self.large.beside)
        self._prepared: list[tuple[Mapping[int, SessionConfig], _Manner]] = []
        """Sessions to begin, by slot, in this order."""
        self._begun = 0
        """Slots that have had a session."""
        self._arrivals_at_ns = 0
        sockets.want([s for s in socket_of.values() if s not in self._configured], False)

    def step(self, now_ns: int) -> bool:
        """End the sessions that are not wanted any more, prepare those that are; whether the paths have changed."""
        if self._prepared:
            return False
        if self.planned.plan is not None and now_ns >= self._arrivals_at_ns:
            self._arrivals_at_ns = now_ns + _ARRIVALS_NS
            self.planned.take_arrivals(self._arriving_pps())
        watch, plan = self.watches.change(now_ns), self.planned.change(now_ns)  # slots are taken in this order
        large = self.large.change(self.planned.large, now_ns)
        changes = (watch.quick, watch.candidates, plan, large)
        if not any(changes):
            return False
        if end := [slot for change in changes for slot in change.end]:
            self._sender.change_sessions({}, end, now_ns, **_Manner(self._config.liveness_ms, False)._asdict())
        self._prepared = self._in_order(changes)
        running = (*self.watches.sessions, *self.planned.sessions, *self.large.sessions)
        used = {*self._configured, *self._sockets_of(running)}
        self._sockets.want([s for s in self._socket_of.values() if s not in used], False)
        self._sockets.want(self._prepared_sockets(), True)
        return True

    def begin_prepared(self, now_ns: int) -> bool:
        """Begin the prepared sessions if their sockets are open; whether the paths have changed."""
        if not self._prepared or not self._sockets.settled(self._prepared_sockets()):
            return False
        for begin, manner in self._prepared:
            self._sender.change_sessions(begin, (), now_ns, **manner._asdict())
        self._prepared = []
        return True

    def nics_changed(self) -> None:
        """NICs came back, perhaps with other MTUs."""
        self.large.nics_changed()
        self.planned.nics_changed()

    def follow(self, plan: HostPlan) -> bool:
        """Take `plan`; whether it is a new one for this host."""
        return self.planned.take(plan, self._arriving_pps())

    @property
    def waiting(self) -> bool:
        """Whether prepared sessions wait for their sockets."""
        return bool(self._prepared)

    @property
    def liveness_ms(self) -> int:
        """The sharpest liveness limit of the sessions that run."""
        config = self._config
        return min(config.liveness_ms, config.watch_liveness_ms) if self.watches.quick else config.liveness_ms

    def liveness_ms_of(self, slot: int) -> int:
        """The limit of the session in `slot`, unless three intervals are longer."""
        return self._config.watch_liveness_ms if self._slots.owner(slot) == QUICK else self._config.liveness_ms

    def _in_order(self, changes: Sequence[SessionChange]) -> list[tuple[Mapping[int, SessionConfig], _Manner]]:
        """Sessions to begin, those of one manner together; slots that are new to the sender come in their order."""
        again: dict[_Manner, dict[int, SessionConfig]] = {}
        fresh: list[tuple[dict[int, SessionConfig], _Manner]] = []
        begin = {slot: session for change in changes for slot, session in change.begin.items()}
        for slot, session in sorted(begin.items()):
            manner = self._manner(slot, session)
            if slot < self._begun:
                again.setdefault(manner, {})[slot] = session
            elif fresh and fresh[-1][1] == manner:
                fresh[-1][0][slot] = session
            else:
                fresh.append(({slot: session}, manner))
        self._begun = max([self._begun, *(slot + 1 for slot in begin)])
        if fresh:
            fresh[0][0].update(again.pop(fresh[0][1], {}))
        return [*((sessions, manner) for manner, sessions in again.items()), *fresh]

    def _manner(self, slot: int, session: SessionConfig) -> _Manner:
        in_step = self._slots.owner(slot) == QUICK and session.rate_hz == self._config.watch_rate_hz
        return _Manner(self.liveness_ms_of(slot), in_step)

    def _prepared_sockets(self) -> list[int]:
        return self._sockets_of(s for begin, _ in self._prepared for s in begin.values())

    def _sockets_of(self, sessions: Iterable[SessionConfig]) -> list[int]:
        return [self._socket_of[s.src, port] for s in sessions for port in s.source_ports]


def sender_sockets(config: AgentConfig, host: HostConfig) -> dict[tuple[str, int], int]:
    """(NIC id, source port) to socket: of the configured sessions, then those that others may need."""
    configured = sorted({(s.src, port) for s in host.sessions for port in s.source_ports})
    ports = (*watch_ports(config), *spare_ports(config), *plan_ports(config), *large_ports(config))
    more = [(nic.nic, port) for nic in host.nics for port in ports]
    return {pair: socket for socket, pair in enumerate(dict.fromkeys([*configured, *more]))}
