"""One sentence a person can follow, per kind of finding."""

from __future__ import annotations

from typing import Final

from sdfstream.records.finding import Subject

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
    "miscabled": "Compare the cabling of {id} with the plan; move the cable, or correct the plan.",
    "clock-unsynced": "Check that the agent of clock {id} runs and that some path to it answers.",
    "clock-faulty": "Check the clock source and time daemon of {id}; its delays are not judged meanwhile.",
    "agent-stale": "Restart the agent of {id} or its way to the bus; what it watches is unknown until then.",
}


def remedy(kind: str, subject: Subject) -> str:
    """The sentence for this finding."""
    return _REMEDIES.get(kind, "Look at the evidence of {id}.").format(id=subject.id)
