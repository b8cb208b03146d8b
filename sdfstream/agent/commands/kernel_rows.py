"""Throughput of kernel flows, as rows of ``sdf.raw.qp.v1``: one per flow and interval, from counters at the device.

There are no chunks to be seen, so a row stands for all that left in one interval. It counts what was *sent*: of TCP
that is what got through, apart from retransmissions. Of UDP without a congestion control it is not: such a flow is
counted where it is *received* (`QueuePair.counted`), and its rows have the receiving host's clock. Delays, marks and
retransmissions are not known here and stay null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.agent.commands import kernel_flow as kf
from sdfstream.records import columns
from sdfstream.records.fabric import QueuePair
from sdfstream.records.topics import QP

_LINK_BYTES: Final = 14
_IP_BYTES: Final = {4: 20, 6: 40}
_TRANSPORT_BYTES: Final = {"udp": 8, "tcp": 32}
"""TCP with time stamps, as Linux sends it."""


class TrafficCount(Protocol):
    """Packets and bytes since counting began; a packet that the device will cut up counts once, with one header."""

    @property
    def packets(self) -> int:
        """Packets."""

    @property
    def bytes(self) -> int:
        """With all headers, of what is sent that of the link too."""


@dataclass(slots=True)
class _Before:
    packets: int
    bytes: int
    at_ns: int
    chunk: int = 0


class _Row(NamedTuple):
    job: str
    pair: QueuePair
    before: _Before
    packets: int
    bytes: int
    """Payload."""


class KernelRows:
    """Rows of one host's kernel flows."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._before: dict[str, _Before] = {}

    def step(
        self, flows: Iterable[tuple[str, QueuePair]], counts: Mapping[str, TrafficCount], clock_at_ns: int
    ) -> pa.RecordBatch | None:
        """Rows since the last call, None when nothing was sent (or received).

        Parameters
        ----------
        flows : iterable of (job id, QueuePair)
            With the path that they leave by now.
        counts : mapping of QP id to counts
        clock_at_ns : int
            The host's clock.
        """
        rows = []
        for job, pair in flows:
            now = counts.get(pair.qp)
            if now is None:
                self._before.pop(pair.qp, None)
                continue
            before = self._before.get(pair.qp)
            if before is None or now.bytes < before.bytes:
                self._before[pair.qp] = _Before(now.packets, now.bytes, clock_at_ns)
                continue
            packets, data = now.packets - before.packets, now.bytes - before.bytes
            if packets > 0:
                rows.append(_Row(job, pair, before, packets, max(0, data - packets * _header_bytes(pair))))
            chunk = before.chunk + (packets > 0)
            self._before[pair.qp] = _Before(now.packets, now.bytes, clock_at_ns, chunk)
        return _batch(self._host, rows, clock_at_ns) if rows else None


class ArrivalPorts:
    """From which source port each flow arrives: that of most packets since the last look."""

    def __init__(self) -> None:
        self._packets: dict[str, dict[int, int]] = {}
        self._now: dict[str, int] = {}

    def of(self, pair: QueuePair, counts: Mapping[int, TrafficCount]) -> int:
        """The port that `pair` comes from by now; `counts`: of each port it may come from, since counting began."""
        packets = {port: count.packets for port, count in counts.items()}
        more = kf.grown(self._packets.get(pair.qp, {}), packets)
        self._packets[pair.qp] = packets
        self._now[pair.qp] = kf.newest_port(more, self._now.get(pair.qp, pair.path))
        return self._now[pair.qp]

    def keep(self, qps: Iterable[str]) -> None:
        """Forget all others."""
        known = set(qps)
        self._packets = {qp: packets for qp, packets in self._packets.items() if qp in known}
        self._now = {qp: port for qp, port in self._now.items() if qp in known}


def _header_bytes(pair: QueuePair) -> int:
    link = 0 if pair.counted == "received" else _LINK_BYTES  # it is taken off before what arrives is counted
    return link + _IP_BYTES[6 if ":" in pair.dst_address else 4] + _TRANSPORT_BYTES.get(pair.protocol, 8)


def _batch(host: str, rows: Sequence[_Row], clock_at_ns: int) -> pa.RecordBatch:
    measured = {
        "sent_at_ns": _whole((row.before.at_ns for row in rows), np.int64),
        "job": [row.job for row in rows],
        "chunk": _whole((row.before.chunk for row in rows), np.uint64),
        "bytes": _whole((row.bytes for row in rows), np.uint64),
        "packets": _whole((row.packets for row in rows), np.uint32),
        "clock_src": [host] * len(rows),
        "acknowledged_at_ns": _whole([clock_at_ns] * len(rows), np.int64),
    }
    return columns.build(QP.columns, {**measured, **_identity([row.pair for row in rows])})


def _identity(pairs: Sequence[QueuePair]) -> dict[str, Any]:
    """The columns that say which queue pair a row is about."""
    return {
        "rank": _whole((pair.rank for pair in pairs), np.uint32),
        "peer_rank": _whole((pair.peer_rank for pair in pairs), np.uint32),
        "qp": [pair.qp for pair in pairs],
        "src": [pair.src for pair in pairs],
        "dst": [pair.dst for pair in pairs],
        "clock_dst": [pair.dst.partition("/")[0] for pair in pairs],
        "transport": [pair.protocol for pair in pairs],
        "path": _whole((pair.path for pair in pairs), np.uint32),
        "dst_port": _whole((pair.dst_port for pair in pairs), np.uint16),
        "dscp": _whole((pair.dscp for pair in pairs), np.uint8),
    }


def _whole(values: Iterable[int], kind: type[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
    return np.fromiter(values, kind)
