"""Throughput of kernel flows on the agent's hosts: which are counted, at which end, and their rows for the bus."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from sdfstream.agent.commands import kernel_flow as kf
from sdfstream.agent.commands.kernel_flow_io import Attachment, KernelFlowActuator
from sdfstream.agent.commands.kernel_rows import ArrivalPorts, KernelRows
from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.message import Output
from sdfstream.records.topics import QP
from sdfstream.records.units import NS_PER_MS

_log = logging.getLogger("sdfstream.control")

_ROWS_NS: Final = 100 * NS_PER_MS


class KernelFlows:
    """Those with ``steering: kernel`` that start on the agent's hosts, or end there and are counted there.

    Parameters
    ----------
    config : AgentConfig
    address_of : callable
        Of any NIC; None: not known.
    """

    def __init__(self, config: AgentConfig, address_of: Callable[[str], str | None]) -> None:
        nics = {n.nic: Attachment(n.device, n.address, n.netns) for h in config.hosts for n in h.nics}
        self.actuator = KernelFlowActuator(nics, address_of)
        self._flows: dict[str, list[tuple[str, QueuePair]]] = {}
        """By host: job and flow, those that it sends and counts."""
        self._arriving: dict[str, list[tuple[str, QueuePair]]] = {}
        """Those that it receives and counts."""
        self._ports = ArrivalPorts()
        self._moved: Mapping[str, int] = {}
        self._rows = {h.host: KernelRows(h.host) for h in config.hosts}
        self._clocks = {h.host: Clock(h.virtual_clock) for h in config.hosts}
        self._due_ns = dict.fromkeys(self._rows, 0)
        self._failed = ""

    def flows(self, shards: Mapping[str, Iterable[JobShard]], moved: Mapping[str, int]) -> None:
        """The job map; `moved` is looked at again whenever rows are made."""
        self._moved = moved
        self._flows, self._arriving = {}, {}
        starting, ending = dict[tuple[str, str], QueuePair](), dict[tuple[str, str], QueuePair]()
        for host, each in shards.items():
            sent = [(shard.job, q) for shard in each for q in shard.qps]
            received = [(shard.job, q) for shard in each for q in shard.receives]
            starting.update({(job, q.qp): q for job, q in sent if q.steering == "kernel"})
            ending.update({(job, q.qp): q for job, q in received if q.steering == "kernel"})
            self._flows[host] = [(job, q) for job, q in sent if q.steering == "kernel" and q.counted == "sent"]
            self._arriving[host] = [
                (job, q) for job, q in received if q.steering == "kernel" and q.counted == "received"
            ]
        arriving = [q for flows in self._arriving.values() for _, q in flows]
        self._ports.keep(q.qp for q in arriving)
        try:
            self.actuator.see(starting, ending)
            self.actuator.count([q for flows in self._flows.values() for _, q in flows], arriving)
        except UnavailableError as error:
            if str(error) != self._failed:
                self._failed = str(error)
                _log.warning("not all kernel flows can be counted and moved here: %s", error)

    def rows(self, host: str, now_ns: int) -> list[Output]:
        """What the host's kernel flows carried since the last time, every 100 ms."""
        flows, arriving = self._flows.get(host, []), self._arriving.get(host, [])
        if not (flows or arriving) or now_ns < self._due_ns[host]:
            return []
        self._due_ns[host] = now_ns + _ROWS_NS
        counts = self.actuator.sent(q for _, q in flows)
        here = [(job, replace(q, path=self._moved.get(q.qp, q.path))) for job, q in flows]
        received = self.actuator.received(q for _, q in arriving)
        for job, pair in [(job, q) for job, q in arriving if q.qp in received]:
            counts[pair.qp] = kf.total(received[pair.qp].values())
            here.append((job, replace(pair, path=self._ports.of(pair, received[pair.qp]))))
        batch = self._rows[host].step(here, counts, self._clocks[host].at(time.time_ns()))
        return [] if batch is None else [Output(QP.name, host, batch)]
