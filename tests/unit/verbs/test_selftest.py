"""What is concluded from a field test."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.verbs.capabilities import capabilities
from sdfstream.verbs.selftest import PortTrial, delay_follows_port, selftest_report

CAN = capabilities(0x02C9, {"udp-sport": ""}, paced=False)


def trial(
    port: int, completion_ns: tuple[int, ...] = (), *, completed: int = 16, errors: int = 0, why: str = ""
) -> PortTrial:
    return PortTrial(port, why, 1_500_000, 16, completed, errors, completion_ns)


def delays(rng: np.random.Generator, mean_ns: float, n: int = 100) -> tuple[int, ...]:
    return tuple(int(v) for v in rng.normal(mean_ns, 2_000, n))


def test_a_path_that_is_slower_is_seen_and_chance_is_not() -> None:
    rng = np.random.default_rng(5)
    alike = sum(delay_follows_port([trial(p, delays(rng, 20_000)) for p in range(8)])[0] is True for _ in range(200))
    assert alike == 0
    for _ in range(50):
        trials = [trial(p, delays(rng, 20_000 if p % 2 else 23_000)) for p in range(8)]
        assert delay_follows_port(trials)[0] is True


@pytest.mark.parametrize("trials", [[], [trial(1, (1,) * 50)], [trial(1, (1,) * 50), trial(2, (900_000,) * 3)]])
def test_too_little_to_know(trials: list[PortTrial]) -> None:
    assert delay_follows_port(trials)[0] is None


def test_constant_delays_that_differ() -> None:
    assert delay_follows_port([trial(1, (1_000,) * 20), trial(2, (2_000,) * 20)])[0] is True


@pytest.mark.parametrize(
    ("trials", "works", "lost"),
    [
        ([trial(1), trial(2)], True, 0),
        ([trial(1), trial(2, completed=15, errors=1)], False, 1),
        ([trial(1), trial(2, why="not-possible: x")], False, 0),
        ([], False, 0),
    ],
)
def test_steering_works_only_if_every_move_lost_nothing(trials: list[PortTrial], works: bool, lost: int) -> None:
    report = selftest_report({}, {}, CAN, trials)
    assert (report["live_steering_works"], report["requests_lost"]) == (works, lost)
    assert report["capabilities"]["driver"] == "mlx5"
    if not trials:
        assert report["move_ms"] is report["completion_us"] is None
