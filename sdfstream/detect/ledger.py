"""The life of a finding: detected, opened once it has lasted, updated now and then, resolved once it is gone.

======== ==================================== ==================================================================
state    event                                then
======== ==================================== ==================================================================
(none)   detected                             pending
pending  detected and shown for `confirm_ns`  **open** is published
pending  not detected for 0.5 s               forgotten, nothing was published
open     still detected, something changed    **update** is published, at most every `update_s`
open     not detected for `hold_ns`, or half  **resolved** is published, unless damped
         as long again as between the last
         two outages of the same subject
(none)   detected, and over already           **resolved** is published, nothing else
open     found to follow from another         **resolved** is published at once; its root lists it as a symptom
open     damped (it came and went too often)  stays open until the penalty has decayed, or is a ``link-flap``
======== ==================================== ==================================================================

One subject has at most one finding of a kind at a time. The id is a hash of kind, subject and beginning, so a repeat
of the same stream gives the same ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Final, cast

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import Detection, remedy, revived
from sdfstream.detect.learned.causes import LearnedCauses
from sdfstream.numeric.damping import Damping
from sdfstream.records.finding import SEVERITIES, Evidence, Finding, Severity, Subject
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import FINDING
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

_PENDING_GAP_NS = 500 * NS_PER_MS
_BETWEEN_NS = 600 * NS_PER_MS
_OUTAGES = frozenset({"nic-down", "link-down", "path-down"})
"""Silence that is absent for `_BETWEEN_NS` had ended: what comes then is another outage of the same finding."""
_RETURNS_NS = 60 * NS_PER_S
"""What was away for longer has not come back: it is another outage."""
_MOST = 2000
NEVER_NS: Final = 1 << 62
"""An instant that no bus time reaches."""

Key = tuple[str, str, str]


@dataclass(slots=True)
class _Entry:
    detection: Detection
    source: str
    first_ns: int
    last_ns: int
    id: str = ""
    said_ns: int = 0
    said: int = 0
    """Statements made so far; 0: pending."""
    stated: str = ""
    """What of the last statement a reader wants to know changes of at once; empty: it was made by a release before."""
    attached: int = 0
    """Symptoms put under it, as last stated."""


@dataclass(slots=True)
class _Outages:
    """How a subject went away and came back."""

    times: int = 0
    """How often it went, this time included."""
    ended_ns: int = 0
    """When the last finding of it was last detected; 0: none was resolved yet."""
    between_ns: int = 0
    """Between its last two outages; 0: not known, or too long to be called that."""

    def returned(self, away_ns: int) -> None:
        """It went away again after so long."""
        self.between_ns = away_ns if away_ns < _RETURNS_NS else 0


class Ledger:
    """All findings that are pending or open."""

    def __init__(self, config: DetectConfig, counters: Counters, learned: LearnedCauses | None = None) -> None:
        self.config, self.counters = config, counters
        self._learned = learned
        self._entries: dict[Key, _Entry] = {}
        self._damping: dict[Key, Damping] = {}
        self._outages: dict[Key, _Outages] = {}
        """For as long as damping remembers it."""

    def take(
        self,
        source: str,
        detections: list[Detection],
        now_ns: int,
        *,
        stands: bool = False,
        explained: Mapping[Key, Detection] = MappingProxyType({}),
    ) -> list[Output]:
        """Take everything that detector `source` finds now; the events of what changes.

        What the source found before and does not find now begins to lapse, unless the watermark `stands`: then nothing
        was reported by which it could be over. What is `explained` by a root is over as a finding of its own.
        """
        out: list[Output] = []
        detected: set[Key] = set()
        for detection in detections:
            key: Key = (detection.kind, detection.subject.type, detection.subject.id)
            if key in detected:
                continue
            detected.add(key)
            out.extend(self._detected(key, source, detection, now_ns))
        for key, entry in list(self._entries.items()):
            if key in explained:
                root = explained[key]
                if entry.said == 0 and not self.is_open(root.kind, root.subject):
                    entry.last_ns = now_ns  # both are pending: the one that lasts is told
                else:
                    out.extend(self._put_under(root, key, entry, now_ns))
            elif entry.source == source and key not in detected:
                if stands and entry.said:
                    entry.last_ns = now_ns
                out.extend(self._lapsing(key, entry, now_ns))
        return out

    def is_open(self, kind: str, subject: Subject) -> bool:
        """Whether a finding of this kind about this subject is open."""
        entry = self._entries.get((kind, subject.type, subject.id))
        return entry is not None and entry.said > 0

    def remark(self, kind: str, subject: Subject, detail: str) -> None:
        """Have the next statement of such a finding, if there is one, say this."""
        if (entry := self._entries.get((kind, subject.type, subject.id))) is not None:
            entry.detection = replace(entry.detection, detail=detail)

    def reported(self, kind: str) -> frozenset[str]:
        """Subject ids of all open findings of this kind."""
        return frozenset(key[2] for key, entry in self._entries.items() if key[0] == kind and entry.said)

    def open_ids(self, kinds: tuple[str, ...]) -> frozenset[str]:
        """Subject ids of all pending and open findings of these kinds."""
        return frozenset(key[2] for key in self._entries if key[0] in kinds)

    def published(self, source: str) -> list[Detection]:
        """Everything of detector `source` that is open."""
        return [entry.detection for entry in self._entries.values() if entry.source == source and entry.said]

    def due_ns(self, source: str, now_ns: int) -> int:
        """When, after `now_ns`, a pending detection of `source` will have been shown for its `confirm_ns`, if it lasts.

        `NEVER_NS`: none is pending.
        """
        pending = (entry for entry in self._entries.values() if entry.source == source and not entry.said)
        times_ns = (entry.first_ns + entry.detection.confirm_ns for entry in pending)
        return min((at_ns for at_ns in times_ns if at_ns > now_ns), default=NEVER_NS)

    def standing(self, but: str) -> list[Detection]:
        """Everything pending or open of detectors other than `but`."""
        return [entry.detection for entry in self._entries.values() if entry.source != but]

    def _detected(self, key: Key, source: str, detection: Detection, now_ns: int) -> list[Output]:
        entry = self._entries.get(key)
        if detection.over_ns:
            if entry and entry.said:
                return []
            if entry and entry.last_ns < now_ns:  # what was pending is what is over
                del self._entries[key]
            return [self._say_over(key, source, detection, now_ns)]
        if entry is None:
            if len(self._entries) >= _MOST:
                self.counters.add("shed", "findings-full")
                return []
            entry = self._entries[key] = _Entry(detection, source, now_ns, now_ns)
        gap_ns = now_ns - entry.last_ns
        entry.last_ns = now_ns
        if entry.said == 0:
            entry.detection = (
                detection if detection.since_ns < entry.detection.since_ns else _keep_since(detection, entry.detection)
            )
            lasted_ns, shown_ns = now_ns - entry.first_ns, detection.measured_ns
            if min(lasted_ns, lasted_ns if shown_ns is None else shown_ns) < detection.confirm_ns:
                return []
            entry.id = _finding_id(key, entry.detection.since_ns)
            ended_ns = self._outages[key].ended_ns if key in self._outages else 0
            self._count_down(key, now_ns, entry.first_ns - ended_ns if ended_ns else 0)
            return [self._say(entry, "open", now_ns)]
        before, entry.detection = entry.detection, _keep_since(detection, entry.detection)
        if gap_ns >= detection.hold_ns:  # it had lapsed and only damping held it open
            self._count_down(key, now_ns, gap_ns)
        elif gap_ns >= _BETWEEN_NS and detection.kind in _OUTAGES:
            outages = self._outages.setdefault(key, _Outages(1))
            outages.times += 1
            outages.returned(gap_ns)
        due = now_ns - entry.said_ns >= int(self.config.update_s * NS_PER_S)
        soon = now_ns - entry.said_ns >= NS_PER_S
        if (due and detection.evidence != before.evidence) or (soon and _has_changed(detection, entry)):
            return [self._say(entry, "update", now_ns)]
        return []

    def _lapsing(self, key: Key, entry: _Entry, now_ns: int) -> list[Output]:
        gone_ns = now_ns - entry.last_ns
        if entry.said == 0:
            if gone_ns > _PENDING_GAP_NS:
                del self._entries[key]
            return []
        damping = self._damping.get(key)
        damped = damping is not None and damping.suppressed_at(now_ns)
        outages, flapping = self._outages.get(key), self.is_open("link-flap", entry.detection.subject)
        again_ns = 0 if outages is None or flapping else outages.between_ns * 3 // 2
        if gone_ns < max(entry.detection.hold_ns, again_ns) or (damped and not flapping):
            return []
        if outages is not None:
            outages.ended_ns = entry.last_ns
        del self._entries[key]
        return [self._say(entry, "resolved", now_ns)]

    def _say_over(self, key: Key, source: str, detection: Detection, now_ns: int) -> Output:
        """One statement about what began and ended before it was found."""
        entry = _Entry(detection, source, now_ns, detection.over_ns, _finding_id(key, detection.since_ns))
        return self._say(entry, "resolved", now_ns)

    def _put_under(self, root: Detection, key: Key, entry: _Entry, now_ns: int) -> list[Output]:
        """It turned out to be a symptom: resolved at once, with the root's name, if it was published."""
        del self._entries[key]
        entry.detection = replace(entry.detection, detail=f"symptom of {root.kind} {root.subject.id}")
        return [self._say(entry, "resolved", now_ns)] if entry.said else []

    def _count_down(self, key: Key, now_ns: int, away_ns: int) -> None:
        """It began once more, `away_ns` after it was last seen; 0: for the first time."""
        self._damping.setdefault(key, Damping()).down(now_ns)
        outages = self._outages.setdefault(key, _Outages())
        outages.times += 1
        if away_ns and key[0] in _OUTAGES:
            outages.returned(away_ns)
        for other in [k for k, d in self._damping.items() if k != key and d.penalty_at(now_ns) < 1.0]:
            del self._damping[other]
            self._outages.pop(other, None)

    def _say(self, entry: _Entry, status: Any, now_ns: int) -> Output:
        detection = entry.detection
        evidence = detection.evidence
        outages = self._outages.get((detection.kind, detection.subject.type, detection.subject.id))
        if outages is not None and outages.times > 1:
            evidence = (*evidence, Evidence("outages", float(outages.times), "1", detection.subject.id, 0.0))
        finding = Finding(
            id=entry.id,
            kind=detection.kind,
            severity=_severity(entry, status),
            status=status,
            subject=detection.subject,
            since_at_ns=int(detection.since_ns),
            seen_at_ns=now_ns,
            cause=detection.cause,
            confidence=round(float(detection.confidence), 4),
            evidence=evidence,
            remedy=detection.remedy or remedy(detection.kind, detection.subject, detection.cause),
            suspects=tuple((s, round(float(p), 4)) for s, p in detection.suspects),
            direction=detection.direction,
            symptoms=detection.symptoms,
            plane=detection.plane,
            jobs=detection.jobs,
            resolved_at_ns=entry.last_ns if status == "resolved" else None,
            detail=detection.detail,
        )
        if self._learned is not None:
            finding = self._learned.assessed(finding)
        entry.said, entry.said_ns = entry.said + 1, now_ns
        entry.stated, entry.attached = _matters(detection), detection.attached
        self.counters.add("findings", status)
        # by its time, not its number: a finding that comes back with the same beginning has the same id again
        event = Event(FINDING.name, "detect", f"{entry.id}-{now_ns}", now_ns, finding.as_data())
        return Output(FINDING.name, entry.id, event)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {
            "entries": [[list(key), asdict(entry)] for key, entry in self._entries.items()],
            "damping": [[list(key), asdict(d)] for key, d in self._damping.items()],
            "outages": [[list(key), asdict(outages)] for key, outages in self._outages.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._entries = {}
        for key, saved in state["entries"]:
            detection = revived(saved.pop("detection"))
            self._entries[key[0], key[1], key[2]] = _Entry(detection, **saved)
        self._damping = {(k[0], k[1], k[2]): Damping(**d) for k, d in state["damping"]}
        saved = state["outages"]  # a release before had how often alone
        of = [(k, _Outages(**known) if isinstance(known, dict) else _Outages(int(known))) for k, known in saved]
        self._outages = {(k[0], k[1], k[2]): outages for k, outages in of}


def _keep_since(new: Detection, old: Detection) -> Detection:
    """The newer detection with the older beginning."""
    if new.since_ns == old.since_ns:
        return new
    fields = {name: getattr(new, name) for name in Detection.__slots__}
    return Detection(**{**fields, "since_ns": old.since_ns})


def _has_changed(now: Detection, entry: _Entry) -> bool:
    """Whether a reader wants to know of it before the next regular update, however long ago it changed."""
    return now.attached > entry.attached or (bool(entry.stated) and _matters(now) != entry.stated)


def _matters(detection: Detection) -> str:
    return "|".join((detection.severity, detection.cause, detection.detail, *detection.jobs))


def _severity(entry: _Entry, status: str) -> Severity:
    """That of the detection; of what is over, no more than was said while it stood: an end alarms nobody."""
    now = entry.detection.severity
    if status != "resolved" or not entry.stated:
        return now
    said = entry.stated.partition("|")[0]
    return now if SEVERITIES.index(now) <= SEVERITIES.index(said) else cast(Severity, said)


def _finding_id(key: Key, since_ns: int) -> str:
    text = "|".join((*key, str(since_ns)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
