"""Crashes placed in the stages: before and after every read, commit and snapshot of each (``tests/crashes.py``)."""

from __future__ import annotations

from tests.chaos.placements import PlacementReport
from tests.crashes import kill_stages


def placements(seed: int, n: int) -> PlacementReport:
    """About `n` of them."""
    tally = kill_stages(seed, n)
    return PlacementReport(tally.placed, tally.lost, tally.doubled, tally.failures)
