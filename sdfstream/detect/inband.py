"""In band: queue pairs that carry their data far slower than they used to, and than their siblings do.

Per queue pair and window of ``sdf.derived.qp.v1``, in which it had something to send:

- the figure is the logarithm of the time a chunk takes, from first packet to acknowledgement; without such times (a
  kernel flow) that of its throughput, in windows it filled from end to end;
- the baseline is the running mean and spread of that figure for chunks of the same size, learnt while it is quiet, so
  pauses, bursts and phases of a job with other chunks make no difference;
- a window is high when the figure stands three times, and four of its own standard deviations, above the baseline, and
  twice above what its siblings in the job stand above theirs: a job that slows as a whole has no slow queue pair;
- a queue pair is *slow* after several windows net above that (`numeric.cusum.PersistenceCusum`); a chunk that took
  longer than a window counts as often as it is long.

A job most of whose queue pairs are high at once for longer is slow as a whole. After a minute that is its new normal.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.sessions import Lookups, NameIndex
from sdfstream.numeric.cusum import PersistenceCusum
from sdfstream.numeric.moments import EwMoments
from sdfstream.numeric.table import KeyIndex, Table
from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_S
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST_PAIRS: Final = 200_000
_MOST_NAMES: Final = 1 << 20
_WARM: Final = 12
"""Windows a baseline needs before it is used."""
_TIMES: Final = float(np.log(3.0))
_SIBLINGS: Final = float(np.log(2.0))
_SIGMAS: Final = 4.0
_WINDOWS, _RELEASE = 5, 8
_JOB_WINDOWS, _JOB_RELEASE = 15, 20
_JOB_QUANTILE: Final = 0.4
"""A job is high when all but this share of its queue pairs are."""
_LEAST_JOB: Final = 3
_ACCEPT_NS: Final = 60 * NS_PER_S
_LINGER_NS: Final = 3 * NS_PER_S
_MOST_STEPS: Final = 5
_FIGURES: Final = ("duration_p50_ns", "owd_p50_ns", "owd_min_ns")


class Windows(NamedTuple):
    """Rows of a message, by column; all arrays (rows,)."""

    known: Bools
    """Whether the row can be used."""
    rows: dict[str, Any]


class InBand:
    """Baselines and verdicts of all queue pairs seen in band."""

    def __init__(self, counters: Counters, most: int = MOST_PAIRS) -> None:
        self.counters = counters
        self.pairs, self.jobs = NameIndex(most), NameIndex(most)
        self.ends = NameIndex(_MOST_NAMES)
        """NIC ids."""
        self._sizes = KeyIndex(4 * most)
        """(queue pair, size of its chunks) to the number of a baseline."""
        self.moments = EwMoments(alpha=1 / 200)
        self.delays = EwMoments(alpha=1 / 200)
        """Of first packets' one-way delays, per queue pair: sets a queue apart from other reasons."""
        self.cusum = PersistenceCusum(_WINDOWS, _RELEASE)
        self.job_cusum = PersistenceCusum(_JOB_WINDOWS, _JOB_RELEASE)
        self.table = Table(
            {
                "job": np.int64(-1),
                "src": np.int64(-1),
                "dst": np.int64(-1),
                "dscp": np.int64(0),
                "size": np.int64(-1),
                "window_ns": np.int64(ABSENT_NS),
                "seen_ns": np.int64(ABSENT_NS),
                "since_ns": np.int64(ABSENT_NS),
                "score": np.float64(0.0),
                "figure": np.float64(0.0),
                "normal": np.float64(0.0),
                "timed": np.bool_(False),
                "late": np.float64(0.0),
                "again": np.float64(0.0),
                "marked": np.float64(0.0),
            }
        )
        """Per queue pair: who it is; size class of its last chunks; its last window, when it came (bus time), since
        when it is high, its score; and of its last high window: the figure, its baseline, whether it is a time (else
        a rate), the first packets' delay above normal (ns), the shares of packets sent again and marked."""
        self.job_table = Table({"since_ns": np.int64(ABSENT_NS)})
        self._waiting: list[dict[str, Any]] = []
        self._lookups = Lookups()

    # -- intake -------------------------------------------------------------------------------------------------

    def read(self, batch: pa.RecordBatch) -> Windows:
        """Rows of ``sdf.derived.qp.v1`` as columns of numbers; those that cannot be used are counted.

        Raises
        ------
        FormatError
            A column is missing, or not of its type.
        """
        pair, job, src, dst = (
            self._lookups.of(batch, name, names.add)
            for name, names in (("qp", self.pairs), ("job", self.jobs), ("src", self.ends), ("dst", self.ends))
        )
        known = (pair >= 0) & (job >= 0) & (src >= 0) & (dst >= 0)
        known &= columns.values(batch, "window_ns") > 0  # a baseline of logarithms never recovers from infinity
        rows: dict[str, Any] = {"pair": pair, "job": job, "src": src, "dst": dst}
        for name in ("at_ns", "window_ns", "n", "bytes", "packets", "dscp"):
            rows[name] = columns.values(batch, name).astype(np.int64)
        for name in _FIGURES:
            rows[name] = columns.filled(batch, name, np.nan).astype(np.float64)
        for name in ("ce", "retransmits"):
            rows[name] = columns.filled(batch, name, 0).astype(np.int64)
        return Windows(known, rows)

    def take(self, windows: Windows, at_ns: Ints) -> None:
        """Take rows, each of which speaks of an instant of bus time; evaluated at the next tick."""
        known = windows.known
        self.counters.add("refused", "qp-row", int((~known).sum()))
        if known.any():
            self._waiting.append({name: values[known] for name, values in (windows.rows | {"seen_ns": at_ns}).items()})

    # -- evaluation ---------------------------------------------------------------------------------------------

    def tick(self) -> dict[str, Any] | None:
        """Judge the windows that came since the last tick, in order of their time; they themselves, by column.

        They wait for the tick because a verdict compares siblings, however the rows were spread over messages.
        """
        if not self._waiting:
            return None
        rows = {name: np.concatenate([w[name] for w in self._waiting]) for name in self._waiting[0]}
        self._waiting.clear()
        for table in (self.cusum, self.delays, self.table):
            table.ensure(len(self.pairs))
        for table in (self.job_cusum, self.job_table):
            table.ensure(len(self.jobs))
        for start_ns in np.unique(rows["at_ns"]).tolist():
            now = np.flatnonzero(rows["at_ns"] == start_ns)
            _, first = np.unique(rows["pair"][now], return_index=True)
            now = now[first]
            fresh = self.table["window_ns"][rows["pair"][now]] < start_ns
            if fresh.any():
                self._window({name: values[now[fresh]] for name, values in rows.items()}, start_ns)
        return rows

    def _window(self, w: dict[str, Any], start_ns: int) -> None:
        """Judge one window, in which every queue pair occurs at most once."""
        t, pair = self.table, w["pair"]
        follows = start_ns - t["window_ns"][pair] <= w["window_ns"]
        for name in ("job", "src", "dst", "dscp", "seen_ns"):
            t[name][pair] = w[name]
        t["window_ns"][pair] = start_ns
        slot, figure, steps = self._figures(w, follows)
        known = slot >= 0
        if not known.any():
            return
        mean, spread = self.moments.mean[slot], np.sqrt(self.moments.variance[slot])
        warm = known & (self.moments.count[slot] >= _WARM)
        excess = np.where(warm, figure - mean, 0.0)
        own = excess / np.maximum(_TIMES, _SIGMAS * spread)
        self._evaluate_jobs(w["job"][warm], own[warm], w["seen_ns"][warm], start_ns)
        score = np.minimum(own, self._beyond_siblings(w["job"], excess, warm))
        for step in range(_MOST_STEPS):
            mine = known & (step < steps)
            if mine.any():
                self.cusum.update(pair[mine], score[mine])
        on, high = self.cusum.on[pair], score >= 0.5
        t["score"][pair] = score
        begun = np.where(t["since_ns"][pair] == ABSENT_NS, w["seen_ns"], t["since_ns"][pair])
        t["since_ns"][pair] = np.where(high | on, begun, ABSENT_NS)
        self._describe(w, figure, mean, warm & high)
        quiet = known & ~on & (own < 0.5) & (w["n"] > 0)
        bound = np.where(warm, np.maximum(_SIGMAS * spread, 0.05), np.inf)
        self.moments.update(slot[quiet], (mean + np.clip(figure - mean, -bound, bound))[quiet])
        calm = quiet & np.isfinite(w["owd_p50_ns"])
        self.delays.update(pair[calm], w["owd_p50_ns"][calm])

    def _figures(self, w: dict[str, Any], follows: Bools) -> tuple[Ints, Floats, Floats]:
        """(baseline's number or −1, figure, windows that it counts for) of every row."""
        pair, duration, n, length = w["pair"], w["duration_p50_ns"], w["n"], w["window_ns"]
        timed = (n > 0) & (duration > 0)
        each = np.maximum(w["bytes"] / np.maximum(n, 1), 1.0)
        filled = (n > 0) & ~timed & follows & (w["bytes"] > 0)
        idle = (n == 0) & (self.table["size"][pair] > 0)  # had something to send and got nothing acknowledged
        size = np.where(timed, 1 + np.floor(np.log2(each)), 0).astype(np.int64)
        size[idle] = self.table["size"][pair[idle]]
        self.table["size"][pair[timed]] = size[timed]
        slot = np.full(n.size, -1, np.int64)
        use = timed | filled | idle
        slot[use] = self._sizes.add((pair[use] << 6) | np.minimum(size[use], 63))
        self.moments.ensure(self._sizes.slots)
        figure = np.zeros(n.size)
        figure[timed] = np.log(duration[timed])
        figure[filled] = np.log(length[filled] / w["bytes"][filled])
        figure[idle] = np.log(2.0 * length[idle])  # a chunk takes at least this long
        steps = np.where(timed, np.clip(duration / length, 1.0, _MOST_STEPS), 1.0)
        return slot, figure, steps

    def _beyond_siblings(self, job: Ints, excess: Floats, warm: Bools) -> Floats:
        """Score of each row against the median excess of the other queue pairs of its job; infinite without any."""
        score = np.full(job.size, np.inf)
        for one in np.unique(job[warm]).tolist():
            mine = np.flatnonzero(warm & (job == one))
            if mine.size > 2:
                score[mine] = (excess[mine] - max(0.0, float(np.median(excess[mine])))) / _SIBLINGS
            elif mine.size == 2:
                score[mine] = (excess[mine] - np.maximum(0.0, excess[mine][::-1])) / _SIBLINGS
        return score

    def _evaluate_jobs(self, job: Ints, own: Floats, seen_ns: Ints, start_ns: int) -> None:
        t = self.job_table
        for one in np.unique(job).tolist():
            mine = np.flatnonzero(job == one)
            score = float(np.quantile(own[mine], _JOB_QUANTILE)) if mine.size >= _LEAST_JOB else 0.0
            on = bool(self.job_cusum.update(np.array([one]), np.array([score]))[0])
            begun = t["since_ns"][one]
            if not on and score < 0.5:
                t["since_ns"][one] = ABSENT_NS
            elif begun == ABSENT_NS:
                t["since_ns"][one] = int(seen_ns[mine].max())
            elif int(seen_ns[mine].max()) - begun > _ACCEPT_NS:
                self._accept(one)

    def _accept(self, job: int) -> None:
        """What a job has done for so long is what it does: its queue pairs' baselines are learnt anew."""
        pairs = np.flatnonzero(self.table["job"] == job)
        self.moments.table.reset(self._sizes.slots_where(lambda keys: np.isin(keys >> 6, pairs)))
        self.job_cusum.table.reset(np.array([job]))
        self.job_table.reset(np.array([job]))
        self.counters.add("accepted", "slow-jobs")

    def _describe(self, w: dict[str, Any], figure: Floats, mean: Floats, high: Bools) -> None:
        """Store of each high window what a finding reports."""
        t, pair = self.table, w["pair"][high]
        packets = np.maximum(w["packets"][high], 1)
        late = w["owd_p50_ns"][high] - self.delays.mean[pair]
        known = np.isfinite(late) & (self.delays.count[pair] >= _WARM)
        t["figure"][pair], t["normal"][pair] = figure[high], mean[high]
        t["timed"][pair] = w["duration_p50_ns"][high] > 0
        t["late"][pair] = np.where(known, late, 0.0)
        t["again"][pair], t["marked"][pair] = w["retransmits"][high] / packets, w["ce"][high] / packets

    # -- verdicts -----------------------------------------------------------------------------------------------

    def slow(self, now_ns: int) -> list[int]:
        """Queue pairs that are slow now."""
        seen = self.table["seen_ns"]
        on = self.cusum.on[: seen.size] & (seen != ABSENT_NS) & (now_ns - seen <= _LINGER_NS)
        return np.flatnonzero(on).tolist()

    def well(self, now_ns: int) -> list[int]:
        """Queue pairs that surely are not."""
        seen = self.table["seen_ns"]
        on = (seen != ABSENT_NS) & (now_ns - seen <= _LINGER_NS) & ~self.cusum.on[: seen.size]
        return np.flatnonzero(on & (self.table["score"] < 0.3)).tolist()

    def slow_jobs(self, now_ns: int) -> list[int]:
        """Jobs that are slow as a whole now."""
        seen_ns = np.full(len(self.jobs), ABSENT_NS)
        self.job_cusum.ensure(seen_ns.size)  # jobs whose first windows still wait for the next tick have no sum yet
        np.maximum.at(seen_ns, self.table["job"], self.table["seen_ns"])
        on = self.job_cusum.on[: seen_ns.size] & (now_ns - seen_ns <= _LINGER_NS)
        return np.flatnonzero(on).tolist()

    def forget_if_full(self) -> bool:
        """Forget everybody once half the room for names is used: jobs come and go, and baselines are soon learnt."""
        full = 2 * len(self.pairs) >= self.pairs.most or 2 * len(self.jobs) >= self.jobs.most
        if full:
            self.counters.add("forgotten", "queue-pairs", len(self.pairs))
            self.__init__(self.counters, self.pairs.most)  # type: ignore[misc]
        return full

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        names = {n: getattr(self, n).list for n in ("pairs", "jobs", "ends")}
        tables = {n: getattr(self, n).snapshot() for n in _TABLES}
        return {"names": names, "tables": tables, "waiting": self._waiting}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._lookups.clear()
        for name, names in state["names"].items():
            getattr(self, name).restore(names)
        for name in _TABLES:
            getattr(self, name).restore(state["tables"][name])
        self._waiting = [dict(w) for w in state["waiting"]]


_TABLES: Final = ("_sizes", "moments", "delays", "cusum", "job_cusum", "table", "job_table")
