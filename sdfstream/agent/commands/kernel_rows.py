"""Throughput of kernel flows, as rows of ``sdf.raw.qp.v1``: one per flow and interval, from counters at the device.

There are no chunks to be seen, so a row stands for all that left in one interval. It tells what was *sent*: of TCP
that is what got through, apart from retransmissions; of UDP without a congestion control it is not. Delays, marks and
retransmissions are not known here and stay null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.job import QueuePair
from sdfstream.records.topics import QP

_LINK_BYTES: Final = 14
_IP_BYTES: Final = {4: 20, 6: 40}
_TRANSPORT_BYTES: Final = {"udp": 8, "tcp": 32}
"""TCP with time stamps, as Linux sends it."""


class Counted(Protocol):
    """Packets and bytes since counting began; a packet that the device will cut up counts once, with one header."""

    @property
    def packets(self) -> int:
        """Packets."""

    @property
    def bytes(self) -> int:
        """With all headers, that of the link too."""


@dataclass(slots=True)
class _Before:
    packets: int
    bytes: int
    at_ns: int
    chunk: int = 0


class KernelRows:
    """Rows of one host's kernel flows."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._before: dict[str, _Before] = {}

    def step(
        self, flows: Iterable[tuple[str, QueuePair]], counts: Mapping[str, Counted], clock_at_ns: int
    ) -> pa.RecordBatch | None:
        """Rows since the last call, None when nothing was sent.

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
                rows.append((job, pair, before, packets, max(0, data - packets * _header_bytes(pair))))
            chunk = before.chunk + (packets > 0)
            self._before[pair.qp] = _Before(now.packets, now.bytes, clock_at_ns, chunk)
        return _batch(self._host, rows, clock_at_ns) if rows else None


def _header_bytes(pair: QueuePair) -> int:
    return _LINK_BYTES + _IP_BYTES[6 if ":" in pair.dst_address else 4] + _TRANSPORT_BYTES.get(pair.protocol, 8)


def _batch(host: str, rows: list[tuple[str, QueuePair, _Before, int, int]], clock_at_ns: int) -> pa.RecordBatch:
    pairs = [pair for _, pair, *_ in rows]

    def whole(values: Iterable[int], kind: type[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
        return np.fromiter(values, kind)

    return columns.build(
        QP.columns,
        {
            "sent_at_ns": whole((before.at_ns for _, _, before, _, _ in rows), np.int64),
            "job": [job for job, *_ in rows],
            "rank": whole((p.rank for p in pairs), np.uint32),
            "peer_rank": whole((p.peer_rank for p in pairs), np.uint32),
            "qp": [p.qp for p in pairs],
            "src": [p.src for p in pairs],
            "dst": [p.dst for p in pairs],
            "clock_src": [host] * len(rows),
            "clock_dst": [p.dst.partition("/")[0] for p in pairs],
            "transport": [p.protocol for p in pairs],
            "path": whole((p.path for p in pairs), np.uint32),
            "dst_port": whole((p.dst_port for p in pairs), np.uint16),
            "dscp": whole((p.dscp for p in pairs), np.uint8),
            "chunk": whole((before.chunk for _, _, before, _, _ in rows), np.uint64),
            "bytes": whole((data for *_, data in rows), np.uint64),
            "packets": whole((packets for _, _, _, packets, _ in rows), np.uint32),
            "acknowledged_at_ns": whole([clock_at_ns] * len(rows), np.int64),
        },
    )
