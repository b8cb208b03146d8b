"""What lives beside the probes in an agent's process: the job map and the agent's side of commands, wired together.

::

    drop directory, control sockets ─► job map ─► sdf.state.job.v1
                                          ├─► wishes: watch sessions and traced flows of every queue pair here
                                          └─► executor ◄─ commands (bus), liveness (every judgement)
                                                 └─► actuators ─► outcomes
    mesh plan (bus) ─► planned sessions;  NICs ─► sdf.state.topology.v1

Stages and probes are strangers to each other; this is the place where they meet.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from sdfstream.agent.bus_io import LateDownlink, WaitingBus
from sdfstream.agent.commands.actuator import Actuator
from sdfstream.agent.commands.control_io import AgentControl, Downlink
from sdfstream.agent.commands.journal_io import JournalFile
from sdfstream.agent.commands.kernel_flows_io import KernelFlows
from sdfstream.agent.commands.qp_socket_io import QpSocketActuator
from sdfstream.agent.companion import HostPort, WatchWish
from sdfstream.agent.jobmap.folder_io import JobFolder
from sdfstream.agent.mesh_io import MeshFollower
from sdfstream.bus import Bus, Subscription
from sdfstream.bus.link.client_io import LinkPublisher
from sdfstream.errors import BusError, ConfigError
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.trace.flows import FlowWish
from sdfstream.records.fabric import host_of
from sdfstream.records.job import JobShard, QueuePair
from sdfstream.records.message import Message, Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import COMMAND, MESH
from sdfstream.records.units import NS_PER_MS
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

_PATIENCE_S: Final = 1.0
_TELL_NS: Final = 50 * NS_PER_MS
"""Pause between two looks at what the job map has to tell."""


class AgentCompanion:
    """Companion of a real agent (`agent.companion.Companion`).

    Parameters
    ----------
    config : AgentConfig
    boot_id : str
    downlink : Downlink or None
        Commands for this agent; None: none can come.

    Raises
    ------
    ConfigError
        A trusted key cannot be read, or there is none.
    UnavailableError
        The journal's place cannot be used.
    """

    def __init__(self, config: AgentConfig, boot_id: str, downlink: Downlink | None) -> None:
        self.counters = Counters("companion")
        hosts = [h.host for h in config.hosts]
        self._addresses = {s.dst: s.dst_address for h in config.hosts for s in h.sessions}
        self._addresses |= {n.nic: n.address for h in config.hosts for n in h.nics}
        self._configured = frozenset(self._addresses)
        self._meshed = {(s.src, s.dst) for h in config.hosts for s in h.sessions}
        self._ports: dict[str, HostPort] = {}
        self._downlink = downlink
        self._tell_ns = 0
        folder = Path(config.jobs_dir) if config.jobs_dir else None
        self._folder = JobFolder(folder, hosts, boot_id=boot_id, on_change=self._jobs_changed) if folder else None
        self._sockets = QpSocketActuator()
        self.control: AgentControl | None = None
        self._kernel: KernelFlows | None = None
        self._mesh = MeshFollower(config, boot_id, self._learn) if config.mesh == "auto" else None
        if config.control:
            self._kernel = KernelFlows(config, self._address)
            actuators: dict[str, Actuator] = {"socket": self._sockets, "kernel": self._kernel.actuator}
            file = JournalFile(Path(config.control_state)) if config.control_state else None
            self.control = AgentControl(hosts, trusted(config.trusted_keys), actuators, file, boot_id)
            self.control.resume()

    def attach(self, hosts: Sequence[HostPort]) -> None:
        """The hosts, open."""
        for host in hosts:
            self._ports[host.name] = host
            if self.control is not None:
                self.control.attach(host.name, host)
        if self._mesh is not None:
            self._mesh.attach(hosts)
        self._moved()
        self._jobs_changed()

    def judged(self, host: str, now_ns: int) -> list[Output]:
        """Decide and act by the newest liveness of `host`; what is to be published."""
        outputs = self.control.judged(host, now_ns) if self.control is not None else []
        if self._kernel is not None:
            outputs += self._kernel.rows(host, now_ns)
        if self._folder is not None:
            if outputs:
                self._moved()
            if outputs or now_ns >= self._tell_ns:
                self._tell_ns = now_ns + _TELL_NS
                outputs += self._folder.jobs.events(now_ns, time.time_ns())
        if self._mesh is not None:
            outputs += self._mesh.judged(host, now_ns)
        return outputs

    async def run(self) -> None:
        """Look for jobs, listen for commands, keep the journal, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._folder is not None:
                group.create_task(self._folder.run(), name="jobs")
            if self.control is not None:
                group.create_task(self.control.keep_journal(), name="journal")
            if self._downlink is not None:
                group.create_task(self._listen(self._downlink), name="downlink")

    async def _listen(self, downlink: Downlink) -> None:
        """Plans to the mesh, everything else to the executor, for ever."""
        sifted = _Sifted(downlink, self._mesh)
        if self.control is not None:
            await self.control.listen(sifted)
        while True:
            try:
                await sifted.read(_PATIENCE_S)
            except BusError as error:  # the last plan stays in force
                self.counters.add("downlink-failed")
                _log.warning("no plan can come: %s", error)
                await asyncio.sleep(_PATIENCE_S)

    def close(self) -> None:
        """Write down what is in force, and leave it in force."""
        if self.control is not None:
            self.control.save()
        if self._kernel is not None:
            self._kernel.actuator.close()
        self._sockets.close()

    def all_counters(self) -> dict[str, int]:
        """Of the job map, of commands, of actuators."""
        parts = [self.counters, self._sockets.counters]
        parts += [self._kernel.actuator.counters] if self._kernel is not None else []
        parts += [self.control.counters] if self.control is not None else []
        parts += [self._folder.jobs.counters] if self._folder is not None else []
        parts += [self._mesh.counters] if self._mesh is not None else []
        return {name: n for part in parts for name, n in part.as_dict().items()}

    def _moved(self) -> None:
        """Something was moved: let the job map see it at once."""
        if self._folder is None:
            return
        if self.control is not None:
            for place in self.control.executor.places.values():
                self._folder.jobs.moved.update(place.inventory.kernel_paths)
        for part in self._folder.jobs.sockets:
            self._folder.ask(part)

    def _jobs_changed(self) -> None:
        if self._folder is None:
            return
        by_host: dict[str, list[JobShard]] = {}
        for part in self._folder.jobs.parts:
            by_host.setdefault(part.host, []).append(part)
        if self.control is not None:
            self.control.jobs(by_host)
            self._sockets.keep(set(self._folder.jobs.sockets.values()))
        if self._kernel is not None:
            self._kernel.flows(by_host, self._folder.jobs.moved)
        for name, port in self._ports.items():
            self._wish(port, by_host.get(name, []))

    def _wish(self, port: HostPort, parts: Iterable[JobShard]) -> None:
        parts = list(parts)
        moved = self._folder.jobs.moved if self._folder is not None else {}
        qps = [replace(q, path=moved.get(q.qp, q.path)) for part in parts for q in part.qps if q.src in port.nics]
        receives = [q for part in parts for q in part.receives if q.dst in port.nics]
        watches = watch_wishes(qps)
        port.watch([*watches, *self._way_back(receives)])
        port.trace(flow_wishes(qps, receives, self._address))
        if self.control is not None:
            self.control.executor.quicken(port.name, {(w.src, w.dst, w.dscp) for w in watches})

    def _way_back(self, receives: Sequence[QueuePair]) -> list[WatchWish]:
        """Sessions to senders that the mesh does not probe: without one nobody knows how far they are to trace them."""
        pairs = {(q.dst, q.src, q.dscp) for q in receives if (q.dst, q.src) not in self._meshed}
        known = ((pair, self._address(pair[1])) for pair in sorted(pairs))
        return [WatchWish(src, dst, address, dscp) for (src, dst, dscp), address in known if address is not None]

    def _learn(self, nic: str, address: str) -> None:
        """A plan names a NIC; what the configuration says of one stays."""
        if nic not in self._configured:
            self._addresses[nic] = address

    def _address(self, nic: str) -> str | None:
        address = self._addresses.get(nic)
        if address is None:
            self.counters.add("unknown-address", host_of(nic))
        return address


