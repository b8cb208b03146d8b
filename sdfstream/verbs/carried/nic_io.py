"""Queue pairs and engines of one NIC, from when its device is opened until it is gone. Called by one thread.

Two endpoints: one answers, the other, which is opened with the first session, probes. Every pass takes what has
completed, a bounded number, and sends what is due.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.agent.senders import configured_senders, limits_of
from sdfstream.agent.slots import SessionSlots
from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.rdma.choice import DeviceChoice
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.probes.stamp.liveness import SILENT
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import NEVER, SessionSender
from sdfstream.verbs.carried.gid_watch import GidWatch
from sdfstream.verbs.carried.peers import Peers
from sdfstream.verbs.carried.ports import on_ports, pairs_wanted
from sdfstream.verbs.probing.datagrams_io import (
    REFLECTOR_PORT,
    ReflectorDatagrams,
    SenderDatagrams,
    address_of,
    tx_stamps,
)
from sdfstream.verbs.probing.device_events import ACTIVE, PortChange
from sdfstream.verbs.probing.meeting_io import End
from sdfstream.verbs.probing.session_io import DeviceEvents
from sdfstream.verbs.probing.ud_endpoint_io import UdEndpoint
from sdfstream.verbs.udp_port import LEAST_PORT

PLANNED_PAIRS: Final = 4
"""Queue pairs for planned sessions where each has one source port."""
_MOST_SESSIONS: Final = 4_096
_OWNER: Final = "rocev2"

OpenEndpoint = Callable[[DeviceChoice, Sequence[int]], UdEndpoint]
"""Device and source ports (as many queue pairs, where it chooses them) to an endpoint. UnavailableError: none."""
Groups = Mapping[str, tuple[Mapping[str, KnownSender], tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class NicSetup:
    """What a NIC's queue pairs are made for."""

    config: AgentConfig
    """With its RoCEv2 sessions."""
    host: HostConfig
    nic: NicConfig
    seed: int
    """What strangers must not guess of the reflector."""
    on_change: Callable[[PortChange], None] = field(compare=False)
    """Takes changes of the device's port, at once."""


