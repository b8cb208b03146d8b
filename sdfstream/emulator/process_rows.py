"""Finished chunks to rows of ``sdf.raw.qp.v1``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.emulator.qp_chunk import CarriedChunk
from sdfstream.emulator.qp_header import PORT, ChunkReport
from sdfstream.emulator.rank_plan import QpPlan
from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.message import Output
from sdfstream.records.topics import QP
from sdfstream.records.units import ABSENT_NS, Int64s

ClockOf = Callable[[str], Callable[[int], int]]
"""Host to its clock: a reading of the system clock, ns, to what that host's clock shows."""
Rows = Sequence[tuple[QpPlan, CarriedChunk]]


def outputs(job: str, collective: str, chunks: Rows, clock_of: ClockOf) -> list[Output]:
    """One batch per sending host."""
    by_host: dict[str, list[tuple[QpPlan, CarriedChunk]]] = {}
    for qp, chunk in chunks:
        by_host.setdefault(host_of(qp.src), []).append((qp, chunk))
    return [Output(QP.name, host, _batch(job, collective, rows, clock_of)) for host, rows in by_host.items()]


def _batch(job: str, collective: str, rows: Rows, clock_of: ClockOf) -> pa.RecordBatch:
    n = len(rows)
    assert QP.columns is not None
    constant = {"job": [job] * n, "transport": ["udp"] * n, "dst_port": [PORT] * n, "collective": [collective] * n}
    return columns.build(
        QP.columns,
        constant
        | _queue_pair_columns([qp for qp, _ in rows])
        | _chunk_columns([chunk for _, chunk in rows])
        | _sender_instants(rows, clock_of)
        | _receiver_columns(rows, clock_of),
    )


def _queue_pair_columns(qps: Sequence[QpPlan]) -> dict[str, Any]:
    return {
        "rank": [qp.rank for qp in qps],
        "peer_rank": [qp.peer_rank for qp in qps],
        "qp": [qp.id for qp in qps],
        "src": [qp.src for qp in qps],
        "dst": [qp.dst for qp in qps],
        "clock_src": [host_of(qp.src) for qp in qps],
        "clock_dst": [host_of(qp.dst) for qp in qps],
        "dscp": [qp.dscp for qp in qps],
    }


def _chunk_columns(chunks: Sequence[CarriedChunk]) -> dict[str, Any]:
    return {
        "path": [chunk.path for chunk in chunks],
        "collective_id": [chunk.collective for chunk in chunks],
        "chunk": [chunk.chunk for chunk in chunks],
        "bytes": [chunk.bytes for chunk in chunks],
        "packets": [chunk.packets for chunk in chunks],
        "retransmits": [chunk.retransmits for chunk in chunks],
    }


def _sender_instants(rows: Rows, clock_of: ClockOf) -> dict[str, Any]:
    """Departure and acknowledgement, by the sending host's clock."""
    clocks = [clock_of(host_of(qp.src)) for qp, _ in rows]
    stamps = [(read, chunk) for read, (_, chunk) in zip(clocks, rows, strict=True)]
    return {
        "sent_at_ns": [read(chunk.sent_at_ns) for read, chunk in stamps],
        "acknowledged_at_ns": [read(chunk.acknowledged_at_ns) for read, chunk in stamps],
    }


def _receiver_columns(rows: Rows, clock_of: ClockOf) -> dict[str, Any]:
    """Arrival, completion and CE count from the receiver's reports; absent or null where the report was lost."""
    clocks = [clock_of(host_of(qp.dst)) for qp, _ in rows]
    reports = [chunk.report for _, chunk in rows]

    def instants(at_ns: Callable[[ChunkReport], int]) -> Int64s:
        pairs = zip(clocks, reports, strict=True)
        return np.array([ABSENT_NS if r is None else read(at_ns(r)) for read, r in pairs], np.int64)

    return {
        "arrived_at_ns": instants(lambda r: r.arrived_at_ns),
        "completed_at_ns": instants(lambda r: r.completed_at_ns),
        "ce": [None if r is None else r.ce for r in reports],
    }
