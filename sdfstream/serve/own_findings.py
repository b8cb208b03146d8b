"""The findings ``pipeline-degraded`` of one process about itself: which statements follow from its troubles. Pure.

What is open lies in a note on the bus (`pack`), committed with the statements. So a process that follows one that was
killed goes on with its findings: a trouble that it has too is the same finding still; one that it has not shown within
`INHERITED_S` is over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass
from typing import Final

from sdfstream import strict_json
from sdfstream.detect.detections import remedy
from sdfstream.errors import FormatError
from sdfstream.records.finding import Evidence, Finding, Status, Subject
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import FINDING
from sdfstream.runtime.own_troubles import OngoingTrouble

INHERITED_S: Final = 30.0
"""After its start a process waits so long for a trouble of its predecessor to show again."""


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """A finding that is open on the bus."""

    what: str
    """As `OngoingTrouble.what`."""
    why: str
    """The detail as last published."""
    since_at_ns: int
    """With the process and `what` it makes the finding's id."""


@dataclass(frozen=True, slots=True)
class Change:
    """A statement to publish."""

    status: Status
    finding: OpenFinding


def changes(
    opened: Mapping[str, OpenFinding], ongoing: Mapping[str, OngoingTrouble], inherited: Set[str] = frozenset()
) -> list[Change]:
    """What to say of each trouble that is not as it was published; findings `inherited` do not end yet."""
    found = [Change("open", OpenFinding(w, t.why, t.since_at_ns)) for w, t in ongoing.items() if w not in opened]
    for what, known in opened.items():
        if what in ongoing and ongoing[what].why != known.why:
            found.append(Change("update", OpenFinding(what, ongoing[what].why, known.since_at_ns)))
        elif what not in ongoing and what not in inherited:
            found.append(Change("resolved", known))
    return found


def after(opened: Mapping[str, OpenFinding], changed: list[Change]) -> dict[str, OpenFinding]:
    """What is open once `changed` is published."""
    over = {change.finding.what for change in changed if change.status == "resolved"}
    stated = {change.finding.what: change.finding for change in changed}
    return {what: finding for what, finding in {**opened, **stated}.items() if what not in over}


def output(process: str, change: Change, now_ns: int) -> Output:
    """The statement of `process` as a message."""
    subject = Subject("process", f"{process} {change.finding.what}")
    since_ns = change.finding.since_at_ns
    key = hashlib.sha256(f"pipeline-degraded|{subject.id}|{since_ns}".encode()).hexdigest()[:16]
    finding = Finding(
        id=key,
        kind="pipeline-degraded",
        severity="warning",
        status=change.status,
        subject=subject,
        since_at_ns=since_ns,
        seen_at_ns=now_ns,
        cause="software",
        confidence=1.0,
        evidence=(Evidence("troubles", 1.0, "1", process, 0.0),),
        remedy=remedy("pipeline-degraded", subject),
        resolved_at_ns=now_ns if change.status == "resolved" else None,
        detail=change.finding.why,
    )
    return Output(FINDING.name, key, Event(FINDING.name, "pipeline", f"{key}-{now_ns}", now_ns, finding.as_data()))


def pack(opened: Mapping[str, OpenFinding]) -> bytes:
    """The note of what is open."""
    return json.dumps([asdict(finding) for finding in opened.values()]).encode()


def unpack(note: bytes) -> dict[str, OpenFinding]:
    """What is open by a note.

    >>> unpack(pack({"bus.disk": OpenFinding("bus.disk", "it is full", 5)}))["bus.disk"].why
    'it is full'

    Raises
    ------
    FormatError
        It is none of ours.
    """
    try:
        found = [OpenFinding(str(d["what"]), str(d["why"]), int(d["since_at_ns"])) for d in strict_json.loads(note)]
    except (TypeError, KeyError, ValueError) as error:
        raise FormatError("own-findings", f"the note of open findings: {error!r}") from error
    return {finding.what: finding for finding in found}
