"""Whom it hurts: jobs whose queue pairs cross what a finding is about.

A queue pair crosses a part when its data or its acknowledgements do. Where the way of both is traced that is certain
and the job stands in ``jobs``; where the way is not known (not traced, gaps, a router moved flows since), or the sick
direction or class is not, the job is only possibly affected, which the evidence says. NICs and hosts need no way:
every queue pair that begins or ends there is affected.

Parts of jobs come from agents, host by host, at once when something changes and again every ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.claims import Claim
from sdfstream.detect.flows import Flows
from sdfstream.errors import FormatError
from sdfstream.records.fabric import host_of
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.job import JobShard, QueuePair, job_shard
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FORGET_NS: Final = 120 * NS_PER_S
"""A part of which nothing was heard for so long is gone: agents repeat it every ten seconds."""
MOST_PAIRS: Final = 200_000
_MOST_PARTS: Final = 20_000
_MOST_TOLD: Final = 16
"""Jobs that the evidence of one finding names."""
_LIKELY: Final = 0.05
"""Suspects of a path at least this likely count as places where it may be sick."""
APART: Final = frozenset({"clock-unsynced", "clock-faulty", "agent-stale", "qp-slow"})
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
        self._parts: dict[str, tuple[JobShard, int]] = {}
        """By ``job@host``: the part and the bus time at which it was last told."""
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

    # -- what agents tell ---------------------------------------------------------------------------------------

    def take(self, data: Any, at_ns: int) -> None:
        """Take the data of one job event.

        Raises
        ------
        FormatError
            ``job-part``: it cannot be read.
        """
        try:
            part = job_shard(data)
        except (TypeError, ValueError, OverflowError) as error:
            raise FormatError("job-part", str(error)) from error
        known = self._parts.get(part.key)
        if part.state == "ended":
            self._dirty |= self._parts.pop(part.key, None) is not None
        elif known is None and len(self._parts) >= _MOST_PARTS:
            self.counters.add("shed", "job-parts-full")
        else:
            self._dirty |= known is None or (known[0].qps, known[0].receives) != (part.qps, part.receives)
            self._parts[part.key] = (part, at_ns)

    def expire(self, now_ns: int) -> None:
        """Forget parts of which nothing was heard for long."""
        old = [key for key, (_, at_ns) in self._parts.items() if now_ns - at_ns > _FORGET_NS]
        for key in old:
            del self._parts[key]
        self._dirty |= bool(old)
        self.counters.add("forgotten", "job-parts", len(old))

    def refresh(self) -> None:
        """Number the queue pairs anew when a job changed, and work out their ways."""
        if self._dirty:
            self._number()
        self.flows.refresh()
        if self._version != self.flows.version:
            self._version = self.flows.version
            self._known.clear()

    def _number(self) -> None:
        self._dirty = False
        parts = [part for part, _ in self._parts.values()]
        pairs: dict[str, tuple[str, QueuePair]] = {}
        for end in ("qps", "receives"):  # the sending end knows best
            for part in parts:
                for pair in getattr(part, end):
                    pairs.setdefault(pair.qp, (part.job, pair))
        kept = list(pairs.values())[: self.most]
        self.counters.add("shed", "queue-pairs-full", len(pairs) - len(kept))
        self.names = list(dict.fromkeys(job for job, _ in kept))
        index = {name: i for i, name in enumerate(self.names)}
        self.pairs = [pair for _, pair in kept]
        self.number = {pair.qp: i for i, pair in enumerate(self.pairs)}
        self.job = np.array([index[job] for job, _ in kept], np.int64)
        flows = [pair.flow() for pair in self.pairs] + [pair.answers() for pair in self.pairs]
        numbers = self.flows.use(flows)
        self._there, self._back = numbers[: len(kept)], numbers[len(kept) :]

    # -- who crosses what ---------------------------------------------------------------------------------------

    def crossing(self, claim: Claim) -> Crossing:
        """Queue pairs that cross the subject of a claim; `refresh` must have been called."""
        key = (claim.subject, claim.directions, claim.direction_known, claim.classes)
        if claim.subject.type == "path":
            key = (*key, tuple(name for name, p in claim.suspects if p >= _LIKELY))  # type: ignore[assignment]
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._classed(self._crossing(claim), claim.classes)
        return found

    def _crossing(self, claim: Claim) -> Crossing:
        subject = claim.subject
        if subject.type in ("nic", "port", "host"):
            return self._at_ends(subject)
        if subject.type == "path":
            likely = [name for name, p in claim.suspects if p >= _LIKELY]
            maybe = self._over(self.cabling.numbers(likely))[1]
            return Crossing(np.zeros(len(self.pairs), np.bool_), maybe)
        if subject.type not in ("link", "switch"):
            nobody = np.zeros(len(self.pairs), np.bool_)
            return Crossing(nobody, nobody)
        if subject.type == "switch" or not claim.directions:
            parts = [p for p in range(len(self.cabling.parts)) if self.cabling.subject(p) == subject]
            parts += self.cabling.numbers(claim.directions)
            surely, maybe = self._over(parts)
        else:
            each = [self._over(self.cabling.numbers([name])) for name in claim.directions]
            one_of = np.logical_or if claim.direction_known else np.logical_and
            surely = one_of.reduce([s for s, _ in each])
            maybe = np.logical_or.reduce([m for _, m in each])
        if not claim.direction_known and subject.type == "switch":
            surely = np.zeros(len(self.pairs), np.bool_)
        return Crossing(surely, maybe | self._unknown_ways())

    def _over(self, parts: list[int]) -> tuple[Bools, Bools]:
        """(pairs,) whose data or answers surely, or possibly, cross one of these parts."""
        surely, maybe = self.flows.crossing(parts)
        return surely[self._there] | surely[self._back], maybe[self._there] | maybe[self._back]

    def entries(self, pairs: Ints) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
        """(row, part, weight) of the parts that the data or the answers of these queue pairs cross, each once."""
        both = np.stack([self._there[pairs], self._back[pairs]], axis=1)
        part = self.flows.part[both].reshape(pairs.size, -1)
        weight = self.flows.weight[both].reshape(pairs.size, -1)
        row, at = np.nonzero(part >= 0)
        part, weight = part[row, at], weight[row, at]
        order = np.lexsort((-weight, part, row))
        row, part, weight = row[order].astype(np.int64), part[order], weight[order]
        first = np.r_[True, (row[1:] != row[:-1]) | (part[1:] != part[:-1])] if row.size else np.empty(0, np.bool_)
        return row[first], part[first], weight[first]

    def _unknown_ways(self) -> Bools:
        """(pairs,) of which nothing but the NICs is known, one way at least."""
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

    def annotate(self, claims: list[Claim]) -> list[Claim]:
        """The claims with the jobs that they hurt, and how many queue pairs of each cross them, as evidence."""
        if not claims:
            return claims
        self.refresh()
        return [self._annotated(claim) for claim in claims] if self.pairs else claims

    def _annotated(self, claim: Claim) -> Claim:
        if claim.kind in APART:
            return claim
        found = self.crossing(claim)
        surely = np.bincount(self.job[found.surely], minlength=len(self.names))
        maybe = np.bincount(self.job[found.maybe & ~found.surely], minlength=len(self.names))
        jobs = [self.names[j] for j in np.flatnonzero(surely).tolist()]
        evidence = list(claim.evidence)
        for what, count in (("queue-pairs", surely), ("queue-pairs-possibly", maybe)):
            order = np.lexsort((np.arange(count.size), -count))[:_MOST_TOLD]
            evidence += [
                Evidence(what, float(count[j]), "queue pairs", self.names[j]) for j in order.tolist() if count[j]
            ]
        return replace(claim, jobs=tuple(sorted(jobs)), evidence=tuple(evidence))

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values; the numbers are given anew."""
        return {"parts": [[part.as_data(), at_ns] for part, at_ns in self._parts.values()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        parts = [(job_shard(data), int(at_ns)) for data, at_ns in state["parts"]]
        self._parts = {part.key: (part, at_ns) for part, at_ns in parts}
        self._dirty = True
