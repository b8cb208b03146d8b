"""Flows that hosts tell of: what each carried, ten times a second, and its traced route.

With ``known.flows`` every flow of a twin is one of a queue pair: background and jobs alike, so that the bytes told are
all that ports move. A row of ``sdf.raw.qp.v1`` has what a flow carried in a block; chunks of jobs are not told beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sdfstream.records import columns
from sdfstream.records.fabric import FLOW_TYPE, Flow
from sdfstream.records.message import Event
from sdfstream.records.topics import QP, TOPOLOGY
from sdfstream.records.units import NS_PER_MS, Bools, Float64s, Int64s
from sdfstream.twin.agents import Agents
from sdfstream.twin.jobs import QP_PORT, pair_port
from sdfstream.twin.load import FluidFlows
from sdfstream.twin.queues import CELL_NS

JOB: Final = "reported"
_FIRST_PORT: Final = 10_000
_PACKET_BYTES: Final = 4096


class ReportedFlows:
    """Rows and traces of all flows of `load`."""

    def __init__(self, load: FluidFlows, agents: Agents) -> None:
        self.load, self.agents = load, agents
        fabric = agents.fabric
        of_jobs = {k for job in load.jobs for k in job.flows.tolist()}
        ports = [pair_port(k) if k in of_jobs else _FIRST_PORT + k % 40_000 for k in range(load.src.size)]
        self.host = fabric.host_of[load.src]
        self.flows = [
            Flow(fabric.nics[a], fabric.nics[b], "udp", port, QP_PORT, 0)
            for a, b, port in zip(load.src.tolist(), load.dst.tolist(), ports, strict=True)
        ]
        self._reported = 0

    def publish(self, got_bps: Sequence[Float64s], until_ns: int, silent: Bools) -> None:
        """What was carried in cells that end at `until_ns`: (flows,) bit/s of each cell."""
        self._reported += 1
        carried = np.sum(got_bps, axis=0) / 8 * CELL_NS / 1e9
        moving = np.flatnonzero((carried >= 1) & ~silent[self.host])
        order = moving[np.argsort(self.host[moving], kind="stable")]
        hosts, first = np.unique(self.host[order], return_index=True)
        for host, mine in zip(hosts.tolist(), np.split(order, first[1:]), strict=True):
            self._rows(host, mine, carried[mine], until_ns - len(got_bps) * CELL_NS, until_ns)

    def _rows(self, host: int, mine: Int64s, carried: Float64s, from_ns: int, until_ns: int) -> None:
        a, fabric, n = self.agents, self.agents.fabric, mine.size
        name = fabric.hosts[host]
        sent, known = (a.clocks.shown(host, at_ns, a.start_ns) for at_ns in (from_ns, until_ns - 1))
        flows = [self.flows[k] for k in mine.tolist()]
        body = columns.build(
            QP.columns,
            {
                "sent_at_ns": np.full(n, sent),
                "job": [JOB] * n,
                "rank": np.zeros(n, np.uint32),
                "peer_rank": np.zeros(n, np.uint32),
                "qp": [f"{f.src}#{k}" for f, k in zip(flows, mine.tolist(), strict=True)],
                "src": [f.src for f in flows],
                "dst": [f.dst for f in flows],
                "clock_src": [name] * n,
                "clock_dst": [fabric.hosts[h] for h in fabric.host_of[self.load.dst[mine]].tolist()],
                "transport": ["rocev2"] * n,
                "path": np.array([f.source_port for f in flows], np.uint32),
                "dst_port": np.full(n, QP_PORT, np.uint16),
                "dscp": np.zeros(n, np.uint8),
                "chunk": np.full(n, self._reported, np.uint64),
                "bytes": carried.astype(np.uint64),
                "packets": np.maximum(carried / _PACKET_BYTES, 1).astype(np.uint32),
                "acknowledged_at_ns": np.full(n, known),
            },
        )
        a.outbox.put(until_ns + NS_PER_MS, QP, name, body)

    def trace(self, routes: Int64s, numbers: Sequence[int], at_ns: int, silent: Bools) -> None:
        """Trace some flows over `routes`, (flows, 6) link directions."""
        a = self.agents
        for turn, k in enumerate(numbers):
            host = int(self.host[k])
            if silent[host]:
                continue
            when_ns = at_ns + turn * NS_PER_MS // 8
            hops = [a.fabric.address(x) for x in routes[k].tolist() if x != a.fabric.links][:-1]
            data = {
                **self.flows[k]._asdict(), "hops": hops, "complete": True,
                "traced_at_ns": a.clocks.shown(host, when_ns, a.start_ns),
            }  # fmt: skip
            name, key = a.fabric.hosts[host], str(self.flows[k])
            event = Event(FLOW_TYPE, name, f"{key}-{when_ns}", a.start_ns + when_ns, data)
            a.outbox.put(when_ns, TOPOLOGY, key, event, source=name)
