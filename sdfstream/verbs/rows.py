"""Chunks that a stream carried, as rows of ``sdf.raw.qp.v1``: what the sending end knows.

Arrival and CE are the receiving end's to report, and null here: no device says them of a single message.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.fabric import QueuePair, host_of
from sdfstream.records.message import Output
from sdfstream.records.topics import QP
from sdfstream.records.units import ABSENT_NS
from sdfstream.verbs.chunks import CarriedMessage


def output(job: str, about: QueuePair, messages: Sequence[CarriedMessage], mtu_bytes: int) -> Output:
    """One batch of a queue pair's chunks.

    ``retransmits`` counts what the stream sent again, in packets; what the device itself repeats is in its own
    counters only (``rdma statistic``).
    """
    assert QP.columns is not None
    n = len(messages)
    packets = [max(1, -(-m.octets // mtu_bytes)) for m in messages]
    batch: pa.RecordBatch = columns.build(
        QP.columns,
        {
            "job": [job] * n,
            "rank": [about.rank] * n,
            "peer_rank": [about.peer_rank] * n,
            "qp": [about.qp] * n,
            "src": [about.src] * n,
            "dst": [about.dst] * n,
            "clock_src": [host_of(about.src)] * n,
            "clock_dst": [host_of(about.dst)] * n,
            "transport": ["rocev2"] * n,
            "dst_port": [about.dst_port] * n,
            "dscp": [about.dscp] * n,
            "collective": [None] * n,
            "collective_id": [None] * n,
            "path": [m.path for m in messages],
            "chunk": [m.number for m in messages],
            "bytes": [m.octets for m in messages],
            "packets": packets,
            "retransmits": [p * (m.posts - 1) for p, m in zip(packets, messages, strict=True)],
            "sent_at_ns": [m.sent_at_ns for m in messages],
            "acknowledged_at_ns": [m.acknowledged_at_ns for m in messages],
            "arrived_at_ns": [ABSENT_NS] * n,
            "completed_at_ns": [ABSENT_NS] * n,
            "ce": [None] * n,
        },
    )
    return Output(QP.name, host_of(about.src), batch)
