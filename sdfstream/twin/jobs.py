"""What a twin's jobs put on the bus: their shards, and the chunks of their queue pairs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.records import columns
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard, Rank
from sdfstream.records.message import Event
from sdfstream.records.topics import JOB, QP
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Bools, Float64s, Int64s
from sdfstream.twin.agents import Agents
from sdfstream.twin.conditions import is_hit
from sdfstream.twin.load import FluidFlows, PlacedJob
from sdfstream.twin.queues import Cell

QP_PORT: Final = 4791
_FIRST_PORT: Final = 51_000
_REPEAT_NS: Final = 10 * NS_PER_S
_CHUNK_S: Final = 2e-3
"""A chunk takes this long at the speed that its flow asks for."""


def pair_port(flow: int) -> int:
    """Source port of a job's queue pair, by the number of its flow."""
    return _FIRST_PORT + flow % 10_000


class TwinJobs:
    """Shards and chunks of all jobs."""

    def __init__(self, load: FluidFlows, agents: Agents, rng: np.random.Generator) -> None:
        self.load, self.agents, self.rng = load, agents, rng
        self._chunk = np.zeros(load.src.size, np.int64)
        self._stated: dict[str, tuple[str, int]] = {}

    def publish(self, begin_ns: int, until_ns: int, silent: Bools) -> None:
        """Shards of jobs that begin, run on or end."""
        for job in self.load.jobs:
            state = "running" if job.spec.at * 1e9 <= until_ns < job.spec.until * 1e9 else "ended"
            before, at_ns = self._stated.get(job.spec.name, ("ended", -_REPEAT_NS))
            if state == before and (state == "ended" or until_ns - at_ns < _REPEAT_NS):
                continue
            self._stated[job.spec.name] = (state, until_ns)
            self._shards(job, state, until_ns, silent)

    def _shards(self, job: PlacedJob, state: str, at_ns: int, silent: Bools) -> None:
        fabric, clocks, start_ns = self.agents.fabric, self.agents.clocks, self.agents.start_ns
        for rank, nic in enumerate(job.nics.tolist()):
            host = int(fabric.host_of[nic])
            if silent[host]:
                continue
            qps = tuple(self.pair(job, k) for k in job.flows.tolist() if int(self.load.src[k]) == nic)
            shard = JobShard(
                job.spec.name, fabric.hosts[host], state,
                since_at_ns=clocks.shown(host, int(job.spec.at * 1e9), start_ns),
                seen_at_ns=clocks.shown(host, at_ns, start_ns),
                ranks=(Rank(rank, (fabric.nics[nic],)),), qps=qps,
            )  # fmt: skip
            event = Event(JOB.name, shard.host, f"{shard.key}-{at_ns}", start_ns + at_ns, shard.as_data())
            self.agents.outbox.put(at_ns, JOB, shard.key, event, source=shard.host)

    def pair(self, job: PlacedJob, flow: int) -> QueuePair:
        """The queue pair of a flow."""
        fabric, ranks = self.agents.fabric, {n: r for r, n in enumerate(job.nics.tolist())}
        src, dst = int(self.load.src[flow]), int(self.load.dst[flow])
        return QueuePair(
            f"{fabric.nics[src]}#{flow}", ranks[src], ranks[dst], fabric.nics[src], fabric.nics[dst],
            fabric.address(2 * dst + 1), pair_port(flow), QP_PORT, transport="rocev2",
        )  # fmt: skip

    def chunks(self, cell: Cell, asked: Float64s, routes: Int64s, at_ns: int, silent: Bools) -> None:
        """A chunk of every queue pair that moves data at `at_ns`."""
        fabric = self.agents.fabric
        for job in self.load.jobs:
            lost = 1 - np.prod(1 - cell.now.loss[routes[job.flows]], axis=1)
            for link, share in cell.now.hashed.items():
                lost[is_hit(self.load.hashes[job.flows], link, share) & (routes[job.flows] == link).any(axis=1)] = 1.0
            moving = job.flows[(asked[job.flows] > 0) & (cell.got[job.flows] > 0) & (lost < 0.5)]
            host = fabric.host_of[self.load.src[moving]]
            moving = moving[~silent[host]]
            for number in np.unique(fabric.host_of[self.load.src[moving]]).tolist():
                mine = moving[fabric.host_of[self.load.src[moving]] == number]
                self._rows(job, mine, cell, asked, routes, at_ns, number)

    def _rows(
        self, job: PlacedJob, flows: Int64s, cell: Cell, asked: Float64s, routes: Int64s, at_ns: int, host: int
    ) -> None:  # fmt: skip
        agents, n = self.agents, flows.size
        pairs = [self.pair(job, k) for k in flows.tolist()]
        delay = fabric_delay(agents, cell, routes[flows]) + cell.now.inband_us * 1e3 + self.rng.exponential(800.0, n)
        size = asked[flows] / 8 * _CHUNK_S
        lasts = size * 8 / np.maximum(cell.got[flows], 1e3) * 1e9 * self.rng.uniform(0.97, 1.03, n)
        far = agents.fabric.host_of[self.load.dst[flows]]
        sent = np.full(n, at_ns)
        arrived = sent + delay.astype(np.int64)
        completed = arrived + lasts.astype(np.int64)
        known = completed + delay.astype(np.int64)
        offset = [np.rint(agents.clocks.offset(h, sent)).astype(np.int64) for h in (np.full(n, host), far)]
        own, their = (agents.start_ns + o for o in offset)
        packets = np.maximum(size / 4096, 1)
        marked = 1 - np.prod(1 - cell.mark[routes[flows]], axis=1)
        self._chunk[flows] += 1
        name = agents.fabric.hosts[host]
        body: dict[str, Any] = {
            "sent_at_ns": sent + own, "job": [job.spec.name] * n,
            "rank": np.array([p.rank for p in pairs], np.uint32),
            "peer_rank": np.array([p.peer_rank for p in pairs], np.uint32),
            "qp": [p.qp for p in pairs], "src": [p.src for p in pairs], "dst": [p.dst for p in pairs],
            "clock_src": [name] * n, "clock_dst": [agents.fabric.hosts[h] for h in far.tolist()],
            "transport": ["rocev2"] * n, "path": np.array([p.path for p in pairs], np.uint32),
            "dst_port": np.full(n, QP_PORT, np.uint16), "dscp": np.zeros(n, np.uint8),
            "chunk": self._chunk[flows].astype(np.uint64), "bytes": size.astype(np.uint64),
            "packets": packets.astype(np.uint32), "arrived_at_ns": arrived + their,
            "completed_at_ns": completed + their, "acknowledged_at_ns": known + own,
            "ce": self.rng.binomial(packets.astype(np.int64), np.clip(marked, 0, 1)).astype(np.uint32),
            "retransmits": np.zeros(n, np.uint32),
        }  # fmt: skip
        last_ns = int(known.max()) + NS_PER_MS
        agents.outbox.put(last_ns, QP, name, columns.build(QP.columns, body))


def fabric_delay(agents: Agents, cell: Cell, routes: Int64s) -> Float64s:
    """(n,) ns that a packet takes over each route."""
    fixed = agents.fabric.fixed_ns[routes].sum(axis=1)
    total: Float64s = fixed + (cell.delay_ns + cell.random_ns)[routes].sum(axis=1) + 2_000.0
    for link, us in cell.now.longer_us.items():
        total += us * 1e3 * (routes == link).any(axis=1)
    return total
