"""Finished chunks to rows of ``sdf.raw.qp.v1``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from sdfstream.emulator.qp_chunk import Finished
from sdfstream.emulator.qp_header import PORT, Report
from sdfstream.emulator.rank_plan import QpPlan
from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.message import Output
from sdfstream.records.topics import QP
from sdfstream.records.units import ABSENT_NS

ClockOf = Callable[[str], Callable[[int], int]]
"""Host to its clock: a reading of the system clock, ns, to what that host's clock shows."""
_UNSEEN: Final = Report(0, 0, ABSENT_NS, ABSENT_NS)


def outputs(job: str, collective: str, chunks: Sequence[tuple[QpPlan, Finished]], clock_of: ClockOf) -> list[Output]:
    """One batch per sending host."""
    by_host: dict[str, list[tuple[QpPlan, Finished]]] = {}
    for qp, chunk in chunks:
        by_host.setdefault(host_of(qp.src), []).append((qp, chunk))
    return [Output(QP.name, host, _batch(job, collective, rows, clock_of)) for host, rows in by_host.items()]


def _batch(job: str, collective: str, rows: Sequence[tuple[QpPlan, Finished]], clock_of: ClockOf) -> pa.RecordBatch:
    n = len(rows)
    near = [clock_of(host_of(qp.src)) for qp, _ in rows]
    far = [clock_of(host_of(qp.dst)) for qp, _ in rows]
    reports = [chunk.report or _UNSEEN for _, chunk in rows]
    arrived = [read(r.arrived_at_ns) if r is not _UNSEEN else ABSENT_NS for read, r in zip(far, reports, strict=True)]
    completed = [
        read(r.completed_at_ns) if r is not _UNSEEN else ABSENT_NS for read, r in zip(far, reports, strict=True)
    ]
    seen = [r is not _UNSEEN for r in reports]
    assert QP.columns is not None
    return columns.build(
        QP.columns,
        {
            "sent_at_ns": [read(chunk.sent_at_ns) for read, (_, chunk) in zip(near, rows, strict=True)],
            "job": [job] * n,
            "rank": [qp.rank for qp, _ in rows],
            "peer_rank": [qp.peer_rank for qp, _ in rows],
            "qp": [qp.id for qp, _ in rows],
            "src": [qp.src for qp, _ in rows],
            "dst": [qp.dst for qp, _ in rows],
            "clock_src": [host_of(qp.src) for qp, _ in rows],
            "clock_dst": [host_of(qp.dst) for qp, _ in rows],
            "transport": ["udp"] * n,
            "path": [chunk.path for _, chunk in rows],
            "dst_port": [PORT] * n,
            "dscp": [qp.dscp for qp, _ in rows],
            "collective": [collective] * n,
            "collective_id": [chunk.piece.collective for _, chunk in rows],
            "chunk": [chunk.chunk for _, chunk in rows],
            "bytes": [len(chunk.piece.data) for _, chunk in rows],
            "packets": [chunk.packets for _, chunk in rows],
            "arrived_at_ns": np.array(arrived, np.int64),
            "completed_at_ns": np.array(completed, np.int64),
            "acknowledged_at_ns": [read(chunk.acknowledged_at_ns) for read, (_, chunk) in zip(near, rows, strict=True)],
            "ce": [r.ce if known else None for r, known in zip(reports, seen, strict=True)],
            "retransmits": [chunk.retransmits for _, chunk in rows],
        },
    )
