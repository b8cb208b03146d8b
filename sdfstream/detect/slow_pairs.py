"""Slow queue pairs: symptoms where a root cause on their route is a finding already, else findings of their own.

A slow queue pair whose route crosses the subject of a detection (down, lossy, congested, …) is a symptom of that. What
is left no probe accounts for: the probes' class or route differs, or what is slow is an end of it. One or two such
queue pairs of a job are findings of their own; more are one finding about the job. Their routes are searched for what
they, and no well ones, have in common: the suspects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.flows import Flows
from sdfstream.detect.inband import InBand
from sdfstream.detect.instant import Instant
from sdfstream.detect.jobs import APART, Jobs
from sdfstream.detect.problem import log_priors
from sdfstream.numeric.blame import TrialCounts, blame
from sdfstream.records.fabric import host_of
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_S

Ints = npt.NDArray[np.int64]

_FEW: Final = 2
"""So many slow queue pairs of a job are findings of their own."""
_TRIALS: Final = 8.0
_OWN_PRIOR: Final = float(np.log(1e-6))
_MOST_SUSPECTS, _MOST_SYMPTOMS = 8, 8
_MOST_COMPARED: Final = 5000
_QUEUE_SHARE, _MARKED, _AGAIN, _SOME = 0.3, 0.05, 0.005, 0.25


class SlowPairDetector:
    """Turns the verdicts of `InBand` into detections and symptoms."""

    def __init__(self, inband: InBand, jobs: Jobs, flows: Flows, cabling: Cabling) -> None:
        self.inband, self.jobs, self.flows, self.cabling = inband, jobs, flows, cabling

    # -- as symptoms --------------------------------------------------------------------------------------------

    def explained_by(self, detection: Detection, slow: list[int]) -> list[int]:
        """Those of the slow queue pairs that may cross the subject of a detection."""
        if not slow:
            return []
        crosses = self.jobs.crossing(detection).maybe
        found = []
        for pair in slow:
            number = self.jobs.number.get(self.inband.pairs.list[pair], -1)
            if bool(crosses[number]) if number >= 0 else self._ends_at(detection.subject, pair):
                found.append(pair)
        return found

    def annotate(self, detections: list[Detection], now_ns: int) -> list[Detection]:
        """The detections with the slow queue pairs that each explains, as symptoms and evidence."""
        slow = self.inband.slow(now_ns) if detections else []
        return [self._annotated(detection, slow) for detection in detections] if slow else detections

    def _annotated(self, detection: Detection, slow: list[int]) -> Detection:
        if detection.kind in APART:
            return detection
        mine = self.explained_by(detection, slow)
        if not mine:
            return detection
        evidence = Evidence("slow-queue-pairs", float(len(mine)), "queue pairs", detection.subject.id, 0.0)
        shown = [*self.symptoms(mine)[:_MOST_SYMPTOMS], *detection.symptoms][:MAX_SYMPTOMS]
        # a queue that congestion control holds is information, unless somebody waits for it
        serious = detection.kind == "congestion" and detection.severity == "info" and not detection.over_ns
        severity = "warning" if serious else detection.severity
        evidences = (*detection.evidence, evidence)
        return replace(detection, evidence=evidences, symptoms=tuple(shown), severity=severity)

    def _ends_at(self, subject: Subject, pair: int) -> bool:
        """Whether a queue pair that no job lists begins or ends at this NIC or host."""
        t, nics = self.inband.table, self.inband.ends.list
        ends = (nics[t["src"][pair]], nics[t["dst"][pair]])
        return subject.id in ends or subject.id in [host_of(e) for e in ends]

    def symptoms(self, pairs: list[int]) -> list[dict[str, Any]]:
        """Slow queue pairs as symptoms of something else."""
        since = self.inband.table["since_ns"]
        return [symptom("qp-slow", self._subject(p), int(since[p])) for p in pairs if since[p] != ABSENT_NS]

    def _subject(self, pair: int) -> Subject:
        return Subject("qp", self.inband.pairs.list[pair])

    # -- on their own -------------------------------------------------------------------------------------------

    def detections(self, now: Instant) -> list[Detection]:
        """Slow queue pairs, and jobs slow as a whole, that no standing detection of another kind explains."""
        slow = self.inband.slow(now.reached_ns)
        explained: set[int] = set()
        roots = [d for d in now.findings.standing("inband") if d.kind not in APART] if slow else []
        for detection in roots:
            explained.update(self.explained_by(detection, slow))
        return self._unexplained(explained, now.findings.reported("qp-slow"), now.reached_ns)

    def _unexplained(self, explained: set[int], reported: frozenset[str], now_ns: int) -> list[Detection]:
        """Of the slow queue pairs that nothing explains; `reported`: subjects of open ``qp-slow`` findings."""
        gone, t = explained, self.inband.table
        left = [pair for pair in self.inband.slow(now_ns) if pair not in gone]
        by_job: dict[int, list[int]] = {}
        for pair in left:
            by_job.setdefault(int(t["job"][pair]), []).append(pair)
        whole = set(self.inband.slow_jobs(now_ns)) if not gone else set()
        detections = []
        for job in sorted(by_job.keys() | whole):
            mine = by_job.get(job, [])
            if job in whole or len(mine) > _FEW or (mine and self.inband.jobs.list[job] in reported):
                detections.append(self._job_detection(job, mine, job in whole, now_ns))
            else:
                detections += [self._pair_detection(pair, now_ns) for pair in mine]
        return detections

    def _pair_detection(self, pair: int, now_ns: int) -> Detection:
        t = self.inband.table
        name = self.inband.pairs.list[pair]
        suspects, why = self._suspects([pair], now_ns), self._probed([pair])
        return Detection(
            "qp-slow",
            self._subject(pair),
            int(t["since_ns"][pair]),
            self._cause([pair]),
            0.8,
            self._evidence([pair], name),
            suspects=tuple(suspects or [(name, 1.0)]),
            confirm_ns=NS_PER_S,
            hold_ns=2 * NS_PER_S,
            detail=f"in band only: {why}",
            jobs=(self.inband.jobs.list[t["job"][pair]],),
        )

    def _job_detection(self, job: int, pairs: list[int], whole: bool, now_ns: int) -> Detection:
        t, name = self.inband.table, self.inband.jobs.list[job]
        begun = [int(self.inband.job_table["since_ns"][job])] if whole else []
        if whole and not pairs:
            pairs = np.flatnonzero((t["job"] == job) & (t["score"] > 0)).tolist()
        begun += t["since_ns"][pairs].tolist()
        why = "all its queue pairs are slow alike" if whole else self._probed(pairs)
        return Detection(
            "qp-slow",
            Subject("job", name),
            min((ns for ns in begun if ns != ABSENT_NS), default=now_ns),
            self._cause(pairs),
            0.6 if whole else 0.8,
            self._evidence(pairs, name),
            suspects=tuple((not whole and self._suspects(pairs, now_ns)) or [(name, 1.0)]),
            symptoms=tuple(self.symptoms(pairs)[:MAX_SYMPTOMS]),
            confirm_ns=NS_PER_S,
            hold_ns=2 * NS_PER_S,
            detail=f"in band only: {why}",
            jobs=(name,),
        )

    def _cause(self, pairs: list[int]) -> str:
        t = self.inband.table
        if not pairs:
            return "unknown"
        if float(np.median(t["again"][pairs])) > _AGAIN:
            return "gray-failure"
        longer_ns = np.exp(t["figure"][pairs]) - np.exp(t["normal"][pairs])
        queued = t["timed"][pairs] & (t["late"][pairs] > _QUEUE_SHARE * longer_ns)
        return "queueing" if float(np.median(t["marked"][pairs])) > _MARKED or queued.mean() >= _SOME else "unknown"

    def _evidence(self, pairs: list[int], where: str) -> tuple[Evidence, ...]:
        t = self.inband.table
        if not pairs:
            return ()
        timed = t["timed"][pairs]
        figure, normal = np.exp(t["figure"][pairs]), np.exp(t["normal"][pairs])
        evidence = [Evidence("slow-queue-pairs", float(len(pairs)), "queue pairs", where, 0.0)]
        if timed.any():
            now, usual = (float(np.median(x[timed])) / 1e6 for x in (figure, normal))
            evidence.append(Evidence("chunk-duration", round(now, 3), "ms", where, round(usual, 3)))
        if not timed.all():
            now, usual = (float(np.median(8e3 / x[~timed])) for x in (figure, normal))
            evidence.append(Evidence("throughput", round(now, 3), "Mbit/s", where, round(usual, 3)))
        late_us = float(np.median(t["late"][pairs])) / 1e3
        evidence.append(Evidence("delay-excess", round(late_us, 1), "µs", where, 0.0))
        evidence.append(Evidence("sent-again", round(float(np.median(t["again"][pairs])), 4), "1", where, 0.0))
        evidence.append(Evidence("ce-share", round(float(np.median(t["marked"][pairs])), 4), "1", where, 0.0))
        return tuple(evidence)

    def _probed(self, pairs: list[int]) -> str:
        """Why the probes may not see it."""
        t, sessions = self.inband.table, self.cabling.sessions
        used = sessions.table["src"] >= 0
        ends = [[sessions.nics.find(self.inband.ends.list[n]) for n in t[e][pairs]] for e in ("src", "dst")]
        between = used & np.isin(sessions.table["src"], ends[0]) & np.isin(sessions.table["dst"], ends[1])
        if not between.any():
            return "no probe goes between its NICs"
        if not np.isin(sessions.table["dscp"][between], t["dscp"][pairs]).any():
            return "no probe goes there in its class"
        return "the probes between its NICs are well"

    # -- where --------------------------------------------------------------------------------------------------

    def _suspects(self, slow: list[int], now_ns: int) -> list[tuple[str, float]]:
        """Directions that slow queue pairs have in common, and well ones have not."""
        rows = [self._row(pair) for pair in slow]
        rows = [row for row in rows if row >= 0]
        well = [row for row in map(self._row, self.inband.well(now_ns)[:_MOST_COMPARED]) if row >= 0]
        if len(rows) < 2:
            return []
        trials, elements, own = self._trials(rows, well)
        prior = np.concatenate([log_priors(self.cabling, "queue")[elements], np.full(len(rows), _OWN_PRIOR)])
        found = blame(trials, prior, noise=0.01, least_share=0.6, own=own, most=2)
        shared = [r for culprit in found for r in culprit.rivals if r[0] < elements.size]
        named = [(self.cabling.direction(int(elements[element])), round(p, 4)) for element, p in shared]
        return sorted(dict(named).items(), key=lambda x: (-x[1], x[0]))[:_MOST_SUSPECTS]

    def _row(self, pair: int) -> int:
        return self.jobs.number.get(self.inband.pairs.list[pair], -1)

    def _trials(self, slow: list[int], well: list[int]) -> tuple[TrialCounts, Ints, Ints]:
        """Slow and well queue pairs as observations of the elements that either of their flows crosses."""
        row, element, weight = self.jobs.entries(np.array(slow + well, np.int64))
        elements = np.unique(element[row < len(slow)])
        keep = np.isin(element, elements)
        row, element, weight = row[keep], np.searchsorted(elements, element[keep]), weight[keep]
        n = len(slow)
        own = elements.size + np.arange(n)
        failed = np.r_[np.full(n, _TRIALS), np.zeros(len(well))]
        return (
            TrialCounts(
                failed,
                np.full(n + len(well), _TRIALS),
                np.concatenate([row, np.arange(n)]),
                np.concatenate([element, own]),
                np.concatenate([weight, np.ones(n)]),
                np.ones(n + len(well)),
            ),
            elements,
            own,
        )
