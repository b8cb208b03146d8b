"""Whether an inferred link drops some flows or all, by how many of its switch's paths are dead."""

import numpy as np
import pytest

from sdfstream.detect.inferred.some_flows import drops_some


@pytest.mark.parametrize(("nics", "uplinks"), [(4, 4), (4, 2), (8, 4), (2, 4)])
def test_a_link_that_passes_nothing_is_hardly_taken_for_one_that_drops_some(nics: int, uplinks: int) -> None:
    dead = np.random.default_rng(1).binomial(80, 1 / uplinks, 300)
    wrong = np.mean([drops_some(int(k), 80, nics) > 0.5 for k in dead])
    assert wrong < 0.05


@pytest.mark.parametrize("nics", [4, 8])
def test_one_that_drops_a_third_of_the_flows_of_one_uplink_of_as_many_as_nics_is_told(nics: int) -> None:
    dead = np.random.default_rng(2).binomial(120, 1 / 3 / nics, 300)
    assert np.mean([drops_some(int(k), 120, nics) > 0.5 for k in dead]) > (0.9 if nics == 4 else 0.8)


def test_the_closed_form_is_the_integral_over_all_shares() -> None:
    shares = (np.arange(20_000) + 0.5) / 20_000
    none = some = 0.0
    for uplinks in range(1, 9):
        p = shares / uplinks
        some += float(np.mean(np.exp(3 * np.log(p) + 17 * np.log1p(-p))))
        none += uplinks**-3 * (1 - 1 / uplinks) ** 17
    assert drops_some(3, 20, 2) == pytest.approx(some / (some + none), rel=1e-4)


def test_many_paths_and_none_dead_but_a_few() -> None:
    assert drops_some(2, 50_000, 64) == pytest.approx(1.0)
    assert drops_some(20, 20, 1) < 0.2
