"""A job on the hosts of a simulated leaf-spine: its parts, the ways of its flows, the chunks of its queue pairs.

Enough for the controller to arm failovers and to renew their leases: queue pairs between leaves, each with alternates
over other spines, on ways that the sender's own probes cross.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from sdfstream.records import columns
from sdfstream.records.fabric import FLOW_TYPE, Flow, QueuePair
from sdfstream.records.job import JobShard, Rank
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import JOB, QP, TOPOLOGY
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.fixtures.leafspine import EPOCH, Fabric

JOB_ID, QP_PORT = "chaos-1", 4791
TELL_NS, TRACE_NS, CHUNK_NS = 10 * NS_PER_S, 20 * NS_PER_S, 200 * NS_PER_MS


class Job:
    """One job of `pairs` queue pairs; `step` gives what its hosts tell at an instant of the fabric."""

    def __init__(self, fabric: Fabric, pairs: int = 4) -> None:
        self.fabric = fabric
        self.pairs: dict[str, list[QueuePair]] = {}
        self._spine: dict[int, str] = {}
        """Source port to the spine that it goes over."""
        self._chunk = 0
        for src in fabric.nics:
            ways = {dst: self._covered(src, dst) for dst in fabric.nics if fabric.leaf[dst] != fabric.leaf[src]}
            dst, spines = max(ways.items(), key=lambda way: len(way[1]))
            if len(spines) > 1 and len(self.pairs) < pairs:
                self.pairs[src[:3]] = [self._pair(len(self.pairs), src, dst, spines)]

    def _covered(self, src: str, dst: str) -> list[str]:
        """Spines between two NICs whose links the sender's own probes cross, both ways."""
        fabric, a, b = self.fabric, self.fabric.leaf[src], self.fabric.leaf[dst]
        mine = [k for k, session in enumerate(fabric.sessions) if session[0] == src]
        crossed = {link for k in mine for link in (*fabric.fwd_names[k], *fabric.rev_names[k])}
        spines = [f"s{i}" for i in range(fabric.shape.spines)]
        return [s for s in spines if {f"{a}->{s}", f"{s}->{b}", f"{b}->{s}", f"{s}->{a}"} <= crossed]

    def _pair(self, number: int, src: str, dst: str, spines: list[str]) -> QueuePair:
        ports = [51_000 + 100 * number + i for i in range(len(spines))]
        self._spine |= dict(zip(ports, spines, strict=True))
        return QueuePair(
            f"{src}#{number}",
            number,
            100 + number,
            src,
            dst,
            "10.0.0.9",
            ports[0],
            QP_PORT,
            steering="socket",
            alternates=tuple(ports[1:]),
        )

    def step(self, at_ns: int) -> Iterator[tuple[str, Output]]:
        """(host, output) of this instant, fabric time; call it once for every `CHUNK_NS`."""
        if at_ns % TELL_NS < CHUNK_NS:
            yield from ((host, self._part(host, at_ns)) for host in self.pairs)
        if at_ns % TRACE_NS < CHUNK_NS:
            yield from self._traces(at_ns)
        self._chunk += 1
        yield from ((host, self._chunks(host, at_ns)) for host in self.pairs)

    def _part(self, host: str, at_ns: int) -> Output:
        pairs = tuple(self.pairs[host])
        ranks = tuple(Rank(p.rank, (p.src,)) for p in pairs)
        part = JobShard(JOB_ID, host, ranks=ranks, qps=pairs, control="run/chaos.sock")
        clock_ns = self.fabric.clock[host]
        part = replace(part, since_at_ns=EPOCH + clock_ns, seen_at_ns=at_ns + clock_ns)
        return Output(JOB.name, part.key, Event(JOB.name, host, "", at_ns, part.as_data()))

    def _traces(self, at_ns: int) -> Iterator[tuple[str, Output]]:
        for pairs in self.pairs.values():
            for pair in pairs:
                for path in (pair.path, *pair.alternates):
                    for flow in (pair.flow(path), pair.answers(path)):
                        hops = [self.fabric.address(link) for link in self._way(flow, path)[:-1]]
                        data = dict(flow._asdict()) | {"hops": hops, "complete": True}
                        by = flow.src[:3]  # each end traces what leaves it
                        data["traced_at_ns"] = at_ns + self.fabric.clock[by]
                        yield by, Output(TOPOLOGY.name, str(flow), Event(FLOW_TYPE, by, "", at_ns, data))

    def _way(self, flow: Flow, path: int) -> list[str]:
        a, b = self.fabric.leaf[flow.src], self.fabric.leaf[flow.dst]
        spine = self._spine[path]
        return [f"{flow.src}->{a}", f"{a}->{spine}", f"{spine}->{b}", f"{b}->{flow.dst}"]

    def _chunks(self, host: str, at_ns: int) -> Output:
        pairs = self.pairs[host]
        sent = np.array([at_ns + self.fabric.clock[host]] * len(pairs))
        ahead = np.array([self.fabric.clock[p.dst[:3]] - self.fabric.clock[host] for p in pairs])
        body = columns.build(
            QP.columns,
            {
                "sent_at_ns": sent,
                "job": [JOB_ID] * len(pairs),
                "rank": np.array([p.rank for p in pairs], np.uint32),
                "peer_rank": np.array([p.peer_rank for p in pairs], np.uint32),
                "qp": [p.qp for p in pairs],
                "src": [p.src for p in pairs],
                "dst": [p.dst for p in pairs],
                "clock_src": [host] * len(pairs),
                "clock_dst": [p.dst[:3] for p in pairs],
                "transport": ["udp"] * len(pairs),
                "path": np.array([p.path for p in pairs], np.uint32),
                "dst_port": np.full(len(pairs), QP_PORT, np.uint16),
                "dscp": np.zeros(len(pairs), np.uint8),
                "chunk": np.full(len(pairs), self._chunk, np.uint64),
                "bytes": np.full(len(pairs), 1 << 20, np.uint64),
                "packets": np.full(len(pairs), 700, np.uint32),
                "arrived_at_ns": sent + ahead + 40_000,
                "completed_at_ns": sent + ahead + 900_000,
                "acknowledged_at_ns": sent + 1_000_000,
            },
        )
        return Output(QP.name, host, body)
