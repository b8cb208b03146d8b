"""What counts as growth by the hour."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.day import grows


@pytest.mark.parametrize(
    ("slope", "noise", "least", "most"),
    [
        (0.0, 0.5, 0.0, 0.0),
        (0.01, 0.5, 0.0, 0.0),  # 0.2 of 100 over the hours judged
        (1.0, 0.5, 1.0, 1.0),
        (-1.0, 0.5, 0.0, 0.0),
        (0.0, 5.0, 0.0, 0.1),  # two standard errors are one draw in forty
    ],
)
def test_growth_is_beyond_its_error_and_three_per_cent(slope: float, noise: float, least: float, most: float) -> None:
    verdicts = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        hours = [{"rss_mb": 100.0 + slope * hour + rng.normal(0.0, noise)} for hour in range(17)]
        each, error, grown = grows(hours, "rss_mb")
        assert abs(each - slope) < 6 * error
        verdicts.append(grown)
    assert least <= np.mean(verdicts) <= most
