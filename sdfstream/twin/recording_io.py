"""A twin's recording, with its truth apart in ``truth/``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.records import arrow
from sdfstream.twin.simulation import Twin

_LINKS = pa.schema(
    [
        pa.field("at_ns", pa.int64(), metadata={"unit": "ns since epoch", "doc": "begin of the 100 ms, true time"}),
        pa.field("link", pa.dictionary(pa.int32(), pa.utf8()), metadata={"unit": "", "doc": "direction a->b"}),
        pa.field("queue_bytes", pa.float32(), metadata={"unit": "bytes", "doc": "standing queue, mean"}),
        pa.field("random_bytes", pa.float32(), metadata={"unit": "bytes", "doc": "random queue besides, mean"}),
        pa.field("utilisation", pa.float32(), metadata={"unit": "1", "doc": "share of the speed in use, mean"}),
    ]
)


def write(twin: Twin, directory: Path, progress: Callable[[str], None] | None = None) -> dict[str, int]:
    """Write the recording and its truth; returns rows by topic.

    Raises
    ------
    ConfigError, UnavailableError
        As `RecordingWriter`: the folder holds a recording already, or cannot be written.
    """
    writer = RecordingWriter(directory, cluster="twin", start_at_ns=twin.start_ns)
    rows: Counter[str] = Counter()
    second = 0
    for message in twin.messages():
        writer.write([message])
        rows[message.topic] += message.rows
        now = (message.bus_at_ns - twin.start_ns) // 1_000_000_000
        if progress is not None and now >= second + 10:
            second = now
            progress(f"twin: {second:,} of {twin.seconds:,.0f} s, {sum(rows.values()):,} rows")
    writer.finish(twin.start_ns + round(twin.seconds * 1e9))
    write_truth(twin, directory / "truth")
    return dict(rows)


def write_truth(twin: Twin, directory: Path) -> None:
    """Write faults.jsonl, clock.jsonl, fabric.json, routes.json, links.arrows; call it after the last message."""
    directory.mkdir(parents=True, exist_ok=True)
    _lines(directory / "faults.jsonl", [f.truth(twin.start_ns, twin.seconds, twin.fabric.names) for f in twin.faults])
    _lines(directory / "clock.jsonl", twin.clocks.truth(twin.start_ns))
    (directory / "fabric.json").write_text(json.dumps(fabric_truth(twin), sort_keys=True) + "\n")
    (directory / "routes.json").write_text(json.dumps(route_truth(twin), sort_keys=True) + "\n")
    with pa.ipc.new_stream(str(directory / "links.arrows"), _LINKS) as stream:
        names = arrow.text(twin.fabric.names)
        n = len(twin.fabric.names)
        for truth in twin.links:
            columns = [
                arrow.column(np.full(n, twin.start_ns + truth.at_ns), pa.int64()),
                arrow.coded(np.arange(n, dtype=np.int32), names),
                pa.array(truth.queue_bytes.astype(np.float32)),
                pa.array(truth.random_bytes.astype(np.float32)),
                pa.array(truth.busy.astype(np.float32)),
            ]
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=_LINKS))


def fabric_truth(twin: Twin) -> dict[str, Any]:
    """What the fabric is: scenario, seed, each NIC's leaf, each direction's address."""
    f = twin.fabric
    return {
        "scenario": twin.scenario.name,
        "seed": twin.seed,
        "kind": f.spec.kind,
        "seconds": twin.seconds,
        "leaves": {nic: f.leaves[int(leaf)] for nic, leaf in zip(f.nics, f.leaf_of.tolist(), strict=True)},
        "addresses": {f.address(k): name for k, name in enumerate(f.names)},
    }


def route_truth(twin: Twin) -> dict[str, list[str]]:
    """The directions that each probe path crosses, there and back, at the start; none where packets are sprayed."""
    f, mesh = twin.fabric, twin.sessions
    if f.spec.hash == "spray":
        return {}
    names = [*f.names, ""]
    routes = np.concatenate([mesh.drawn.fwd[0], mesh.drawn.rev[0]], axis=1).tolist()
    keys = zip(mesh.src.tolist(), mesh.dst.tolist(), mesh.port.tolist(), strict=True)
    return {
        f"{f.nics[src]}>{f.nics[dst]}:{port}": [names[link] for link in route if names[link]]
        for (src, dst, port), route in zip(keys, routes, strict=True)
    }


def _lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
