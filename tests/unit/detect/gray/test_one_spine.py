"""One of the spines is named where all paths between leaves lose alike, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.gray.one_spine import one_of_spines
from sdfstream.detect.gray.spines import leaves_of
from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Shape

LIMIT = float(np.log(1e-9))
PROBES = 20
SEEDS = range(5)


def fabric(leaves: int = 4) -> Cabling:
    shape = Shape(hosts=2 * leaves, rails=1, leaves=leaves, spines=4, ports=4, rate_hz=12.0, peers=2 * leaves - 1)
    stage = DetectStage()
    run(stage, Fabric(3, [], shape).messages(4))
    return stage._engines.congestion.cabling


@pytest.fixture(scope="module")
def cabling() -> Cabling:
    return fabric()


def ends(cabling: Cabling) -> tuple[np.ndarray, np.ndarray]:
    return leaves_of(cabling, np.arange(cabling.sessions.count))


def found(cabling: Cabling, share: np.ndarray, seed: int = 1) -> Any:
    probes = np.full(cabling.sessions.count, PROBES)
    counts = LossCounts(np.random.default_rng(seed).binomial(probes, share), probes)
    return one_of_spines(cabling, counts, np.full(probes.size, 1e-3), LIMIT)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lost", [0.1, 0.28])
def test_all_paths_between_leaves_lose_alike_by_one_of_the_spines(cabling: Any, lost: float, seed: int) -> None:
    near, far = ends(cabling)
    location = found(cabling, np.where(near != far, lost, 0.0), seed)
    assert location is not None
    assert (location.subject.type, location.subject.id) == ("switch", "~core")
    assert [name for name, _ in location.suspects] == ["s0", "s1", "s2", "s3"]
    assert len({p for _, p in location.suspects}) == 1
    assert sum(p for _, p in location.suspects) <= 1.0
    assert np.array_equal(location.slots, np.flatnonzero(near != far))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("leaves", [(0,), (0, 1)])
def test_dead_uplinks_of_leaves_make_their_paths_lose_alone(cabling: Any, leaves: tuple[int, ...], seed: int) -> None:
    near, far = ends(cabling)
    share = np.where(near != far, 0.28 * (np.isin(near, leaves) + 0.0 + np.isin(far, leaves)), 0.0)
    assert found(cabling, share, seed) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_one_leaf_that_loses_more_than_the_others_is_no_spine(cabling: Any, seed: int) -> None:
    near, far = ends(cabling)
    share = np.where(near != far, 0.1 + 0.1 * ((near == 0) | (far == 0)), 0.0)
    assert found(cabling, share, seed) is None


def test_what_paths_within_a_leaf_lose_as_well_is_no_spines(cabling: Any) -> None:
    assert found(cabling, np.full(cabling.sessions.count, 0.28)) is None


def test_paths_that_hold_to_their_spine_lose_by_it_alone(cabling: Any) -> None:
    n = cabling.sessions.count
    by_it = (cabling.element[:n] == cabling.elements.find("node s1")) & (cabling.weight[:n] > 0.5)
    crosses = by_it.any(axis=(1, 2))
    assert crosses.any()
    assert found(cabling, np.where(crosses, 0.3, 0.0)) is None


def test_of_two_leaves_an_uplink_of_either_may_be_it() -> None:
    two = fabric(leaves=2)
    near, far = ends(two)
    assert found(two, np.where(near != far, 0.28, 0.0)) is None


def test_few_losses_tell_nothing(cabling: Any) -> None:
    near, far = ends(cabling)
    assert found(cabling, np.where(near != far, 0.003, 0.0)) is None
