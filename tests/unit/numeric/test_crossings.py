"""What all paths cross, or only some."""

import numpy as np
import pytest

from sdfstream.numeric.crossings import CrossingOdds

PATHS, TRIALS, OTHERS = 40, 64, 1e-3


def odds(crossed: np.ndarray, share: float, seed: int) -> CrossingOdds:
    events = np.random.default_rng(seed).poisson(TRIALS * (OTHERS + share * crossed))
    return CrossingOdds.of(events, np.full(crossed.size, TRIALS), np.full(crossed.size, OTHERS))


@pytest.mark.parametrize("seed", range(8))
def test_what_some_paths_cross_once_or_twice_is_told_from_what_all_do(seed: int) -> None:
    every = np.arange(PATHS)
    some = odds(np.random.default_rng(seed).binomial(2, 0.3, PATHS), 0.06, seed)
    assert some.crossed_by_some(every) > some.crossed_by_all(every) + 3.0 > 3.0
    alike = odds(np.ones(PATHS), 0.06, seed)
    assert alike.crossed_by_all(every) > alike.crossed_by_some(every) > 0.0
    assert alike.crossed_by_all(every) < alike.crossed_by_some(every) + 4.0, "sprayed packets may all cross it"


@pytest.mark.parametrize("seed", range(8))
def test_paths_that_lose_nothing_speak_against_it(seed: int) -> None:
    crossed = np.where(np.arange(2 * PATHS) < PATHS, np.random.default_rng(seed).binomial(2, 0.3, 2 * PATHS), 0)
    one = odds(crossed, 0.06, seed)
    assert one.crossed_by_some(np.arange(PATHS)) > one.crossed_by_some(np.arange(2 * PATHS)) + 3.0
    assert one.crossed_by_some(np.arange(PATHS, 2 * PATHS)) < 0.0
    assert one.crossed_by_all(np.arange(PATHS, 2 * PATHS)) < 0.0


def test_no_path_tells_nothing() -> None:
    one = odds(np.ones(4), 0.1, 1)
    assert one.crossed_by_all(np.arange(0)) == one.crossed_by_some(np.arange(0)) == 0.0
