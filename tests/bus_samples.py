"""Small bodies for tests of the bus: batches and events that fit their topics, told apart by one number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.message import Event, Output
from sdfstream.records.shapes import FINDING_SHAPE
from sdfstream.records.topics import CLOCK, FINDING, PROBE
from tests.fixtures.shapes import sample


def clock_batch(mark: int = 0, rows: int = 2) -> pa.RecordBatch:
    """Clock rows whose at_ns start at `mark`."""
    return columns.build(
        CLOCK.columns,
        {
            "clock": [f"h{i:02}" for i in range(rows)],
            "at_ns": np.arange(mark, mark + rows, dtype=np.int64),
            "offset_ns": np.zeros(rows),
            "skew_ppb": np.zeros(rows),
            "err_ns": np.full(rows, 50.0),
            "n": np.full(rows, 10, np.uint32),
            "status": ["synced"] * rows,
            "kind": ["causal"] * rows,
        },
    )


def probe_batch(rows: int, seed: int = 0, host: str = "h00") -> pa.RecordBatch:
    """Probe rows as an agent sends them: a few NICs, a tenth unanswered."""
    rng = np.random.default_rng(seed)
    t1 = 1_800_000_000_000_000_000 + np.sort(rng.integers(0, 100_000_000, rows))
    lost = rng.random(rows) < 0.1
    later = [pa.array(t1 + d, mask=lost) for d in (5_000, 6_000, 11_000)]
    byte = np.zeros(rows, np.uint8)
    return columns.build(
        PROBE.columns,
        {
            "src": [f"{host}/r{i % 2}" for i in range(rows)],
            "dst": [f"h{i % 7:02}/r{i % 2}" for i in range(rows)],
            "clock_src": [host] * rows,
            "clock_dst": [f"h{i % 7:02}" for i in range(rows)],
            "transport": ["udp"] * rows,
            "path": (50_000 + np.arange(rows) % 16).astype(np.uint32),
            "seq": np.arange(rows, dtype=np.uint32),
            "t1_ns": t1,
            "t2_ns": later[0],
            "t3_ns": later[1],
            "t4_ns": later[2],
            **{f"t{i}_kind": byte + 1 for i in (1, 2, 3, 4)},
            "dscp_sent": byte + 46,
            "ecn_sent": byte + 2,
            "size_bytes": np.full(rows, 172, np.uint16),
        },
    )


def clock(mark: int = 0, key: str = "mesh", rows: int = 2) -> Output:
    """An output of the clock topic."""
    return Output(CLOCK.name, key, clock_batch(mark, rows))


def finding(mark: int = 0, key: str = "") -> Output:
    """An output of the finding topic; its body may be larger with a longer text."""
    at_ns = 1_800_000_000_000_000_000 + mark
    data = sample(FINDING_SHAPE) | {"id": f"f{mark}", "since_at_ns": at_ns, "seen_at_ns": at_ns, "mark": mark}
    return Output(FINDING.name, key or f"f{mark}", Event(FINDING.name, "detect", f"f{mark}", at_ns, data))


def mark_of(body: pa.RecordBatch | Event) -> int:
    """The number a body was made with."""
    if isinstance(body, Event):
        return int(body.data["mark"])
    return int(body.column("at_ns")[0].as_py())
