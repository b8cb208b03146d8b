"""What a detector may use at one evaluation, beside its own state: a detector is asked, and reaches for no other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sdfstream.detect.detections import Detection
from sdfstream.detect.silence import Silence
from sdfstream.records.finding import Subject


class OpenFindings(Protocol):
    """Findings that are pending or open (`Ledger`)."""

    def is_open(self, kind: str, subject: Subject) -> bool:
        """Whether a finding of this kind about this subject is open."""

    def reported(self, kind: str) -> frozenset[str]:
        """Subject ids of all open findings of this kind."""

    def open_ids(self, kinds: tuple[str, ...]) -> frozenset[str]:
        """Subject ids of all pending and open findings of these kinds."""

    def published(self, source: str) -> list[Detection]:
        """Everything of detector `source` that is open."""

    def standing(self, but: str) -> list[Detection]:
        """Everything pending or open of detectors other than `but`."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One 100 ms boundary."""

    now_ns: int
    """Bus time."""
    reached_ns: int
    """Bus time less what all agents' messages are late together: the age of rows is compared with this."""
    silence: Silence
    findings: OpenFindings
    left_out: npt.NDArray[np.bool_]
    """(sessions,) silent, or one of its agents is late or mute: its loss, marks and delay prove nothing."""
    late: npt.NDArray[np.bool_]
    """(sessions,) one of whose agents is late or mute: what they lost lately is not known."""
    found: dict[str, list[Detection]] = field(default_factory=dict)
    """Detections of those asked before at this instant, by name of the detector."""


class Detector(Protocol):
    """One kind of evidence and what follows from it."""

    def detections(self, now: Instant) -> list[Detection]:
        """Conditions that hold now; each is repeated at every evaluation for as long as it holds."""
