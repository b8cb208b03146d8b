"""Rows of ``sdf.raw.probe.v1`` that compare two clocks of one host, and names that no clock of a host may have.

A *host edge* is a row of transport ``host``: the host's system clock read (t1), a NIC's hardware clock read (t2 = t3),
the system clock read again (t4). It is an exchange like any other for the time line, but nothing went through the
network: such a row is no path, has no one-way delay worth showing, and says nothing about liveness. Every reader of the
topic that thinks of paths drops these rows first (`paths_only`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from sdfstream.records import arrow, columns
from sdfstream.records.units import Bools

HOST_EDGE: Final = "host"
"""The value of column ``transport`` in such a row; src and dst are both the NIC's id."""
UTC: Final = "utc"
"""The clock of ``sdf.state.clock.v1`` that stands for UTC (sync's setting ``utc_clocks``)."""
MEAN: Final = "mean"
"""What the reference is called when it is the mean of the clocks (sync's setting ``reference``)."""
RESERVED: Final = (UTC, MEAN)
"""Names that are no host's."""


def edges_in(batch: pa.RecordBatch) -> Bools | None:
    """(rows,) True at the host edges of a batch of ``sdf.raw.probe.v1``; None when it holds none, the usual case.

    Raises
    ------
    FormatError
        There is no column ``transport``, or it holds no names.
    """
    codes, names = columns.names(batch, "transport")
    if HOST_EDGE not in names:
        return None
    found: Bools = codes == names.index(HOST_EDGE)
    return found if found.any() else None


def paths_only(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that speak of paths through the network; the batch itself when all do."""
    edges = edges_in(batch)
    if edges is None:
        return batch
    return batch.take(arrow.column(np.flatnonzero(~edges), pa.int64()))
