"""Which trouble leads to which action: a table from the settings, and the links it points at right now.

====================== ================================== ========= ===========================================
trouble                where                              action    switched by
====================== ================================== ========= ===========================================
finding of a kind in   a link, or a switch with suspects  steer     ``steer_on``, ``least_confidence``
``steer_on``
two or more queue      a link with a queue on it          steer     ``steer_collisions``
pairs on one link
finding ``congestion`` from a leaf to a NIC               throttle  ``throttle_incast``
====================== ================================== ========= ===========================================

Dead links are in no row: agents move queue pairs away from them by themselves (`arming`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sdfstream.actuate.parts import Parts

_STEERED: tuple[str, ...] = ("link", "switch")


@dataclass(slots=True)
class Hot:
    """A link direction that is too full."""

    hop: str
    reason: tuple[str, ...] = ()
    """Finding ids; none: queue pairs collide there."""
    qps: list[str] = field(default_factory=list)
    """Queue pairs whose data cross it, by name."""


@dataclass(frozen=True, slots=True)
class Incast:
    """A NIC that more converges on than its cable carries."""

    nic: str
    reason: tuple[str, ...]


def crossing(loads: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Hop to the queue pairs whose data cross it, their own NIC's cable left out; by name."""
    found: dict[str, list[str]] = {}
    for qp in sorted(loads):
        for hop in loads[qp][1:]:
            found.setdefault(hop, []).append(qp)
    return found


def hot_links(parts: Parts, rates: Mapping[str, float], now_ns: int) -> list[Hot]:
    """Links that queue pairs are to be moved away from: those of findings first, then where they collide."""
    found = crossing(parts.loads.of)
    hot: dict[str, Hot] = {}
    for trouble in parts.findings:
        if trouble.subject_type not in _STEERED or not trouble.confidence >= parts.config.least_confidence:
            continue
        for direction in trouble.directions:
            hop = parts.topology.hop(direction)
            if hop is not None and hop in found:
                known = hot.setdefault(hop, Hot(hop, (), found[hop]))
                known.reason = (*known.reason, trouble.id)
    if parts.config.steer_collisions:
        for hop in sorted(found):
            if hop not in hot and len(found[hop]) >= 2 and _full(parts, hop, found[hop], rates):
                queue = parts.queue(hop, now_ns)
                if queue.n and queue.excess_ns >= parts.standing_ns(hop):
                    hot[hop] = Hot(hop, (), found[hop])
    return list(hot.values())


def _full(parts: Parts, hop: str, qps: Sequence[str], rates: Mapping[str, float]) -> bool:
    """Whether what queue pairs get on a link comes near what it carries; where that is not known, it may."""
    speed = parts.topology.speed_bps(hop)
    return not speed or sum(rates.get(qp, 0.0) for qp in qps) >= 0.5 * speed


def incasts(parts: Parts) -> list[Incast]:
    """NICs that a finding says are converged upon."""
    found: dict[str, tuple[str, ...]] = {}
    for trouble in parts.findings:
        if trouble.kind != "congestion" or not trouble.confidence >= parts.config.least_confidence:
            continue
        for direction in trouble.directions:
            nic = direction.partition("->")[2]
            if parts.topology.nic_speed_bps(nic):
                found[nic] = (*found.get(nic, ()), trouble.id)
    return [Incast(nic, reason) for nic, reason in sorted(found.items())]
