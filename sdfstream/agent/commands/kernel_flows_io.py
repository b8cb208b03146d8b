"""Kernel flows of an agent's hosts: their actuator, and the rows of what they carried."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from sdfstream.agent.commands.kernel_flow_io import Attachment, KernelFlowActuator
from sdfstream.agent.commands.kernel_rows import KernelRows
from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.job import JobShard, QueuePair
from sdfstream.records.message import Output
from sdfstream.records.topics import QP
from sdfstream.records.units import NS_PER_MS

_log = logging.getLogger("sdfstream.control")
_ROWS_NS: Final = 100 * NS_PER_MS


class KernelFlows:
    """Those with ``steering: kernel`` that start on the agent's hosts.

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
        self._moved: Mapping[str, int] = {}
        self._rows = {h.host: KernelRows(h.host) for h in config.hosts}
        self._clocks = {h.host: Clock(h.virtual_clock) for h in config.hosts}
        self._due_ns = dict.fromkeys(self._rows, 0)
        self._failed = ""

    def flows(self, parts: Mapping[str, Iterable[JobShard]], moved: Mapping[str, int]) -> None:
        """The job map; `moved` is looked at again whenever rows are made."""
        self._moved = moved
        self._flows = {
            host: [(part.job, q) for part in each for q in part.qps if q.steering == "kernel"]
            for host, each in parts.items()
        }
        try:
            self.actuator.count([q for each in self._flows.values() for _, q in each])
        except UnavailableError as error:
            if str(error) != self._failed:
                self._failed = str(error)
                _log.warning("kernel flows can neither be counted nor moved here: %s", error)

    def rows(self, host: str, now_ns: int) -> list[Output]:
        """What the host's kernel flows carried since the last time, every 100 ms."""
        flows = self._flows.get(host)
        if not flows or now_ns < self._due_ns[host]:
            return []
        self._due_ns[host] = now_ns + _ROWS_NS
        counts = self.actuator.sent(q for _, q in flows)
        here = [(job, replace(q, path=self._moved.get(q.qp, q.path))) for job, q in flows]
        batch = self._rows[host].step(here, counts, self._clocks[host].at(time.time_ns()))
        return [] if batch is None else [Output(QP.name, host, batch)]
