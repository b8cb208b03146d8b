"""One host's share of an agent: its sockets, its engines, its NICs. `loop_io` calls it; nothing here waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sdfstream.agent.heartbeat import Beat
from sdfstream.agent.nics_io import Look, NicWatch
from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.planned import Planned, plan_ports
from sdfstream.agent.slots import Places
from sdfstream.agent.watches import Watches, watch_ports
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.net.socket_table_io import SocketTable
from sdfstream.probes.stamp.liveness import event_data
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.probes.trace.flows import FlowRequest
from sdfstream.probes.trace.raw_io import Made, discard
from sdfstream.probes.trace.trace_io import Tracing
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.mesh import HostPlan
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import LIVENESS, PROBE
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Int64s, UInt8s
from sdfstream.stats import Counters

_LEAST_WIDTH: Final = 1472
"""Foreign probes may be longer than ours: whatever fits into a usual packet is received whole."""
_FOLLOW_UP_MOST_NS: Final = 20 * NS_PER_MS
_TRACE_NS: Final = 20 * NS_PER_MS
"""Pause between two looks at the traces under way."""
_JUDGE_NS: Final = (5 * NS_PER_MS, 50 * NS_PER_MS)
_UNREAD: Final = 64
"""Answers that may wait in one socket; the smallest usual buffer holds 250."""
_ARRIVE_NS: Final = 10 * NS_PER_S
"""How often it is looked at what planned probes come in."""
_ROUNDS: Final = 8
"""Full buffers taken in one go, so that a flood at the reflector does not stop the sender."""


@dataclass(slots=True)
class Survey:
    """What was found at a host's NICs, and the sockets that were opened on the way."""

    looks: list[Look]
    raw: Made

    def discard(self) -> None:
        """Close what was opened: nobody waits for it any more."""
        for look in self.looks:
            look.discard()
        discard(self.raw)