@asynccontextmanager
async def downlink_of(config: AgentConfig, publishers: Sequence[object]) -> AsyncIterator[Downlink | None]:
    """Where commands and plans for this agent come from: the link or the Kafka client among its publishers, if any."""
    hosts = [h.host for h in config.hosts]
    link = next((p for p in publishers if isinstance(p, LinkPublisher)), None)
    bus = next((p for p in publishers if hasattr(p, "subscribe") and p is not link), None)
    topics = [COMMAND.name] * config.control + [MESH.name] * (config.mesh == "auto")
    if not topics or (link is None and bus is None):
        yield None
    elif link is not None:
        link.subscribe(topics, hosts)
        yield link
    else:
        group = f"agent-control-{hosts[0]}"
        opened: list[Subscription] = []

        async def subscribe() -> _Committed:
            opened.append(await cast(Bus, bus).subscribe(group, topics))
            return _Committed(opened[0])

        late = LateDownlink(subscribe)
        if not isinstance(bus, WaitingBus) or bus.is_there():
            await late.open()
        try:
            yield late
        finally:
            for subscription in opened:
                await subscription.close()


class _Sifted:
    """A downlink without the mesh plans, which go to the follower as they are read."""

    def __init__(self, downlink: Downlink, mesh: MeshFollower | None) -> None:
        self._downlink, self._mesh = downlink, mesh

    async def read(self, timeout_s: float) -> list[Message]:
        messages = await self._downlink.read(timeout_s)
        if self._mesh is not None:
            self._mesh.take([m for m in messages if m.topic == MESH.name])
        return [m for m in messages if m.topic != MESH.name]


