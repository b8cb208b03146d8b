"""One finding per root cause: what only follows from another detection is put under it, and is no finding of its own.

================================================ =================================================================
root                                             its symptoms
================================================ =================================================================
``host-silent``; ``nic-down`` of a host          whatever its NICs and ports show
``link-down`` of a switch                        whatever its links and the NICs on it show, but a NIC whose port
                                                 went down while others on the switch were seen to work
``nic-down``, ``link-down`` of a NIC or link     loss, queues, marks and errors of the same one
``congestion`` caused by a ``pause-storm``       every queue, mark and drop that began with it or later
``congestion`` that was reported                 loss on its way that began with it or later: packets that it drops;
                                                 marks that were told of the same link before its delay showed
                                                 clocks without a bound, where packets wait for milliseconds
``loss`` that was reported                       short silence of single paths over it: probes lost in a row, by chance
                                                 loss told of its switch, or of the spines, before it was known which;
                                                 loss laid to another subject before
================================================ =================================================================

A symptom begins with its root or later, and ends with it or a little later. Once it is told it is not told again: a
finding that was already open when its root was found is resolved at once, and says whose symptom it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, revived, symptom
from sdfstream.detect.gray.dead_uplink import names_the_dead
from sdfstream.detect.instant import OpenFindings
from sdfstream.detect.root.chance import silences
from sdfstream.detect.root.queues import drops, unsettles
from sdfstream.detect.root.storms import CAUSE as STORM
from sdfstream.records.fabric import host_of
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_S

Key = tuple[str, str, str]

_BEFORE_NS = 2 * NS_PER_S
"""A symptom may seem to begin so long before its root: each is dated by its own probes, windows or readings."""
_AFTER_NS = 2 * NS_PER_S
"""A symptom may begin so long after its root was last found: queues drain, routes and carriers come back in turn."""
_AT_ONCE_NS = 0
"""Silence is laid to its elements anew each time: what was laid to a switch and now is to a link is the link's."""
_LINGERS_NS = 5 * NS_PER_S
"""Queues, marks and loss that outlast their root for longer have a cause of their own."""
_REMEMBERED_NS = 40 * NS_PER_S
"""So do errors of ports, which stand for `DetectConfig.port_quiet_s` after the last one."""
_SUSPECTED_NS = NS_PER_S // 2
"""Silence that never was a finding explains nothing once it is over: a lossy link is silent now and then, by chance."""
_MOST = 200

_OF_SILENCE = frozenset({"nic-down", "link-down", "loss", "congestion", "ecn-marks", "port-errors"})
_OF_STORM = frozenset({"congestion", "ecn-marks", "loss", "port-errors"})


@dataclass(slots=True)
class _Root:
    detection: Detection
    last_ns: int
    """Last found, bus time."""
    reported: bool = False
    """It was a finding: a queue that stood for an instant only explains nothing."""
    symptoms: dict[Key, dict[str, Any]] = field(default_factory=dict)