class HostAgent:
    """Sender, reflector and NICs of one host.

    Parameters
    ----------
    config : AgentConfig
    host : HostConfig
        One of `config.hosts`.
    peers : IP address to NIC id
        Of all known NICs, for the reflector.
    boot_id : str
    seed : int
        Of the pacing.
    """

    def __init__(
        self, config: AgentConfig, host: HostConfig, peers: Mapping[str, str], boot_id: str, seed: int
    ) -> None:
        self.name = host.host
        self.config = config
        self.counters = Counters("io")
        self.clock = Clock(host.virtual_clock)
        self.generation = 0
        self.shortest_ns = NS_PER_S
        """The shortest probe interval; one second when nothing is probed."""
        self.judge_ns = NS_PER_S
        """Pause between two judgements."""
        self._boot_id = boot_id
        self._events = 0
        self._told_until = self._trace_at = self._reflector_at = 0
        self._follow_up_ns = 0
        self._beat = Beat(time.monotonic_ns())
        nics = {n.nic: n for n in host.nics}
        self.nics: Mapping[str, NicConfig] = nics
        self._sockets = _sender_sockets(config, host)
        width = max(_LEAST_WIDTH, *(s.size_bytes for s in host.sessions), 0)
        self.senders = SocketTable(
            [(nics[src], port) for src, port in self._sockets],
            width=width,
            hardware=config.hardware_stamps,
            counters=self.counters,
        )
        self.reflectors = SocketTable(
            [(nic, config.reflector_port) for nic in host.nics],
            width=width,
            hardware=config.hardware_stamps,
            counters=self.counters,
        )
        self.sender = SessionSender(
            host,
            self._sockets,
            np.random.default_rng(seed),
            time.monotonic_ns(),
            hmac_key=config.hmac_key,
            liveness_ms=config.liveness_ms,
        )
        self.reflector = SessionReflector(
            host,
            {slot: nic.nic for slot, nic in enumerate(host.nics)},
            peers,
            hmac_key=config.hmac_key,
            max_pps=config.reflector_max_pps,
            liveness_ms=config.liveness_ms,
        )
        self._tracing = (
            Tracing(
                config,
                nics,
                self.senders,
                event=self.event,
                clock=lambda: self.clock.at(time.time_ns()),
                counters=self.counters,
            )
            if config.trace_interval_s > 0
            else None
        )
        self.nic_watch = NicWatch(host.nics, self.senders, self.reflectors, self.counters)
        self._mesh_slots = frozenset(self._sockets[s.src, port] for s in host.sessions for port in s.source_ports)
        self.nic_watch.want([s for s in self._sockets.values() if s not in self._mesh_slots], False)
        far_ports = {s.dst: s.dst_port for s in host.sessions}
        places = Places()
        self._watches = Watches(config, nics, far_ports, self.counters, places)
        configured = [(s.src, s.dst, port, s.dscp) for s in host.sessions for port in s.source_ports]
        self.planned = Planned(host.host, config, nics, configured, self.counters, places)
        """What of the mesh plan is probed."""
        self._plan_ports = range(config.mesh_first_port, config.mesh_first_port + config.mesh_ports)
        self._arrive_at = 0
        self._beginning: list[tuple[Mapping[int, SessionConfig], bool]] = []
        """Sessions to begin, by place, and whether they are watch sessions."""
        self._slots: dict[tuple[str, str, int, int], int] = {}
        self._note_paths()
        self.judge_at = 0
        """Steady clock: when liveness is to be judged next."""

    def start(self) -> None:
        """Open the sockets; raises ConfigError or UnavailableError when that can never work."""
        self._usable(self.nic_watch.start())

    def close(self) -> None:
        """Close all sockets."""
        self.senders.close_all()
        self.reflectors.close_all()
        if self._tracing is not None:
            self._tracing.raw.close_all()

    def survey(self) -> Callable[[], Survey]:
        """Looks which NICs are there and opens sockets when called, in any thread; `looked` takes the result."""
        nics = self.nic_watch.survey()
        raw = self._tracing.raw.survey(self.nic_watch.is_there) if self._tracing is not None else dict
        return lambda: Survey(nics(), raw())

    def looked(self, survey: Survey) -> None:
        """Take what a survey found."""
        changes = self.nic_watch.apply(survey.looks)
        self._usable(changes)
        if self._tracing is not None:
            self._tracing.raw.apply(survey.raw)
            for nic, usable in changes:
                if not usable:
                    self._tracing.raw.close(nic)
        self._begin_watches()

    def follow_wishes(self, now_ns: int) -> bool:
        """End sessions that are not wanted any more, prepare those that are; whether a look is needed now."""
        if self._beginning:
            return False
        if self.planned.plan is not None and now_ns >= self._arrive_at:
            self._arrive_at = now_ns + _ARRIVE_NS
            self.planned.arriving(self.reflector.arriving_pps(self._plan_ports))
        watch, plan = self._watches.change(now_ns), self.planned.change(now_ns)  # in this order they took their places
        if not watch and not plan:
            return False
        for change, watched in ((watch, True), (plan, False)):
            if change.end:
                self.sender.change_sessions({}, change.end, now_ns, **self._manner(watched))
        self._beginning = [(c.begin, watched) for c, watched in ((watch, True), (plan, False)) if c.begin]
        used = {*self._mesh_slots, *self._of(self._watches.sessions), *self._of(self.planned.sessions)}
        self.nic_watch.want([s for s in self._sockets.values() if s not in used], False)
        self.nic_watch.want(self._of(s for begin, _ in self._beginning for s in begin.values()), True)
        self._note_paths()
        self._begin_watches()
        return bool(self._beginning)

    def _begin_watches(self) -> None:
        """Begin the prepared sessions once their sockets are open."""
        wanted = self._of(s for begin, _ in self._beginning for s in begin.values())
        if self._beginning and self.nic_watch.settled(wanted):
            for begin, watched in self._beginning:
                self.sender.change_sessions(begin, (), time.monotonic_ns(), **self._manner(watched))
            self._beginning = []
            self._note_paths()

    def _manner(self, watched: bool) -> dict[str, Any]:
        """How sessions that come and go are probed and judged: watch sessions together and sharply."""
        limit_ms = self.config.watch_liveness_ms if watched else self.config.liveness_ms
        return {"liveness_ms": limit_ms, "in_step": watched}

    def _of(self, sessions: Iterable[SessionConfig]) -> list[int]:
        """Sending sockets of these sessions."""
        return [self._sockets[s.src, port] for s in sessions for port in s.source_ports]

    def _note_paths(self) -> None:
        """The paths that are probed have changed."""
        self.generation += 1
        self._slots = self.sender.probed()
        self.shortest_ns = int(self.sender.probed_intervals_ns().min(initial=NS_PER_S))
        self.judge_ns = self._judge_ns()
        if self._tracing is not None:
            self._tracing.adopt(self.sender.paths, self.sender.configured_paths)

    def reflect(self) -> bool:
        """Answer the probes that have arrived; whether there were any.

        The answers' sending times are read when they are needed, not after every few answers: that would cost as
        many system calls again.
        """
        table, engine = self.reflectors, self.reflector
        for turn in range(_ROUNDS):
            received = table.receive()
            now_ns = time.monotonic_ns()
            if received is None or now_ns >= self._told_until:
                self._tell(now_ns)
            if received is None:
                return turn > 0
            answers = engine.answer(received, now_ns)
            if len(answers.length):
                engine.seal(answers, time.time_ns())
                table.send(answers)
            if not table.backlog:
                return True
        return True

    def _tell(self, now_ns: int) -> None:
        """Take the true sending times of answers, to be told in the next ones."""
        stamps = self.reflectors.read_tx_stamps()
        if stamps is not None:
            self.reflector.take_tx_stamps(stamps)
        self._told_until = now_ns + min(self._follow_up_ns, _FOLLOW_UP_MOST_NS)

    def hear(self, due_at_ns: int) -> bool:
        """Take sending times and answers; whether there were any answers. `due_at_ns`: when that was planned for."""
        table, engine = self.senders, self.sender
        for turn in range(_ROUNDS):
            stamps = table.read_tx_stamps()
            if stamps is not None:
                engine.take_tx_stamps(stamps)
            received = table.receive()
            if received is None:
                return turn > 0
            engine.take_answers(received, time.monotonic_ns(), due_at_ns)
            if not table.backlog:
                return True
        return True

    def probe(self, now_ns: int) -> None:
        """Send the probes that are due."""
        if self.sender.next_due_ns() <= now_ns:
            unsent = self.senders.send(self.sender.due(now_ns, time.time_ns()))
            if len(unsent):
                self.sender.unsent(unsent)

    def liveness(self, now_ns: int) -> list[Output]:
        """The liveness event, if there is anything to say or a sign of life is due."""
        system_ns, complete = time.time_ns(), self._beat.is_complete_due(now_ns)
        changes = self.sender.liveness(now_ns, system_ns, complete=complete)
        if complete or now_ns >= self._reflector_at:  # its limit is the mesh's, however fast the watch sessions are
            changes += self.reflector.liveness(now_ns, system_ns, complete=complete)
            self._reflector_at = now_ns + judge_pause_ns(self.config.liveness_ms)
        if not changes and not complete and not self._beat.is_due(now_ns):
            return []
        self._beat.said(now_ns, complete=complete, changed=bool(changes))
        seen_at_ns = self.clock.at(system_ns)
        data = event_data(self.name, self._boot_id, seen_at_ns, changes, complete=complete)
        return [self.event(LIVENESS.name, LIVENESS.name, self.name, data)]

    def rows(self, now_ns: int) -> list[Output]:
        """Rows of finished exchanges."""
        self._follow_up_ns = self.reflector.follow_up_due_ns(now_ns)
        batch = self.sender.rows(now_ns)
        return [] if batch is None else [Output(PROBE.name, self.name, batch)]

    def go_on_tracing(self, now_ns: int) -> list[Output]:
        """Go on tracing paths; events of those that are done."""
        if self._tracing is None or now_ns < self._trace_at:
            return []
        self._trace_at = now_ns + _TRACE_NS
        return self._tracing.step(self.sender, self.reflector, now_ns)

    def slot(self, src: str, dst: str, path: int, dscp: int) -> int:
        """Slot of a probe path; −1 when it is not probed."""
        return self._slots.get((src, dst, path, dscp), -1)

    def states(self) -> UInt8s:
        """(slots,) state of every path that this host sends."""
        return self.sender.life.state

    def steady_since_ns(self) -> Int64s:
        """(slots,) steady clock of the last change of state; silent: when it was last heard."""
        return self.sender.life.since_at

    def watch(self, wishes: Sequence[WatchRequest]) -> None:
        """The watch sessions wanted from now on."""
        self._watches.wish(wishes)

    def follow(self, plan: HostPlan) -> bool:
        """Probe what `plan` says from now on, as far as that makes sense and fits the budget; whether it is news."""
        if plan.host == self.name:
            self.reflector.add_peers(plan.probers)
        return self.planned.obey(plan, self.reflector.arriving_pps(self._plan_ports))

    @property
    def usable(self) -> frozenset[str]:
        """NICs that can send and receive now."""
        return frozenset(nic for nic in self.nics if self.nic_watch.is_there(nic))

    def trace(self, wishes: Sequence[FlowRequest]) -> None:
        """The flows to be traced from now on, most wanted first."""
        if self._tracing is not None:
            self._tracing.trace_flows(wishes, time.monotonic_ns())
        else:
            self.counters.add("refused", "flow-tracing-off", len(wishes))

    def event(self, topic: str, kind: str, key: str, data: Mapping[str, Any]) -> Output:
        """An event of this host, said now."""
        self._events += 1
        number = f"{self._boot_id}-{self._events}"
        return Output(topic, key, Event(kind, self.name, number, self.clock.at(time.time_ns()), data))

    def all_counters(self) -> dict[str, int]:
        """Counters of sockets and engines."""
        parts = (self.counters, self.sender.counters, self.reflector.counters)
        return {name: n for part in parts for name, n in part.as_dict().items()}

    def rest_ns(self) -> int:
        """How long the reflector may rest so that fast probes are not kept waiting; 0: as long as it likes."""
        return self._follow_up_ns

    def _judge_ns(self) -> int:
        """Pause between two readings of answers: no probe times out, no socket overflows, no silence is told late."""
        limit_ms = self.config.liveness_ms
        if self._watches.sessions:
            limit_ms = min(limit_ms, self.config.watch_liveness_ms)
        rates = np.bincount(self.sender.paths.socket, 1.0 / self.sender.probed_intervals_ns())
        fill_ns = int(_UNREAD / rates.max()) if rates.any() else NS_PER_S
        return min(judge_pause_ns(limit_ms), self.shortest_ns * 4 // 5, fill_ns)

    def _usable(self, changes: list[tuple[str, bool]]) -> None:
        now_ns = time.monotonic_ns()
        for nic, usable in changes:
            self.sender.nic_usable(nic, usable, now_ns)
            self.reflector.nic_usable(nic, usable, now_ns)


def judge_pause_ns(liveness_ms: int) -> int:
    """How often to judge by this limit."""
    return min(max(liveness_ms * NS_PER_MS // 20, _JUDGE_NS[0]), _JUDGE_NS[1])


def _sender_sockets(config: AgentConfig, host: HostConfig) -> dict[tuple[str, int], int]:
    """(NIC id, source port) to slot: of the mesh, and behind it those that watch and planned sessions may need."""
    mesh = sorted({(s.src, port) for s in host.sessions for port in s.source_ports})
    more = [(nic.nic, port) for nic in host.nics for port in (*watch_ports(config), *plan_ports(config))]
    return {pair: slot for slot, pair in enumerate(dict.fromkeys([*mesh, *more]))}
