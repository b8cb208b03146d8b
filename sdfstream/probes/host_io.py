"""One host's share of an agent: its sockets, its engines, its NICs. `agent_io` calls it; nothing here waits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sdfstream.probes.beat import Beat
from sdfstream.probes.companion import FlowWish, WatchWish
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig
from sdfstream.probes.liveness import event_data
from sdfstream.probes.net_io import SocketTable
from sdfstream.probes.nics_io import NicWatch
from sdfstream.probes.reflector import SessionReflector
from sdfstream.probes.sender import SessionSender
from sdfstream.probes.trace_io import PathTracing
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import LIVENESS, PROBE
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Int64s, UInt8s
from sdfstream.stats import Counters

_LEAST_WIDTH: Final = 1472
"""Foreign probes may be longer than ours: whatever fits into a usual packet is received whole."""
_FOLLOW_UP_MOST_NS: Final = 20 * NS_PER_MS
_TRACE_NS: Final = 100 * NS_PER_MS
"""Pause between two looks at the traces under way."""
_ROUNDS: Final = 8
"""Full buffers taken in one go, so that a flood at the reflector does not stop the sender."""


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
        self.counters = Counters("io")
        self.clock = Clock(host.virtual_clock)
        self._boot_id = boot_id
        self._events = 0
        self._told_until = self._trace_at = 0
        self._follow_up_ns = 0
        self._beat = Beat(time.monotonic_ns())
        nics = {n.nic: n for n in host.nics}
        self.nics: Mapping[str, NicConfig] = nics
        self.generation = 0
        pairs = sorted({(s.src, port) for s in host.sessions for port in s.source_ports})
        width = max(_LEAST_WIDTH, *(s.size_bytes for s in host.sessions), 0)
        self.senders = SocketTable(
            [(nics[src], port) for src, port in pairs],
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
            {pair: slot for slot, pair in enumerate(pairs)},
            np.random.default_rng(seed),
            time.monotonic_ns(),
            hmac_key=config.hmac_key,
            liveness_ms=config.liveness_ms,
        )
        self._slots = {(n.src, n.dst, n.path, n.dscp): slot for slot, n in enumerate(self.sender.life.names)}
        self._watched: tuple[WatchWish, ...] = ()
        self._flows: tuple[FlowWish, ...] = ()
        self.reflector = SessionReflector(
            host,
            {slot: nic.nic for slot, nic in enumerate(host.nics)},
            peers,
            hmac_key=config.hmac_key,
            max_pps=config.reflector_max_pps,
            liveness_ms=config.liveness_ms,
        )
        self._tracing = (
            PathTracing(
                self.sender.paths,
                self.senders,
                interval_s=config.trace_interval_s,
                rate_hz=config.trace_rate_hz,
                event=self.event,
                clock=lambda: self.clock.at(time.time_ns()),
            )
            if config.trace_interval_s > 0
            else None
        )
        self.nic_watch = NicWatch(host.nics, self.senders, self.reflectors, self.counters)

    def start(self) -> None:
        """Open the sockets; raises ConfigError or UnavailableError when that can never work."""
        self._usable(self.nic_watch.start())

    def close(self) -> None:
        """Close all sockets."""
        self.senders.close_all()
        self.reflectors.close_all()

    def look(self) -> None:
        """Look which NICs are there, and how fast we are probed."""
        self._follow_up_ns = self.reflector.follow_up_due_ns(time.monotonic_ns())
        self._usable(self.nic_watch.look())

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
            answers = engine.received(received, now_ns)
            if len(answers.length):
                engine.seal(answers, time.time_ns())
                table.send(answers)
            if not table.backlog:
                return True
        return True

    def _tell(self, now_ns: int) -> None:
        """Take the true sending times of answers, to be told in the next ones."""
        left = self.reflectors.left()
        if left is not None:
            self.reflector.left(left)
        self._told_until = now_ns + min(self._follow_up_ns, _FOLLOW_UP_MOST_NS)

    def hear(self, due_at_ns: int) -> bool:
        """Take sending times and answers; whether there were any answers. `due_at_ns`: when that was planned for."""
        table, engine = self.senders, self.sender
        for turn in range(_ROUNDS):
            left = table.left()
            if left is not None:
                engine.left(left)
            received = table.receive()
            if received is None:
                return turn > 0
            engine.received(received, time.monotonic_ns(), due_at_ns)
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
        changes += self.reflector.liveness(now_ns, system_ns, complete=complete)
        if not changes and not complete and not self._beat.is_due(now_ns):
            return []
        self._beat.said(now_ns, complete=complete, changed=bool(changes))
        seen_at_ns = self.clock.at(system_ns)
        data = event_data(self.name, self._boot_id, seen_at_ns, changes, complete=complete)
        return [self.event(LIVENESS.name, LIVENESS.name, self.name, data)]

    def rows(self, now_ns: int) -> list[Output]:
        """Rows of finished exchanges."""
        batch = self.sender.rows(now_ns)
        return [] if batch is None else [Output(PROBE.name, self.name, batch)]

    def go_on_tracing(self, now_ns: int) -> list[Output]:
        """Go on tracing paths; events of those that are done."""
        if self._tracing is None or now_ns < self._trace_at:
            return []
        self._trace_at = now_ns + _TRACE_NS
        return self._tracing.step(self.sender.heard_at_ns, self.sender.ttl_fwd, now_ns)

    def slot(self, src: str, dst: str, path: int, dscp: int) -> int:
        """Slot of a probe path; −1 when it is not probed."""
        return self._slots.get((src, dst, path, dscp), -1)

    def states(self) -> UInt8s:
        """(slots,) state of every path that this host sends."""
        return self.sender.life.state

    def steady_since_ns(self) -> Int64s:
        """(slots,) steady clock of the last change of state; silent: when it was last heard."""
        return self.sender.life.since_at

    def watch(self, wishes: Sequence[WatchWish]) -> None:
        """The watch sessions wanted from now on."""
        self._watched = tuple(wishes)

    def trace(self, wishes: Sequence[FlowWish]) -> None:
        """The flows to be traced from now on, most wanted first."""
        self._flows = tuple(wishes)

    def event(self, topic: str, kind: str, key: str, data: Mapping[str, Any]) -> Output:
        """An event of this host, said now."""
        self._events += 1
        number = f"{self._boot_id}-{self._events}"
        return Output(topic, key, Event(kind, self.name, number, self.clock.at(time.time_ns()), data))

    def all_counters(self) -> dict[str, int]:
        """Counters of sockets and engines."""
        parts = (self.counters, self.sender.counters, self.reflector.counters)
        return {name: n for part in parts for name, n in part.as_dict().items()}

    def shortest_interval_ns(self) -> int:
        """The shortest probe interval; one second when nothing is probed."""
        return int(self.sender.paths.interval_ns.min(initial=NS_PER_S))

    def fill_ns(self, packets: int) -> int:
        """How long it takes until `packets` answers have come to the busiest sending socket."""
        rates = np.bincount(self.sender.paths.socket, 1.0 / self.sender.paths.interval_ns)
        return int(packets / rates.max()) if len(rates) else NS_PER_S

    def _usable(self, changes: list[tuple[str, bool]]) -> None:
        now_ns = time.monotonic_ns()
        for nic, usable in changes:
            self.sender.nic_usable(nic, usable, now_ns)
            self.reflector.nic_usable(nic, usable, now_ns)
