"""Jobs as the bus shows them: shards, queue pairs' elements and throughput, findings that touch them, commands.

Sans-IO and bounded, beside `board.Board`, with which it may share what operators said of findings: `take` messages as
they come, ask for a `view` of all jobs or for the `facts` of one. Both answer from the messages up to now; a host
without messages for a while is stale, never healthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.board.commands import CommandTable
from sdfstream.board.finding_notes import FindingNotes
from sdfstream.board.job_facts import (
    BEFORE_S,
    STALE_NS,
    STALE_SHARD_NS,
    STRETCH_S,
    JobFacts,
    JobThroughput,
    QpFacts,
    is_network,
    is_slow,
)
from sdfstream.board.lateness import HostLateness
from sdfstream.board.rates import RateTable, Series
from sdfstream.errors import FormatError
from sdfstream.records.bounds import is_known
from sdfstream.records.fabric import FLOW_TYPE, Flow, QueuePair, Topology, answered, flow_from, link_id
from sdfstream.records.finding import FINDING_KINDS
from sdfstream.records.job import JobShard, job_shard
from sdfstream.records.message import Event, Message
from sdfstream.records.routes import traced
from sdfstream.records.topics import COMMAND, FINDING, JOB, LIVENESS, OUTCOME, OVERRIDE, QP_WINDOW, TOPOLOGY
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

RECENT_NS: Final = 600 * NS_PER_S
MOST_SHARDS: Final = 20_000
MOST_FLOWS: Final = 200_000
MOST_FINDINGS: Final = 2_000
_LIKELY: Final = 0.3
"""A suspect less likely than this does not make a finding the job's."""
_SEVERITY_ORDER: Final = {"urgent": 0, "warning": 1, "info": 2}


