"""Delay above the path's own normal: which directed paths stand in a queue, and where that queue is.

Per directed path (session and way) and window of ``sdf.derived.owd.v1``:

- the baseline is the path's own running mean and spread of its median excess; it learns only while the path is quiet;
- the threshold is the largest of the absolute one (given, or learnt from all quiet paths), a multiple of the path's own
  spread, and three times the window's clock error bar, so a wide error bar can hide a queue but never make one;
- a path is *slow* after several windows net above it (`numeric.cusum.PersistenceCusum`);
- a window whose two directions move apart by equal amounts is a clock that moved, not a queue: it is left out;
- a window whose error bar is missing or wider than `max_err_us` is not judged at all.

Slow and well paths of one class then go to `localise`; a class whose own queue stands is not contradicted by others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.claims import MAX_SYMPTOMS, Claim, symptom
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.localise import Located, locate
from sdfstream.detect.memo import Memo
from sdfstream.detect.problem import Observations
from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.cusum import PersistenceCusum
from sdfstream.numeric.moments import EwMoments
from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_WARM = 10
"""Windows a path needs before it is judged."""
_FRESH_NS = NS_PER_S
_FLOOR_NS, _CEILING_NS, _START_NS = 20e3, 2e6, 200e3
"""Bounds of the learnt threshold, and where it starts."""
_TRIALS = 8.0
"""What a verdict on one path weighs, in trials: enough that a queue only one path sees can be told at all."""


class Congestion:
    """Excess delay of every directed path; number of a directed path: 2·session + (0 fwd, 1 rev)."""

    def __init__(self, config: DetectConfig, sessions: Sessions, cabling: Cabling, counters: Counters) -> None:
        self.config, self.sessions, self.cabling, self.counters = config, sessions, cabling, counters
        self.moments = EwMoments(alpha=1 / 300)
        self.cusum = PersistenceCusum(config.excess_windows, config.excess_release)
        self.table = Table(
            {
                "window_ns": np.int64(ABSENT_NS),
                "seen_ns": np.int64(ABSENT_NS),
                "since_ns": np.int64(ABSENT_NS),
                "excess": np.float64(0.0),
                "held": np.float64(0.0),
                "score": np.float64(0.0),
                "err": np.float64(0.0),
            }
        )
        self.noise_ns = _START_NS / 3
        """99th percentile of quiet paths' deviation, slowly following."""
        self.blamed: frozenset[str] = frozenset()
        self._waiting: list[tuple[Ints, Ints, Floats, Floats, Ints]] = []
        self._memo = Memo()

    def ensure(self) -> None:
        """Have a row for both directions of every session."""
        rows = 2 * self.sessions.count
        self.moments.ensure(rows)
        self.cusum.ensure(rows)
        self.table.ensure(rows)

    def forget(self, slots: Ints) -> None:
        """Start anew for these sessions."""
        both = np.concatenate([2 * slots, 2 * slots + 1])
        for table in (self.moments.table, self.cusum.table, self.table):
            table.reset(both)

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a ``sdf.derived.owd.v1`` message."""
        slots = self.sessions.of_batch(batch, "dscp", at_ns)
        self.ensure()
        way, way_names = columns.names(batch, "dir")
        code = np.array([{"fwd": 0, "rev": 1}.get(n, -1) for n in way_names] + [-1], np.int64)[way]
        start_ns = columns.values(batch, "at_ns")
        excess = columns.filled(batch, "excess_p50_ns", np.nan).astype(np.float64)
        median = columns.filled(batch, "owd_p50_ns", np.nan).astype(np.float64)
        excess = np.where(np.isnan(excess), median, excess)
        err = columns.filled(batch, "err_ns", np.nan).astype(np.float64)
        known = (slots >= 0) & (code >= 0)
        self.counters.add("refused", "owd-row", int((~known).sum()))
        judged = known & ~np.isnan(excess) & ~np.isnan(err) & (err <= self.config.max_err_us * 1e3)
        self.counters.add("unjudged", "clock-error", int((known & ~np.isnan(excess) & ~judged).sum()))
        directed = (2 * slots + code)[judged]
        seen_ns = np.full(directed.size, at_ns)
        if directed.size:
            self._waiting.append((directed, start_ns[judged].astype(np.int64), excess[judged], err[judged], seen_ns))

    def tick(self) -> None:
        """Judge the windows that came since the last tick, in order of their time.

        They wait for the tick because a verdict takes both directions of a path and the noise of all paths, however
        the rows were spread over messages.
        """
        if not self._waiting:
            return
        number, start_ns, excess, err, seen_ns = (np.concatenate(x) for x in zip(*self._waiting, strict=True))
        self._waiting.clear()
        deviations = []
        for window in np.unique(start_ns).tolist():
            now = start_ns == window
            which, first = np.unique(number[now], return_index=True)
            deviations.append(self._window(which, excess[now][first], err[now][first], seen_ns[now][first], window))
        self._learn(np.concatenate(deviations))

    def _window(self, number: Ints, excess: Floats, err: Floats, at_ns: Ints, window_ns: int) -> Floats:
        """Judge one window, in which every directed path occurs at most once; deviations of the quiet ones."""
        t = self.table
        new = t["window_ns"][number] < window_ns
        number, excess, err, at_ns = number[new], excess[new], err[new], at_ns[new]
        t["window_ns"][number] = window_ns
        mean, spread = self.moments.mean[number], np.sqrt(self.moments.variance[number])
        warm = self.moments.count[number] >= _WARM
        above = np.where(warm, excess - mean, 0.0)
        t["excess"][number] = above
        t["err"][number] = err
        threshold = np.maximum(self._absolute(), np.maximum(self.config.excess_sigmas * spread, 3.0 * err))
        score = above / threshold
        other = number ^ 1
        moved = (t["window_ns"][other] == window_ns) & (score > 0.5) & (t["excess"][other] < -0.5 * above)
        self.counters.add("unjudged", "clock-moved", int(moved.sum()))
        score[moved] = 0.0
        t["score"][number], t["seen_ns"][number] = score, at_ns
        t["held"][number] = np.where(score >= 0.5, above, t["held"][number])
        on = self.cusum.update(number, score)
        high = score >= 0.5
        t["since_ns"][number] = np.where(
            high | on, np.where(t["since_ns"][number] == ABSENT_NS, at_ns, t["since_ns"][number]), ABSENT_NS
        )
        quiet = ~on & ~high & ~moved
        limit = np.where(warm, np.maximum(4 * spread, 1e3), np.inf)
        deviation = np.clip(excess - mean, -limit, limit)
        self.moments.update(number[quiet], (mean + deviation)[quiet])
        deviations: Floats = np.abs(excess - mean)[quiet & warm]
        return deviations

    def _absolute(self) -> float:
        if self.config.excess_us is not None:
            return self.config.excess_us * 1e3
        return float(np.clip(3.0 * self.noise_ns, _FLOOR_NS, _CEILING_NS))

    def _learn(self, deviation: Floats) -> None:
        """Follow the 99th percentile of quiet deviations: an exact quantile step, rate-limited to 0.3 % per tick."""
        if deviation.size:
            above = float(np.mean(deviation > self.noise_ns))
            self.noise_ns *= float(np.exp(np.clip(above - 0.01, -0.003, 0.003)))

    def claims(self, left_out: Bools, ce_share: Floats, now_ns: int) -> list[Claim]:
        """Queues that stand now.

        Parameters
        ----------
        left_out : (sessions,) bool
            Sessions that another verdict explains.
        ce_share : (2·sessions,) float64
            Share of marked arrivals of every directed path, NaN where nothing arrived.
        now_ns : int
            Bus time.
        """
        t = self.table
        if not self.cusum.on.any():
            self.blamed = frozenset()
            return []
        fresh = (t["seen_ns"] != ABSENT_NS) & (now_ns - t["seen_ns"] <= _FRESH_NS) & ~np.repeat(left_out, 2)
        slow = np.flatnonzero(fresh & self.cusum.on)
        well = np.flatnonzero(fresh & ~self.cusum.on & (t["score"] < 0.3) & (self.moments.count >= _WARM))
        found: dict[Subject, tuple[Located, Ints]] = {}
        classes = self.sessions.table["dscp"]
        for dscp in np.unique(classes[slow // 2]).tolist():
            mine, others = slow[classes[slow // 2] == dscp], well[classes[well // 2] == dscp]
            for place in self._memo.recall(_observe(mine, others), now_ns, self._locate):
                number = np.array([2 * s + (w == "rev") for s, w in zip(place.slots, place.ways, strict=True)])
                if place.subject in found:
                    number = np.concatenate([found[place.subject][1], number])
                found[place.subject] = (place, number)
        self.blamed = frozenset(subject.id for subject in found)
        return [self._claim(place, number.astype(np.int64), ce_share) for place, number in found.values()]

    def slow(self, now_ns: int) -> Bools:
        """(2·sessions,) directed paths that are slow now: their marks are evidence of that queue."""
        return self.cusum.on & (now_ns - self.table["seen_ns"] <= _FRESH_NS)

    def _locate(self, seen: Observations) -> list[Located]:
        return locate(self.cabling, seen, noise=0.01, least_share=0.6, incumbents=self.blamed)

    def _claim(self, place: Located, number: Ints, ce_share: Floats) -> Claim:
        t = self.table
        where = " ".join(place.directions)
        excess_us = float(np.median(t["held"][number])) / 1e3
        evidence = [
            Evidence("delay-excess", round(excess_us, 1), "µs", where, 0.0),
            Evidence("error-bar", round(float(np.median(t["err"][number])) / 1e3, 1), "µs", where),
            Evidence("slow-paths", float(number.size), "paths", where, 0.0),
        ]
        marked = ce_share[number]
        if np.isfinite(marked).any():
            evidence.append(Evidence("ce-share", round(float(np.nanmean(marked)), 3), "1", where, 0.0))
        classes = sorted(set(self.sessions.table["dscp"][number // 2].tolist()))
        evidence += [Evidence("class", float(c), "DSCP", where) for c in classes[:8]]
        since = t["since_ns"][number]
        since_ns = int(np.min(since[since != ABSENT_NS], initial=int(t["seen_ns"][number].max())))
        paths = [str(self.sessions.path_id(n // 2, "rev" if n % 2 else "fwd")) for n in number[:MAX_SYMPTOMS].tolist()]
        alone = place.subject.type == "path"
        return Claim(
            "congestion",
            place.subject,
            since_ns,
            "queueing",
            place.probability,
            tuple(evidence),
            suspects=tuple(place.suspects),
            symptoms=tuple(symptom("congestion", Subject("path", p), since_ns) for p in paths),
            confirm_ns=(1000 if alone else 200) * NS_PER_MS,
            hold_ns=int(self.config.hold_s * NS_PER_S),
            detail=f"queue {where}",
        )

    def freeze(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "moments": self.moments.freeze(),
            "cusum": self.cusum.freeze(),
            "table": self.table.freeze(),
            "noise": self.noise_ns,
            "blamed": sorted(self.blamed),
            "memo": self._memo.freeze(),
            "waiting": [list(x) for x in self._waiting],
        }

    def thaw(self, state: dict[str, Any]) -> None:
        """Take up a state made by `freeze`."""
        self.moments.thaw(state["moments"])
        self.cusum.thaw(state["cusum"])
        self.table.thaw(state["table"])
        self.noise_ns = float(state["noise"])
        self.blamed = frozenset(state["blamed"])
        self._memo.thaw(state["memo"])
        self._waiting = [tuple(x) for x in state["waiting"]]


def _observe(slow: Ints, well: Ints) -> Observations:
    """Directed paths as observations of one direction each."""
    parts = []
    for number, failed in ((slow, _TRIALS), (well, 0.0)):
        for way, code in (("fwd", 0), ("rev", 1)):
            parts.append(Observations.of(number[number % 2 == code] // 2, way, failed, _TRIALS))
    return Observations.join(parts)
