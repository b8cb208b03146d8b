"""How well every clock is known, for decisions that rest on one-way delay."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.units import NS_PER_S

UNKNOWN_NS: Final = float(3600 * NS_PER_S)
"""Error bar of a clock that nothing is known of, or that is not trusted."""
_FRESH_NS: Final = 3 * NS_PER_S
_MOST: Final = 200_000


class Clocks:
    """Error bar of every clock by its last causal row."""

    def __init__(self) -> None:
        self._err: dict[str, tuple[float, int]] = {}

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take clock states; FormatError when a column cannot be read."""
        clock, clocks = columns.names(batch, "clock")
        status, states = columns.names(batch, "status")
        kind, kinds = columns.names(batch, "kind")
        err = columns.values(batch, "err_ns").astype(np.float64)
        causal = np.array([name == "causal" for name in kinds] + [False])[kind]
        for row in np.flatnonzero(causal & (clock >= 0) & (status >= 0)).tolist():
            name = clocks[clock[row]]
            trusted = states[status[row]] in ("synced", "holdover")
            if name in self._err or len(self._err) < _MOST:
                self._err[name] = (float(err[row]) if trusted else UNKNOWN_NS, at_ns)

    def err_ns(self, nic: str, now_ns: int) -> float:
        """Error bar of the clock of a NIC: its own, or its host's."""
        for name in (nic, host_of(nic)):
            found = self._err.get(name)
            if found is not None and now_ns - found[1] <= _FRESH_NS:
                return found[0]
        return UNKNOWN_NS

    def forget(self, before_ns: int) -> None:
        """Drop clocks that were not heard of since."""
        self._err = {name: row for name, row in self._err.items() if row[1] >= before_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[name, *row] for name, row in self._err.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._err = {name: (err, at_ns) for name, err, at_ns in state}
