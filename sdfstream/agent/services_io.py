"""What an agent's process does beside probing: job map, executor of commands, mesh follower, kernel flows.

::

    drop directory, control sockets ─► job map ─► sdf.state.job.v1
                                          ├─► requests: watch sessions and traced flows of every queue pair here
                                          └─► executor ◄─ commands (bus), liveness (every reading)
                                                 └─► actuators ─► outcomes
    mesh plan (bus) ─► planned sessions;  NICs ─► sdf.state.topology.v1

Stages and probes are strangers to each other; this file is where they meet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from sdfstream.agent.commands.actuator import Actuator
from sdfstream.agent.commands.control_io import AgentControl
from sdfstream.agent.commands.journal_io import JournalFile
from sdfstream.agent.commands.kernel_counting_io import KernelFlows
from sdfstream.agent.commands.qp_socket_io import QpSocketActuator
from sdfstream.agent.downlink import Downlink
from sdfstream.agent.jobmap.folder_io import JobFolder
from sdfstream.agent.mesh_io import MeshFollower, PlanSieve
from sdfstream.agent.observer import HostPort
from sdfstream.agent.requests import flow_requests, return_watch_requests, watch_requests, watching_senders
from sdfstream.agent.trusted_keys_io import trusted
from sdfstream.errors import BusError
from sdfstream.probes.config import AgentConfig
from sdfstream.records.fabric import host_of
from sdfstream.records.job import JobShard
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_MS
from sdfstream.runtime.own_troubles import Counted
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

_READ_S: Final = 1.0
"""Longest wait for messages of the bus, and the pause after an error of it."""
_JOBS_NS: Final = 50 * NS_PER_MS
"""Pause between two looks for events of the job map."""


class AgentServices:
    """The observer of a real agent (`agent.observer.LivenessObserver`).

    Parameters
    ----------
    config : AgentConfig
    boot_id : str
    downlink : Downlink or None
        Commands and plans for this agent; None: none can come.

    Raises
    ------
    ConfigError
        A trusted key cannot be read, or there is none.
    UnavailableError
        The journal's folder cannot be used.
    """

    def __init__(self, config: AgentConfig, boot_id: str, downlink: Downlink | None) -> None:
        self.counters = Counters("companion")
        hosts = [h.host for h in config.hosts]
        self._addresses = {s.dst: s.dst_address for h in config.hosts for s in h.sessions}
        self._addresses |= {n.nic: n.address for h in config.hosts for n in h.nics}
        self._configured_nics = frozenset(self._addresses)
        self._configured_pairs = frozenset((s.src, s.dst) for h in config.hosts for s in h.sessions)
        self._ports: dict[str, HostPort] = {}
        self._downlink = downlink
        self._jobs_at_ns = 0
        folder = Path(config.jobs_dir) if config.jobs_dir else None
        self._folder = JobFolder(folder, hosts, boot_id=boot_id, on_change=self._jobs_changed) if folder else None
        self._sockets = QpSocketActuator()
        self.control: AgentControl | None = None
        self._kernel: KernelFlows | None = None
        keys = trusted(config.trusted_keys) if config.trusted_keys else None
        self._mesh = MeshFollower(config, boot_id, self._learn_address, keys) if config.mesh == "auto" else None
        if config.control:
            self._kernel = KernelFlows(config, self._address)
            actuators: dict[str, Actuator] = {"socket": self._sockets, "kernel": self._kernel.actuator}
            file = JournalFile(Path(config.control_state)) if config.control_state else None
            self.control = AgentControl(hosts, trusted(config.trusted_keys), actuators, file, boot_id)
            self.control.resume()

    def attach(self, hosts: Sequence[HostPort]) -> None:
        """Take the hosts of the agent, once their sockets are open."""
        for host in hosts:
            self._ports[host.name] = host
            if self.control is not None:
                self.control.attach(host.name, host, host.orders)
        if self._mesh is not None:
            self._mesh.attach(hosts)
        self._paths_changed()
        self._jobs_changed()

    def on_liveness(self, host: str, now_ns: int) -> list[Output]:
        """Decide and act by the newest liveness of `host`; what is to be published."""
        outputs: list[Output] = []
        if self.control is not None:
            outputs += self.control.on_liveness(host, now_ns)
            if (watched := self.control.watched(host)) is not None:
                self._ports[host].cover(watched)
        if self._kernel is not None:
            outputs += self._kernel.rows(host, now_ns)
        if self._folder is not None:
            if outputs:
                self._paths_changed()
            if outputs or now_ns >= self._jobs_at_ns:
                self._jobs_at_ns = now_ns + _JOBS_NS
                outputs += self._folder.jobs.events(now_ns, time.time_ns())
        if self._mesh is not None:
            outputs += self._mesh.announce(host, now_ns)
        return outputs

    async def run(self) -> None:
        """Look for jobs, obey commands and plans, write the journal, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._folder is not None:
                group.create_task(self._folder.run(), name="jobs")
            if self.control is not None:
                group.create_task(self.control.keep_journal(), name="journal")
            if self._downlink is not None:
                group.create_task(self._obey(self._downlink), name="downlink")

    async def _obey(self, downlink: Downlink) -> None:
        """Plans to the mesh follower, everything else to the executor, for ever."""
        if self._mesh is not None:
            downlink = PlanSieve(downlink, self._mesh)
        if self.control is not None:
            await self.control.listen(downlink)
        while True:
            try:
                await downlink.read(_READ_S)
            except BusError as error:  # the last plan stays in force
                self.counters.add("downlink-failed")
                _log.warning("no plan can come: %s", error)
                await asyncio.sleep(_READ_S)

    def close(self) -> None:
        """Write down what is in force, and leave it in force."""
        if self.control is not None:
            self.control.save()
        if self._kernel is not None:
            self._kernel.actuator.close()
        self._sockets.close()

    def all_counters(self) -> dict[str, int]:
        """Of the job map, of commands, of actuators."""
        return {name: n for counters in self._counted() for name, n in counters.as_dict().items()}

    @property
    def counted(self) -> list[Counted]:
        """The same, for their troubles."""
        return [Counted(counters) for counters in self._counted()]

    def _counted(self) -> list[Counters]:
        counted = [self.counters, self._sockets.counters]
        counted += [self._kernel.actuator.counters] if self._kernel is not None else []
        counted += [self.control.counters] if self.control is not None else []
        counted += [self._folder.jobs.counters] if self._folder is not None else []
        counted += [self._mesh.counters] if self._mesh is not None else []
        return counted

    def _paths_changed(self) -> None:
        """Show the job map at once the path that a command put a queue pair on."""
        if self._folder is None:
            return
        if self.control is not None:
            self._folder.jobs.kernel_paths.update(self.control.kernel_paths())
        for shard in self._folder.jobs.sockets:
            self._folder.ask(shard)

    def _jobs_changed(self) -> None:
        """Tell executor, actuators and probes of the jobs that are here now."""
        if self._folder is None:
            return
        by_host: dict[str, list[JobShard]] = {}
        for shard in self._folder.jobs.shards:
            by_host.setdefault(shard.host, []).append(shard)
        if self.control is not None:
            self.control.take_jobs(by_host)
            self._sockets.keep(set(self._folder.jobs.sockets.values()))
        if self._kernel is not None:
            self._kernel.flows(by_host, self._folder.jobs.kernel_paths)
        for name, port in self._ports.items():
            self._request(port, by_host.get(name, ()))

    def _request(self, port: HostPort, shards: Iterable[JobShard]) -> None:
        """Ask a host for the watch sessions and traces that its queue pairs need."""
        shards = list(shards)
        kernel_paths = self._folder.jobs.kernel_paths if self._folder is not None else {}
        qps = [replace(q, path=kernel_paths.get(q.qp, q.path)) for s in shards for q in s.qps if q.src in port.nics]
        receives = [q for s in shards for q in s.receives if q.dst in port.nics]
        port.answer(watching_senders(qps, receives, self._addresses.get))
        back = return_watch_requests(receives, self._configured_pairs, self._address)
        port.watch([*watch_requests(qps), *back])
        port.trace(flow_requests(qps, receives, self._address))

    def _learn_address(self, nic: str, address: str) -> None:
        """Of a NIC that a plan names; a configured address stays."""
        if nic not in self._configured_nics:
            self._addresses[nic] = address

    def _address(self, nic: str) -> str | None:
        address = self._addresses.get(nic)
        if address is None:
            self.counters.add("unknown-address", host_of(nic))
        return address
