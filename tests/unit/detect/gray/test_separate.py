"""A switch that is named for want of a clear cable waits until its cables had time to be told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sdfstream.detect.gray.known import Course, Look, LossCounts
from sdfstream.detect.localise import Location
from sdfstream.detect.stage import DetectStage
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_MS

PATHS, LOOK = 6, Look(0, 8)


class Seen:
    """Eight bins in which every path loses a tenth."""

    def __init__(self, bin_ms: int) -> None:
        self.bin_ms = bin_ms

    def of(self, _: Look) -> LossCounts:
        return LossCounts(np.full(PATHS, 8), np.full(PATHS, 80))

    def bins(self, look: Look) -> int:
        return look.bins

    def over(self, slots: Any, ring: int, bins: int) -> Course:
        return Course(np.full(bins, 6), np.full(bins, 60), 100, self.bin_ms * NS_PER_MS)


@pytest.mark.parametrize(
    ("subject", "probability", "bin_ms", "named"),
    [
        (Subject("switch", "s0"), 0.5, 200, False),
        (Subject("switch", "s0"), 0.5, 600, True),
        (Subject("switch", "s0"), 1.0, 200, False),
        (Subject("switch", "s0"), 1.0, 600, True),
        (Subject("link", "l0--s0"), 0.5, 200, False),
        (Subject("link", "l0--s0"), 0.5, 600, True),
        (Subject("link", "l0--s0"), 1.0, 200, True),
    ],
)
def test_an_element_is_named_early_only_where_it_is_clear(
    subject: Subject, probability: float, bin_ms: int, named: bool
) -> None:
    detector: Any = next(d for name, _, d in DetectStage()._engines.detectors if name == "loss")
    slots = np.arange(PATHS)
    location = Location(subject, [subject.id], True, 0.1, slots, [(subject.id, probability)], probability)
    counts = LossCounts(np.full(PATHS, 8), np.full(PATHS, 80))

    lossy = detector._evaluate(location, np.ones(PATHS), LOOK, counts, Seen(bin_ms), np.full(PATHS, 1e-3))

    assert (lossy is not None) is named


@pytest.mark.parametrize("kind", ["switch", "nic", "link"])
@pytest.mark.parametrize(("beside", "lost_elsewhere"), [(3, 0), (3, 8), (6, 8)])
def test_what_loses_beside_cables_that_stand_loses_on_other_paths_as_well(
    kind: Any, beside: int, lost_elsewhere: int
) -> None:
    """A standing cable whose other direction is not known yet makes its switch, or a NIC behind it, seem to lose."""
    detector: Any = next(d for name, _, d in DetectStage()._engines.detectors if name == "loss")
    slots = np.arange(PATHS)
    location = Location(Subject(kind, "x"), ["x"], True, 0.1, slots, [("x", 1.0)], 1.0)
    counts = LossCounts(np.where(slots < beside, 8, lost_elsewhere), np.full(PATHS, 80))
    detector.standing = {Subject("link", "l0--s0"): None}
    detector._beside_standing = lambda these: these < beside

    shown = detector._shown_beside(location, slots, counts, np.full(PATHS, 1e-3), detector.limit)

    assert shown is (kind != "switch" if beside == PATHS else lost_elsewhere > 0)
