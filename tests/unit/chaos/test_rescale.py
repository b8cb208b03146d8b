"""When a lag counts as back to normal after a rescale."""

from __future__ import annotations

import pytest

from tests.trials.rescale import RESCALED, Lags


def lags(behind: list[int]) -> Lags:
    """One look a second; the change is at 30.5 s."""
    found = Lags([float(s) for s in range(len(behind))], {stage: list(behind) for stage in RESCALED})
    found.changed_s = {"2 to 6": 30.5}
    return found


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([40, 40, 40], (0.5, 40)),  # it never left what is normal
        ([400, 900, 300, 50, 49, 12], (3.5, 900)),
        ([400, 50, 400, 50, 50, 50], (3.5, 400)),  # not before it stays
        ([400, 50, 50], (-1.0, 400)),
        ([51] * 60, (-1.0, 51)),
    ],
)
def test_the_lag_is_back_when_it_stays_within_the_most_before(after: list[int], expected: tuple[float, int]) -> None:
    found = lags([10, 50] * 15 + [20] + after)
    assert found.normal("detect") == 50
    assert found.back_s("detect", "2 to 6") == expected
