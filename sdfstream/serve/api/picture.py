"""What an answer is made of: the boards as of one instant, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.alerts.received import ReceivedAlerts
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.records.units import NS_PER_S

FRESH_NS: Final = 5 * NS_PER_S
"""Data older than this says nothing about now: as for every NIC and path of the board."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Both boards, of now or of the past."""

    board: Board
    jobs: JobBoard
    at_ns: int
    """Bus time of the answer."""
    known_at_ns: int
    """Bus time of which findings speak."""
    source: Mapping[str, Any] = field(default_factory=lambda: {"kind": "pipeline"})
    lag: Mapping[str, int] = field(default_factory=dict)
    received: ReceivedAlerts = field(default_factory=ReceivedAlerts)
    """What an Alertmanager told of; nothing in the past."""

    @property
    def age_ns(self) -> int | None:
        """Age, at `at_ns`, of the newest that any host reported; None: none has."""
        return self.board.age_ns(self.at_ns)

    @property
    def is_fresh(self) -> bool:
        """Whether what it says of now is of now."""
        age_ns = self.age_ns
        return age_ns is not None and age_ns <= FRESH_NS and self.at_ns - self.known_at_ns <= FRESH_NS

    @property
    def head(self) -> dict[str, Any]:
        """What every answer says about itself."""
        return {
            "as_of_ns": self.at_ns,
            "known_at_ns": self.known_at_ns,
            "data_age_ns": self.age_ns,
            "fresh": self.is_fresh,
            "source": dict(self.source),
        }

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the data is fresh, and the figures that say so: ``/healthz``."""
        age_ns = self.age_ns
        if age_ns is None:
            why = "no host has reported anything yet"
        elif age_ns > FRESH_NS:
            why = f"the newest data is {age_ns / NS_PER_S:.1f} s old"
        elif not self.is_fresh:
            why = f"findings speak of {(self.at_ns - self.known_at_ns) / NS_PER_S:.1f} s ago"
        else:
            why = "data is fresh"
        return self.is_fresh, {"fresh": self.is_fresh, "why": why, "data_age_ns": age_ns, "as_of_ns": self.at_ns}
