"""Quiet sessions: which are, and what their means teach."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sdfstream.numeric.table import Table
from sdfstream.sync import edge_filter
from sdfstream.sync.blocks import Blocks, blocks, learn_moments, narrow
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.sessions import session_table

CONFIG = SyncConfig()
Draw = Callable[[np.random.Generator, int], np.ndarray]


def session(**columns: object) -> Table:
    t = session_table()
    t.grow(1)
    for name, value in {
        "base_delay_ns": 8000.0,
        "centre_ns": 8000.0,
        "offset_var_ns2": 100.0,
        "base_delay_var_ns2": 4.0,
        **columns,
    }.items():
        t[name] = value
    return t


def block(t: Table, fwd: np.ndarray, rev: np.ndarray) -> Blocks:
    zeros = np.zeros(fwd.size, dtype=np.int64)
    return blocks(zeros, zeros.astype(float), fwd, rev, t["centre_ns"], narrow(t, CONFIG))


def learned(draw: Draw, ticks: int, seed: int = 1, t: Table | None = None) -> Table:
    g = np.random.default_rng(seed)
    t = session() if t is None else t
    for _ in range(ticks):
        fwd, rev = 8000.0 + draw(g, 8), 8000.0 + draw(g, 8)
        learn_moments(t, block(t, fwd, rev), CONFIG)
    return t


def normal(g: np.random.Generator, n: int) -> np.ndarray:
    return 5.0 * g.standard_normal(n)


def exponential(g: np.random.Generator, n: int) -> np.ndarray:
    return 20.0 * g.exponential(size=n)


def wide(g: np.random.Generator, n: int) -> np.ndarray:
    return 500.0 * g.standard_normal(n)


@pytest.mark.parametrize(("draw", "is_quiet"), [(normal, True), (exponential, False), (wide, False)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_symmetric_small_noise_is_averaged_and_nothing_else(draw: Draw, is_quiet: bool, seed: int) -> None:
    assert bool(learned(draw, 120, seed)["quiet"][0]) is is_quiet


def test_a_quiet_path_that_gets_busy_is_quiet_no_longer() -> None:
    t = learned(normal, 120)
    learned(lambda g, n: 300.0 * g.exponential(size=n), 60, t=t)
    assert not t["quiet"][0]


def test_moments_do_not_depend_on_where_they_are_taken_about() -> None:
    """They begin afresh about the level of the moment; mean and deviation are of the delays all the same."""
    t = session(centre_ns=7_900.0)
    learned(normal, 200, t=t)
    mean = t["centre_ns"][0] + t["moment1_ns"][:, 0]
    np.testing.assert_allclose(mean, 8000.0, atol=1.5)
    np.testing.assert_allclose(np.sqrt(t["moment2_ns2"] - t["moment1_ns"] ** 2)[:, 0], 5.0, rtol=0.2)
    assert float(t["centre_ns"][0]) == 8000.0


def teach(t: Table, fwd: np.ndarray, rev: np.ndarray) -> None:
    b, none = block(t, fwd, rev), np.zeros(1)
    v = edge_filter.Prior(none, t["offset_var_ns2"].copy(), none, none, none, np.ones(1), np.ones(1, dtype=bool))
    edge_filter.learn_means(t, b, np.zeros(1, dtype=np.int64), v, CONFIG)


def test_half_the_difference_of_the_means_measures_the_clock() -> None:
    t = learned(normal, 120)
    spread = (t["moment2_ns2"] - t["moment1_ns"] ** 2)[:, 0]
    fwd, rev = 8000.0 + 3.0 + np.linspace(-4, 4, 8), 8000.0 - 3.0 + np.linspace(-4, 4, 8)
    teach(t, fwd, rev)
    r = spread.sum() / 8 / 4
    assert float(t["offset_ns"][0]) == pytest.approx(3.0 * 100.0 / (100.0 + r))
    assert float(t["offset_var_ns2"][0]) == pytest.approx(1.0 / (1.0 / 100.0 + 1.0 / r))


def test_a_block_whose_mean_met_a_queue_teaches_nothing() -> None:
    t = learned(normal, 120)
    teach(t, np.full(8, 8000.0 + 300.0), np.full(8, 8000.0))
    assert float(t["offset_ns"][0]) == 0.0
    assert float(t["offset_var_ns2"][0]) == 100.0