class _Committed:
    """A subscription whose position follows what was read: a command that was lost in between is renewed anyway."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def read(self, timeout_s: float) -> list[Message]:
        messages = await self._subscription.read(timeout_s=timeout_s)
        if messages:
            await self._subscription.commit()
        return messages


def watch_wishes(qps: Iterable[QueuePair]) -> list[WatchWish]:
    """Watch sessions for the NIC pairs of queue pairs, also of those that cannot be moved: all are judged.

    >>> watch_wishes([])
    []
    """
    return list(dict.fromkeys(WatchWish(q.src, q.dst, q.dst_address, q.dscp) for q in qps))


def flow_wishes(
    qps: Sequence[QueuePair], receives: Sequence[QueuePair], address_of: Callable[[str], str | None]
) -> list[FlowWish]:
    """Flows to trace: those in use first, then where they could go; answers are traced from where they start.

    Parameters
    ----------
    qps, receives : sequence of QueuePair
        Whose sending or receiving end is here.
    address_of : callable
        Of a NIC; None: not known, and then there is no wish.
    """
    wishes: dict[FlowWish, None] = {}
    for others in (False, True):
        for q in qps:
            for path in q.alternates if others else (q.path,):
                wishes[FlowWish(q.flow(path), q.dst_address)] = None
        for q in receives:
            address = address_of(q.src)
            if address is not None:
                for path in q.alternates if others else (q.path,):
                    wishes[FlowWish(q.answers(path), address)] = None
    return list(wishes)


def trusted(keys: Sequence[str]) -> KeyRing:
    """The public keys named in a configuration: base64, or a path of a file with 32 raw bytes or base64.

    Raises
    ------
    ConfigError
        A key cannot be read, or there is none.
    """
    if not keys:
        raise ConfigError("control is on, but trusted_keys is empty: nobody could be obeyed")
    return KeyRing(_key(text, f"trusted_keys.{i}") for i, text in enumerate(keys))


def _key(text: str, path: str) -> bytes:
    raw: bytes = text.encode()
    if "/" in text and len(text) != 44:
        try:
            raw = Path(text).read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {text}: {error.strerror}") from error
        if len(raw) == 32:
            return raw
    try:
        key = base64.b64decode(raw.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != 32:
        raise ConfigError(f"{path}: {text!r} is no public key of 32 bytes in base64, nor a file that holds one")
    return key
