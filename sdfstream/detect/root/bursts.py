"""Bursts: queues that come and go within a fraction of a second, too soon for `congestion`, at one place at once.

A single slow window of one path is noise; of most paths over one element at the same moment it is a queue that stood
there. Paths whose windows were high (`DelayBaselines`) and are not any more form a group by when they began; the group
is located once, like any queue. The first burst of a subject is told as information, resolved from the start. From the
second within an hour on one finding counts them, with their length and the time from one to the next, for as long as
the next may be due.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, astuple, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.instant import Instant
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.problem import Observations
from sdfstream.detect.recent import revived
from sdfstream.numeric.table import Table
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_OVER_NS: Final = 500 * NS_PER_MS
"""A burst is over once no window was high for so long."""
_TOGETHER_NS: Final = 300 * NS_PER_MS
"""Paths of one burst begin within this time: windows, and the probes in them, are some 100 ms apart."""
_LONGEST_NS: Final = NS_PER_S
"""What lasted longer is no burst, and had its time to be told as what it was."""
_LEAST_PATHS: Final = 4
_NO_QUEUE: Final = ("path", "host")
"""What is no queue's place: what all of a host's paths see for a moment is the host's own delay."""
_TRIALS: Final = 8.0
_WINDOW_NS: Final = 3600 * NS_PER_S
_DUE: Final = 2.5
"""So many periods after the last burst the next is overdue, and the finding is resolved; at least `_LEAST_DUE_NS`."""
_LEAST_DUE_NS: Final = 60 * NS_PER_S
_MOST_BURSTS, _MOST_SUBJECTS = 256, 1000


@dataclass(slots=True)
class _Burst:
    began_ns: int
    """Bus time."""
    ended_ns: int
    excess_ns: float
    """Largest excess delay."""
    paths: int


