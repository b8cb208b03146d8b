"""Outages that were over before they counted as silence: told once, as information, resolved from the start.

A path that is down until the fabric has rerouted it loses a third of a second: too short to wake anybody, long enough
for a transport to time out. Gaps of subjects that flap, or that are down still, are those findings' own.
"""

from __future__ import annotations

from typing import Any

from sdfstream.detect.detections import Detection, symptom
from sdfstream.detect.flap import FlapDetector
from sdfstream.detect.inferred.hidden import evidence_of
from sdfstream.detect.instant import Instant
from sdfstream.detect.runs import Gap
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_REMEMBERED_NS = 60 * NS_PER_S
_KINDS = {"nic": "nic-down", "host": "nic-down", "link": "link-down", "switch": "link-down"}


class TransientDetector:
    """Findings of the gaps that closed at this instant; the flap detector, which is asked before, has located them."""

    def __init__(self, flaps: FlapDetector) -> None:
        self.flaps = flaps
        self._reported: dict[str, int] = {}
        """End of the last gap told of each subject, bus time."""

    def detections(self, now: Instant) -> list[Detection]:
        """One per gap and subject: paths whose probes time out later show the same gap once more."""
        found = []
        for gap in self.flaps.gaps:
            name = f"{gap.subject.type} {gap.subject.id}"
            if gap.down_ns > self._reported.get(name, 0) and not now.findings.is_open("link-flap", gap.subject):
                found.append(self._detection(gap))
                self._reported[name] = gap.up_ns
        if found:
            self._reported = {
                name: up_ns for name, up_ns in self._reported.items() if now.now_ns - up_ns < _REMEMBERED_NS
            }
        return found

    def _detection(self, gap: Gap) -> Detection:
        where = " ".join(gap.found.directions)
        lasted_ms = (gap.up_ns - gap.down_ns) / NS_PER_MS
        return Detection(
            _KINDS[gap.subject.type],
            gap.subject,
            gap.down_ns,
            "link-failure",
            gap.found.probability,
            (
                Evidence("silent-for", round(lasted_ms), "ms", where, 0.0),
                Evidence("silent-paths", float(gap.found.slots.size), "paths", where, 0.0),
                *evidence_of(gap.found.beside, gap.subject),
            ),
            severity="info",
            suspects=tuple(gap.found.suspects),
            symptoms=tuple(symptom("path-down", Subject("path", path), gap.down_ns) for path in gap.paths),
            detail=f"was silent for {lasted_ms:.0f} ms, and works again: {where}",
            directions=tuple(gap.found.directions),
            direction_known=gap.found.direction_known,
            over_ns=gap.up_ns,
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return dict(self._reported)

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._reported = {str(name): int(up_ns) for name, up_ns in state.items()}
