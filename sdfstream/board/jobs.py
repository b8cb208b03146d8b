"""Jobs as the bus tells of them: parts, queue pairs' ways and throughput, findings that touch them, what was done.

Sans-IO and bounded, beside `board.Board`: `take` messages as they come, ask for a `view` of all jobs or for the
`facts` of one. Both answer from what was said up to now; what was not heard of for a while is stale, never healthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.board.commands import CommandBook
from sdfstream.board.job_facts import (
    BEFORE_S,
    STALE_NS,
    STALE_PART_NS,
    STRETCH_S,
    Facts,
    QpFact,
    Throughput,
    is_network,
    is_slow,
)
from sdfstream.board.rates import RateTable, Series
from sdfstream.errors import FormatError
from sdfstream.records.fabric import link_id
from sdfstream.records.finding import FINDING_KINDS
from sdfstream.records.flow import FLOW_TYPE, Flow, flow_from
from sdfstream.records.job import JobShard, QueuePair, job_shard
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, FINDING, JOB, LIVENESS, OUTCOME, OVERRIDE, QP_WINDOW, TOPOLOGY
from sdfstream.records.topology import Topology
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

RECENT_NS: Final = 600 * NS_PER_S
MOST_PARTS: Final = 20_000
MOST_FLOWS: Final = 200_000
MOST_FINDINGS: Final = 2_000
_LIKELY: Final = 0.3
"""A suspect less likely than this does not make a finding the job's."""
_GRAVITY: Final = {"urgent": 0, "warning": 1, "info": 2}


