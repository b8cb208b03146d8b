"""Closed windows as record batches of ``sdf.derived.qp.v1``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.message import Output
from sdfstream.records.topics import QP_WINDOW
from sdfstream.records.units import Bools, Int64s, UInt32s
from sdfstream.workload.queue_pairs import QpAttributes, QueuePairs
from sdfstream.workload.windows import QpWindow, waiting_windows

_MOST_COUNT: Final = (1 << 32) - 1
_COUNTED: Final = ("ce", "retransmits")
"""Counts that are null where no chunk reported them."""
_HOSTS_PER_BUILD: Final = 8
"""Hosts whose batches are built in one go: a build costs as much for ten rows as for a hundred. They share
dictionaries, so more would make messages large."""
_DTYPES: Final = {"rank": np.uint32, "peer_rank": np.uint32, "dst_port": np.uint16, "dscp": np.uint8}


def outputs(closed: QpWindow, pairs: QueuePairs, window_ns: int, most_waiting: int) -> tuple[list[Output], int]:
    """One batch per sending host, and how many waiting windows were left out.

    Rows lie in order of host, job, queue pair, time; `pairs` records window and path as published.
    """
    numbers = closed.pair.tolist()
    index, window, cut = waiting_windows(closed, (pairs.last_window[n] for n in numbers), most_waiting)
    before = [pairs.path[n] or path for n, path in zip(numbers, closed.path.tolist(), strict=True)]
    every = np.concatenate([index, np.arange(len(numbers))])
    at = np.concatenate([window, np.full(len(numbers), closed.window)])
    carried = np.concatenate([np.zeros(index.size, np.bool_), np.ones(len(numbers), np.bool_)])
    path = np.concatenate([np.array(before, np.int64)[index], closed.path])
    attributes = [pairs.attributes[n] for n in numbers]
    rank = _ranked(attributes)
    order = np.lexsort((at, rank[every]))
    hosts = [host_of(attributes[i].src) for i in every[order].tolist()]
    cuts = [*(i for i in range(len(hosts)) if i == 0 or hosts[i] != hosts[i - 1]), len(hosts)]
    rows = _rows(closed, every[order], carried[order]) | {
        "at_ns": at[order] * window_ns,
        "window_ns": np.full(order.size, window_ns),
        "path": path[order].astype(np.uint32),
    }
    whole = [attributes[i] for i in every[order].tolist()]
    out = []
    for first in range(0, len(cuts) - 1, _HOSTS_PER_BUILD):
        bounds = cuts[first : first + _HOSTS_PER_BUILD + 1]
        low, high = bounds[0], bounds[-1]
        built = _built({name: values[low:high] for name, values in rows.items()}, whole[low:high])
        out += [
            Output(QP_WINDOW.name, hosts[start], built.slice(start - low, end - start))
            for start, end in pairwise(bounds)
        ]
    for number, used in zip(numbers, closed.path.tolist(), strict=True):
        pairs.last_window[number] = max(pairs.last_window[number], closed.window)
        pairs.path[number] = used
    return out, cut


def _built(rows: dict[str, Any], attributes: Sequence[QpAttributes]) -> pa.RecordBatch:
    """Numbers and attributes of the same rows as one batch."""
    assert QP_WINDOW.columns is not None
    for name in _COUNTED:
        rows[name] = columns.nullable(rows[name], rows.pop(f"{name} known"), pa.uint32())
    return columns.build(QP_WINDOW.columns, rows | _attributes(attributes))


def _ranked(attributes: Sequence[QpAttributes]) -> Int64s:
    order = sorted(range(len(attributes)), key=lambda i: (host_of(attributes[i].src), attributes[i]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _attributes(each: Sequence[QpAttributes]) -> dict[str, Any]:
    """Columns that name the queue pair of each row."""
    named: dict[str, Any] = dict(zip(QpAttributes._fields, zip(*each, strict=True), strict=True))
    # in the columns' own types: casting each of them costs more than everything else here
    numbers = {name: np.array(named[name], kind) for name, kind in _DTYPES.items()}
    return {name: named[name] for name in ("job", "qp", "src", "dst", "transport")} | numbers


def _rows(closed: QpWindow, pick: Int64s, carried: Bools) -> dict[str, npt.NDArray[Any]]:
    """Numbers of the rows; of waiting windows (not `carried`) the counts are 0 and the delays unknown."""
    n, bytes_, packets = (np.where(carried, v[pick], 0) for v in (closed.n, closed.bytes, closed.packets))
    rows: dict[str, npt.NDArray[Any]] = {
        "n": n.astype(np.uint32),
        "bytes": bytes_.astype(np.uint64),
        "packets": _counts(packets),
    }
    for name, counts in zip(_COUNTED, (closed.ce, closed.retransmits), strict=True):
        rows[name], rows[f"{name} known"] = _counts(counts[pick]), carried & (counts[pick] >= 0)
    delays = dict(zip(("owd_min_ns", "owd_p50_ns", "owd_max_ns"), closed.owd, strict=True))
    delays |= dict(zip(("duration_p50_ns", "duration_max_ns"), closed.duration, strict=True)) | {"err_ns": closed.err}
    return rows | {name: np.where(carried, values[pick], np.nan) for name, values in delays.items()}


def _counts(values: Int64s) -> UInt32s:
    return np.minimum(np.maximum(values, 0), _MOST_COUNT).astype(np.uint32)