class RoceNic:
    """One NIC's queue pairs.

    Raises
    ------
    UnavailableError
        The device cannot be opened; from `turn`: it is gone.
    """

    def __init__(self, choice: DeviceChoice, setup: NicSetup, groups: Groups, open_endpoint: OpenEndpoint) -> None:
        self.choice, self.setup = choice, setup
        self._open = open_endpoint
        self._nic = setup.nic.nic
        self.reflecting = open_endpoint(choice, (LEAST_PORT,))
        self._gid = GidWatch(self.reflecting.address.gid)
        host = replace(setup.host, nics=(setup.nic,), sessions=())
        self._host = host
        self.reflector = SessionReflector(
            host,
            {0: self._nic},
            configured_senders(setup.config, setup.host),
            limits=replace(limits_of(setup.config), port=REFLECTOR_PORT),
            hmac_key=setup.config.hmac_key,
            salt=setup.seed,
            liveness_ms=setup.config.liveness_ms,
            transport="rocev2",
        )
        for name, (senders, networks) in groups.items():
            self.reflector.know(name, senders, networks)
        self._answers = ReflectorDatagrams(self.reflecting, self.reflector.counters)
        self._events = DeviceEvents(self.reflecting, setup.on_change)
        self._usable = True
        self.peers = Peers()
        self.probing: UdEndpoint | None = None
        self.sender: SessionSender | None = None
        self._datagrams: SenderDatagrams | None = None
        self._sockets: dict[tuple[str, int], int] = {}
        self._slots = SessionSlots()
        self._wanted: list[SessionConfig] = []
        self._lacking = False

    # --- what is wanted ---

    def want(self, configured: Sequence[SessionConfig], planned: Sequence[SessionConfig], now_ns: int) -> None:
        """Probe these from now on. UnavailableError: the device gives no queue pairs."""
        every = [*configured, *planned]
        if self.probing is None and every:
            self._begin(pairs_wanted(configured, PLANNED_PAIRS if planned else 0))
        if self.probing is None:
            return
        self._wanted = on_ports(every, None if self.probing.chooses_ports else self.probing.source_ports)
        self.peers.want({s.dst_address: s.dst for s in self._wanted}, now_ns)
        self._change(now_ns)

    def _begin(self, pairs: int) -> None:
        self.probing = self._open(self.choice, range(LEAST_PORT + 1, LEAST_PORT + 1 + pairs))
        config, seed = self.setup.config, np.random.default_rng(secrets.randbits(64))
        self.sender = SessionSender(
            self._host, self._sockets, seed, time.monotonic_ns(),
            hmac_key=config.hmac_key, liveness_ms=config.liveness_ms,
        )  # fmt: skip
        self.sender.nic_usable(self._nic, self._usable, time.monotonic_ns())
        self._datagrams = SenderDatagrams(self.probing, (), self.peers.at, self.sender.counters)

    def _change(self, now_ns: int) -> None:
        """Begin and end sessions, as far as there is room for them now."""
        assert self.sender is not None and self._datagrams is not None
        for session in self._wanted:
            for port in session.source_ports:
                self._sockets[self._nic, port] = self._datagrams.socket(port)
        change = self._slots.change_to(self._wanted, _OWNER, _MOST_SESSIONS, now_ns)
        self._lacking = change.lacking > 0
        if change:
            limit_ms = self.setup.config.liveness_ms
            self.sender.change_sessions(change.begin, change.end, now_ns, liveness_ms=limit_ms, in_step=False)

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str]) -> None:
        """Answer these senders and networks from now on, instead of those of `group` before."""
        self.reflector.know(group, senders, networks)

    def arrived(self, end: End) -> None:
        """A sender has met this NIC: answers go to it from now on, as long as it is known."""
        self._answers.know(address_of(end.address.gid), end.address.qkey)

    @property
    def end(self) -> End:
        """What far senders are told of this NIC."""
        return End(self._nic, self.reflecting.address)

    @property
    def asking_end(self) -> End | None:
        """What reflectors are told of this NIC; None: it has no sessions."""
        return None if self.probing is None else End(self._nic, self.probing.address)

    # --- one pass ---

    def endpoints(self) -> list[UdEndpoint]:
        """Those that are open."""
        return [e for e in (self.reflecting, self.probing) if e is not None]

    def next_due_ns(self) -> int:
        """Steady clock: when a probe is due; far in the future when there is none."""
        return NEVER if self.sender is None else self.sender.next_due_ns()

    def turn(self, now_ns: int) -> None:
        """Take events and completions, answer, and send what is due. UnavailableError: the device is gone."""
        for usable in self._events.take():
            self._usable = usable
            self.reflector.nic_usable(self._nic, usable, now_ns)
            if self.sender is not None:
                self.sender.nic_usable(self._nic, usable, now_ns)
        self._answer(now_ns)
        if self.sender is not None:
            self._probe(self.sender, now_ns)

    def _answer(self, now_ns: int) -> None:
        messages = self.reflecting.take()
        self.reflector.take_tx_stamps(tx_stamps(messages))
        if messages.received:
            answers = self.reflector.answer(self._answers.take(messages, time.time_ns()), now_ns)
            self.reflector.seal(answers, time.time_ns())
            self._answers.send(answers)

    def _probe(self, sender: SessionSender, now_ns: int) -> None:
        assert self.probing is not None and self._datagrams is not None
        while self.probing.event():  # those of the other endpoint's context, once more
            pass
        messages = self.probing.take()
        sender.take_tx_stamps(tx_stamps(messages))
        if messages.failed:
            sender.unsent(np.array(messages.failed, dtype=np.int64))
        if messages.received:
            sender.take_answers(self._datagrams.take(messages, time.time_ns()), now_ns)
        if sender.next_due_ns() <= now_ns:
            unsent = self._datagrams.send(sender.due(now_ns, time.time_ns()))
            if unsent:
                sender.unsent(np.array(unsent, dtype=np.int64))

    # --- what was found ---

    def look(self, now_ns: int) -> None:
        """Now and then: sessions that waited for room, silent peers, a port without its GID.

        Raises
        ------
        UnavailableError
            The GID is gone, or is another one: the NIC is to be begun anew.
        """
        if self._lacking:
            self._change(now_ns)
        if self.sender is not None:
            silent = np.flatnonzero(self.sender.path_liveness.state == SILENT)
            for session in {int(self.sender.paths.session[i]) for i in silent.tolist()}:
                self.peers.is_silent(self.sender.paths.sessions[session].dst_address, now_ns)
        port = self.reflecting.ports().get(self.choice.port)
        if port is None:
            return
        if why := self._gid.why_lost(port.gid, active=port.state == ACTIVE, now_ns=now_ns):
            raise UnavailableError(f"GID {self.choice.gid_index} of {self.choice.device} {why}")

    def rows(self, now_ns: int) -> pa.RecordBatch | None:
        """Rows of exchanges that finished."""
        return None if self.sender is None else self.sender.rows(now_ns)

    def liveness(self, now_ns: int, *, complete: bool) -> list[dict[str, Any]]:
        """Entries of paths that changed state, or of all."""
        system_ns = time.time_ns()
        found = self.reflector.liveness(now_ns, system_ns, complete=complete)
        return found if self.sender is None else found + self.sender.liveness(now_ns, system_ns, complete=complete)

    def leave(self, now_ns: int) -> list[dict[str, Any]]:
        """Close the queue pairs; the paths' last entries: they are unknown."""
        self.reflector.nic_usable(self._nic, False, now_ns)
        if self.sender is not None:
            self.sender.nic_usable(self._nic, False, now_ns)
        for endpoint in reversed(self.endpoints()):
            endpoint.close()
        return self.liveness(now_ns, complete=False)

    def counters(self) -> list[dict[str, int]]:
        """Of the engines."""
        counters = [self.reflector.counters, *([self.sender.counters] if self.sender is not None else [])]
        return [one.as_dict() for one in counters]
