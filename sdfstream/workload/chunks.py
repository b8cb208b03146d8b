"""Rows of ``sdf.raw.qp.v1`` as plain arrays; what cannot be used is refused with a reason."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, Bools, Int64s
from sdfstream.stats import Counters

FAR_NS: Final = 1 << 62
"""A reading with a magnitude beyond this is no instant: differences of such readings do not fit an int64."""
_MOST_BYTES: Final = 1 << 50
"""A chunk of more than a pebibyte is a broken counter."""
_INSTANTS: Final = ("sent_at_ns", "arrived_at_ns", "acknowledged_at_ns")
_NAMES: Final = ("job", "qp", "src", "dst", "transport", "clock_src", "clock_dst")
_NUMBERS: Final = ("rank", "peer_rank", "path", "dst_port", "dscp", "bytes", "packets")


class Chunks(NamedTuple):
    """Rows of one message. Instants are readings of the named clock; absent: `ABSENT_NS`."""

    sent_ns: Int64s
    arrived_ns: Int64s
    acknowledged_ns: Int64s
    names: dict[str, tuple[npt.NDArray[np.int32], list[str]]]
    """Codes and dictionary of job, qp, src, dst, transport, clock_src, clock_dst."""
    numbers: dict[str, Int64s]
    """rank, peer_rank, path, dst_port, dscp, bytes, packets."""
    ce: Int64s
    """−1: not reported."""
    retransmits: Int64s
    """−1: not reported."""

    @property
    def size(self) -> int:
        """Rows."""
        return int(self.sent_ns.size)


def read(batch: pa.RecordBatch, counters: Counters) -> Chunks:
    """The rows of `batch` that can be used; the others are counted as ``refused.<reason>``.

    Raises
    ------
    FormatError
        ``column-missing`` or ``null``: it is not of the topic's columns, as all on a bus are.
    """
    instants = {name: columns.instants(batch, name) for name in _INSTANTS}
    size = columns.values(batch, "bytes").astype(np.uint64)
    sane: Bools = size <= _MOST_BYTES
    for name, at_ns in instants.items():
        near = (at_ns >= -FAR_NS) & (at_ns <= FAR_NS)
        sane &= near if name == "sent_at_ns" else near | (at_ns == ABSENT_NS)
    if not sane.all():
        counters.add("refused", "range", int((~sane).sum()))
        batch = batch.filter(pa.array(sane))
        instants = {name: at_ns[sane] for name, at_ns in instants.items()}
    return Chunks(
        instants["sent_at_ns"],
        instants["arrived_at_ns"],
        instants["acknowledged_at_ns"],
        {name: columns.names(batch, name) for name in _NAMES},
        {name: columns.values(batch, name).astype(np.int64) for name in _NUMBERS},
        _counts(batch, "ce"),
        _counts(batch, "retransmits"),
    )


def _counts(batch: pa.RecordBatch, name: str) -> Int64s:
    """A nullable count, −1 where it is null or the column is absent."""
    low, high = (columns.filled(batch, name, fill).astype(np.int64) for fill in (0, 1))
    return np.where(low == high, low, -1)
