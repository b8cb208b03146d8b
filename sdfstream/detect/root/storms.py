"""The culprit of a PFC storm: the NIC that pauses its switch, named in place of the queues that it makes.

A pause alone is no finding: a NIC pauses for an instant now and then, and hurts nobody. Here it must meet a queue that
began with it, at the NIC itself or around its leaf.
"""

from __future__ import annotations

from dataclasses import replace

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import Detection
from sdfstream.detect.root.pauses import PauseRates
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_S

CAUSE = "pause-storm"
_BEFORE_NS = 2 * NS_PER_S
"""A queue is told with the beginning of its slow windows, which wait for each other; readings have their own times."""


def name_culprits(queues: list[Detection], pauses: PauseRates, cabling: Cabling, now_ns: int) -> list[Detection]:
    """`queues` with one detection per storming NIC among them, in place of what was found at that NIC."""
    storming = pauses.storming(now_ns) if queues else {}
    for nic, (began_ns, rate_hz, usual_hz) in storming.items():
        near = [q for q in queues if q.since_ns >= began_ns - _BEFORE_NS and _near(q.subject, nic, cabling)]
        if not near:
            continue
        own = next((q for q in near if q.subject == Subject("nic", nic)), None)
        first = own or min(near, key=lambda q: (q.since_ns, q.subject.id))
        sent = Evidence("tx-pause", round(rate_hz, 1), "1/s", nic, round(usual_hz, 1))
        culprit = replace(
            first,
            subject=Subject("nic", nic),
            since_ns=min(q.since_ns for q in near),
            cause=CAUSE,
            confidence=0.95,
            severity="urgent",
            evidence=(sent, *first.evidence),
            suspects=((cabling.side(nic, "rx"), 0.95),),
            detail=f"{nic} pauses its switch port; queues spread from there",
            directions=(cabling.side(nic, "rx"),),
            direction_known=True,
        )
        queues = [culprit, *(q for q in queues if q.subject != culprit.subject)]
    return queues


def _near(subject: Subject, nic: str, cabling: Cabling) -> bool:
    """Whether a queue there may be made by a NIC's pauses at first hand: at the NIC, at its leaf, at the leaf's links.

    Where the leaf is not known, any queue may.
    """
    leaf = cabling.topology.leaf_of.get(nic)
    if leaf is None or subject == Subject("nic", nic):
        return True
    return leaf == subject.id or (subject.type in ("link", "nic") and leaf in cabling.switches_of(subject))
