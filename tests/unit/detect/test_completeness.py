"""Rows due and rows received: shed rows cost confidence, whole ones nothing."""

import numpy as np
import pytest

from sdfstream.detect.completeness import RowCompleteness
from sdfstream.detect.detections import Detection
from sdfstream.records.finding import Subject

S = 1_000_000_000
LINK = Detection("link-down", Subject("link", "l0--s0"), 0, "link-failure", 0.9, ())
CLOCK = Detection("clock-faulty", Subject("clock", "h00"), 0, "clock", 0.9, ())


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_the_share_is_found_and_lowers_what_rests_on_probes(share: float, seed: int) -> None:
    rng, rows = np.random.default_rng(seed), RowCompleteness()
    for i in range(200):
        rows.take(70, int(rng.binomial(70, share)), i * S // 10)
    assert rows.share() == pytest.approx(share, abs=0.05)
    link, clock = rows.weaken([LINK, CLOCK])
    assert link.confidence == pytest.approx(0.9 * (1 + share) / 2, abs=0.03)
    assert [e.what for e in link.evidence] == ["rows-received"] and clock == CLOCK


def test_whole_rows_and_too_few_change_nothing() -> None:
    rows = RowCompleteness()
    rows.take(50, 1, 0)
    assert rows.weaken([LINK]) == [LINK]
    for i in range(1, 200):
        rows.take(70, 67, i * S // 10)
    assert rows.share() == 1.0 and rows.weaken([LINK]) == [LINK]
