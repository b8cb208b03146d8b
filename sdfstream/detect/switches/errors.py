"""Switches' ports whose error counters rise, told of the cable that hangs there.

Limits and rates are those of a host's ports (`ports`). A ``port-errors`` finding is about the declared link, or about
the NIC that the cable leads to; where no cable is declared, about the port itself. Both ends of a link are one matter.
``direction`` follows from the counter: a port counts what comes in damaged, and what it could not send.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import Detection
from sdfstream.detect.instant import Instant
from sdfstream.detect.ports import COUNTERS, PortDetector
from sdfstream.detect.switches.cables import cable_of, ends_of
from sdfstream.records.fabric import direction_id
from sdfstream.records.finding import Subject

_MOST_EVIDENCE: Final = 8


class SwitchPortErrors:
    """Error, discard and FEC counters of switches' ports."""

    def __init__(self, config: DetectConfig, cabling: Cabling) -> None:
        self.cabling = cabling
        self._ports = PortDetector(config)

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a ``sdf.raw.port.v1`` message of a switch; a row of state alone is no reading of the counters."""
        counted = np.zeros(batch.num_rows, np.bool_)
        for name in COUNTERS:
            index = batch.schema.get_field_index(name)
            if index >= 0:
                counted |= batch.column(index).is_valid().to_numpy(zero_copy_only=False)
        if counted.any():
            self._ports.take(batch.filter(pa.array(counted)), at_ns)

    def detections(self, now: Instant) -> list[Detection]:
        """Cables at whose ports counters rose lately; both ends of one are one matter."""
        found: dict[Subject, list[Detection]] = {}
        for detection in self._ports.detections(now):
            cable = cable_of(self.cabling.topology, detection.subject.id) or detection.subject
            found.setdefault(cable, []).append(detection)
        return [self._joined(cable, ends) for cable, ends in found.items()]

    def _joined(self, cable: Subject, ends: list[Detection]) -> Detection:
        worst = next((d for d in ends if d.cause == "degraded-link"), ends[0])
        directions = [d for end in ends for d in self._directions(end)]
        return replace(
            worst,
            subject=cable,
            since_ns=min(d.since_ns for d in ends),
            severity="info" if all(d.severity == "info" for d in ends) else "warning",
            confidence=max(d.confidence for d in ends),
            evidence=tuple(e for d in ends for e in d.evidence)[:_MOST_EVIDENCE],
            suspects=tuple((d.subject.id, 1.0) for d in ends),
            detail="; ".join(f"{d.detail} at {d.subject.id}" for d in ends),
            directions=tuple(dict.fromkeys(directions)),
        )

    def _directions(self, end: Detection) -> list[str]:
        """Directions of the cable that a port's counters blame: it counts what comes in, or does not go out."""
        ends = ends_of(self.cabling.topology, end.subject.id)
        if ends is None:
            return []
        sends = [e.what.startswith("tx-") for e in end.evidence]
        return [direction_id(*ends) if out else direction_id(*ends[::-1]) for out in sends]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return self._ports.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._ports.restore(state)
