"""`link_delays` against fabrics whose queues are known. Limits were set on seeds 0 to 4."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric.tomography import LinkDelays, PathDelays, link_delays
from sdfstream.twin.fabric import FabricShape, TwinFabric, mixed

NOISE_NS = 800.0
HELD_OUT = (11, 12, 13, 14, 15)


def routes(fabric: TwinFabric, paths: int, rng: np.random.Generator) -> np.ndarray:
    src = rng.integers(0, len(fabric.nics), paths)
    dst = (src + 1 + rng.integers(0, len(fabric.nics) - 1, paths)) % len(fabric.nics)
    return fabric.routes(src, dst, mixed(src, dst, np.arange(paths)))


def solved(route: np.ndarray, links: int, excess_ns: np.ndarray) -> LinkDelays:
    path, hop = np.nonzero(route != links)
    return link_delays(path, route[path, hop], of(excess_ns, NOISE_NS), links)


def of(excess_ns: np.ndarray, err_ns: float) -> PathDelays:
    return PathDelays(excess_ns, np.full(excess_ns.size, err_ns), np.full(excess_ns.size, 10))


@pytest.mark.parametrize("seed", HELD_OUT)
@pytest.mark.parametrize("queues", [0, 1, 4, 30])
def test_finds_the_queues_of_a_fabric(seed: int, queues: int) -> None:
    rng = np.random.default_rng(seed)
    fabric = TwinFabric(FabricShape("leaf-spine", hosts=64, leaves=8, spines=8), seed)
    route = routes(fabric, 1200, rng)
    truth = np.zeros(fabric.links + 1)
    truth[rng.permutation(fabric.links)[:queues]] = rng.uniform(5e3, 80e3, queues)
    found = solved(route, fabric.links, truth[route].sum(axis=1) + rng.normal(0, NOISE_NS, len(route)))
    known = ~np.isnan(found.delay_ns)
    off = (found.delay_ns - truth[:-1])[known]
    assert known.all()
    assert np.sqrt(np.mean(off**2)) < 400
    assert np.mean(np.abs(off) <= 2 * found.err_ns[known]) > 0.95


def test_says_so_where_only_the_same_paths_cross_two_links() -> None:
    path, link = np.repeat(np.arange(6), 2), np.tile([0, 1], 6)
    found = link_delays(path, link, of(np.full(6, 50e3), 1e3), 2)
    assert found.delay_ns.sum() == pytest.approx(50e3, rel=0.1)
    assert (found.err_ns > 20e3).all()


def test_a_link_without_paths_is_not_known() -> None:
    found = link_delays(np.array([0]), np.array([0]), of(np.zeros(1), 1e3), 2)
    assert found.delay_ns[0] == 0.0
    assert np.isnan(found.delay_ns[1])
    assert np.isnan(found.err_ns[1])
    assert found.paths.tolist() == [1, 0]


def star(excess_ns: np.ndarray) -> LinkDelays:
    """Paths over link 0 and one link each, which a second path clears."""
    n = excess_ns.size
    path, link = np.arange(n).repeat(2), np.stack([np.zeros(n, np.int64), 1 + np.arange(n)], axis=1).ravel()
    path, link = np.concatenate([path, np.arange(n, 2 * n)]), np.concatenate([link, 1 + np.arange(n)])
    return link_delays(path, link, of(np.concatenate([excess_ns, np.zeros(n)]), 1e3), n + 1)


def test_one_path_that_has_moved_does_not_clear_a_link_of_many() -> None:
    excess = 60e3 + np.random.default_rng(1).normal(0, 1e3, 40)
    excess[0] = 0.0
    assert star(excess).delay_ns[0] == pytest.approx(60e3, abs=2e3)


def test_a_path_that_disagrees_has_little_say() -> None:
    excess = np.full(20, 40e3)
    excess[3] = 900e3
    assert star(excess).delay_ns[0] == pytest.approx(40e3, abs=2e3)


def test_too_many_candidates_are_left_open() -> None:
    n = 2_000
    found = link_delays(np.arange(n), np.arange(n), of(np.full(n, 50e3), 1e3), n)
    assert np.isnan(found.delay_ns).all()


@pytest.mark.parametrize("excess_ns", [1e9, 1e12, 1e18, 1e300, np.inf])
def test_delays_beyond_any_queue_on_links_that_no_path_tells_apart_have_a_solution(excess_ns: float) -> None:
    measured = PathDelays(excess_ns * np.array([1.0, 1.1, 1.0]), np.array([1.0, 10.0, 100.0]), np.array([10, 10, 10]))
    path, link = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 0, 1, 0, 1])
    found = link_delays(path, link, measured, 2)
    assert found.delay_ns.sum() == pytest.approx(min(excess_ns, 1e12), rel=0.11)
    assert np.isfinite(found.err_ns).all() and (found.err_ns > 0.0).all()