class JobBoard:
    """The live state of jobs."""

    reads: tuple[str, ...] = (
        JOB.name, QP_WINDOW.name, FINDING.name, COMMAND.name, OUTCOME.name, OVERRIDE.name, TOPOLOGY.name, LIVENESS.name,
    )  # fmt: skip

    def __init__(self) -> None:
        self.counters = Counters("jobs")
        self.commands = CommandBook(self.counters)
        self._rates = RateTable(self.counters)
        self._parts: dict[str, dict[str, JobShard]] = {}
        """Job → host → its part."""
        self._alive: dict[str, int] = {}
        """Host → bus time of its agent's last sign of life."""
        self._told: dict[str, int] = {}
        """Host → bus time of its last job part."""
        self._findings: dict[str, Mapping[str, Any]] = {}
        self._flows: dict[Flow, tuple[str | None, ...]] = {}
        self._topology = Topology()

    def take(self, messages: Iterable[Message]) -> None:
        """Take messages; one that cannot be read is counted and changes nothing else."""
        for message in messages:
            try:
                self._take(message)
            except (FormatError, KeyError, TypeError, ValueError, AttributeError) as error:
                self.counters.add("refused", f"{message.topic}.{getattr(error, 'reason', type(error).__name__)}")

    def names(self) -> tuple[str, ...]:
        """Every job known, running ones first."""
        ended = [job for job in self._parts if self._state(job) == "ended"]
        return (*sorted(self._parts.keys() - set(ended)), *sorted(ended))

    def view(self, now_ns: int) -> list[dict[str, Any]]:
        """All jobs as plain JSON, running ones first."""
        in_force = self.commands.in_force(now_ns)
        return [self._summary(job, now_ns) | {"commands": in_force[job]} for job in self.names()]

    def facts(self, job: str, now_ns: int) -> Facts:
        """What is known of `job` (its id, or its name where only one has it)."""
        named = [j for j, parts in self._parts.items() if any(p.name == job for p in parts.values())]
        job = named[0] if job not in self._parts and len(named) == 1 else job
        if job not in self._parts:
            return Facts(job, now_ns, "unknown", known=self.names())
        parts = self._parts[job]
        ways = {qp.qp: self.parts_of(qp, self._rates.path(job, qp.qp)) for qp in self._qps(job)}
        touched = self._touched(job, ways)
        mine = [f for f in self._findings.values() if is_on(f, job, touched)]
        findings = sorted((f for f in mine if f["status"] != "resolved"), key=_gravity)
        ended = [f for f in mine if f["status"] == "resolved" and now_ns - _ended_ns(f) <= RECENT_NS]
        commands = self._commands_of(job, [*findings, *ended], now_ns)
        trouble = min((int(f["since_at_ns"]) for f in [*findings, *ended]), default=None)
        armed = {c["target"].get("id") for c in commands if c["action"] == "failover" and c["in_force"]}
        return Facts(
            job=job,
            at_ns=now_ns,
            state="ended" if self._state(job) == "ended" else "running",
            known=self.names(),
            name=next((p.name for p in parts.values() if p.name), ""),
            since_at_ns=min((p.since_at_ns for p in parts.values() if p.since_at_ns), default=None),
            ranks=sum(len(p.ranks) for p in parts.values()),
            hosts=tuple(sorted(parts)),
            stale=self._stale(parts, now_ns),
            throughput=self._throughput(job, trouble, now_ns),
            qps=tuple(self._qp_facts(job, ways, armed)),
            findings=tuple(findings),
            ended_findings=tuple(sorted(ended, key=lambda f: -_ended_ns(f))),
            elsewhere=sum(is_network(f) and f["status"] != "resolved" for f in self._findings.values())
            - sum(map(is_network, findings)),
            commands=tuple(commands),
            others=self._others(job, findings, now_ns),
        )

    def parts_of(self, qp: QueuePair, path: int | None = None) -> frozenset[str]:
        """Parts of the fabric that the queue pair's data and answers cross on a source port, as far as traced."""
        found = {f"tx {qp.src}", f"rx {qp.dst}", f"tx {qp.dst}", f"rx {qp.src}"}
        for flow in (qp.flow(path), qp.answers(path)):
            hops = self._flows.get(flow)
            if hops:
                crossed = self._topology.traced(flow.src, flow.dst, hops)
                found |= {part for part, probability in crossed.items() if probability >= 0.5}
        return frozenset(found)

    # --- taking ---------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        if message.topic == QP_WINDOW.name:
            if not isinstance(message.body, pa.RecordBatch):
                raise FormatError("form", "an event on a bulk topic")
            self._rates.take(message.body, message.bus_at_ns)
        elif message.topic in CommandBook.reads:
            self.commands.take(message)
        elif isinstance(message.body, Event):
            self._take_event(message, message.body)
        else:
            raise FormatError("form", f"a batch on {message.topic}")

    def _take_event(self, message: Message, body: Event) -> None:
        if message.topic == LIVENESS.name:
            self._alive[message.key] = message.bus_at_ns
        elif message.topic == JOB.name:
            self._take_part(job_shard(body.data), message.bus_at_ns)
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

    def _take_part(self, part: JobShard, at_ns: int) -> None:
        self._told[part.host] = at_ns
        parts = self._parts.pop(part.job, {})
        parts[part.host] = part
        self._parts[part.job] = parts
        while sum(map(len, self._parts.values())) > MOST_PARTS:
            ended = (job for job in self._parts if self._state(job) == "ended")
            del self._parts[next(ended, None) or next(iter(self._parts))]
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

    # --- telling --------------------------------------------------------------------------------------------------

    def _summary(self, job: str, now_ns: int) -> dict[str, Any]:
        parts = self._parts[job]
        rate = self._throughput(job, None, now_ns)
        slowest = self._slowest(job)
        return {
            "job": job,
            "name": next((p.name for p in parts.values() if p.name), job),
            "state": self._state(job),
            "hosts": sorted(parts),
            "stale_hosts": sorted(self._stale(parts, now_ns)),
            "ranks": sum(len(p.ranks) for p in parts.values()),
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
        return "running" if any(p.state == "running" for p in self._parts[job].values()) else "ended"

    def _qps(self, job: str) -> list[QueuePair]:
        return [qp for part in self._parts[job].values() if part.state == "running" for qp in part.qps]

    def _stale(self, parts: Mapping[str, JobShard], now_ns: int) -> dict[str, int | None]:
        ages: dict[str, int | None] = {}
        for host, part in parts.items():
            alive, told = self._alive.get(host), self._told.get(host, 0)
            limit = STALE_NS if alive is not None else STALE_PART_NS
            age = now_ns - max(alive or 0, told)
            if part.state == "running" and age > limit:
                ages[host] = age
        return ages

    def _throughput(self, job: str, trouble_ns: int | None, now_ns: int) -> Throughput:
        heard = self._rates.heard_at_ns(job)
        return throughput(self._rates.job(job), trouble_ns, None if heard is None else now_ns - heard)

    def _qp_facts(self, job: str, ways: Mapping[str, frozenset[str]], armed: set[str]) -> Iterable[QpFact]:
        end = _end(self._rates.job(job))
        series = self._rates.qps(job)
        for qp in self._qps(job):
            s = series.get(qp.qp, _NOTHING).between(end - STRETCH_S, end)
            busy_ns = float(s.column("busy_ns").sum())
            yield QpFact(
                qp.qp, qp.src, qp.dst, self._rates.path(job, qp.qp) or qp.path, qp.rank, qp.peer_rank,
                rate_bps=8e9 * float(s.column("bytes").sum()) / busy_ns if busy_ns else None,
                owd_ns=_mean(s, "owd"),
                err_ns=_mean(s, "err"),
                ce_share=_mean(s, "ce"),
                resent_share=_mean(s, "resent"),
                chunks=int(s.column("chunks").sum()),
                parts=ways[qp.qp],
                armed=qp.qp in armed,
            )  # fmt: skip

    def _touched(self, job: str, ways: Mapping[str, frozenset[str]]) -> set[str]:
        """Every name by which a finding may mean something that the job uses."""
        found = {"all agents"}.union(*ways.values())  # a finding about all of them is about ours
        for part in self._parts[job].values():
            nics = {nic for rank in part.ranks for nic in rank.nics} | {qp.src for qp in part.qps}
            found |= {part.host, *nics} | {f"{way} {nic}" for nic in nics for way in ("tx", "rx")}
        found |= {link_id(*part.split("->", 1)) for part in found if "->" in part}
        return found | {part.removeprefix("node ") for part in found if part.startswith("node ")}

    def _commands_of(self, job: str, findings: Iterable[Mapping[str, Any]], now_ns: int) -> list[dict[str, Any]]:
        ids = {str(f["id"]) for f in findings}
        return self.commands.views(now_ns, job, reasons=ids, since_ns=now_ns - RECENT_NS)

    def _others(self, job: str, findings: Iterable[Mapping[str, Any]], now_ns: int) -> tuple[str, ...]:
        named = {str(other) for f in findings for other in f.get("jobs") or ()}
        slow = {
            other for other in self._parts
            if self._state(other) == "running" and is_slow(self._throughput(other, None, now_ns))
        }  # fmt: skip
        return tuple(sorted((named | slow) - {job}))


_NOTHING: Final = Series(np.empty(0, np.int64), np.empty((0, 12)))


def throughput(series: Series, trouble_ns: int | None, age_ns: int | None) -> Throughput:
    """The newest stretch against the median of those before, of one job's sums.

    The newest second is still filling up and is left out. Stretches are laid backwards from the newest one, or from
    where the trouble began; one in which nothing was sent says nothing.
    """
    if not len(series.seconds):
        return Throughput(age_ns=age_ns)
    end = _end(series)
    now = _bps(series.between(end - STRETCH_S, end))
    edge = end - STRETCH_S if trouble_ns is None else min(end - STRETCH_S, trouble_ns // NS_PER_S)
    first = int(series.seconds[0])
    starts = range(edge - STRETCH_S, max(edge - BEFORE_S, first) - 1, -STRETCH_S)
    before = [bps for start in starts if (bps := _bps(series.between(start, start + STRETCH_S))) is not None]
    since = series.between(edge, end)
    return Throughput(
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


def _gravity(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        not is_network(finding),
        _GRAVITY.get(str(finding.get("severity")), 3),
        int(finding["since_at_ns"]),
        str(finding["id"]),
    )


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
