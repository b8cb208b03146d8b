"""What is known of queue pairs: whose they are and on which path (`RunningJobs`), and what they get (`QpWindows`).

**The job map**, by id, by flow and by sending NIC. A job shard says which path its queue pairs are on; an agent's
outcome says it sooner. Both carry that agent's clock, so the later of the two counts, and a shard that was written
before a move does not undo the knowledge of it.

**Throughput** (``sdf.derived.qp.v1``): the last windows of each queue pair, in arrays. A queue pair has a window only
while it has something to send, so the mean over its windows is what it got while it wanted something; a pause between
two collectives is no loss of throughput. Windows lie on reference time, which may be hours off bus time, so they are
compared with each other by their number and are fresh by when they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.fabric import Flow, QueuePair
from sdfstream.records.job import JobShard, job_shard
from sdfstream.records.units import ABSENT_NS, NS_PER_S, TICK_NS
from sdfstream.stats import Counters

MAX_QPS: Final = 65_536


@dataclass(frozen=True, slots=True)
class OwnedQp:
    """A queue pair of a running job."""

    pair: QueuePair
    """With `path` as far as is known now."""
    job: str
    name: str
    """What a person calls the job."""
    host: str
    reported_at_ns: int
    """That host's clock, ns: when the path was reported."""
    own: int = 0
    """Source port that its program uses: of a kernel flow that is rewritten on its host the job map knows no other."""

    @property
    def target(self) -> dict[str, Any]:
        """Target of a command."""
        return {"type": "qp", "id": self.pair.qp, "host": self.host, "job": self.job}

    @property
    def paths(self) -> tuple[int, ...]:
        """Source ports it is on or may be moved to."""
        return tuple(dict.fromkeys((self.pair.path, self.own or self.pair.path, *self.pair.alternates)))