class JobBoard:
    """The live state of jobs."""

    reads: tuple[str, ...] = (
        JOB.name, QP_WINDOW.name, FINDING.name, COMMAND.name, OUTCOME.name, OVERRIDE.name, TOPOLOGY.name, LIVENESS.name,
    )  # fmt: skip

    def __init__(self, notes: FindingNotes | None = None) -> None:
        """`notes`: of a `Board` that takes the same messages; None: it reads overrides and outcomes itself."""
        self.counters = Counters("jobs")
        self.commands = CommandTable(self.counters)
        self.notes = FindingNotes(self.counters) if notes is None else notes
        self._takes_notes = notes is None
        self._rates = RateTable(self.counters)
        self._shards: dict[str, dict[str, JobShard]] = {}
        """Job → host → the host's shard of it."""
        self._last_liveness_at_ns: dict[str, int] = {}
        """Host → when its last liveness message would have come on time, bus time."""
        self._lateness = HostLateness()
        self._last_shard_at_ns: dict[str, int] = {}
        """Host → bus time of its last job shard."""
        self._findings: dict[str, Mapping[str, Any]] = {}
        self._flows: dict[Flow, tuple[str | None, ...]] = {}
        self._topology = Topology()

    def take(self, messages: Iterable[Message]) -> None:
        """Take messages; one that cannot be read is counted and changes nothing else."""
        for message in messages:
            if isinstance(message.body, Event) and not is_known(message.topic, message.body.type):
                self.counters.add("ignored", "type-unknown")  # of no shape that was checked
                continue
            try:
                self._take(message)
            except MemoryError:
                raise
            except Exception as error:  # whatever a message says, the others are taken
                self.counters.add("refused", f"{message.topic}.{getattr(error, 'reason', type(error).__name__)}")

    def names(self) -> tuple[str, ...]:
        """Every job known, running ones first."""
        ended = [job for job in self._shards if self._state(job) == "ended"]
        return (*sorted(self._shards.keys() - set(ended)), *sorted(ended))

    def view(self, now_ns: int) -> list[dict[str, Any]]:
        """All jobs as plain JSON, running ones first."""
        in_force = self.commands.in_force(now_ns)
        return [self._summary(job, now_ns) | {"commands": in_force[job]} for job in self.names()]

    def facts(self, job: str, now_ns: int, known_ns: int | None = None) -> JobFacts:
        """What is known of `job` (its id, or its name where only one job has it); `known_ns`: as of when."""
        job = self._id_of(job)
        if job not in self._shards:
            return JobFacts(job, now_ns, "unknown", known=self.names())
        shards = self._shards[job]
        crossed = {qp.qp: self.elements_of(qp, self._rates.path(job, qp.qp)) for qp in self._qps(job)}
        findings, ended = self._findings_on(job, crossed, now_ns)
        commands = self._commands_of(job, [*findings, *ended], now_ns)
        trouble_ns = min((int(f["since_at_ns"]) for f in [*findings, *ended]), default=None)
        armed = {c["target"].get("id") for c in commands if c["action"] == "failover" and c["in_force"]}
        return JobFacts(
            job=job,
            at_ns=now_ns,
            state="ended" if self._state(job) == "ended" else "running",
            known=self.names(),
            known_at_ns=known_ns,
            name=_name(shards, ""),
            since_at_ns=min((p.since_at_ns for p in shards.values() if p.since_at_ns), default=None),
            ranks=_ranks(shards),
            hosts=tuple(sorted(shards)),
            stale=self._stale(shards, now_ns),
            throughput=self._throughput(job, trouble_ns, now_ns),
            qps=tuple(self._qp_facts(job, crossed, armed)),
            findings=tuple(findings),
            ended_findings=tuple(ended),
            elsewhere=sum(map(is_network, filter(_is_open, self._findings.values()))) - sum(map(is_network, findings)),
            commands=tuple(commands),
            others=self._others(job, findings, now_ns),
        )

    def elements_of(self, qp: QueuePair, path: int | None = None) -> frozenset[str]:
        """Elements of the fabric that the queue pair's data and answers cross on a source port, as far as traced."""
        found = {f"tx {qp.src}", f"rx {qp.dst}", f"tx {qp.dst}", f"rx {qp.src}"}
        for flow in (qp.flow(path), qp.answers(path)):
            hops = self._flows.get(flow)
            if hops:
                crossed = traced(self._topology, flow.src, flow.dst, hops)
                found |= {element for element, probability in crossed.items() if probability >= 0.5}
        return frozenset(found)

    # --- input ----------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        if message.topic == QP_WINDOW.name:
            if not isinstance(message.body, pa.RecordBatch):
                raise FormatError("form", "an event on a bulk topic")
            self._rates.take(message.body, message.bus_at_ns)
        elif message.topic in CommandTable.reads:
            self.commands.take(message)
            if message.topic != COMMAND.name and self._takes_notes:
                self.notes.take(message)
        elif isinstance(message.body, Event):
            self._take_event(message, message.body)
        else:
            raise FormatError("form", f"a batch on {message.topic}")

    def _take_event(self, message: Message, body: Event) -> None:
        if message.topic == LIVENESS.name:
            self._lateness.take(message.key, body.data.get("seen_at_ns"), message.bus_at_ns)
            self._last_liveness_at_ns[message.key] = message.bus_at_ns - self._lateness.of(message.key)
        elif message.topic == JOB.name:
            self._take_shard(job_shard(body.data), message.bus_at_ns)
        elif message.topic == FINDING.name:
            self._take_finding(dict(body.data))
        elif body.type == FLOW_TYPE:
            hops = tuple(None if hop is None else str(hop) for hop in body.data["hops"])
            flow = flow_from(dict(body.data))
            self._flows.pop(flow, None)
            self._flows[flow] = hops
            self._shed(self._flows, MOST_FLOWS, "flows")
        elif "links" in body.data:
            topology = Topology(body.data)
            for fault in topology.faults_in("nics", "links", absent=False):
                raise fault.error
            self._topology = topology

    def _take_shard(self, shard: JobShard, at_ns: int) -> None:
        self._last_shard_at_ns[shard.host] = at_ns
        shards = self._shards.pop(shard.job, {})
        shards[shard.host] = shard
        self._shards[shard.job] = shards
        while sum(map(len, self._shards.values())) > MOST_SHARDS:
            ended = (job for job in self._shards if self._state(job) == "ended")
            del self._shards[next(ended, None) or next(iter(self._shards))]
            self.counters.add("shed", "jobs")

    def _take_finding(self, data: dict[str, Any]) -> None:
        key, kind = str(data["id"]), data["kind"]
        if (
            kind not in FINDING_KINDS
            or not isinstance(data["since_at_ns"], int)
            or not isinstance(data["subject"], dict)
        ):
            raise FormatError("finding", str(data)[:80])
        self._findings.pop(key, None)
        self._findings[key] = data
        if len(self._findings) > MOST_FINDINGS:
            over = (k for k, f in self._findings.items() if f["status"] == "resolved")
            del self._findings[next(over, None) or next(iter(self._findings))]
            self.counters.add("shed", "findings")

    def _shed(self, held: dict[Any, Any], most: int, what: str) -> None:
        while len(held) > most:
            del held[next(iter(held))]
            self.counters.add("shed", what)

    # --- output ---------------------------------------------------------------------------------------------------

    def _summary(self, job: str, now_ns: int) -> dict[str, Any]:
        shards = self._shards[job]
        rate = self._throughput(job, None, now_ns)
        slowest = self._slowest(job)
        return {
            "job": job,
            "name": _name(shards, job),
            "state": self._state(job),
            "hosts": sorted(shards),
            "stale_hosts": sorted(self._stale(shards, now_ns)),
            "ranks": _ranks(shards),
            "qps": len(self._qps(job)),
            "throughput_bps": rate.now_bps,
            "usual_bps": rate.before_bps,
            "usual_n": rate.before_n,
            "slow": is_slow(rate),
            "slowest_qp": slowest[1] if slowest else None,
            "slowest_bps": slowest[0] if slowest else None,
            "findings": [
                str(f["id"])
                for f in self._findings.values()
                if f["status"] != "resolved" and job in (f.get("jobs") or ())
            ],
        }

    def _slowest(self, job: str) -> tuple[float, str] | None:
        """Throughput and id of the queue pair that got least over the newest stretch, of those that sent."""
        end = _end(self._rates.job(job))
        rates = ((_bps(s.between(end - STRETCH_S, end)), qp) for qp, s in self._rates.qps(job).items())
        return min(((bps, qp) for bps, qp in rates if bps is not None), default=None)

    def _state(self, job: str) -> str:
        return "running" if any(p.state == "running" for p in self._shards[job].values()) else "ended"

    def _qps(self, job: str) -> list[QueuePair]:
        found = [qp for shard in self._shards[job].values() if shard.state == "running" for qp in shard.qps]
        known = {qp.qp: qp for qp in found}
        return [answered(qp, known.get(qp.peer_qp)) for qp in found]

    def _stale(self, shards: Mapping[str, JobShard], now_ns: int) -> dict[str, int | None]:
        ages: dict[str, int | None] = {}
        for host, shard in shards.items():
            liveness_at_ns, shard_at_ns = self._last_liveness_at_ns.get(host), self._last_shard_at_ns.get(host, 0)
            limit = STALE_NS if liveness_at_ns is not None else STALE_SHARD_NS
            age = now_ns - max(liveness_at_ns or 0, shard_at_ns)
            if shard.state == "running" and age > limit:
                ages[host] = age
        return ages

    def _throughput(self, job: str, trouble_ns: int | None, now_ns: int) -> JobThroughput:
        received_at_ns = self._rates.last_received_at_ns(job)
        return throughput(self._rates.job(job), trouble_ns, None if received_at_ns is None else now_ns - received_at_ns)

    def _qp_facts(self, job: str, crossed: Mapping[str, frozenset[str]], armed: set[str]) -> Iterable[QpFacts]:
        end = _end(self._rates.job(job))
        series = self._rates.qps(job)
        for qp in self._qps(job):
            s = series.get(qp.qp, _NOTHING).between(end - STRETCH_S, end)
            busy_ns = float(s.column("busy_ns").sum())
            yield QpFacts(
                qp.qp, qp.src, qp.dst, self._rates.path(job, qp.qp) or qp.path, qp.rank, qp.peer_rank,
                rate_bps=8e9 * float(s.column("bytes").sum()) / busy_ns if busy_ns else None,
                owd_ns=_mean(s, "owd"),
                err_ns=_mean(s, "err"),
                ce_share=_mean(s, "ce"),
                resent_share=_mean(s, "resent"),
                chunks=int(s.column("chunks").sum()),
                elements=crossed[qp.qp],
                armed=qp.qp in armed,
            )  # fmt: skip

    def _touched(self, job: str, crossed: Mapping[str, frozenset[str]]) -> set[str]:
        """Every name by which a finding may mean something that the job uses."""
        found = {"bus", "all agents"}.union(*crossed.values())  # a finding about all of them is about ours
        for shard in self._shards[job].values():
            nics = {nic for rank in shard.ranks for nic in rank.nics} | {qp.src for qp in shard.qps}
            found |= {shard.host, *nics} | {f"{direction} {nic}" for nic in nics for direction in ("tx", "rx")}
        found |= {link_id(*element.split("->", 1)) for element in found if "->" in element}
        return found | {element.removeprefix("node ") for element in found if element.startswith("node ")}

    def _id_of(self, job: str) -> str:
        """`job` itself where it is an id; else the id of the only job with this name, if there is one."""
        named = [j for j, shards in self._shards.items() if any(s.name == job for s in shards.values())]
        return named[0] if job not in self._shards and len(named) == 1 else job

    def _findings_on(
        self, job: str, crossed: Mapping[str, frozenset[str]], now_ns: int
    ) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Findings that touch the job: open ones, the gravest first; those of `RECENT_NS` ago or less that ended."""
        touched = self._touched(job, crossed)
        found = self.notes.mark((f for f in self._findings.values() if is_on(f, job, touched)), now_ns)
        ended = [f for f in found if not _is_open(f) and now_ns - _ended_ns(f) <= RECENT_NS]
        return sorted(filter(_is_open, found), key=_severity_order), sorted(ended, key=lambda f: -_ended_ns(f))

    def _commands_of(self, job: str, findings: Iterable[Mapping[str, Any]], now_ns: int) -> list[dict[str, Any]]:
        ids = {str(f["id"]) for f in findings}
        return self.commands.views(now_ns, job, reasons=ids, since_ns=now_ns - RECENT_NS)

    def _others(self, job: str, findings: Iterable[Mapping[str, Any]], now_ns: int) -> tuple[str, ...]:
        named = {str(other) for f in findings for other in f.get("jobs") or ()}
        slow = {
            other for other in self._shards
            if self._state(other) == "running" and is_slow(self._throughput(other, None, now_ns))
        }  # fmt: skip
        return tuple(sorted((named | slow) - {job}))


_NOTHING: Final = Series(np.empty(0, np.int64), np.empty((0, 12)))


def throughput(series: Series, trouble_ns: int | None, age_ns: int | None) -> JobThroughput:
    """The newest stretch against the median of those before, of one job's sums.

    The newest second is still filling up and is left out. Stretches are laid backwards from the newest one, or from
    where the trouble began; one in which nothing was sent says nothing.
    """
    if not len(series.seconds):
        return JobThroughput(age_ns=age_ns)
    end = _end(series)
    now = _bps(series.between(end - STRETCH_S, end))
    edge = end - STRETCH_S if trouble_ns is None else min(end - STRETCH_S, trouble_ns // NS_PER_S)
    first = int(series.seconds[0])
    starts = range(edge - STRETCH_S, max(edge - BEFORE_S, first) - 1, -STRETCH_S)
    before = [bps for start in starts if (bps := _bps(series.between(start, start + STRETCH_S))) is not None]
    since = series.between(edge, end)
    return JobThroughput(
        now_bps=now,
        before_bps=float(np.median(before)) if before else None,
        before_n=len(before),
        low_bps=8.0 * float(since.column("bytes").min()) if trouble_ns is not None and len(since.seconds) else None,
        age_ns=age_ns,
    )


def is_on(finding: Mapping[str, Any], job: str, touched: set[str]) -> bool:
    """Whether a finding touches the job: it names it, or it names none and its subject or a suspect is the job's."""
    if finding.get("jobs"):
        return job in finding["jobs"]
    suspects = {str(s.get("id")) for s in finding.get("suspects") or () if float(s.get("probability", 0)) >= _LIKELY}
    return bool(({str(finding["subject"].get("id"))} | suspects) & touched)


