"""Clock states: correction of readings onto reference time, and the lead of reference time over bus time."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Bools, Float64s, Int64s
from sdfstream.workload.chunks import FAR_NS
from sdfstream.workload.config import WorkloadConfig

_MOST: Final = 65_536
_USABLE: Final = ("synced", "holdover")
_UNKNOWN: Final = (0, 0.0, 0.0, 0.0, False)


class Corrected(NamedTuple):
    """Readings on reference time: ``at_ns + fraction_ns``; only where `known`."""

    at_ns: Int64s
    """Whole nanoseconds: the reading less the clock's whole offset."""
    fraction_ns: Float64s
    """Fractional offset and skew since the clock state, small."""
    err_ns: Float64s
    known: Bools

    def rounded(self) -> Int64s:
        """To the nanosecond."""
        result: Int64s = self.at_ns + np.rint(self.fraction_ns).astype(np.int64)
        return result


class ReferenceTime:
    """Last causal state of every clock.

    ``corrected = reading − offset − skew · (reading − at)``. A clock that is unsynced, faulty, unknown or without a
    fresh state gives no corrected reading.
    """

    def __init__(self, config: WorkloadConfig) -> None:
        self._config = config
        self._states: dict[str, tuple[int, float, float, float, int]] = {}
        """at, offset, skew, err, and the bus time of the state's message; only usable states."""
        self.lead_ns = 0
        """Reference time less bus time, as of the newest states; 0 while none is known."""
        self._lead_at_ns = -1
        """Bus time of the states behind `lead_ns`."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a ``sdf.state.clock.v1`` message that entered the bus at `at_ns`."""
        names = {n: _texts(batch, n) for n in ("clock", "status", "kind")}
        figures = [columns.filled(batch, n, np.nan).tolist() for n in ("offset_ns", "skew_ppb", "err_ns")]
        at = columns.instants(batch, "at_ns").tolist()
        for name, status, kind, reading, offset, skew, err in zip(*names.values(), at, *figures, strict=True):
            if name is None or kind != "causal":
                continue
            if status not in _USABLE or not abs(reading) <= FAR_NS or not _sane(offset, skew, err):
                self._states.pop(name, None)
            elif name in self._states or len(self._states) < _MOST:
                self._states[name] = (reading, offset, skew, err, at_ns)
                self._update_lead(reading - round(offset) - at_ns, at_ns)

    def _update_lead(self, lead_ns: int, at_ns: int) -> None:
        """Largest lead of the newest states: the result does not depend on how rows are cut into messages."""
        self.lead_ns = max(self.lead_ns, lead_ns) if at_ns == self._lead_at_ns else lead_ns
        self._lead_at_ns = at_ns

    def correct(self, codes: npt.NDArray[np.int32], names: list[str], reading_ns: Int64s, now_ns: int) -> Corrected:
        """Readings of the clocks ``names[codes]`` on reference time; an absent reading is not known."""
        table = [self._state(name, now_ns) for name in names] or [_UNKNOWN]
        at, offset, skew, err, usable = (np.array(column) for column in zip(*table, strict=True))
        known = usable[codes] & (reading_ns != ABSENT_NS)
        whole = np.rint(offset).astype(np.int64)
        base = np.where(known, reading_ns, 0)
        passed = np.where(known, base - at[codes], 0)
        fraction = (whole - offset)[codes] - skew[codes] / NS_PER_S * passed
        return Corrected(base - whole[codes], np.where(known, fraction, 0.0), err[codes], known)

    def _state(self, name: str, now_ns: int) -> tuple[int, float, float, float, bool]:
        state = self._states.get(name)
        if state is None or now_ns - state[4] > self._config.clock_fresh_ns:
            return _UNKNOWN
        return *state[:4], True

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        states = [[name, *state] for name, state in self._states.items()]
        return {"states": states, "lead": self.lead_ns, "lead_at": self._lead_at_ns}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._states = {name: tuple(rest) for name, *rest in state["states"]}
        self.lead_ns, self._lead_at_ns = state["lead"], state["lead_at"]


def _texts(batch: pa.RecordBatch, name: str) -> list[str | None]:
    codes, names = columns.names(batch, name)
    return [names[code] if code >= 0 else None for code in codes.tolist()]


def _sane(offset_ns: float, skew_ppb: float, err_ns: float) -> bool:
    return abs(offset_ns) <= FAR_NS and abs(skew_ppb) <= NS_PER_S and 0 <= err_ns < np.inf
