"""Delay above the path's own normal: which directed paths stand in a queue.

Per directed path (session and direction) and window of ``sdf.derived.owd.v1``:

- the baseline is the running mean and spread of the path's own median delay; it learns only while the path is quiet
  (the published excess is not used: its floor may follow a clock);
- the threshold is the largest of the absolute one (given, or learnt from all quiet paths), a multiple of the path's own
  spread, and three times the window's clock error bar, so a wide error bar can hide a queue but never make one;
- the round trip must be slow too: a clock that moves makes one direction slower and the other as much faster, and
  their sum, which needs no clock, stays as it was;
- a path is *slow* after several windows net above all that (`numeric.cusum.PersistenceCusum`);
- a window whose error bar is missing or wider than `max_err_us` is not evaluated at all;
- a way that has become longer is no queue: where a small excess stays for seconds and scatters no more than the quiet
  path did, the baseline follows it at once (`shifts`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.queues.excess import AssessedWindows
from sdfstream.detect.queues.quiet_noise import QuietNoise
from sdfstream.detect.queues.shifts import DelayShifts
from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.cusum import PersistenceCusum
from sdfstream.numeric.group import Firsts
from sdfstream.numeric.moments import EwMoments
from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_Quiet = tuple[Floats, Floats]

_WARM = 10
"""Windows a path needs before it is evaluated."""
_SETTLED = 150
"""Windows after which a path's mean and spread are as good as they become; before, its threshold is wider."""
_FORGET = 0.25
"""A port that is paused in turns holds up one probe and lets the next one pass: a low window alone means little."""
_FRESH_NS = NS_PER_S
_CALM_NS = NS_PER_S
"""A path is well that met no queue for so long: jobs compute and send in turns of some tenths of a second."""
_LINGER_NS = 5 * NS_PER_S
"""A slow path of which nothing new is received counts as slow for this long: no data is not well."""
_CURRENT_NS, _EVERY_NS = 500 * NS_PER_MS, 200 * NS_PER_MS
"""Of a path that was seen longer ago it is not known whether it waits; one that is probed less often than this may have
been seen longer ago by so much."""
_MOST_APART_NS = 5 * NS_PER_S
_SPARSE_NS = 400 * NS_PER_MS
"""Of a path whose windows lie further apart each says what one probe met, which may be far from what most meet."""
_NEAR_NS = 150 * NS_PER_MS
"""The two directions of an exchange may fall into neighbouring windows."""
_FLOOR_NS = 20e3
"""No burst is shorter."""


class MeasuredWindows(NamedTuple):
    """Windows of delay; every array is (rows,)."""

    code: Ints
    """0: fwd, 1: rev, −1: neither."""
    start_ns: Ints
    delay_ns: Floats
    """Median; NaN: none."""
    err_ns: Floats


def read(batch: pa.RecordBatch) -> MeasuredWindows:
    """The columns of ``sdf.derived.owd.v1`` that the baselines use.

    Raises
    ------
    FormatError
        When one is missing or of a wrong type.
    """
    direction, names = columns.names(batch, "dir")
    code = np.array([{"fwd": 0, "rev": 1}.get(n, -1) for n in names] + [-1], np.int64)[direction]
    delay_ns, err_ns = (columns.filled(batch, name, np.nan).astype(np.float64) for name in ("owd_p50_ns", "err_ns"))
    return MeasuredWindows(code, columns.values(batch, "at_ns").astype(np.int64), delay_ns, err_ns)


