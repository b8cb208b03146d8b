"""The job map as the controller needs it: queue pairs by id, by flow and by sending NIC, and the path each is on.

A job shard says which path its queue pairs are on; an agent's outcome says it sooner. Both carry that agent's clock, so
the later of the two counts, and a shard that was written before a move does not undo the knowledge of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sdfstream.records.fabric import Flow, QueuePair
from sdfstream.records.job import JobShard, job_shard

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
        for qp in gone:
            self._drop(qp, shard.key)
        changed = []
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

    def _drop(self, qp: str, key: str) -> None:
        names = self._named_by.get(qp, set())
        names.discard(key)
        if not names:
            self._named_by.pop(qp, None)
            self._unlink(self._owned.pop(qp, None))

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
