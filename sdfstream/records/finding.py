"""Findings, NIC states and the lists of kinds and causes (``schemas/`` publishes them).

All of these travel as the `data` of a CloudEvent; here are the names and the builders that keep them complete.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, get_args

Severity = Literal["info", "warning", "urgent"]
SEVERITIES: Final[tuple[str, ...]] = get_args(Severity)
Status = Literal["open", "update", "resolved"]
Health = Literal["healthy", "unhealthy", "unknown"]

FINDING_KINDS: Final[dict[str, tuple[str, str]]] = {
    # kind: (class, meaning)
    "nic-down": ("link", "no probe passes a NIC in one or both directions, or its port lost its carrier"),
    "link-down": ("link", "no probe passes a fabric link in one or both directions"),
    "path-down": ("link", "a path is silent and no NIC or link explains it"),
    "host-silent": ("node", "every NIC of a host and its agent fell silent"),
    "link-flap": ("link", "a NIC or link went down and came back too often, or for too long in sum"),
    "loss": ("link", "a path loses some of its probes while others pass (gray loss)"),
    "congestion": ("link", "delay stands above the path's own floor"),
    "ecn-marks": ("link", "a share of probes arrives with CE"),
    "class-rewritten": ("configuration", "DSCP or ECN arrives other than it was sent"),
    "duplicate-host": ("configuration", "two producers publish as one host"),
    "duplicate-address": ("configuration", "NICs of two hosts announce one address in one plane"),
    "transport-silent": (
        "configuration",
        "no probe of one transport passes a NIC, while UDP probes between the same NICs do",
    ),
    "mtu-mismatch": ("configuration", "packets as large as the MTU do not pass a NIC, link or switch, small ones do"),
    "miscabled": ("configuration", "a NIC answers on a rail or port other than planned"),
    "port-errors": ("link", "a port's error, discard or FEC counters rise"),
    "qp-slow": (
        "workload",
        "a queue pair, or most of a job, moves its data far slower than it used to, and no finding on its way says why",
    ),
    "inband-mismatch": (
        "configuration",
        "queue pairs of a job take far longer than probes between the same NICs in the same class",
    ),
    "clock-step": ("clock", "a clock jumped"),
    "clock-unsynced": ("clock", "a clock has no bound that a delay could be trusted by"),
    "clock-faulty": ("clock", "a clock disagrees with every neighbour"),
    "agent-stale": ("telemetry", "an agent stopped publishing; what it watched is unknown"),
    "agent-degraded": ("telemetry", "an agent says that a disk, a thread or its budget of sessions fails it"),
    "pipeline-degraded": ("telemetry", "a process of the pipeline says that a disk, a thread or its engine fails it"),
}

IMBALANCE: Final = "ecmp-imbalance"
CAUSES: Final[dict[str, str]] = {
    "link-failure": "carrier lost or all packets dropped on one link",
    "port-disabled": "the port was switched off by an administrator",
    "degraded-link": "bit errors on a cable, an optic or a port",
    "gray-failure": "a link or port drops a share of packets without saying so",
    "queueing": "a queue stands on a hop of the path",
    IMBALANCE: "a queue stands for flows that crowd on one of several equal links, while the others have room",
    "pause-storm": "a NIC sends pause frames without end, and queues spread from its switch port",
    "slow-nic": "a NIC moves its data far below its speed while a queue stands at it",
    "ecn-mistuned": "a queue is marked too late or not at all where others are, or what hardly waited is marked",
    "class-mismatch": "a job's packets do not travel as probes do: RoCE version, GID index, class or queue",
    "transport-mismatch": "RoCE version, GID index or class of a NIC, or a filter for one transport's packets",
    "mtu": "a port or NIC takes smaller packets than the others",
    "remarking": "a device on the way rewrites DSCP or ECN",
    "cabling": "a cable leads elsewhere than planned",
    "naming": "two hosts or NICs were given one name or address",
    "host-gone": "the host or its agent stopped",
    "clock": "a clock stepped or drifted",
    "software": "a part of sdfstream itself cannot work: a full disk, a thread that ended or starves",
    "unknown": "the evidence does not tell",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured fact behind a finding: what, its value and unit, what is normal, and where it was seen."""

    what: str
    value: float
    unit: str
    where: str
    baseline: float | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What a finding is about."""

    type: Literal["link", "port", "nic", "host", "rail", "path", "qp", "job", "clock", "switch", "process"]
    id: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement of a detector; an update repeats the id with a new status and newer evidence."""

    id: str
    kind: str
    severity: Severity
    status: Status
    subject: Subject
    since_at_ns: int
    """When it began, reference time (bus time where no clock is known)."""
    seen_at_ns: int
    """Bus time of this statement."""
    cause: str
    confidence: float
    """Probability that subject and cause are right, 0..1."""
    evidence: tuple[Evidence, ...]
    remedy: str
    suspects: tuple[tuple[str, float], ...] = ()
    """Ambiguity set: (id, probability), most likely first."""
    direction: str = ""
    """Of a link or NIC at fault in one direction: ``a->b``, or ``host/nic tx`` where its switch is not known. Empty:
    both directions, or not told apart."""
    symptoms: tuple[dict[str, Any], ...] = ()
    jobs: tuple[str, ...] = ()
    plane: str | None = None
    resolved_at_ns: int | None = None
    runbook: str = field(default="")
    detail: str = ""
    """What a reader should know beside kind and subject: which direction, which rule fired."""

    def as_data(self) -> dict[str, Any]:
        """The `data` object of ``sdf.event.finding.v1``."""
        data = asdict(self)
        data["class"] = FINDING_KINDS[self.kind][0]
        direction = data.pop("direction")
        if direction:
            data["subject"]["direction"] = direction
        data["suspects"] = [{"id": s, "probability": p} for s, p in self.suspects]
        data["evidence"] = [asdict(e) for e in self.evidence]
        data["symptoms"] = list(self.symptoms)
        data["jobs"] = list(self.jobs)
        data["runbook"] = self.runbook or f"docs/runbooks.md#{self.kind}"
        return data