def _name(shards: Mapping[str, JobShard], otherwise: str) -> str:
    return next((s.name for s in shards.values() if s.name), otherwise)


def _ranks(shards: Mapping[str, JobShard]) -> int:
    return sum(len(s.ranks) for s in shards.values())


def _is_open(finding: Mapping[str, Any]) -> bool:
    return bool(finding["status"] != "resolved")


def _severity_order(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    """Of findings as grave as each other first what its evidence shows now, and the newest: it is what has changed."""
    return (
        not is_network(finding),
        _SEVERITY_ORDER.get(str(finding.get("severity")), 3),
        not shows_now(finding),
        -int(finding["since_at_ns"]),
        str(finding["id"]),
    )


def shows_now(finding: Mapping[str, Any]) -> bool:
    """Whether the first fact that has a normal value is off it; of loss and queues: above it."""
    facts = ((f.get("value"), f.get("baseline")) for f in finding.get("evidence") or ())
    value, normal = next(((v, b) for v, b in facts if v is not None and b is not None), (None, None))
    if value is None or normal is None:
        return True
    return bool(value > normal) if finding["kind"] in ("loss", "congestion") else bool(value != normal)


def _ended_ns(finding: Mapping[str, Any]) -> int:
    return int(finding.get("resolved_at_ns") or finding.get("seen_at_ns") or 0)


def _end(series: Series) -> int:
    """The newest second, which is still filling up."""
    return int(series.seconds[-1]) if len(series.seconds) else 0


def _bps(stretch: Series) -> float | None:
    return 8.0 * float(stretch.column("bytes").sum()) / STRETCH_S if len(stretch.seconds) else None


def _mean(series: Series, name: str) -> float | None:
    of = float(series.column(f"{name}_of").sum())
    return float(series.column(name).sum()) / of if of else None
