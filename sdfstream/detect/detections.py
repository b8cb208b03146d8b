"""What an engine claims at one instant; the ledger turns claims into findings with a life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sdfstream.records.finding import Evidence, Severity, Subject
from sdfstream.records.units import NS_PER_S

MAX_SYMPTOMS = 20


@dataclass(frozen=True, slots=True)
class Detection:
    """A condition that holds now. It is repeated at every evaluation for as long as it holds."""

    kind: str
    subject: Subject
    since_ns: int
    """When it began, bus time."""
    cause: str
    confidence: float
    evidence: tuple[Evidence, ...]
    severity: Severity = "warning"
    suspects: tuple[tuple[str, float], ...] = ()
    symptoms: tuple[dict[str, Any], ...] = ()
    plane: str | None = None
    confirm_ns: int = 0
    """It must have been claimed for this long before it is said."""
    hold_ns: int = NS_PER_S
    """It is withdrawn once it has not been claimed for this long."""
    detail: str = ""
    """What a reader should know beside kind and subject; changes are worth an update."""
    directions: tuple[str, ...] = ()
    """Of a link or NIC: the sick directions ``a->b`` (see `Cabling.direction`); none: all of the subject."""
    direction_known: bool = True
    """False: `directions` are all that may be sick."""
    classes: tuple[int, ...] = ()
    """DSCPs for which it was seen; none: for all."""
    jobs: tuple[str, ...] = ()
    """Jobs that it hurts; changes are worth an update."""


def symptom(kind: str, subject: Subject, since_ns: int) -> dict[str, Any]:
    """A finding-like object for what is only a consequence."""
    return {"kind": kind, "subject": {"type": subject.type, "id": subject.id}, "since_at_ns": int(since_ns)}
