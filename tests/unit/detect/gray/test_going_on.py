"""Loss that goes on evenly is told from what has ended, what has just begun, and outages: by probe after probe."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.gray.going_on import lost_evenly
from sdfstream.detect.runs import LossRuns
from sdfstream.detect.sessions import Sessions

MS, S = 1_000_000, 1_000_000_000
T0 = 1_800_000_000 * S
PATHS, BEFORE = 60, 70
LIMIT_NS = 600 * MS


def runs_of(shares: list[float], seed: int = 0, before: int = BEFORE) -> tuple[LossRuns, np.ndarray]:
    """Of many sessions the answers to probes before any was lost, and of as many as `shares` says of each after."""
    sessions, rng = Sessions(PATHS), np.random.default_rng(seed)
    slots = sessions.of_names([("a/0", "b/0", "udp", 50000 + i, 0) for i in range(PATHS)], T0)
    runs = LossRuns(sessions)
    runs.ensure()
    for seq, share in enumerate([0.0] * before + shares, start=1000):
        some = slots[rng.random(PATHS) >= share]
        at_ns = np.full(some.size, T0 + seq * 100 * MS)
        runs.take_rows(
            some, np.full(some.size, seq), np.ones(some.size, np.bool_), at_ns, np.zeros(some.size, np.int64)
        )
    return runs, slots


def found(shares: list[float], seed: int = 0, interval_ns: int = 100 * MS) -> tuple[int, int]:
    runs, slots = runs_of(shares, seed)
    return lost_evenly(runs, slots, np.full(PATHS, interval_ns), LIMIT_NS)


@pytest.mark.parametrize("seed", range(5))
def test_what_all_paths_lose_of_their_last_probes_goes_on(seed: int) -> None:
    events, probes = found([0.25] * 9, seed)
    assert 0.12 < events / probes < 0.25, "runs of lost probes, for each that was answered or begins one"
    assert probes > 3 * PATHS


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param([0.4] * 3, id="has just begun"),
        pytest.param([0.4] * 4 + [0.0] * 3, id="is over"),
        pytest.param([0.02] * 3 + [0.97] * 2 + [0.02] * 3, id="an outage of all"),
        pytest.param([0.4, 0.4, 0.0, 0.0, 0.4, 0.4, 0.0], id="comes and goes"),
        pytest.param([0.0] * 9, id="nothing"),
    ],
)
def test_what_some_of_the_last_probes_were_spared_by_does_not(shares: list[float]) -> None:
    assert found(shares) == (0, 0)


def test_of_sessions_that_are_new_nothing_is_known_before_their_first_answer() -> None:
    runs, slots = runs_of([0.5] * 4, before=0)
    assert lost_evenly(runs, slots, np.full(PATHS, 100 * MS), LIMIT_NS) == (0, 0)


def test_slow_probes_are_asked_for_as_many_and_fast_ones_for_as_long() -> None:
    assert found([0.25] * 9, interval_ns=S)[0] > 0
    assert found([0.25] * 9, interval_ns=50 * MS) == (0, 0), "twelve probes are sent in 600 ms"
    assert found([0.25] * 15, interval_ns=50 * MS)[0] > 0
    assert found([0.25] * 70, interval_ns=MS) == (0, 0), "so many are not remembered"
    assert found([0.25] * 9, interval_ns=0) == (0, 0)