class DelayBaselines:
    """Excess delay of every directed path; number of a directed path: 2·session + (0 fwd, 1 rev)."""

    def __init__(self, config: DetectConfig, sessions: Sessions, counters: Counters) -> None:
        self.config, self.sessions, self.counters = config, sessions, counters
        self.moments = EwMoments(alpha=1 / 300)
        self.round_trip = EwMoments(alpha=1 / 300)
        """Of the two directions' sum, per session."""
        self.cusum = PersistenceCusum(config.excess_windows, config.excess_release)
        self.shifts = DelayShifts()
        self.table = Table(
            {
                "window_ns": np.int64(ABSENT_NS),
                "seen_ns": np.int64(ABSENT_NS),
                "every_ns": np.int64(0),
                "since_ns": np.int64(ABSENT_NS),
                "begun_ns": np.int64(ABSENT_NS),
                "queued_ns": np.int64(0),
                "delay": np.float64(0.0),
                "held": np.float64(0.0),
                "peak": np.float64(0.0),
                "waited": np.float64(0.0),
                "waits": np.int64(0),
                "score": np.float64(0.0),
                "err": np.float64(0.0),
            }
        )
        """Per directed path: last window, when it came (bus time), its pace, since when it is high (bus
        time), the first window of those, the last one above the threshold, its median delay, the excess it last had
        while high, the most it had lately (nearer to the last by `_FORGET` each window), all that it had since it is
        high, in how many windows, its excess in thresholds, its error bar; ns."""
        self.noise = QuietNoise()
        self._firsts = Firsts()
        self._waiting: list[tuple[Any, ...]] = []
        """Directed path, start of the window, median delay, error bar, when it came."""
        self.assessed: list[AssessedWindows] = []
        """Windows of the last tick, with what was normal before them; those that a moving clock explains left out."""

    def ensure(self) -> None:
        """Have a row for both directions of every session."""
        rows = 2 * self.sessions.count
        self.moments.ensure(rows)
        self.round_trip.ensure(self.sessions.count)
        self.cusum.ensure(rows)
        self.shifts.ensure(rows)
        self.table.ensure(rows)

    def forget(self, slots: Ints) -> None:
        """Start anew for these sessions."""
        both = np.concatenate([2 * slots, 2 * slots + 1])
        self.round_trip.table.reset(slots)
        for table in (self.moments.table, self.cusum.table, self.shifts.table, self.table):
            table.reset(both)

    def take(self, rows: MeasuredWindows, slots: Ints, at_ns: Ints) -> None:
        """Take windows of these sessions (−1: refused) that speak of `at_ns`, bus time."""
        self.ensure()
        known = (slots >= 0) & (rows.code >= 0)
        self.counters.add("refused", "owd-row", int((~known).sum()))
        measured = known & ~np.isnan(rows.delay_ns)
        usable = measured & ~np.isnan(rows.err_ns) & (rows.err_ns <= self.config.max_err_us * 1e3)
        self.counters.add("unjudged", "clock-error", int((measured & ~usable).sum()))
        directed = (2 * slots + rows.code)[usable]
        if directed.size:
            start_ns, delay_ns, err_ns = (column[usable] for column in (rows.start_ns, rows.delay_ns, rows.err_ns))
            self._waiting.append((directed, start_ns, delay_ns, err_ns, at_ns[usable]))

    def tick(self) -> None:
        """Judge the windows that came since the last tick, in order of their time.

        They wait for the tick because a verdict takes both directions of a path and the noise of all paths, however
        the rows were spread over messages.
        """
        self.assessed = []
        if not self._waiting:
            return
        number, start_ns, delay, err, seen_ns = _joined(self._waiting)
        self._waiting.clear()
        quiet = []
        for window, now in _windows(start_ns):
            which, first = self._firsts.of(number[now])
            quiet.append(self._window(which, delay[now][first], err[now][first], seen_ns[now][first], window))
        self.noise.learn(*(np.concatenate(column) for column in zip(*quiet, strict=True)))

    def _window(self, number: Ints, delay: Floats, err: Floats, at_ns: Ints, window_ns: int) -> _Quiet:
        """Judge one window, in which every directed path occurs at most once; deviations and spreads of quiet ones."""
        t = self.table
        new = t["window_ns"][number] < window_ns
        number, delay, err, at_ns = number[new], delay[new], err[new], at_ns[new]
        self._note_pace(number, window_ns)
        t["window_ns"][number], t["seen_ns"][number] = window_ns, at_ns
        t["delay"][number], t["err"][number] = delay, err
        mean, spread = self.moments.mean[number], np.sqrt(self.moments.variance[number])
        warm = self.moments.count[number] >= _WARM
        above = np.where(warm, delay - mean, 0.0)
        absolute = self._absolute(self.moments.count[number])
        threshold = np.maximum(absolute, np.maximum(self.config.excess_sigmas * spread, 3.0 * err))
        alone = above / threshold
        score = np.minimum(alone, self._round_trip(number, window_ns, absolute))
        moved = (alone > 0.5) & (score < 0.5)
        self.counters.add("unjudged", "clock-moved", int(moved.sum()))
        self._keep(warm & ~moved, number, window_ns, above, err)
        high = score >= 0.5
        t["score"][number] = score
        t["held"][number] = np.where(high, above, t["held"][number])
        t["queued_ns"][number[score >= 1.0]] = window_ns
        on = self.cusum.update(number, score)
        peak = t["peak"][number]
        falling = np.maximum(above, peak + _FORGET * (above - peak))
        t["peak"][number] = np.where(high, falling, np.where(on, peak, 0.0))
        for name, first in (("since_ns", at_ns), ("begun_ns", np.full(number.size, window_ns))):
            begun = np.where(t[name][number] == ABSENT_NS, first, t[name][number])
            t[name][number] = np.where(high | on, begun, ABSENT_NS)
        for name, more in (("waited", above), ("waits", np.ones(number.size, np.int64))):
            t[name][number] = np.where(high | on, t[name][number] + more, 0)
        self._follow(number, np.where(warm & ~moved, above, 0.0), spread)
        quiet = ~on & (alone < 0.5)
        _learn_normal(self.moments, number[quiet], delay[quiet])
        quiet &= warm
        return np.abs(delay - mean)[quiet], spread[quiet]

    def _note_pace(self, number: Ints, window_ns: int) -> None:
        """Learn how far apart the windows of these directed paths lie; a pause is none of their pace."""
        t = self.table
        before_ns, every_ns = t["window_ns"][number], t["every_ns"][number]
        apart_ns = np.minimum(np.where(before_ns == ABSENT_NS, 0, window_ns - before_ns), _MOST_APART_NS)
        t["every_ns"][number] = np.where(every_ns == 0, apart_ns, every_ns + (apart_ns - every_ns) // 8)

    def _follow(self, number: Ints, above: Floats, spread: Floats) -> None:
        """Move the baselines of paths that have become longer or shorter."""
        moved, by_ns = self.shifts.take(number, above, spread)
        self.moments.mean[moved] += by_ns
        np.add.at(self.round_trip.mean, moved // 2, by_ns)
        self.cusum.table.reset(moved)

    def _keep(self, use: Bools, number: Ints, window_ns: int, above: Floats, err: Floats) -> None:
        """Note windows for the queues of links (`assessed`)."""
        number, moments = number[use], self.moments
        start_ns = np.full(number.size, window_ns)
        normal = self.table["delay"][number] - above[use]
        variance, learnt = moments.variance[number], np.minimum(moments.count[number], round(1 / moments.alpha))
        self.assessed.append(AssessedWindows(number, start_ns, above[use], normal, variance, learnt, err[use]))

    def _round_trip(self, number: Ints, window_ns: int, absolute: Floats) -> Floats:
        """Excess of the round trip, in thresholds, for each of these directed paths; infinite where it is not known."""
        t, other, session = self.table, number ^ 1, number // 2
        there = t["window_ns"][other] >= window_ns - _NEAR_NS
        total = t["delay"][number] + t["delay"][other]
        mean, spread = self.round_trip.mean[session], np.sqrt(self.round_trip.variance[session])
        warm = self.round_trip.count[session] >= _WARM
        score = (total - mean) / np.maximum(absolute, self.config.excess_sigmas * spread)
        lead = there & ((number % 2 == 0) | ~np.isin(other, number))  # each session learns once per window
        quiet = lead & (~warm | (score < 0.5)) & ~self.cusum.on[number] & ~self.cusum.on[other]
        _learn_normal(self.round_trip, session[quiet], total[quiet])
        result: Floats = np.where(there & warm, score, np.where(there, 0.0, np.inf))
        return result

    def _absolute(self, windows: Ints) -> Floats:
        """Threshold of paths that were seen for so many windows: what is little known must stand out more."""
        if self.config.excess_us is not None:
            return np.full(windows.size, self.config.excess_us * 1e3)
        wider: Floats = self.noise.threshold_ns * np.sqrt(np.maximum(1.0, _SETTLED / np.maximum(windows, 1)))
        return wider

    def slow(self, now_ns: int) -> Bools:
        """(2·sessions,) directed paths that stand in a queue."""
        result: Bools = self.cusum.on & self.fresh(now_ns, _LINGER_NS)
        return result

    def hot(self, least: float = 0.5) -> Bools:
        """(2·sessions,) directed paths whose last window was high; the other slow ones are about to recover."""
        result: Bools = self.table["score"] >= least
        return result

    def settled(self) -> Bools:
        """(2·sessions,) directed paths whose normal is as well known as it becomes."""
        result: Bools = self.moments.count >= _SETTLED
        return result

    def excess_ns(self, number: Ints) -> Floats:
        """Excess that these directed paths last had while high; where a window is a single probe, their mean wait."""
        sparse = self.table["every_ns"][number] > _SPARSE_NS
        return np.where(sparse, self.mean_wait_ns(number), self.table["held"][number])

    def last_excess_ns(self) -> Floats:
        """(2·sessions,) last window's delay above normal, negative below."""
        result: Floats = self.table["delay"] - self.moments.mean
        return result

    def mean_wait_ns(self, number: Ints) -> Floats:
        """Mean excess of these directed paths since they are high; 0: they are not."""
        waited: Floats = self.table["waited"][number] / np.maximum(self.table["waits"][number], 1)
        return waited

    def fresh(self, now_ns: int, within_ns: int) -> Bools:
        """(2·sessions,) directed paths whose last window came within this time."""
        seen = self.table["seen_ns"]
        result: Bools = (seen != ABSENT_NS) & (now_ns - seen <= within_ns)
        return result

    def current(self, now_ns: int) -> Bools:
        """(2·sessions,) directed paths of which it is known whether they wait now: half a second, or by their pace."""
        seen = self.table["seen_ns"]
        within_ns = _CURRENT_NS + np.maximum(self.table["every_ns"] - _EVERY_NS, 0)
        result: Bools = (seen != ABSENT_NS) & (now_ns - seen <= within_ns)
        return result

    def measured_ns(self, number: Ints) -> int:
        """For how long windows show a queue on these directed paths, of those that are hot: the longest.

        However late they came: two windows of a burst prove no more by being the last for a while.
        """
        begun, last, hot = self.table["begun_ns"][number], self.table["window_ns"][number], self.hot()[number]
        return int(np.max((last - begun)[hot & (begun != ABSENT_NS)], initial=0))

    def well(self, now_ns: int) -> Bools:
        """(2·sessions,) directed paths that surely do not, and did not a moment ago: a queue may come and go."""
        t = self.table
        calm = (t["score"] < 0.3) & (t["window_ns"] - t["queued_ns"] > _CALM_NS)
        result: Bools = self.fresh(now_ns, _FRESH_NS) & ~self.cusum.on & calm & (self.moments.count >= _WARM)
        return result

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "moments": self.moments.snapshot(),
            "round_trip": self.round_trip.snapshot(),
            "cusum": self.cusum.snapshot(),
            "shifts": self.shifts.table.snapshot(),
            "table": self.table.snapshot(),
            "noise": self.noise.snapshot(),
            "waiting": [_joined(self._waiting)] if self._waiting else [],  # however it was cut into calls
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.moments.restore(state["moments"])
        self.round_trip.restore(state["round_trip"])
        self.cusum.restore(state["cusum"])
        self.shifts.table.restore(state.get("shifts", {}))  # a release before had none
        self.shifts.ensure(self.table["seen_ns"].size)
        self.table.restore(state["table"])
        self.noise.restore(state["noise"])
        self._waiting = [tuple(x) for x in state["waiting"]]


def _learn_normal(moments: EwMoments, slots: Ints, delay_ns: Floats) -> None:
    """Take quiet delays, each at most a few spreads from the mean.

    A burst among a path's first windows would stay in its mean for a minute. So before it is warm no delay raises the
    mean by much, and one far below shows that those before were no normal ones: it starts anew.
    """
    count, mean, spread = moments.count[slots], moments.mean[slots], np.sqrt(moments.variance[slots])
    limit = np.maximum(4 * spread, np.where(count >= _WARM, 1e3, _FLOOR_NS))
    burst = (count > 0) & (count < _WARM) & (delay_ns < mean - limit)
    if burst.any():
        moments.table.reset(slots[burst])
    first = burst | (count == 0)
    moments.update(slots, np.where(first, delay_ns, mean + np.clip(delay_ns - mean, -limit, limit)))


def _windows(start_ns: Ints) -> list[tuple[int, Any]]:
    """Each window, the oldest first, and which rows are of it."""
    first, last = int(start_ns.min()), int(start_ns.max())
    if first == last:  # the usual case
        return [(first, slice(None))]
    return [(window, start_ns == window) for window in np.unique(start_ns).tolist()]


def _joined(waiting: list[tuple[Any, ...]]) -> list[Any]:
    return [np.concatenate(column) for column in zip(*waiting, strict=True)]
