"""Which class of fault is told as which, and how often what was stated with a probability was true.

Classes are those that an operator acts upon differently (M14 of the promises): a queue, flows badly spread,
something broken, something set wrongly, a host, or our own telemetry.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

CONGESTION, IMBALANCE, HARDWARE, CONFIGURATION = "congestion", "imbalance", "hardware", "configuration"
HOST, TELEMETRY = "host", "telemetry"
MISSED, UNKNOWN = "missed", "unknown"
CLASSES: Final = (CONGESTION, IMBALANCE, HARDWARE, CONFIGURATION, HOST, TELEMETRY)
CLASS_OF_FAULT: Final[dict[str, str]] = {
    "nic-down": HARDWARE,
    "link-down": HARDWARE,
    "switch-down": HARDWARE,
    "flap": HARDWARE,
    "link-flap": HARDWARE,
    "gray-loss": HARDWARE,
    "hash-loss": HARDWARE,
    "optic-degrading": HARDWARE,
    "slow-nic": HARDWARE,
    "pfc-storm": HARDWARE,
    "congested-link": CONGESTION,
    "incast": CONGESTION,
    "bursts": CONGESTION,
    "ecmp-imbalance": IMBALANCE,
    "ecn-mistuned": CONFIGURATION,
    "ecn-early": CONFIGURATION,
    "rocev1": CONFIGURATION,
    "mtu": CONFIGURATION,
    "remark": CONFIGURATION,
    "miscabled": CONFIGURATION,
    "host-down": HOST,
    "clock-step": HOST,
    "clock-faulty": HOST,
    "agent-dead": TELEMETRY,
    "agent-late": TELEMETRY,
}
CLASS_OF_CAUSE: Final[dict[str, str]] = {
    "link-failure": HARDWARE,
    "port-disabled": HARDWARE,
    "degraded-link": HARDWARE,
    "gray-failure": HARDWARE,
    "slow-nic": HARDWARE,
    "pause-storm": HARDWARE,
    "queueing": CONGESTION,
    "ecmp-imbalance": IMBALANCE,
    "ecn-mistuned": CONFIGURATION,
    "class-mismatch": CONFIGURATION,
    "transport-mismatch": CONFIGURATION,
    "mtu": CONFIGURATION,
    "remarking": CONFIGURATION,
    "cabling": CONFIGURATION,
    "naming": CONFIGURATION,
    "host-gone": HOST,
    "clock": HOST,
    "software": TELEMETRY,
}
"""Of causes that a finding states; others are `UNKNOWN`. A stopped agent and a dead host look alike from outside, but
their kinds differ."""
_CLASS_OF_KIND: Final[dict[str, str]] = {"agent-stale": TELEMETRY, "agent-degraded": TELEMETRY}
BINS: Final = (0.0, 0.5, 0.7, 0.85, 0.95, 1.0)
"""Edges of the ranges of stated probability; the last range holds its upper edge."""


@dataclass(frozen=True, slots=True)
class Stated:
    """One finding above info: what it stated, and whether that was true of a fault."""

    probability: float
    is_true: bool
    """Its subject was at fault, and its cause right."""


def reported_class(kind: str, cause: str) -> str:
    """Class of a finding.

    >>> reported_class("loss", "gray-failure"), reported_class("agent-stale", "host-gone")
    ('hardware', 'telemetry')
    """
    return _CLASS_OF_KIND.get(kind) or CLASS_OF_CAUSE.get(cause, UNKNOWN)


def matrix(reported: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Numbers of faults by their class, then by the class told; of (kind of fault, class told).

    >>> matrix([("gray-loss", "hardware"), ("gray-loss", "missed"), ("incast", "congestion")])
    {'congestion': {'congestion': 1}, 'hardware': {'hardware': 1, 'missed': 1}}
    """
    counts = Counter((CLASS_OF_FAULT.get(kind, UNKNOWN), said) for kind, said in reported)
    rows = [name for name in (*CLASSES, UNKNOWN) if any(fault == name for fault, _ in counts)]
    columns = (*CLASSES, UNKNOWN, MISSED)
    return {row: {said: counts[row, said] for said in columns if counts[row, said]} for row in rows}


def calibration(stated: Sequence[Stated]) -> list[dict[str, Any]]:
    """Per range of stated probability: findings, the mean that was stated, and the share that was true.

    >>> calibration([Stated(0.9, True), Stated(0.9, False)])
    [{'from': 0.85, 'to': 0.95, 'findings': 2, 'stated': 0.9, 'true': 0.5}]
    """
    found = []
    for low, high in itertools.pairwise(BINS):
        last = high == BINS[-1]
        mine = [s for s in stated if low <= s.probability < high or (last and s.probability >= high)]
        if mine:
            mean = sum(s.probability for s in mine) / len(mine)
            true = sum(s.is_true for s in mine) / len(mine)
            found.append(
                {"from": low, "to": high, "findings": len(mine), "stated": round(mean, 4), "true": round(true, 4)}
            )
    return found
