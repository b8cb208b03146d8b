"""A daemon slews a clock at 500 ppm: 50 µs a tick. Four ticks pass until that is told from wrong stamps.

Before its packets' own disagreement widened the bound at once, ten rows of each run lay outside of theirs, by up to
200 µs at a bound of 90 ns: three at each begin and end of a slew.
"""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.score.clock.cases import BY_NAME, simulate
from sdfstream.score.clock.metrics import clock_slew


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_slewing_clock_is_inside_its_bound_from_the_first_tick_and_the_others_bounds_stay(seed: int) -> None:
    """Seed 3: a session whose bounds contradicted each other while the clock was running went astray by a second.

    What surprised the sessions of the slewed clock passed for wander, its neighbours' too: eight seconds after the last
    slew its bound was 50 µs and the others' errors were three to four times what they are without the slew.
    """
    found = simulate(BY_NAME["slew"], seed)
    figures = clock_slew(20, 38)(found)
    assert figures["inside_s"] < 10.0
    assert figures["others_ratio"] < 1.5
    slewing = found.causal["h03"].between(15.0)
    assert (np.abs(slewing.error) <= slewing.bound).all()
    for name, track in found.causal.items():
        if name != "h03":
            others = track.between(15.0)
            assert np.median(others.bound) < 1000.0
            assert (np.abs(others.error) <= others.bound).mean() > 0.99, name
