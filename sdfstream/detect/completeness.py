"""Which share of the exchanges came as rows: what is shed on its way weakens every finding from probes.

Sequence numbers go on with each probe; so many numbers, so many rows are due. Both are summed with a memory of some
seconds over all sessions, since a lost probe's row comes later than its neighbours'.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from sdfstream.detect.detections import Detection
from sdfstream.records.finding import Evidence
from sdfstream.records.units import NS_PER_S

_MEMORY_NS: Final = 10 * NS_PER_S
_LEAST_DUE: Final = 200.0
"""Rows that must have been due before a share says anything."""
_WHOLE: Final = 0.9
"""From this share on rows count as whole: lost probes' rows are still to come."""
_FROM_PROBES: Final = frozenset(
    {"nic-down", "link-down", "path-down", "host-silent", "loss", "congestion", "ecn-marks", "class-rewritten"}
)


@dataclass(slots=True)
class RowCompleteness:
    """Sums of rows due and rows received, decaying with bus time."""

    due: float = 0.0
    received: float = 0.0
    at_ns: int = 0

    def take(self, due: int, received: int, at_ns: int) -> None:
        """Take a message with `received` rows, in whose sessions `due` probes were sent since their last rows."""
        decay = float(np.exp(-max(0, at_ns - self.at_ns) / _MEMORY_NS)) if self.at_ns else 0.0
        self.due, self.received = self.due * decay + due, self.received * decay + received
        self.at_ns = max(self.at_ns, at_ns)

    def share(self) -> float:
        """Share of the rows that came, of those that were due; 1 where that is not known, or next to all came."""
        if self.due < _LEAST_DUE:
            return 1.0
        share = max(0.0, self.received / self.due)
        return share if share < _WHOLE else 1.0

    def weaken(self, detections: list[Detection]) -> list[Detection]:
        """The detections; while rows are shed, those from probes with less confidence (half, where none came)."""
        share = self.share()
        if share == 1.0:
            return detections
        came = Evidence("rows-received", round(share, 2), "1", "all agents", 1.0)
        return [
            replace(d, confidence=d.confidence * (1 + share) / 2, evidence=(*d.evidence, came))
            if d.kind in _FROM_PROBES
            else d
            for d in detections
        ]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return asdict(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.due, self.received, self.at_ns = float(state["due"]), float(state["received"]), int(state["at_ns"])
