"""A host's packets by the numpy engines and two socket tables; the agent's loop calls it. No call waits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.agent.senders import configured_senders, limits_of
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.net.socket_table_io import SocketTable
from sdfstream.probes.stamp.datagrams import LONGEST_PAYLOAD
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.probes.stamp.paths import Paths
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.probes.trace.trace_io import InboundPaths
from sdfstream.records.units import NS_PER_MS, Float64s, Int64s, UInt8s
from sdfstream.stats import Counters

_TX_STAMPS_MOST_NS: Final = 20 * NS_PER_MS
"""Longest pause between two readings of the reflector's TX stamps."""
_ASSESS_NS: Final = (5 * NS_PER_MS, 50 * NS_PER_MS)
_ROUNDS: Final = 8
"""Full buffers taken in one go, so that a flood at the reflector does not stop the sender."""


class NumpyPackets:
    """Sender and reflector of one host (`HostPackets`).

    Parameters
    ----------
    config : AgentConfig
    host : HostConfig
    socket_of : (NIC id, source port) to socket
        As `sender_sockets` makes it.
    seed : int
        Of the pacing, and of what strangers must not guess of the reflector.
    counters : Counters
        Of the sockets.
    """

    self_driven: Final = False
    has_changes: Final = False
    """It is found out by looking."""
    orders: Final = None

    def __init__(
        self,
        config: AgentConfig,
        host: HostConfig,
        socket_of: Mapping[tuple[str, int], int],
        seed: int,
        counters: Counters,
    ) -> None:
        self._reflector_pause_ns = assess_pause_ns(config.liveness_ms)
        nics = {n.nic: n for n in host.nics}
        width = max([LONGEST_PAYLOAD, *(s.size_bytes for s in host.sessions)])

        def table(slots: Sequence[tuple[NicConfig, int]]) -> SocketTable:
            return SocketTable(slots, width=width, hardware=config.hardware_stamps, counters=counters)

        self.senders = table([(nics[src], port) for src, port in socket_of])
        self.reflectors = table([(nic, config.reflector_port) for nic in host.nics])
        self.sender = _sender(config, host, socket_of, seed)
        self.reflector = _reflector(config, host, seed)
        self._read_tx_stamps_at_ns = self._reflector_at_ns = self._follow_up_ns = 0

    @property
    def paths(self) -> Paths:
        """The table of paths."""
        return self.sender.paths

    @property
    def configured_paths(self) -> int:
        """How many of the paths never change."""
        return self.sender.configured_paths

    def probed(self) -> dict[tuple[str, str, int, int], int]:
        """The paths that are probed now."""
        return self.sender.probed()

    def probed_intervals_ns(self) -> Float64s:
        """(paths,) probe intervals."""
        return self.sender.probed_intervals_ns()

    def change_sessions(
        self, begin: Mapping[int, SessionConfig], end: Sequence[int], now_ns: int, *, liveness_ms: int, in_step: bool
    ) -> None:
        """Begin and end sessions, by slot."""
        self.sender.change_sessions(begin, end, now_ns, liveness_ms=liveness_ms, in_step=in_step)

    def nic_usable(self, nic: str, usable: bool, now_ns: int) -> None:
        """A NIC can or cannot send and receive."""
        self.sender.nic_usable(nic, usable, now_ns)
        self.reflector.nic_usable(nic, usable, now_ns)

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str] = ()) -> None:
        """Answer these senders and networks from now on."""
        self.reflector.know(group, senders, networks)

    def arriving_pps(self, ports: range) -> float:
        """Probes that arrive per second over these source ports."""
        return self.reflector.arriving_pps(ports)

    def liveness(self, now_ns: int, system_ns: int, *, complete: bool) -> list[dict[str, Any]]:
        """Assess liveness; the reflector's limit is the mesh's, however fast the watch sessions are."""
        changes = self.sender.liveness(now_ns, system_ns, complete=complete)
        if complete or now_ns >= self._reflector_at_ns:
            changes += self.reflector.liveness(now_ns, system_ns, complete=complete)
            self._follow_up_ns = self.reflector.follow_up_due_ns(now_ns)
            self._reflector_at_ns = now_ns + self._reflector_pause_ns
        return changes

    def states(self) -> UInt8s:
        """(paths,) state of every path."""
        return self.sender.path_liveness.state

    def steady_since_ns(self) -> Int64s:
        """(paths,) steady clock of the last change of state; silent: of the last answer."""
        return self.sender.path_liveness.since_at

    def last_received_ns(self) -> Int64s:
        """(paths,) steady clock of the last answer."""
        return self.sender.last_received_at_ns

    def ttl_fwd(self) -> UInt8s:
        """(paths,) TTL with which probes arrive."""
        return self.sender.ttl_fwd

    def inbound(self) -> InboundPaths:
        """The sessions that this host reflects."""
        observed = self.reflector.path_liveness
        return InboundPaths(observed.names, self.reflector.senders, observed.state)

    def rows(self, now_ns: int) -> list[pa.RecordBatch]:
        """Rows of finished exchanges."""
        batch = self.sender.rows(now_ns)
        return [] if batch is None else [batch]

    def counters(self) -> dict[str, int]:
        """Counters of both engines."""
        return {**self.sender.counters.as_dict(), **self.reflector.counters.as_dict()}

    def send_due(self, now_ns: int) -> None:
        """Send the probes that are due."""
        if self.sender.next_due_ns() <= now_ns:
            unsent = self.senders.send(self.sender.due(now_ns, time.time_ns()))
            if len(unsent):
                self.sender.unsent(unsent)

    def read_answers(self, due_at_ns: int) -> bool:
        """Take TX stamps and answers; whether there were any answers."""
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

    def reflect(self) -> bool:
        """Answer the probes that have arrived; whether there were any.

        The answers' TX stamps are read when they are needed, not after every few answers: that would cost as many
        system calls again.
        """
        table, engine = self.reflectors, self.reflector
        for turn in range(_ROUNDS):
            received = table.receive()
            now_ns = time.monotonic_ns()
            if received is None or now_ns >= self._read_tx_stamps_at_ns:
                self._read_tx_stamps(now_ns)
            if received is None:
                return turn > 0
            answers = engine.answer(received, now_ns)
            if len(answers.length):
                engine.seal(answers, time.time_ns())
                table.send(answers)
            if not table.backlog:
                return True
        return True

    def _read_tx_stamps(self, now_ns: int) -> None:
        """Take the TX stamps of answers, to be sent in the next ones (Follow-Up Telemetry)."""
        stamps = self.reflectors.read_tx_stamps()
        if stamps is not None:
            self.reflector.take_tx_stamps(stamps)
        self._read_tx_stamps_at_ns = now_ns + min(self._follow_up_ns, _TX_STAMPS_MOST_NS)

    def arrivals_fd(self) -> int:
        """Readable when probes have arrived."""
        return self.reflectors.fileno()

    def longest_rest_ns(self) -> int:
        """How long the reflector may rest so that fast probes do not wait; 0: no limit."""
        return self._follow_up_ns

    def close(self) -> None:
        """Close all sockets."""
        self.senders.close_all()
        self.reflectors.close_all()


def assess_pause_ns(liveness_ms: int) -> int:
    """Pause between two assessments by this limit."""
    return min(max(liveness_ms * NS_PER_MS // 20, _ASSESS_NS[0]), _ASSESS_NS[1])


def _sender(
    config: AgentConfig, host: HostConfig, socket_of: Mapping[tuple[str, int], int], seed: int
) -> SessionSender:
    return SessionSender(
        host,
        socket_of,
        np.random.default_rng(seed),
        time.monotonic_ns(),
        hmac_key=config.hmac_key,
        liveness_ms=config.liveness_ms,
    )


def _reflector(config: AgentConfig, host: HostConfig, seed: int) -> SessionReflector:
    return SessionReflector(
        host,
        {slot: nic.nic for slot, nic in enumerate(host.nics)},
        configured_senders(config, host),
        limits=limits_of(config),
        hmac_key=config.hmac_key,
        salt=seed,
        liveness_ms=config.liveness_ms,
    )
