"""What a detector finds at one instant; the ledger turns detections into findings with a life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.detect.inferred.hidden import CORE
from sdfstream.records.finding import IMBALANCE, Evidence, Severity, Subject
from sdfstream.records.units import NS_PER_S

MAX_SYMPTOMS = 20


@dataclass(frozen=True, slots=True)
class Detection:
    """A condition that holds now, repeated at every evaluation for as long as it holds."""

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
    """Detected for this long before a finding is opened."""
    measured_ns: int | None = None
    """For how long measurements show it, which must be `confirm_ns` too: where they come late, time that passes
    confirms nothing. None: every evaluation measures anew."""
    hold_ns: int = NS_PER_S
    """Not detected for this long before the finding is resolved."""
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
    attached: int = 0
    """The first so many symptoms are detections that were put under it (`root.symptoms`); more are worth an update."""
    over_ns: int = 0
    """It ended at this bus time, before it was found: told once, as resolved. 0: it holds now."""
    sessions: tuple[int, ...] = ()
    """Numbers of the sessions of which the symptoms tell."""
    missed: int = 0
    """Of silent paths: probes in a row without an answer, on the one of `sessions` that missed most; 0: not told."""
    alone: bool = False
    """Known not to follow from anything wider: others like it work."""
    remedy: str = ""
    """What to do, where that is not what its kind and cause say."""
    instead_of: tuple[tuple[str, str], ...] = ()
    """Type and id of subjects that the same was laid to before."""

    @property
    def direction(self) -> str:
        """The one direction that is sick; empty: both are, it is not told apart, or the subject has none."""
        directed = self.subject.type in ("link", "nic", "port") and self.direction_known and len(self.directions) == 1
        return self.directions[0] if directed else ""


def revived(saved: Mapping[str, Any]) -> Detection:
    """A detection from the plain values that a snapshot holds."""
    detection = dict(saved)
    detection["subject"] = Subject(**detection["subject"])
    detection["evidence"] = tuple(Evidence(**e) for e in detection["evidence"])
    detection["suspects"] = tuple((s, p) for s, p in detection["suspects"])
    for name in ("symptoms", "directions", "classes", "jobs", "sessions"):
        detection[name] = tuple(detection[name])
    detection["instead_of"] = tuple((t, i) for t, i in detection.get("instead_of", ()))  # a release before had none
    return Detection(**detection)


def symptom(kind: str, subject: Subject, since_ns: int) -> dict[str, Any]:
    """A finding-like object for what is only a consequence."""
    return {"kind": kind, "subject": {"type": subject.type, "id": subject.id}, "since_at_ns": int(since_ns)}


TRANSPORT_SILENT: Final = "transport-silent"
"""Kind of finding: one transport does not pass a NIC whose cable carries another."""
MTU_MISMATCH: Final = "mtu-mismatch"
"""Kind of finding: large packets do not pass what small ones do."""
SOUND: Final = frozenset({TRANSPORT_SILENT, MTU_MISMATCH, "loss"})
"""Kinds of silence whose subject carries other packets: its cable is sound, its host reachable."""

_REMEDIES: Final[dict[str, str]] = {
    "nic-down": "Check cable and transceiver of {id} and its leaf port; move its traffic to other rails.",
    "link-down": "Check cable, optics and forwarding entries of {id}; drain it from the ECMP group until probes pass.",
    "path-down": "Trace {id} hop by hop; a hash bucket, an access list or a class may drop just this path.",
    "host-silent": "Check power, management access and the agent of {id}; reschedule its jobs.",
    "link-flap": "Reseat or replace the cable and optics of {id}; keep it out of service until it has been stable.",
    "loss": "Read the error counters at both ends of {id}; clean or replace its optics, drain it meanwhile.",
    "congestion": "Find what fills the queue at {id}: spread its flows over other ports, or slow the sender.",
    "ecn-marks": "Compare the marking thresholds of {id} with its tier and look for the flows that fill it.",
    "class-rewritten": "Correct the DSCP trust and rewrite rules at {id}; traffic leaves its class there.",
    "port-errors": "Clean or replace the optics and cable of {id}; watch whether its error counters go on rising.",
    "qp-slow": "Probe the way of {id} in its own class, and look at both its hosts; move it to another path meanwhile.",
    "duplicate-host": "Give every host a name of its own; stop the second producer of {id}: its rows mix in.",
    "duplicate-address": "Give one of the NICs that share the address of {id} another; probes to it reach either.",
    "transport-silent": "Compare RoCE version and GID index of {id} (rdma show), and filters and queues for port 4791.",
    "mtu-mismatch": "Compare the MTU at both ends of {id} with that of the hosts; raise it, or lower the hosts'.",
    "miscabled": "Compare the cabling of {id} with the plan; move the cable, or correct the plan.",
    "inband-mismatch": "Compare RoCE version, GID index, traffic class and queue of {id} with those of the probes.",
    "clock-step": "Check the time daemon and clock source of {id}; delays around the step are not to be trusted.",
    "clock-unsynced": "Check that the agent of clock {id} runs and that some path to it answers.",
    "clock-faulty": "Check the clock source and time daemon of {id}; its delays are not judged meanwhile.",
    "pipeline-degraded": "Free or enlarge the disk of {id}, restart its process, or give it more processor time.",
    "agent-degraded": "Look at disk, processor and limits of the agent on {id}, as the detail says.",
    "agent-stale": "Restart the agent of {id} or its way to the bus; what it watches is unknown until then.",
}


_MISTUNED: Final = "Compare the marking thresholds of {id} with its tier, kB with bytes: it marks what hardly waited."


_CROWDED: Final = (
    "Give {switch} another hash seed or more header fields to hash, or adaptive routing; move queue pairs to other"
    " ports meanwhile."
)


_SPINES: Final = (
    "Read the error counters of all switches above the leaves; take one after the other out of routing until it ends."
)


def remedy(kind: str, subject: Subject, cause: str = "") -> str:
    """The sentence for this finding."""
    if kind == "ecn-marks" and cause == "ecn-mistuned":
        return _MISTUNED.format(id=subject.id)
    if cause == IMBALANCE:
        return _CROWDED.format(switch=subject.id if subject.type == "switch" else f"the switch before {subject.id}")
    if kind == "loss" and subject.id == CORE:
        return _SPINES
    if kind == "agent-stale" and subject.type == "process":
        return "Look at the bus and the network that all agents reach it by; nothing is watched until they are heard."
    return _REMEDIES.get(kind, "Look at the evidence of {id}.").format(id=subject.id)
