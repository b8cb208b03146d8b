"""Clocks that stepped: whose offset lies elsewhere, from one moment to the next, than its own line says.

The line of a clock is its last synced state, carried on by its skew. When it is synced again its offset is compared
with that line; beyond both error bars and what a skew may change meanwhile it has jumped; where it was in holdover,
beyond the bound that was published of it there as well, for a line drawn from a second of probes soon strays by more
than its error bar. Sync widens the bar of a clock at once that no longer agrees with its neighbours; such a state is
waited out like one without a bar, and the line before it stands.

Offsets are relative: when the reference steps all others seem to, and when another clock becomes the reference all
offsets move alike. So jumps are gathered for a moment, and what the clocks have in common (their median jump, a clock
that stays on its line counting as 0) is no step of theirs. Of a clock that had no line then, as one that becomes the
reference when it is first synced, or was away while the reference changed, nothing is known. Where that is most of
them, as while a mesh begins and islands of it join, nothing is known of any: the few that have lines may have been the
reference themselves.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.detections import Detection
from sdfstream.detect.instant import Instant
from sdfstream.detect.sessions import NameIndex
from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.finding import Evidence, Severity, Subject
from sdfstream.records.hostclock import UTC
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_MOST: Final = 65_536
_SMALLEST_NS: Final = 20e3
"""Steps below are no worse than the noise of software stamps."""
_WARN_NS, _BAD_NS = 100e3, 100e6
"""From here a warning: as large as queues that delays are read for; from here urgent: applications' times are off."""
_MOST_NS: Final = 1e18
"""Figures beyond are none: thirty years."""
_BARS: Final = 3.0
_WIDER: Final = 10.0
"""An error bar so many times its line's is doubt: the state behind it moves no line."""
_SKEW_CHANGE_PPB: Final = 1000.0
"""A frequency may change by this much while a clock is not synced."""
_LINE_NS: Final = 60 * NS_PER_S
"""An older line says nothing any more."""
_GATHER_NS: Final = 1500 * NS_PER_MS
_STANDS_NS: Final = 10 * NS_PER_S
"""A step is told for so long: what was measured around it is not to be trusted."""
_MOST_STANDING: Final = 100