class Roots:
    """What is at the root of something now, or was a short while ago."""

    def __init__(self, cabling: Cabling) -> None:
        self.cabling = cabling
        self._roots: dict[Key, _Root] = {}

    def gather(
        self, detections: list[Detection], findings: OpenFindings, source: str, now_ns: int
    ) -> tuple[list[Detection], dict[Key, Detection]]:
        """(what `source` finds now and is no symptom, with its symptoms; the roots of the rest, by their keys).

        The rest are symptoms that it finds now, and those that it published before their root was.
        """
        self._note(detections, findings, now_ns)
        if not self._roots:
            return detections, {}
        explained: dict[Key, Detection] = {}
        own = []
        for detection in detections:
            root = self._root_of(detection, now_ns)
            if root is None or self._only_suspected(root, detection, findings):
                own.append(detection)
            else:
                explained[key_of(detection)] = self._put_under(root, detection)
        found = {key_of(d) for d in detections}
        for former in findings.published(source):
            root = None if key_of(former) in found else self._root_of(former, now_ns)
            if root is not None and findings.is_open(root.detection.kind, root.detection.subject):
                explained[key_of(former)] = self._put_under(root, former)
        return [self._with_symptoms(d) for d in own], explained

    @staticmethod
    def _only_suspected(root: _Root, detection: Detection, findings: OpenFindings) -> bool:
        """What is told already stays told while its root is not: a loss of a tenth looks like silence now and then."""
        reported = findings.is_open(detection.kind, detection.subject)
        return reported and not findings.is_open(root.detection.kind, root.detection.subject)

    @staticmethod
    def _put_under(root: _Root, detection: Detection) -> Detection:
        if len(root.symptoms) < MAX_SYMPTOMS:
            root.symptoms[key_of(detection)] = symptom(detection.kind, detection.subject, detection.since_ns)
        return root.detection

    def _note(self, detections: list[Detection], findings: OpenFindings, now_ns: int) -> None:
        for detection in detections:
            if _may_explain(detection):
                known = self._roots.get(key_of(detection))
                if known is not None:
                    known.detection, known.last_ns = _older(detection, known.detection), now_ns
                elif len(self._roots) < _MOST:
                    self._roots[key_of(detection)] = _Root(detection, now_ns)
        for key, root in list(self._roots.items()):
            root.reported |= findings.is_open(root.detection.kind, root.detection.subject)
            if now_ns - root.last_ns > _REMEMBERED_NS:
                del self._roots[key]

    def _root_of(self, detection: Detection, now_ns: int) -> _Root | None:
        """The widest root that explains a detection."""
        memory_ns = _MEMORY_NS.get(detection.kind, _LINGERS_NS)
        of_loss_ns = max(memory_ns, _LINGERS_NS)  # what loses is looked at every other time
        found = [
            root
            for key, root in self._roots.items()
            if key != key_of(detection)
            and now_ns - root.last_ns <= (of_loss_ns if root.detection.kind == "loss" else memory_ns)
            and (
                root.detection.since_ns - _BEFORE_NS <= detection.since_ns <= root.last_ns + _AFTER_NS
                or _same_queue(root.detection, detection)
            )
            and self._explains(root, detection, now_ns)
        ]
        return max(found, key=lambda root: (_RANK.get(root.detection.subject.type, 0), root.last_ns), default=None)

    def _explains(self, by: _Root, other: Detection, now_ns: int) -> bool:
        root = by.detection
        if unsettles(root, other):
            return by.reported
        if root.cause == STORM:
            return other.kind in _OF_STORM and other.cause != STORM
        if root.kind == "congestion":
            return by.reported and (_same_queue(root, other) or drops(root, other, self.cabling))
        if root.kind == "loss":
            known = silences(root, other, self.cabling) or names_the_dead(root, other) or _replaces(root, other)
            return by.reported and known
        if not by.reported and now_ns - by.last_ns > _SUSPECTED_NS:
            return False
        if other.kind not in _OF_SILENCE or other.alone or _wide(other):
            return False
        lost = _element(other.subject)
        if root.subject.type == "switch":
            return lost.type in ("nic", "link") and root.subject.id in self.cabling.switches_of(lost)
        if root.subject.type == "host":
            return lost.type == "nic" and host_of(lost.id) == root.subject.id
        return lost == root.subject and other.kind not in ("nic-down", "link-down")

    def _with_symptoms(self, detection: Detection) -> Detection:
        root = self._roots.get(key_of(detection))
        if root is None or not root.symptoms:
            return detection
        mine = tuple(root.symptoms.values())
        return replace(detection, symptoms=(*mine, *detection.symptoms), attached=len(mine))

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [
            [
                list(key),
                asdict(root.detection),
                root.last_ns,
                root.reported,
                [[list(k), s] for k, s in root.symptoms.items()],
            ]
            for key, root in self._roots.items()
        ]

    def restore(self, state: Iterable[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._roots = {
            (key[0], key[1], key[2]): _Root(
                revived(detection), int(last_ns), bool(reported), {(k[0], k[1], k[2]): dict(s) for k, s in symptoms}
            )
            for key, detection, last_ns, reported, symptoms in state
        }


_MEMORY_NS = {"nic-down": _AT_ONCE_NS, "link-down": _AT_ONCE_NS, "port-errors": _REMEMBERED_NS}
_RANK = {"switch": 3, "host": 2}


def key_of(detection: Detection) -> Key:
    """One subject has at most one finding of a kind."""
    return detection.kind, detection.subject.type, detection.subject.id


def _may_explain(detection: Detection) -> bool:
    if detection.over_ns:
        return False
    return detection.kind in ("nic-down", "link-down", "host-silent", "congestion", "loss")


def _same_queue(queue: Detection, other: Detection) -> bool:
    """Whether marks are those of a queue whose delay shows now: one queue, told first by the one, then by the other.

    Not while the queue is information and its marks are a warning: that it stands must not be taken back.
    """
    marks = queue.kind == "congestion" and other.kind == "ecn-marks" and queue.subject == other.subject
    return marks and other.cause == "queueing" and (queue.severity != "info" or other.severity == "info")


def _replaces(loss: Detection, former: Detection) -> bool:
    """Whether the losses were laid to another subject before."""
    return former.kind == "loss" and (former.subject.type, former.subject.id) in loss.instead_of


def _wide(detection: Detection) -> bool:
    """A switch's or host's silence is nobody's symptom here."""
    return detection.kind in ("nic-down", "link-down") and detection.subject.type in _RANK


def _element(subject: Subject) -> Subject:
    """A port belongs to its NIC."""
    return Subject("nic", subject.id.rpartition(":")[0]) if subject.type == "port" else subject


def _older(new: Detection, old: Detection) -> Detection:
    return new if new.since_ns <= old.since_ns else replace(new, since_ns=old.since_ns)