class BurstDetector:
    """Bursts of the last hour by subject."""

    def __init__(self, delays: DelayBaselines, cabling: Cabling) -> None:
        self.delays, self.cabling = delays, cabling
        self.table = Table({"told_ns": np.int64(ABSENT_NS)})
        """Per directed path: bus time of the last high window that was located, or belonged to no burst."""
        self._bursts: dict[Subject, deque[_Burst]] = {}
        self._last: dict[Subject, Location] = {}

    def ensure(self) -> None:
        """Have a row for both directions of every session."""
        self.table.ensure(2 * self.delays.sessions.count)

    def forget(self, slots: Ints) -> None:
        """Start anew for these sessions."""
        self.table.reset(np.concatenate([2 * slots, 2 * slots + 1]))

    def detections(self, now: Instant) -> list[Detection]:
        """Bursts that ended since the last call, and those that come again and again."""
        fresh = [subject for subject in self._ended(now) if len(self._bursts[subject]) == 1]
        found = [self._detection(subject, over=True) for subject in fresh]
        return found + [
            self._detection(subject, over=False)
            for subject, bursts in self._bursts.items()
            if len(bursts) > 1 and now.now_ns - bursts[-1].ended_ns <= self._due_ns(bursts)
        ]

    def _ended(self, now: Instant) -> list[Subject]:
        """Locate the paths whose high windows ended; the subjects found."""
        peak_ns, first_ns = self.delays.table["peak_ns"], self.delays.table["first_ns"]
        n = peak_ns.size
        self.table.ensure(n)
        fresh = peak_ns > self.table["told_ns"][:n]
        if not fresh.any():
            return []
        ended = fresh & (now.reached_ns - peak_ns >= _OVER_NS)
        if not ended.any():
            return []
        began_ns = int(first_ns[ended].min())
        group = ended & (first_ns <= began_ns + _TOGETHER_NS)
        if (fresh & ~ended & (first_ns <= began_ns + _TOGETHER_NS)).sum() > group.sum():
            return []  # most of them are high still: the burst is not over
        self.table["told_ns"][:n][group] = peak_ns[group]
        silent = np.repeat(now.left_out, 2)[:n]
        high = np.flatnonzero(group & ~silent)
        if high.size < _LEAST_PATHS:
            return []
        others = self.delays.well(now.reached_ns) & ~group & ~fresh & ~silent
        return self._record(high, np.flatnonzero(others), now)

    def _record(self, high: Ints, others: Ints, now: Instant) -> list[Subject]:
        t, reported = self.delays.table, now.findings.reported("congestion")
        observed = [
            Observations.of(number[number % 2 == code] // 2, direction, failed, _TRIALS)
            for number, failed in ((high, _TRIALS), (others, 0.0))
            for direction, code in (("fwd", 0), ("rev", 1))
        ]
        subjects = []
        for location in locate(self.cabling, Observations.join(observed), noise=0.01, least_share=0.6, kind="queue"):
            number, subject = location.directed_paths(), location.subject
            if subject.type in _NO_QUEUE or location.probability < 0.5 or number.size < _LEAST_PATHS:
                continue
            burst = _Burst(
                int(t["first_ns"][number].min()),
                int(t["peak_ns"][number].max()),
                float(t["peak"][number].max()),
                int(number.size),
            )
            bursts = self._bursts.get(subject)
            long = burst.ended_ns - burst.began_ns > _LONGEST_NS
            if long or subject.id in reported or (bursts is None and len(self._bursts) >= _MOST_SUBJECTS):
                continue
            if bursts is None:
                bursts = self._bursts[subject] = deque(maxlen=_MOST_BURSTS)
            bursts.append(burst)
            self._last[subject] = location
            subjects.append(subject)
        self._prune(now.now_ns)
        return [subject for subject in subjects if subject in self._bursts]

    def _prune(self, now_ns: int) -> None:
        for subject, bursts in list(self._bursts.items()):
            while bursts and now_ns - bursts[0].ended_ns > _WINDOW_NS:
                bursts.popleft()
            if not bursts:
                del self._bursts[subject], self._last[subject]

    @staticmethod
    def _due_ns(bursts: deque[_Burst]) -> int:
        return max(_LEAST_DUE_NS, int(_DUE * _period_ns(bursts)))

    def _detection(self, subject: Subject, *, over: bool) -> Detection:
        bursts, location = self._bursts[subject], self._last[subject]
        where, last = " ".join(location.directions), bursts[-1]
        length_ms = float(np.median([b.ended_ns - b.began_ns for b in bursts])) / NS_PER_MS + 100
        evidence = [
            Evidence("bursts", float(len(bursts)), "1", where, 0.0),
            Evidence("delay-excess", round(max(b.excess_ns for b in bursts) / 1e3, 1), "µs", where, 0.0),
            Evidence("burst-length", round(length_ms), "ms", where, 0.0),
            Evidence("slow-paths", float(last.paths), "paths", where, 0.0),
        ]
        detail = f"a queue of {last.excess_ns / 1e3:.0f} µs for about {length_ms:.0f} ms: {where}"
        if len(bursts) > 1:
            period_s = _period_ns(bursts) / NS_PER_S
            evidence.append(Evidence("period", round(period_s, 1), "s", where))
            detail = f"{len(bursts)} bursts of about {length_ms:.0f} ms, one every {period_s:.3g} s: {where}"
        paths = [self.delays.sessions.path_id(slot, "fwd") for slot in location.slots[:MAX_SYMPTOMS].tolist()]
        return Detection(
            "bursts",
            subject,
            bursts[0].began_ns,
            "queueing",
            location.probability,
            tuple(evidence),
            severity="info",
            suspects=tuple(location.suspects),
            symptoms=tuple(symptom("bursts", Subject("path", str(path)), last.began_ns) for path in paths),
            detail=detail,
            directions=tuple(location.directions),
            direction_known=location.direction_known,
            over_ns=last.ended_ns if over else 0,
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "table": self.table.snapshot(),
            "bursts": [
                [subject.type, subject.id, [list(astuple(b)) for b in bursts], asdict(self._last[subject])]
                for subject, bursts in self._bursts.items()
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.table.restore(state["table"])
        self._bursts, self._last = {}, {}
        for kind, name, bursts, location in state["bursts"]:
            subject = Subject(kind, name)
            self._bursts[subject] = deque((_Burst(*b) for b in bursts), maxlen=_MOST_BURSTS)
            self._last[subject] = revived(location)


def _period_ns(bursts: deque[_Burst]) -> float:
    """Median time from one burst to the next, of two or more."""
    begun = np.array([b.began_ns for b in bursts])
    return float(np.median(np.diff(begun))) if begun.size > 1 else 0.0
