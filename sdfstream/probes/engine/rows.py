"""Rows of the packet engine's ring to rows of ``sdf.raw.probe.v1``, as `stamp.rows` writes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sdfstream.probes.config import HostConfig
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.stamp.paths import Paths
from sdfstream.probes.stamp.rows import RowNames, batch_of
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import StampKind


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
        self._paths = paths
        self._clock = clock
        self._first = first
        self._names = RowNames(host, paths.sessions)

    def batch(self, rows: Records) -> pa.RecordBatch:
        """Columns of `rows` (`layouts.ROW`), all of paths of this table."""
        path = rows["path"].astype(np.int64) - self._first
        tos_sent = self._paths.tos[path]
        values = {name: rows[name] for name in ("seq", "t2_ns", "t3_ns", "tx_host_ns", "rx_host_ns")}
        values |= {name: rows[name] for name in ("t1_kind", "t2_kind", "t3_kind", "t4_kind", "ttl_fwd", "ttl_rev")}
        values |= {
            "path": self._paths.source_port[path].astype(np.uint32),
            "size_bytes": self._paths.size_bytes[path],
            "t1_ns": self._clock.reading(rows["t1_ns"]),
            "t4_ns": self._clock.reading(rows["t4_ns"]),
            "dscp_sent": tos_sent >> 2,
            "ecn_sent": tos_sent & 3,
            "dscp_fwd": rows["tos_fwd"] >> 2,
            "ecn_fwd": rows["tos_fwd"] & 3,
            "dscp_rev": rows["tos_rev"] >> 2,
            "ecn_rev": rows["tos_rev"] & 3,
        }
        near, far = (rows[kind] == StampKind.HARDWARE for kind in ("t1_kind", "t2_kind"))
        named = self._names.columns(self._paths.session[path], near, far)
        classed, answered = ((rows["flags"] & flag) != 0 for flag in (layouts.ROW_CLASSED, layouts.ROW_ANSWERED))
        return batch_of(values, named, classed, answered)