class RunningJobs:
    """Running jobs: the union of their shards."""

    def __init__(self) -> None:
        self._shards: dict[str, tuple[JobShard, int]] = {}
        self._owned: dict[str, OwnedQp] = {}
        self._named_by: dict[str, set[str]] = {}
        """Queue pair to the shards that name it as theirs; more than one is a contradiction."""
        self._of_flow: dict[Flow, dict[str, None]] = {}
        self._of_nic: dict[str, dict[str, None]] = {}

    def __iter__(self) -> Iterator[OwnedQp]:
        return iter(self._owned.values())

    def __len__(self) -> int:
        return len(self._owned)

    def get(self, qp: str) -> OwnedQp | None:
        """The queue pair; None: of no running job."""
        return self._owned.get(qp)

    def far_end(self, owned: OwnedQp) -> OwnedQp | None:
        """The queue pair at its far end, whose packets its answers are; None: of no running job."""
        far = self._owned.get(owned.pair.peer_qp)
        return far if far is not None and far.pair.is_far_end_of(owned.pair) else None

    def contested(self, qp: str) -> bool:
        """Whether two job shards name the queue pair as theirs."""
        return len(self._named_by.get(qp, ())) > 1

    def take(self, shard: JobShard, at_ns: int) -> tuple[list[str], list[str]]:
        """Take a shard; (queue pairs that are new or other than before, those that are gone)."""
        before = self._shards.pop(shard.key, None)
        old = {pair.qp: pair for pair in before[0].qps} if before is not None else {}
        new = {pair.qp: pair for pair in shard.qps} if shard.state == "running" else {}
        if shard.state == "running":
            self._shards[shard.key] = (shard, at_ns)
        gone = [qp for qp in old if qp not in new]
        changed = [qp for qp in gone if self._drop(qp, shard.key)]
        for qp, pair in new.items():
            if self._put(pair, shard):
                changed.append(qp)
        return changed, [qp for qp in gone if qp not in self._owned]

    def _put(self, pair: QueuePair, shard: JobShard) -> bool:
        known = self._owned.get(pair.qp)
        if known is None and len(self._owned) >= MAX_QPS:
            return False
        self._named_by.setdefault(pair.qp, set()).add(shard.key)
        reported_at_ns = shard.seen_at_ns
        own = pair.path
        same = known is not None and (known.job, known.host) == (shard.job, shard.host)
        if known is not None and same and (known.reported_at_ns > reported_at_ns or _hidden(pair, known)):
            pair, reported_at_ns = replace(pair, path=known.pair.path), max(known.reported_at_ns, reported_at_ns)
        owned = OwnedQp(pair, shard.job, shard.name or shard.job, shard.host, reported_at_ns, own)
        if known is not None and replace(owned, reported_at_ns=known.reported_at_ns) == known:
            self._owned[pair.qp] = owned
            return False
        self._unlink(known)
        self._link(owned)
        return True

    def moved(self, qp: str, path: int, reported_at_ns: int) -> bool:
        """An outcome says that the queue pair is on `path` (agent's clock `reported_at_ns`); whether that is news."""
        known = self._owned.get(qp)
        if known is None or reported_at_ns < known.reported_at_ns:
            return False
        news = known.pair.path != path
        self._unlink(known)
        self._link(replace(known, pair=replace(known.pair, path=path), reported_at_ns=reported_at_ns))
        return news

    def of_flow(self, flow: Flow) -> list[str]:
        """Queue pairs that have or may have this flow, as data or as answers."""
        return list(self._of_flow.get(flow, ()))

    def of_nic(self, nic: str) -> list[str]:
        """Queue pairs that this NIC sends."""
        return list(self._of_nic.get(nic, ()))

    def of_job(self, job: str) -> list[OwnedQp]:
        """All queue pairs of a job."""
        return [owned for owned in self._owned.values() if owned.job == job]

    def sizes(self) -> dict[str, int]:
        """Number of queue pairs by job."""
        sizes: dict[str, int] = {}
        for owned in self._owned.values():
            sizes[owned.job] = sizes.get(owned.job, 0) + 1
        return sizes

    def forget(self, before_ns: int) -> list[str]:
        """Drop shards that were not repeated since; queue pairs that are gone."""
        gone = []
        for key, (shard, at_ns) in list(self._shards.items()):
            if at_ns < before_ns:
                del self._shards[key]
                for pair in shard.qps:
                    self._drop(pair.qp, key)
                gone += [pair.qp for pair in shard.qps if pair.qp not in self._owned]
        return gone

    def _drop(self, qp: str, key: str) -> bool:
        """Shard `key` names the queue pair no more; True: it is now another's that names it too."""
        names = self._named_by.get(qp, set())
        names.discard(key)
        if not names:
            self._named_by.pop(qp, None)
            self._unlink(self._owned.pop(qp, None))
            return False
        known = self._owned.get(qp)
        if known is None or f"{known.job}@{known.host}" in names:
            return False
        shard, _ = self._shards[min(names)]
        pair = next(pair for pair in reversed(shard.qps) if pair.qp == qp)
        self._unlink(known)
        self._link(OwnedQp(pair, shard.job, shard.name or shard.job, shard.host, shard.seen_at_ns, pair.path))
        return True

    def _unlink(self, owned: OwnedQp | None) -> None:
        if owned is None:
            return
        for flow in _flows(owned):
            self._of_flow.get(flow, {}).pop(owned.pair.qp, None)
            if not self._of_flow.get(flow):
                self._of_flow.pop(flow, None)
        self._of_nic.get(owned.pair.src, {}).pop(owned.pair.qp, None)

    def _link(self, owned: OwnedQp) -> None:
        self._owned[owned.pair.qp] = owned
        for flow in _flows(owned):
            self._of_flow.setdefault(flow, {})[owned.pair.qp] = None
        self._of_nic.setdefault(owned.pair.src, {})[owned.pair.qp] = None

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        shards = [[shard.as_data(), at_ns] for shard, at_ns in self._shards.values()]
        now = [[o.pair.qp, o.job, o.host, o.pair.path, o.reported_at_ns] for o in self._owned.values()]
        return {"parts": shards, "now": now}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.__init__()  # type: ignore[misc]
        by_qp: dict[tuple[str, str, str], tuple[QueuePair, JobShard]] = {}
        for data, at_ns in state["parts"]:
            shard = job_shard(data)
            self._shards[shard.key] = (shard, at_ns)
            for pair in shard.qps:
                self._named_by.setdefault(pair.qp, set()).add(shard.key)
                by_qp[pair.qp, shard.job, shard.host] = (pair, shard)
        for qp, job, host, path, reported_at_ns in state["now"]:
            pair, shard = by_qp[qp, job, host]
            self._link(OwnedQp(replace(pair, path=path), job, shard.name or job, host, reported_at_ns, pair.path))


def _hidden(pair: QueuePair, known: OwnedQp) -> bool:
    """Whether the job map cannot know on which path it is: its packets are rewritten behind its program's back."""
    return pair.steering == "kernel" and known.own == pair.path


def _flows(owned: OwnedQp) -> Iterable[Flow]:
    for path in owned.paths:
        yield owned.pair.flow(path)
        yield owned.pair.answers(path)


RING: Final = 64
"""Windows held per queue pair: 6.4 s."""
_WINDOWS_FRESH_NS: Final = 3 * NS_PER_S


@dataclass(frozen=True, slots=True)
class MeanRate:
    """What a queue pair got over some windows."""

    bps: float
    error_bps: float
    """Standard error of `bps`, from how the windows differ."""
    n: int


