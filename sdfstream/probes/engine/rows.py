"""Rows of the packet engine's ring to rows of ``sdf.raw.probe.v1``, as `stamp.rows` writes them.

One engine holds the rows of all hosts of a process, and every host has a batch of its own on the bus. `RowBatches` is
the reference of what agents use, `row_batches_io.NativeRowBatches`, which does the same in C. Here a batch costs some
180 µs before its first row, so the columns are made once, of all rows, and each host's batch is a slice of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.probes.config import HostConfig
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.stamp.paths import Paths
from sdfstream.probes.stamp.rows import RowNames, columns_of
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.arrow import column
from sdfstream.records.topics import PROBE
from sdfstream.records.units import Int32s, Int64s, StampKind

_COLUMNS: Final = tuple(field.name for field in PROBE.columns or ())
NAME_COLUMNS: Final = ("src", "dst", "clock_src", "clock_dst", "transport", "plane")
_SAME: Final = (
    *("seq", "seq_rev", "t2_ns", "t3_ns", "tx_host_ns", "rx_host_ns", "ttl_fwd", "ttl_rev"),
    *("t1_kind", "t2_kind", "t3_kind", "t4_kind"),
)
"""Columns that the engine writes as they are."""


class EngineRows:
    """Names and sizes of one host's paths, which the engine does not know.

    Parameters
    ----------
    host : HostConfig
    paths : Paths
        Path i of the table is path `first` + i of the engine.
    clock : Clock
        The host's; the engine's rows hold system time.
    first : int
    """

    def __init__(self, host: HostConfig, paths: Paths, clock: Clock, first: int = 0) -> None:
        self.host = host.host
        self.paths = paths
        self.clock = clock
        self.first = first
        self.names = RowNames(host, paths.sessions)
        self.entries = [(_COLUMNS.index(name), held.entries) for name, held in self.names.columns_of_names.items()]
        """Number and dictionary of each column of names."""

    def batch(self, rows: Records) -> pa.RecordBatch:
        """Columns of `rows` (`layouts.ROW`), all of paths of this table."""
        return RowBatches([self]).batches(rows)[0][1]


class RowBatches:
    """The rows of all hosts of an engine, in numpy.

    Parameters
    ----------
    hosts : sequence of EngineRows
        In the order of their first paths.
    """

    def __init__(self, hosts: Sequence[EngineRows]) -> None:
        self._hosts = tuple(hosts)
        self._first: Int64s = np.array([host.first for host in hosts], dtype=np.int64)
        counts = [len(host.paths) for host in hosts]
        # row i of the columns below is the i-th path of all tables: path − _shift of its host
        self._shift = self._first - np.cumsum([0, *counts[:-1]]) if counts else self._first
        tables = [host.paths for host in hosts]
        self._indices = name_indices(hosts)
        self._path = _joined([t.source_port for t in tables], np.uint32)
        self._size_bytes = _joined([t.size_bytes for t in tables], np.uint16)
        self._tos = _joined([t.tos for t in tables], np.uint8)

    def batches(self, rows: Records) -> list[tuple[str, pa.RecordBatch]]:
        """(host, its rows), hosts in order, those without rows left out; a host's rows stay in their order.

        Parameters
        ----------
        rows : (n,) `layouts.ROW`
            Of paths of the hosts; may be a view of the ring, of which nothing is kept.
        """
        host = np.searchsorted(self._first, rows["path"], side="right") - 1
        if len(self._hosts) > 1 and np.any(host[1:] < host[:-1]):
            order = np.argsort(host, kind="stable")
            rows, host = rows[order], host[order]
        edges = np.searchsorted(host, np.arange(len(self._hosts) + 1)).tolist()
        spans = [(i, slice(a, b)) for i, (a, b) in enumerate(itertools.pairwise(edges)) if a < b]
        if not spans:
            return []
        path = rows["path"].astype(np.int64) - self._shift[host]
        return self._sliced(self._columns(rows, path, spans), spans)

    def _columns(self, rows: Records, path: Int64s, spans: Sequence[tuple[int, slice]]) -> dict[str, pa.Array]:
        tos_sent = self._tos[path]
        values: dict[str, npt.NDArray[Any]] = {name: rows[name].copy() for name in _SAME}
        values |= {
            "path": self._path[path],
            "size_bytes": self._size_bytes[path],
            "t1_ns": self._shown(rows["t1_ns"], spans),
            "t4_ns": self._shown(rows["t4_ns"], spans),
            "dscp_sent": tos_sent >> 2,
            "ecn_sent": tos_sent & 3,
            "dscp_fwd": rows["tos_fwd"] >> 2,
            "ecn_fwd": rows["tos_fwd"] & 3,
            "dscp_rev": rows["tos_rev"] >> 2,
            "ecn_rev": rows["tos_rev"] & 3,
        }
        classed, answered = ((rows["flags"] & flag) != 0 for flag in (layouts.ROW_CLASSED, layouts.ROW_ANSWERED))
        return self._named(rows, path) | columns_of(values, classed, answered)

    def _named(self, rows: Records, path: Int64s) -> dict[str, pa.Array]:
        """Indices into the dictionaries of the rows' hosts."""
        near, far = ((rows[kind] == StampKind.HARDWARE).astype(np.intp) for kind in ("t1_kind", "t2_kind"))
        columns = {}
        for name, indices in self._indices.items():
            found = indices[far if name == "clock_dst" else near, path]
            columns[name] = column(np.maximum(found, 0), pa.int32(), found >= 0)
        return columns

    def _shown(self, system_ns: Int64s, spans: Sequence[tuple[int, slice]]) -> Int64s:
        """What each host's clock showed at the system times of its rows."""
        shown = system_ns.copy()
        for i, span in spans:
            if self._hosts[i].clock.settings is not None:
                shown[span] = self._hosts[i].clock.reading(shown[span])
        return shown

    def _sliced(
        self, columns: dict[str, pa.Array], spans: Sequence[tuple[int, slice]]
    ) -> list[tuple[str, pa.RecordBatch]]:
        """One batch a host; its dictionaries hold names of its own sessions only."""
        found = []
        whole = [columns[name] for name in _COLUMNS]
        for i, span in spans:
            host = self._hosts[i]
            arrays = whole.copy()
            for at, entries in host.entries:  # of other hosts' rows they say nothing: those are cut off
                arrays[at] = pa.DictionaryArray.from_arrays(whole[at], entries, safe=False)
            batch = pa.RecordBatch.from_arrays(arrays, schema=PROBE.columns)
            found.append((host.host, batch.slice(span.start, span.stop - span.start)))
        return found


def name_indices(hosts: Sequence[EngineRows]) -> dict[str, Int32s]:
    """Of each column of names, (2, paths) indices into the dictionary of the path's host: for the system clock's stamps
    and for a NIC's.
    """
    indices: dict[str, list[Int32s]] = {name: [np.empty((2, 0), dtype=np.int32)] for name in NAME_COLUMNS}
    for host in hosts:
        session = host.paths.session
        hard = np.arange(2).repeat(len(session)) == 1
        codes = host.names.codes(np.tile(session, 2), hard, hard)
        for name, held in host.names.columns_of_names.items():
            indices[name].append(held.indices[codes[name]].reshape(2, -1))
    return {name: np.concatenate(spans, axis=1) for name, spans in indices.items()}


def _joined(columns: Sequence[npt.NDArray[Any]], kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, dtype=kind), *columns]).astype(kind)
