"""Rows of the packet engine's ring to rows of ``sdf.raw.probe.v1``, in C: what `rows.RowBatches` does in numpy.

A flush of some 70 rows cost 165 µs there, most of it before the first row, in 60 calls of pyarrow and 90 of numpy. The
engine's library writes all columns in Arrow's layout into one piece of memory, which pyarrow takes over by the Arrow C
data interface and gives back with the last array of the batch.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.errors import UnavailableError
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.engine.library_io import library
from sdfstream.probes.engine.rows import NAME_COLUMNS, EngineRows, name_indices
from sdfstream.records.topics import PROBE

_ARRAY_BYTES: Final = layouts.ARROW_ARRAY.itemsize


class NativeRowBatches:
    """The rows of all hosts of an engine.

    Parameters
    ----------
    hosts : sequence of EngineRows
        In the order of their first paths.
    path : Path, optional
        Another library than the engine's.

    Raises
    ------
    UnavailableError
        The library's columns are not the topic's.
    ValueError
        The hosts are in another order.
    """

    def __init__(self, hosts: Sequence[EngineRows], path: Path | None = None) -> None:
        self._library = _checked(path)
        self._names = [host.host for host in hosts]
        ends = [*(host.first for host in hosts[1:]), layouts.NONE][: len(hosts)]
        self._wrong = [(host, end) for host, end in zip(hosts, ends, strict=True) if not host.clock.true]
        """Hosts whose clocks show another time than the engine's rows say, and where their paths end."""
        records, keep = _records(hosts)
        self._table = self._library.pe_row_table_new(records.ctypes.data, len(hosts))
        del keep  # copied
        if not self._table:
            raise ValueError("hosts are not in the order of their paths, or there is no memory")
        weakref.finalize(self, self._library.pe_row_table_free, self._table)
        self._found = (ctypes.c_uint32 * len(hosts))()
        self._arrays = (ctypes.c_uint8 * (_ARRAY_BYTES * len(hosts)))()
        self._first = ctypes.addressof(self._arrays)

    def batches(
        self, rows: Records, generation: npt.NDArray[np.uint16] | None = None
    ) -> list[tuple[str, pa.RecordBatch]]:
        """(host, its rows), hosts in order, those without rows left out; a host's rows stay in their order.

        Parameters
        ----------
        rows : (n,) `layouts.ROW`
            May be a view of the ring, of which nothing is kept.
        generation : (paths,) uint16, optional
            Of each path of the engine: rows of another one, of a session that has ended, are left out.
        """
        if self._wrong:
            rows = self._shown(rows)
        current = None if generation is None else generation.ctypes.data
        n = self._library.pe_row_batches(
            self._table, rows.ctypes.data, len(rows), current, self._found, self._first
        )  # fmt: skip
        if n < 0:
            raise MemoryError("no memory for rows")
        take, columns, first = pa.RecordBatch._import_from_c, PROBE.columns, self._first
        return [(self._names[host], take(first + i * _ARRAY_BYTES, columns)) for i, host in enumerate(self._found[:n])]

    def _shown(self, rows: Records) -> Records:
        """`rows` with what the hosts' clocks showed at their t1 and t4."""
        rows = rows.copy()
        for host, end in self._wrong:
            mine = (rows["path"] >= host.first) & (rows["path"] < end)
            for name in ("t1_ns", "t4_ns"):
                rows[name][mine] = host.clock.reading(rows[name][mine])
        return rows


def _records(hosts: Sequence[EngineRows]) -> tuple[Records, list[npt.NDArray[Any]]]:
    """`pe_row_host` of each host, and the arrays that these point to."""
    records = np.zeros(len(hosts), dtype=layouts.ROW_HOST)
    keep: list[npt.NDArray[Any]] = []

    def address(values: npt.NDArray[Any]) -> int:
        keep.append(np.ascontiguousarray(values))
        return int(keep[-1].ctypes.data)

    for record, host in zip(records, hosts, strict=True):
        record["first_path"], record["paths"] = host.first, len(host.paths)
        record["source_port"] = address(host.paths.source_port.astype(np.uint32))
        record["size_bytes"] = address(host.paths.size_bytes.astype(np.uint16))
        record["tos"] = address(host.paths.tos.astype(np.uint8))
        indices = name_indices([host])
        for names, name in zip(record["names"], NAME_COLUMNS, strict=True):
            _, offsets, text = host.names.columns_of_names[name].entries.buffers()
            names["indices"] = address(indices[name])
            names["entries"] = len(host.names.columns_of_names[name].entries)
            names["offsets"] = address(np.frombuffer(offsets, dtype=np.int32))
            names["text"] = address(np.frombuffer(text, dtype=np.uint8))
    return records, keep


@cache
def _checked(path: Path | None) -> ctypes.CDLL:
    """The library, if it makes the columns of the topic."""
    found, octets = library(path), ctypes.c_uint32()
    wanted = [
        (field.name.encode(), field.type.index_type if pa.types.is_dictionary(field.type) else field.type)
        for field in PROBE.columns or ()
    ]
    for i, (name, kind) in enumerate(wanted):
        if found.pe_row_column(i, ctypes.byref(octets)) != name or octets.value * 8 != kind.bit_width:
            raise UnavailableError(f"no packet engine: its rows have another column {name.decode()}")
    if found.pe_row_column(len(wanted), ctypes.byref(octets)) is not None:
        raise UnavailableError("no packet engine: its rows have more columns")
    return found