class ClockStepDetector:
    """Lines of all clocks, and the steps found lately."""

    def __init__(self) -> None:
        self.names = NameIndex(_MOST)
        self.table = Table(
            {
                "begun_ns": np.int64(ABSENT_NS),
                "synced_ns": np.int64(ABSENT_NS),
                "seen_ns": np.int64(ABSENT_NS),
                "reading_ns": np.int64(0),
                "offset_ns": np.float64(0.0),
                "skew_ppb": np.float64(0.0),
                "err_ns": np.float64(0.0),
                "held_err_ns": np.float64(0.0),
                "jump_ns": np.float64(0.0),
                "jumped_ns": np.int64(ABSENT_NS),
                "limit_ns": np.float64(0.0),
            }
        )
        """Per clock: when it was last synced, in doubt or not, bus time; the line (when it began and when received, bus
        time; reading, offset, skew, error bar), the last error bar that was published in holdover since (0: none); the
        jump that waits to be compared with the others', bus time before which the clock was on its line, how far a jump
        may be wrong."""
        self._gathering_ns = ABSENT_NS
        """Bus time of the first jump that waits; `ABSENT_NS`: none does."""
        self._standing: dict[str, list[Any]] = {}
        """Per clock: bus time before the step, when it was found, size, error bar; ns."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a ``sdf.state.clock.v1`` message; clocks that are not synced are waited for."""
        clock, names = columns.names(batch, "clock")
        status, statuses = columns.names(batch, "status")
        kind, kinds = columns.names(batch, "kind")
        causal = np.array([k != "smoothed" for k in kinds] + [True])[kind]
        synced = np.array([s == "synced" for s in statuses] + [False])[status]
        known = np.array([self.names.add(n) if n != UTC else -1 for n in names] + [-1], np.int64)[clock]
        offset, skew, err = (columns.values(batch, c).astype(np.float64) for c in ("offset_ns", "skew_ppb", "err_ns"))
        sane = (np.abs(offset) < _MOST_NS) & (np.abs(skew) < _MOST_NS) & (np.abs(err) < _MOST_NS)
        usable = causal & sane & (known >= 0)
        self.table.ensure(len(self.names))
        held = np.flatnonzero(usable & np.array([s == "holdover" for s in statuses] + [False])[status])
        rows = np.flatnonzero(usable & synced)
        if rows.size:
            number, last = np.unique(known[rows][::-1], return_index=True)
            rows = rows[::-1][last]
            reading_ns = columns.values(batch, "at_ns")[rows].astype(np.int64)
            self._compare(number, reading_ns, [offset[rows], skew[rows], err[rows]], at_ns)
        self.table["held_err_ns"][known[held]] = err[held]

    def _compare(self, number: Ints, reading_ns: Ints, figures: list[Floats], at_ns: int) -> None:
        """Take the newest states of these clocks, each at most once."""
        t = self.table
        offset, skew, err = figures
        elapsed_ns = at_ns - t["seen_ns"][number]
        passed_ns = reading_ns - t["reading_ns"][number]
        passed_ns = np.where(np.abs(passed_ns - elapsed_ns) < NS_PER_S, passed_ns, elapsed_ns)  # readings step too
        jump = offset - t["offset_ns"][number] - t["skew_ppb"][number] * 1e-9 * passed_ns
        limit = _BARS * (err + t["err_ns"][number]) + _SKEW_CHANGE_PPB * 1e-9 * np.abs(passed_ns)
        limit = np.maximum(limit, err + t["held_err_ns"][number])
        usable = (t["seen_ns"][number] != ABSENT_NS) & (elapsed_ns < _LINE_NS)
        doubted = usable & (err > np.maximum(_SMALLEST_NS, _WIDER * t["err_ns"][number]))
        jumped = usable & ~doubted & (np.abs(jump) > np.maximum(limit, _SMALLEST_NS))
        if jumped.any():
            which = number[jumped]
            fresh = t["jumped_ns"][which] == ABSENT_NS
            t["jumped_ns"][which] = np.where(fresh, t["seen_ns"][which], t["jumped_ns"][which])
            t["jump_ns"][which] = np.where(fresh, 0.0, t["jump_ns"][which]) + jump[jumped]
            t["limit_ns"][which] = np.maximum(limit[jumped], _SMALLEST_NS)
            if self._gathering_ns == ABSENT_NS:
                self._gathering_ns = at_ns
        t["synced_ns"][number] = at_ns
        t["begun_ns"][number[~usable]] = at_ns
        sure = ~doubted
        moved = number[sure]
        t["seen_ns"][moved], t["reading_ns"][moved] = at_ns, reading_ns[sure]
        t["offset_ns"][moved], t["skew_ppb"][moved], t["err_ns"][moved] = offset[sure], skew[sure], err[sure]
        t["held_err_ns"][moved] = 0.0

    def detections(self, now: Instant) -> list[Detection]:
        """Steps of the last moments."""
        now_ns = now.now_ns
        if self._gathering_ns != ABSENT_NS and now_ns - self._gathering_ns >= _GATHER_NS:
            self._assess(now_ns)
        self._standing = {n: s for n, s in self._standing.items() if now_ns - s[1] < _STANDS_NS}
        racing = now.findings.reported("clock-faulty")  # a clock that leaves its line by its rate did not step
        return [self._detection(name, *found) for name, found in self._standing.items() if name not in racing]

    def _assess(self, now_ns: int) -> None:
        """Find whose jumps they were; two clocks alone cannot tell, and the one that is not the reference is named."""
        t = self.table
        lately = (t["seen_ns"] != ABSENT_NS) & (now_ns - t["seen_ns"] < _GATHER_NS)
        jumped = lately & (t["jumped_ns"] != ABSENT_NS)
        before_ns = int(t["jumped_ns"][jumped].min(initial=self._gathering_ns))
        here = np.flatnonzero(lately & (t["begun_ns"] <= before_ns))
        synced = (t["synced_ns"] != ABSENT_NS) & (now_ns - t["synced_ns"] < _GATHER_NS)
        if 2 * here.size <= np.count_nonzero(synced):
            here = here[:0]
        waits = t["jumped_ns"][here] != ABSENT_NS
        jump = np.where(waits, t["jump_ns"][here], 0.0)
        common = float(np.median(jump)) if here.size > 2 else 0.0
        own = jump - common
        limit = float(t["limit_ns"][here][waits].max(initial=_SMALLEST_NS))
        if abs(common) > limit:  # of lines that lead to the reference before nothing follows any more
            t["seen_ns"][~lately] = ABSENT_NS
        began_ns = int(t["jumped_ns"][here][waits].min(initial=now_ns))
        for i in np.flatnonzero(np.abs(own) > limit).tolist()[:_MOST_STANDING]:
            before_ns = int(t["jumped_ns"][here[i]]) if waits[i] else began_ns
            name = self.names.list[int(here[i])]
            self._standing[name] = [before_ns, now_ns, float(own[i]), float(t["err_ns"][here[i]])]
        t["jumped_ns"][:], t["jump_ns"][:] = ABSENT_NS, 0.0
        self._gathering_ns = ABSENT_NS

    @staticmethod
    def _detection(name: str, before_ns: int, _: int, size_ns: float, err_ns: float) -> Detection:
        size = abs(size_ns)
        severity: Severity = "info" if size < _WARN_NS else "warning" if size < _BAD_NS else "urgent"
        evidence = (
            Evidence("step", round(size_ns / 1e3, 1), "µs", name, 0.0),
            Evidence("error-bar", round(err_ns / 1e3, 1), "µs", name),
        )
        sense = "forward" if size_ns > 0 else "back"
        return Detection(
            "clock-step",
            Subject("clock", name),
            before_ns,
            "clock",
            0.95,
            evidence,
            severity=severity,
            suspects=((name, 1.0),),
            detail=f"stepped {sense} by {size / 1e3:.0f} µs",
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "names": self.names.list,
            "table": self.table.snapshot(),
            "gathering": self._gathering_ns,
            "standing": [[name, *found] for name, found in self._standing.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.names.restore(state["names"])
        self.table.restore(state["table"])
        self._gathering_ns = int(state["gathering"])
        self._standing = {str(name): list(found) for name, *found in state["standing"]}