class QpWindows:
    """The last windows of every queue pair."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._slot: dict[str, int] = {}
        self._free: list[int] = []
        self._table = Table(
            {
                "window": np.full(RING, -1, np.int64),
                "bytes": np.zeros(RING, np.float64),
                "path": np.zeros(RING, np.int32),
                "newest": np.int64(-1),
                "seen_ns": np.int64(ABSENT_NS),
            }
        )
        self.newest = -1
        """Number of the newest window of any queue pair."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a batch of windows; FormatError when a column cannot be read."""
        codes, names = columns.names(batch, "qp")
        start_ns = columns.values(batch, "at_ns").astype(np.int64)
        length_ns = columns.values(batch, "window_ns").astype(np.int64)
        moved = columns.values(batch, "bytes").astype(np.float64)
        path = columns.values(batch, "path").astype(np.int64)
        slot = np.array([-1 if name is None else self._of(name) for name in names] + [-1], np.int64)[codes]
        good = (slot >= 0) & (length_ns == TICK_NS) & (path < 65_536) & (start_ns >= 0)
        self._counters.add("refused", "qp-row", int((~good).sum()))
        if not good.any():
            return
        slot, number = slot[good], start_ns[good] // TICK_NS
        ring = number % RING
        newer = number >= self._table["window"][slot, ring]
        slot, number, ring = slot[newer], number[newer], ring[newer]
        self._table["window"][slot, ring] = number
        self._table["bytes"][slot, ring] = moved[good][newer]
        self._table["path"][slot, ring] = path[good][newer]
        np.maximum.at(self._table["newest"], slot, number)
        self._table["seen_ns"][slot] = at_ns
        self.newest = max(self.newest, int(number.max(initial=-1)))

    def _of(self, qp: str) -> int:
        slot = self._slot.get(qp)
        if slot is None:
            if len(self._slot) >= MAX_QPS:
                return -1
            slot = self._free.pop() if self._free else self._table.rows
            self._table.ensure(slot + 1)
            self._slot[qp] = slot
        return slot

    def rates(self, span: int, now_ns: int) -> dict[str, float]:
        """Throughput (bit/s) of every queue pair over its last `span` windows.

        Only of those that send now and have done so for half of them at least.
        """
        t = self._table
        if not t.rows:
            return {}
        fresh = (t["seen_ns"] != ABSENT_NS) & (now_ns - t["seen_ns"] <= _WINDOWS_FRESH_NS)
        used = (t["window"] >= 0) & (t["window"] > (t["newest"] - span)[:, None])
        n = used.sum(axis=1)
        bps = np.where(used, t["bytes"], 0.0).sum(axis=1) * 8 * NS_PER_S / TICK_NS / np.maximum(n, 1)
        alive = fresh & (n >= max(1, span // 2))
        return {qp: float(bps[slot]) for qp, slot in self._slot.items() if alive[slot]}

    def between(self, qp: str, first: int, last: int, path: int | None = None) -> MeanRate:
        """Throughput over the windows numbered `first` to `last`, both included; with `path` of those on it only."""
        slot = self._slot.get(qp)
        if slot is None:
            return MeanRate(0.0, 0.0, 0)
        window = self._table["window"][slot]
        used = (window >= first) & (window <= last)
        if path is not None:
            used &= self._table["path"][slot] == path
        bps = self._table["bytes"][slot][used] * 8 * NS_PER_S / TICK_NS
        n = int(bps.size)
        error = float(bps.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
        return MeanRate(float(bps.mean()) if n else 0.0, error, n)

    def newest_of(self, qp: str) -> int:
        """Number of its newest window; −1: none."""
        slot = self._slot.get(qp)
        return -1 if slot is None else int(self._table["newest"][slot])

    def first_on(self, qp: str, path: int, after: int) -> int | None:
        """The first window, later than number `after`, whose last chunk left on `path`."""
        slot = self._slot.get(qp)
        if slot is None:
            return None
        window = self._table["window"][slot]
        found = window[(window > after) & (self._table["path"][slot] == path)]
        return int(found.min()) if found.size else None

    def path(self, qp: str, now_ns: int) -> int | None:
        """Source port that its newest window shows; None: nothing fresh."""
        slot = self._slot.get(qp)
        if slot is None:
            return None
        seen_ns, newest = int(self._table["seen_ns"][slot]), int(self._table["newest"][slot])
        if seen_ns == ABSENT_NS or now_ns - seen_ns > _WINDOWS_FRESH_NS or newest < 0:
            return None
        return int(self._table["path"][slot, newest % RING])

    def drop(self, qp: str) -> None:
        """The queue pair is gone."""
        slot = self._slot.pop(qp, None)
        if slot is not None:
            self._table.reset(np.array([slot], np.int64))
            self._free.append(slot)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "slot": list(self._slot.items()),
            "free": list(self._free),
            "table": self._table.snapshot(),
            "newest": self.newest,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._slot = {qp: slot for qp, slot in state["slot"]}
        self._free = list(state["free"])
        self._table.restore(state["table"])
        self.newest = state["newest"]
