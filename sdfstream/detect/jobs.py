"""Whom it hurts: jobs whose queue pairs cross what a finding is about.

A queue pair crosses an element when its data or its acknowledgements do. Where both routes are traced that is certain
and the job stands in ``jobs``; where a route is not known (not traced, gaps, a router moved flows since), or the sick
direction or class is not, the job is only possibly affected, which the evidence says. NICs and hosts need no route:
every queue pair that begins or ends there is affected.

Shards of jobs come from agents, host by host, at once when something changes and again every ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import Detection
from sdfstream.detect.flows import Flows
from sdfstream.errors import FormatError
from sdfstream.records.fabric import QueuePair, answered, host_of
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.job import JobShard, job_shard
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FORGET_NS: Final = 120 * NS_PER_S
"""A shard that was not repeated for so long is gone: agents repeat it every ten seconds."""
MOST_PAIRS: Final = 200_000
_MOST_SHARDS: Final = 20_000
_MOST_NAMED: Final = 16
"""Jobs that the evidence of one finding names."""
_LIKELY: Final = 0.05
"""Suspects of a path at least this likely count as locations where it may be sick."""
APART: Final = frozenset(
    {
        "clock-step",
        "clock-unsynced",
        "clock-faulty",
        "agent-stale",
        "agent-degraded",
        "pipeline-degraded",
        "qp-slow",
        "inband-mismatch",
    }
)
"""Kinds that hurt nobody by themselves, or name their jobs already."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """Queue pairs that cross a subject: (pairs,) surely, and possibly (those that surely do not included)."""

    surely: Bools
    maybe: Bools


class Jobs:
    """Parts of jobs, their queue pairs under dense numbers, and who crosses what."""

    def __init__(self, cabling: Cabling, flows: Flows, counters: Counters, most: int = MOST_PAIRS) -> None:
        self.cabling, self.flows, self.counters, self.most = cabling, flows, counters, most
        self._shards: dict[str, tuple[JobShard, int]] = {}
        """By ``job@host``: the shard and the bus time at which it was last received."""
        self._dirty = True
        self.pairs: list[QueuePair] = []
        self.names: list[str] = []
        """Job ids; `job` indexes them."""
        self.job: Ints = np.empty(0, np.int64)
        self.number: dict[str, int] = {}
        """Queue pair id to its number."""
        self._there: Ints = np.empty(0, np.int64)
        self._back: Ints = np.empty(0, np.int64)
        self._known: dict[object, Crossing] = {}
        self._version = -1

    # -- shards -------------------------------------------------------------------------------------------------

    def take(self, data: Any, at_ns: int) -> None:
        """Take the data of one job event.

        Raises
        ------
        FormatError
            ``job-part``: it cannot be read.
        """
        try:
            shard = job_shard(data)
        except (TypeError, ValueError, OverflowError) as error:
            raise FormatError("job-part", str(error)) from error
        known = self._shards.get(shard.key)
        if shard.state == "ended":
            self._dirty |= self._shards.pop(shard.key, None) is not None
        elif known is None and len(self._shards) >= _MOST_SHARDS:
            self.counters.add("shed", "job-parts-full")
        else:
            self._dirty |= known is None or (known[0].qps, known[0].receives) != (shard.qps, shard.receives)
            self._shards[shard.key] = (shard, at_ns)

    def expire(self, now_ns: int) -> None:
        """Forget shards that were not repeated for long."""
        old = [key for key, (_, at_ns) in self._shards.items() if now_ns - at_ns > _FORGET_NS]
        for key in old:
            del self._shards[key]
        self._dirty |= bool(old)
        self.counters.add("forgotten", "job-parts", len(old))

    def refresh(self) -> None:
        """Number the queue pairs anew when a job changed, and work out their routes."""
        if self._dirty:
            self._number()
        self.flows.refresh()
        if self._version != self.flows.version:
            self._version = self.flows.version
            self._known.clear()

    def _number(self) -> None:
        self._dirty = False
        shards = [shard for shard, _ in self._shards.values()]
        pairs: dict[str, tuple[str, QueuePair]] = {}
        for end in ("qps", "receives"):  # the sending end knows best
            for shard in shards:
                for pair in getattr(shard, end):
                    pairs.setdefault(pair.qp, (shard.job, pair))
        numbered = list(pairs.values())[: self.most]
        self.counters.add("shed", "queue-pairs-full", len(pairs) - len(numbered))
        self.names = list(dict.fromkeys(job for job, _ in numbered))
        index = {name: i for i, name in enumerate(self.names)}
        known = {pair.qp: pair for _, pair in numbered}
        self.pairs = [answered(pair, known.get(pair.peer_qp)) for pair in known.values()]
        self.number = {pair.qp: i for i, pair in enumerate(self.pairs)}
        self.job = np.array([index[job] for job, _ in numbered], np.int64)
        flows = [pair.flow() for pair in self.pairs] + [pair.answers() for pair in self.pairs]
        numbers = self.flows.use(flows)
        self._there, self._back = numbers[: len(numbered)], numbers[len(numbered) :]

    # -- who crosses what ---------------------------------------------------------------------------------------

    def crossing(self, detection: Detection) -> Crossing:
        """Queue pairs that cross the subject of a detection; `refresh` must have been called."""
        key = (detection.subject, detection.directions, detection.direction_known, detection.classes)
        if detection.subject.type == "path":
            key = (*key, tuple(name for name, p in detection.suspects if p >= _LIKELY))  # type: ignore[assignment]
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._classed(self._crossing(detection), detection.classes)
        return found

    def _crossing(self, detection: Detection) -> Crossing:
        subject = detection.subject
        if subject.type in ("nic", "port", "host"):
            return self._at_ends(subject)
        if subject.type == "path":
            likely = [name for name, p in detection.suspects if p >= _LIKELY]
            maybe = self._over(self.cabling.numbers(likely))[1]
            return Crossing(np.zeros(len(self.pairs), np.bool_), maybe)
        if subject.type not in ("link", "switch"):
            nobody = np.zeros(len(self.pairs), np.bool_)
            return Crossing(nobody, nobody)
        if subject.type == "switch" or not detection.directions:
            elements = [e for e in range(len(self.cabling.elements)) if self.cabling.subject(e) == subject]
            elements += self.cabling.numbers(detection.directions)
            surely, maybe = self._over(elements)
        else:
            each = [self._over(self.cabling.numbers([name])) for name in detection.directions]
            one_of = np.logical_or if detection.direction_known else np.logical_and
            surely = one_of.reduce([s for s, _ in each])
            maybe = np.logical_or.reduce([m for _, m in each])
        if not detection.direction_known and subject.type == "switch":
            surely = np.zeros(len(self.pairs), np.bool_)
        return Crossing(surely, maybe | self._unknown_routes())

    def _over(self, elements: list[int]) -> tuple[Bools, Bools]:
        """(pairs,) whose data or answers surely, or possibly, cross one of these elements."""
        surely, maybe = self.flows.crossing(elements)
        return surely[self._there] | surely[self._back], maybe[self._there] | maybe[self._back]

    def entries(self, pairs: Ints) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
        """(row, element, weight) of the elements that the data or the answers of these queue pairs cross, each once."""
        both = np.stack([self._there[pairs], self._back[pairs]], axis=1)
        element = self.flows.element[both].reshape(pairs.size, -1)
        weight = self.flows.weight[both].reshape(pairs.size, -1)
        row, at = np.nonzero(element >= 0)
        element, weight = element[row, at], weight[row, at]
        order = np.lexsort((-weight, element, row))
        row, element, weight = row[order].astype(np.int64), element[order], weight[order]
        first = (
            np.r_[True, (row[1:] != row[:-1]) | (element[1:] != element[:-1])] if row.size else np.empty(0, np.bool_)
        )
        return row[first], element[first], weight[first]

    def _unknown_routes(self) -> Bools:
        """(pairs,) of which nothing but the NICs is known, in one direction at least."""
        result: Bools = self.flows.open[self._there] | self.flows.open[self._back]
        return result

    def _at_ends(self, subject: Subject) -> Crossing:
        wanted = subject.id.rpartition(":")[0] if subject.type == "port" else subject.id
        of = host_of if subject.type == "host" else str
        hit = np.array([wanted in (of(p.src), of(p.dst)) for p in self.pairs], np.bool_)
        return Crossing(hit, hit)

    def _classed(self, found: Crossing, classes: tuple[int, ...]) -> Crossing:
        """Where a verdict holds for some classes only, others are but possibly affected."""
        if not classes:
            return found
        same = np.isin(np.array([p.dscp for p in self.pairs], np.int64), classes)
        return Crossing(found.surely & same, found.maybe | found.surely)

    # -- into findings ------------------------------------------------------------------------------------------

    def annotate(self, detections: list[Detection]) -> list[Detection]:
        """The detections with the jobs that they hurt, and how many queue pairs of each cross them, as evidence."""
        if not detections:
            return detections
        self.refresh()
        return [self._annotated(detection) for detection in detections] if self.pairs else detections

    def _annotated(self, detection: Detection) -> Detection:
        if detection.kind in APART:
            return detection
        found = self.crossing(detection)
        surely = np.bincount(self.job[found.surely], minlength=len(self.names))
        maybe = np.bincount(self.job[found.maybe & ~found.surely], minlength=len(self.names))
        jobs = [self.names[j] for j in np.flatnonzero(surely).tolist()]
        evidence = list(detection.evidence)
        for what, count in (("queue-pairs", surely), ("queue-pairs-possibly", maybe)):
            order = np.lexsort((np.arange(count.size), -count))[:_MOST_NAMED]
            evidence += [
                Evidence(what, float(count[j]), "queue pairs", self.names[j]) for j in order.tolist() if count[j]
            ]
        return replace(detection, jobs=tuple(sorted(jobs)), evidence=tuple(evidence))

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values; the numbers are given anew."""
        return {"shards": [[shard.as_data(), at_ns] for shard, at_ns in self._shards.values()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        shards = [(job_shard(data), int(at_ns)) for data, at_ns in state["shards"]]
        self._shards = {shard.key: (shard, at_ns) for shard, at_ns in shards}
        self._dirty = True
