"""What healthy paths lose at most: an element that loses more than all others is no part of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.gray.unexplained import normal_share

LEAVES, PATHS, PROBES = 8, 80, 1_000
HEALTHY = 2e-4


def world(lossy_share: float, seed: int, healthy: float = HEALTHY) -> tuple[Any, LossCounts]:
    """640 paths from eight leaves, each to the next ones; all that touches leaf 0 loses more."""
    rng = np.random.default_rng(seed)
    start = np.repeat(np.arange(LEAVES), PATHS)
    stop = (start + 1 + np.tile(np.arange(PATHS), LEAVES) % (LEAVES - 1)) % LEAVES
    element = np.stack([start, stop], axis=1)[:, :, None]
    share = healthy + lossy_share * ((start == 0) | (stop == 0))
    events = rng.binomial(PROBES, share).astype(np.int64)
    cabling = SimpleNamespace(element=element, elements=range(LEAVES))
    return cabling, LossCounts(events, np.full(events.size, PROBES, np.int64))


@pytest.mark.parametrize("seed", range(5))
def test_what_one_leaf_loses_is_not_normal(seed: int) -> None:
    healthy = normal_share(*world(0.0, seed), [], DetectConfig())
    with_lossy = normal_share(*world(1.2e-3, seed), [], DetectConfig())
    assert HEALTHY < healthy < 2.5 * HEALTHY
    assert HEALTHY < with_lossy < 2.5 * HEALTHY


def test_what_all_lose_is_normal() -> None:
    assert normal_share(*world(0.0, 1, 3 * HEALTHY), [], DetectConfig()) > 3 * HEALTHY


def test_nothing_seen_says_nothing() -> None:
    cabling, counts = world(0.0, 1)
    nothing = LossCounts(counts.events * 0, counts.probes * 0)
    assert normal_share(cabling, nothing, [], DetectConfig()) == DetectConfig().loss_share
