"""Noise of stamps is found where packets make a floor, whatever queues beyond it, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric.table import Table
from sdfstream.sync import edge_filter, sessions, stamp_noise
from sdfstream.sync.config import SyncConfig

CONFIG = SyncConfig()
FLOOR_NS = 10_000.0
SESSIONS = 60


def table(floor_ns: float = FLOOR_NS) -> Table:
    t = sessions.session_table()
    t.grow(SESSIONS)
    t["base_delay_ns"] = floor_ns
    return t


def taught(t: Table, blocks: int, *, noise_ns: float, queue_ns: float, alone: float, seed: int = 1, n: int = 6) -> None:
    """So many blocks of `n` packets each way; a share `alone` of them meets no queue, the others an exponential one."""
    g, every = np.random.default_rng(seed), np.arange(t.rows)
    for _ in range(blocks):
        t["blocks"] += 1.0
        shape = (2, t.rows, n)
        queue = np.where(g.uniform(size=shape) < alone, 0.0, queue_ns * g.exponential(size=shape))
        delay = FLOOR_NS + queue + noise_ns * g.standard_normal(shape)
        stamp_noise.learn(t, every, delay.min(axis=2), CONFIG)


def noise_ns(t: Table) -> np.ndarray:
    return np.sqrt(stamp_noise.noise_ns2(t, np.arange(t.rows), CONFIG))


@pytest.mark.parametrize("true_ns", [8.0, 14.0, 20.0])
def test_noise_is_found_under_queues_that_most_packets_meet(true_ns: float) -> None:
    t = table(FLOOR_NS - 2.0 * true_ns)  # taken for bounds, the smallest delays hold the base delay too low
    taught(t, 900, noise_ns=true_ns, queue_ns=3000.0, alone=0.2)
    assert t["at_floor"].mean() > 0.9
    # the smallest of one or two: somewhat less than of each; never far below
    found = noise_ns(t)[t["at_floor"]]
    assert 0.8 * true_ns < np.median(found) < 1.25 * true_ns
    assert found.min() > 0.5 * true_ns


@pytest.mark.parametrize("true_ns", [0.0, 1.5, 3.0])
def test_stamps_no_worse_than_configured_are_believed_no_more(true_ns: float) -> None:
    t = table()
    taught(t, 600, noise_ns=true_ns, queue_ns=3000.0, alone=0.2)
    assert not t["at_floor"].any()
    np.testing.assert_allclose(noise_ns(t), CONFIG.jitter_ns, rtol=1e-9)


@pytest.mark.parametrize("queue_ns", [100.0, 300.0, 2000.0, 10_000.0])
def test_queues_that_every_packet_meets_are_no_noise(queue_ns: float) -> None:
    t = table()
    taught(t, 900, noise_ns=0.4, queue_ns=queue_ns, alone=0.0)
    assert t["at_floor"].mean() <= 0.05
    assert np.median(noise_ns(t)) == pytest.approx(CONFIG.jitter_ns, rel=0.02)


def test_few_packets_a_block_leave_noise_as_configured() -> None:
    t = table()
    taught(t, 600, noise_ns=14.0, queue_ns=3000.0, alone=0.2, n=1)
    assert not t["at_floor"].any()
    np.testing.assert_allclose(noise_ns(t), CONFIG.jitter_ns, rtol=1e-9)


def test_a_young_session_and_one_direction_teach_nothing() -> None:
    t, every = table(), np.arange(SESSIONS)
    t["blocks"] = edge_filter.YOUNG_BLOCKS - 1.0
    before = t.snapshot()
    stamp_noise.learn(t, every, np.full((2, SESSIONS), FLOOR_NS), CONFIG)
    t["blocks"] = 1000.0
    stamp_noise.learn(t, every, np.stack([np.full(SESSIONS, FLOOR_NS), np.full(SESSIONS, np.inf)]), CONFIG)
    after = t.snapshot()
    for name in set(before) - {"blocks"}:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


def test_a_path_of_another_length_has_its_floor_found_anew() -> None:
    t = table()
    taught(t, 600, noise_ns=10.0, queue_ns=3000.0, alone=0.2)
    t["base_delay_ns"] += 3000.0  # `breaks` found it so much longer
    g, every = np.random.default_rng(2), np.arange(SESSIONS)
    for _ in range(600):
        stamp_noise.learn(t, every, FLOOR_NS + 3000.0 + 10.0 * g.standard_normal((2, SESSIONS)), CONFIG)
    assert t["at_floor"].mean() > 0.9
    np.testing.assert_allclose(np.median(t["floor_ns"]), FLOOR_NS + 3000.0, atol=2.0)
    assert np.median(noise_ns(t)) == pytest.approx(10.0, rel=0.2)


def test_sessions_do_not_look_at_each_other() -> None:
    whole, parts = table(), [table(), table()]
    g, every = np.random.default_rng(3), np.arange(SESSIONS)
    low, high = every[: SESSIONS // 3], every[SESSIONS // 3 :]
    for _ in range(300):
        delay = FLOOR_NS + 5.0 * g.standard_normal((2, SESSIONS))
        for t, mine in ((whole, every), (parts[0], low), (parts[1], high)):
            t["blocks"][mine] += 1.0
            stamp_noise.learn(t, mine, delay[:, mine], CONFIG)
    for name, column in whole.snapshot().items():
        np.testing.assert_array_equal(column[..., low], parts[0].snapshot()[name][..., low], err_msg=name)
        np.testing.assert_array_equal(column[..., high], parts[1].snapshot()[name][..., high], err_msg=name)


def test_a_session_that_begins_anew_forgets_its_noise() -> None:
    t = table()
    taught(t, 600, noise_ns=14.0, queue_ns=3000.0, alone=0.2)
    some = np.flatnonzero(t["at_floor"])[:5]
    first = sessions.FirstBlock(*(np.full(some.size, x) for x in (0.0, 0.0, 0.0, FLOOR_NS)))
    sessions.start(t, some, first, CONFIG.skew_limit_ppb)
    assert not t["at_floor"][some].any()
    np.testing.assert_allclose(noise_ns(t)[some], CONFIG.jitter_ns)


def test_at_the_floor_smallest_delays_are_averaged_and_queues_say_nothing() -> None:
    """Of 40 blocks with noise of 10 ns: a mean to about 1 ns each session, as sure as it says; bounds do worse."""
    g = np.random.default_rng(4)
    truth, rms = 5.0, {}
    delay = FLOOR_NS + 10.0 * g.standard_normal((40, 2, SESSIONS))
    delay += np.where(g.uniform(size=delay.shape) < 0.3, 3000.0 * g.exponential(size=delay.shape), 0.0)
    for at_floor in (True, False):
        t = table()
        t["at_floor"], t["offset_var_ns2"], t["base_delay_var_ns2"], t["blocks"] = at_floor, 400.0, 100.0, 100.0
        t["excess_scale_ns"] = 20.0
        for low in delay:
            moved = np.stack([low[0] + truth, low[1] - truth])
            mean, one = t["offset_ns"].copy(), np.ones(SESSIONS)
            v = edge_filter.Prior(
                mean, t["offset_var_ns2"].copy(), 0 * one, 0 * one, 0 * one, 100.0 * one, np.ones(SESSIONS, np.bool_)
            )
            edge_filter.learn_minima(t, np.arange(SESSIONS), moved, v, CONFIG)
        rms[at_floor] = float(np.sqrt(((t["offset_ns"] - truth) ** 2).mean()))
        if at_floor:
            sure = float(np.sqrt(t["offset_var_ns2"].mean()))
            assert rms[True] < 1.6 and rms[True] == pytest.approx(sure, rel=0.3)
    assert rms[True] < 0.7 * rms[False]


def test_noise_that_averages_out_surprises_nobody() -> None:
    """Of 10 ns, 45 too fast: of bounds that is news, of measurements one in some thousands; 70 is news of either."""
    e, s = np.array([[-45.0, -45.0, -70.0, -70.0], [5.0] * 4]), np.full((2, 4), 10.0)
    at_floor = np.array([False, True, False, True])
    got = edge_filter.gate(e, s, np.full((2, 4), 200.0), CONFIG, at_floor)
    assert got.surprise_ns.tolist() == [45.0, 0.0, 70.0, 70.0]
    assert not got.broken.any()
