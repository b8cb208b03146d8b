"""The mathematics under the detectors, each against a scalar reference, a batch formula, or a published trace."""

from collections import deque
from math import comb, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.numeric.binomial import log_tail_bound, wilson
from sdfstream.numeric.bins import RingBins
from sdfstream.numeric.blame import TrialCounts, blame
from sdfstream.numeric.cusum import PersistenceCusum
from sdfstream.numeric.damping import Damping
from sdfstream.numeric.moments import EwMoments
from sdfstream.numeric.table import KeyIndex, Table

S = 1_000_000_000
keys = st.lists(st.integers(-5, 5), max_size=12)


@given(st.lists(st.tuples(st.sampled_from(["add", "remove"]), keys), max_size=8), st.integers(1, 8))
def test_key_index_is_a_bounded_dict_with_reused_slots(steps: list[tuple[str, list[int]]], capacity: int) -> None:
    index, known = KeyIndex(capacity), {}
    for what, ks in steps:
        if what == "add":
            slots = index.add(np.array(ks, np.int64))
            for k, slot in zip(ks, slots.tolist(), strict=True):
                if k in known:
                    assert slot == known[k]
                elif slot >= 0:
                    assert slot not in known.values()
                    known[k] = slot
                else:
                    assert len(known) == capacity
        else:
            index.remove(np.array([known.pop(k) for k in set(ks) & set(known)], np.int64))
        again = KeyIndex(capacity)
        again.restore(index.snapshot())
        for one in (index, again):
            assert len(one) == len(known) <= capacity
            assert one.find(np.arange(-5, 6)).tolist() == [known.get(k, -1) for k in range(-5, 6)]
        assert index.slots <= capacity


def test_table_grows_resets_and_thaws() -> None:
    t = Table({"a": np.int64(7), "b": np.zeros(2, np.float32)})
    t.ensure(100)
    t["a"][[3, 99]], t["b"][3] = 1, 5
    t.reset(np.array([3, 500]))
    assert t["a"][3] == 7 and t["b"][3].tolist() == [0, 0] and t["a"][99] == 1
    other = Table({"a": np.int64(7), "new": np.int8(1)})
    other.restore(t.snapshot())
    assert other.rows == 100 and other["a"][99] == 1 and other["new"].tolist() == [1] * 100


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(1, 3)), max_size=30))
def test_ring_bins_equal_a_queue_of_events(steps: list[tuple[int, int, int]]) -> None:
    ring, now, events = RingBins(5, 10, ("n",)), 0, deque()
    ring.ensure(3)
    for passed, slot, n in steps:
        now += passed
        ring.advance(now)
        ring.add("n", np.array([slot, slot]), [n, 1])
        events.append((now // 10, slot, n + 1))
        alive = [e for e in events if e[0] > now // 10 - 5]
        assert ring.totals("n").tolist() == [sum(e[2] for e in alive if e[1] == s) for s in range(3)]
        assert ring.recent("n", 2).sum() == sum(e[2] for e in alive if e[0] > now // 10 - 2)
        per_bin = [sum(e[2] for e in alive if e[0] == b) for b in range(now // 10 - 4, now // 10 + 1)]
        assert ring.ordered("n", np.arange(3)).tolist() == per_bin
        ring.take_back("n", np.array([slot]), np.array([now // 10]))
        events[-1] = (now // 10, slot, n)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(1, 3)), max_size=30),
    st.integers(0, 100),
    st.sets(st.integers(0, 2)),
)
def test_ring_bins_forget_what_a_slot_counted_since(
    steps: list[tuple[int, int, int]], back: int, wiped: set[int]
) -> None:
    ring, now, events = RingBins(5, 10, ("n",)), 0, []
    ring.ensure(3)
    for passed, slot, n in steps:
        now += passed
        ring.advance(now)
        ring.add("n", np.array([slot]), n)
        events.append((now // 10, slot, n))
    since = max(0, now - back)
    ring.reset_since(np.array(sorted(wiped), np.int64), since)
    left = [e for e in events if e[0] > now // 10 - 5 and not (e[1] in wiped and e[0] >= since // 10)]
    assert ring.totals("n").tolist() == [sum(e[2] for e in left if e[1] == s) for s in range(3)]
    ring.advance(now + 10)
    left = [e for e in left if e[0] > now // 10 - 4]
    assert ring.totals("n").sum() == sum(e[2] for e in left)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.sampled_from([0.01, 0.2, 1.0]))
def test_moments_equal_scalar_and_plain_ones(xs: list[float], alpha: float) -> None:
    m, mean, var = EwMoments(alpha), 0.0, 0.0
    m.ensure(2)
    for n, x in enumerate(xs, 1):
        m.update(np.array([1]), np.array([x]))
        a = max(alpha, 1 / n)
        d = x - mean
        mean, var = mean + a * d, (1 - a) * (var + a * d * d)
        assert m.mean[1] == pytest.approx(mean, abs=1e-6) and m.variance[1] == pytest.approx(var, abs=1e-3)
        if n <= 1 / alpha:
            assert m.mean[1] == pytest.approx(np.mean(xs[:n]), abs=1e-6)
            assert m.variance[1] == pytest.approx(np.var(xs[:n]), rel=1e-6, abs=1e-3)
    assert m.count.tolist() == [0, len(xs)]


@given(st.lists(st.floats(-3, 3), max_size=60), st.integers(1, 4), st.integers(0, 5))
def test_persistence_equals_the_scalar_recursion(zs: list[float], windows: int, more: int) -> None:
    c, level, on = PersistenceCusum(windows, windows + more), 0.0, False
    c.ensure(3)
    for z in zs:
        level = min((windows + more) / 2, max(0.0, level + min(0.5, max(-0.5, z - 1))))
        on = level >= windows / 2 or (on and level > 0)
        assert c.update(np.array([2]), np.array([z]))[0] == on == c.on[2]
    assert not c.on[:2].any()


def test_one_wild_sample_never_alarms_and_rest_releases() -> None:
    c = PersistenceCusum(3, 6)
    c.ensure(1)
    feed = lambda *zs: [bool(c.update(np.array([0]), np.array([z]))[0]) for z in zs]  # noqa: E731
    assert not any(feed(1e9, 0, 1e9, 0, 1e9, 0))
    assert feed(2, 2, 2) == [False, False, True]
    assert feed(*[2] * 50, *[0] * 5)[-1] and not feed(0)[-1]


def test_wilson_meets_published_values() -> None:
    # Newcombe 1998, table I: 81/263, 15/148, 0/20, 1/29 at 95 %, score method without continuity correction
    low, high = wilson([81, 15, 0, 1], [263, 148, 20, 29], 1.959964)
    assert low.round(4).tolist() == [0.2553, 0.0624, 0.0, 0.0061]
    assert high.round(4).tolist() == [0.3662, 0.1605, 0.1611, 0.1718]


@given(st.integers(1, 60), st.integers(0, 60), st.sampled_from([0.001, 0.01, 0.3]))
def test_the_tail_bound_is_above_the_exact_tail(n: int, k: int, p: float) -> None:
    k = min(k, n)
    exact = sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert float(log_tail_bound(k, n, p)) >= log(exact) - 1e-9


def test_damping_repeats_the_worked_trace_of_the_sonic_design() -> None:
    """Link event damping HLD: suppress 1600, reuse 1200, half-life 15 s, max-suppress 30 s; it truncates."""
    d = Damping()
    assert d.ceiling == 4800
    steps = [  # (second, is it a down event, penalty, suppressed)
        (3, True, 1000, False),
        (7, False, 831, False),
        (10, True, 1723, True),
        (14, False, 1432, True),
        (17, True, 2247, True),
        (20, False, 1956, True),
        (31, False, 1176, False),
        (40, True, 1776, True),
        (44, False, 1476, True),
        (46, True, 2346, True),
        (61, False, 1173, False),
        (70, False, 774, False),
        (100, True, 1193, False),
        (105, True, 1947, True),
    ]
    for second, down, penalty, suppressed in steps[:-2]:
        got = d.down(second * S) if down else d.penalty_at(second * S)
        assert got == pytest.approx(penalty, abs=2), second
        assert d.suppressed_at(second * S) is suppressed, second
    assert d.penalty_at(100 * S) == pytest.approx(193, abs=1)
    for second in range(102, 116):
        d.down(second * S)
    assert d.penalty == 4800 or d.penalty == pytest.approx(4800, abs=1)
    assert d.suppressed_at(144 * S) and not d.suppressed_at((115 + 31) * S)


def paths(*rows: tuple[int, int, dict[int, float]]) -> TrialCounts:
    """Observations as (failed, tried, {element: weight})."""
    row = [i for i, (_, _, elements) in enumerate(rows) for _ in elements]
    element = [p for _, _, elements in rows for p in elements]
    weight = [w for _, _, elements in rows for w in elements.values()]
    return TrialCounts(
        np.array([r[0] for r in rows], float),
        np.array([r[1] for r in rows], float),
        np.array(row, np.int64),
        np.array(element, np.int64),
        np.array(weight, float),
        np.ones(len(rows)),
    )


PRIOR = np.full(8, np.log(1e-4))


def test_blame_falls_on_what_sick_paths_share_and_healthy_ones_avoid() -> None:
    seen = paths((8, 8, {0: 1, 1: 1}), (8, 8, {2: 1, 1: 1}), (0, 8, {0: 1, 3: 1}), (0, 8, {2: 1, 3: 1}))
    (culprit,) = blame(seen, PRIOR, least_share=0.9)
    assert culprit.element == 1 and culprit.rows.tolist() == [0, 1] and culprit.rivals[0][1] > 0.99


def test_elements_that_are_always_crossed_together_are_rivals() -> None:
    seen = paths((8, 8, {0: 1, 1: 1}), (8, 8, {0: 1, 1: 1}), (0, 8, {2: 1}))
    (culprit,) = blame(seen, PRIOR)
    assert sorted(p for p, _ in culprit.rivals) == [0, 1]
    assert culprit.rivals[0][1] == pytest.approx(0.5)


def test_two_faults_are_two_culprits_and_no_rivals() -> None:
    seen = paths((8, 8, {0: 1}), (8, 8, {0: 1, 2: 1}), (8, 8, {1: 1}), (8, 8, {1: 1, 3: 1}), (0, 8, {2: 1, 3: 1}))
    found = blame(seen, PRIOR)
    assert sorted(c.element for c in found) == [0, 1]
    assert all(len(c.rivals) == 1 for c in found)


def test_a_vague_element_gives_way_to_sharp_ones() -> None:
    """Part 5 may be crossed by everything; parts 0 and 1 surely explain it all."""
    sick = [(8, 8, {0: 1.0, 5: 0.25}) for _ in range(5)] + [(8, 8, {1: 1.0, 5: 0.25}) for _ in range(5)]
    found = blame(paths(*sick, (0, 8, {2: 1.0})), PRIOR, least_share=0.9)
    assert sorted(c.element for c in found) == [0, 1]


def test_a_shared_element_must_beat_separate_faults() -> None:
    """Paths over element 0: two lose much, ten lose nothing. Their own elements 20.. explain that better."""
    rows = [(40, 80, {0: 1.0, 20 + i: 1.0}) for i in range(2)] + [(0, 80, {0: 1.0, 22 + i: 1.0}) for i in range(10)]
    prior = np.concatenate([np.full(20, np.log(1e-4)), np.full(12, np.log(1e-7))])
    found = blame(paths(*rows), prior, own=20 + np.arange(12))
    assert sorted(c.element for c in found) == [20, 21]


def test_a_loss_share_is_estimated_over_all_paths_that_cross() -> None:
    rng = np.random.default_rng(1)
    rows = [(int(rng.binomial(200, 0.1)), 200, {0: 1.0, 2 + i % 4: 1.0}) for i in range(12)]
    rows += [(int(rng.binomial(200, 0.001)), 200, {1: 1.0, 2 + i % 4: 1.0}) for i in range(12)]
    (culprit,) = blame(paths(*rows), PRIOR, noise=0.002)
    assert culprit.element == 0 and culprit.share == pytest.approx(0.1, abs=0.02)


@given(st.integers(0, 2**32 - 1))
def test_blame_without_failures_or_observations_is_nobodys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [(0, 8, {int(p): 1.0 for p in rng.choice(8, 3, replace=False)}) for _ in range(rng.integers(0, 9))]
    assert blame(paths(*rows), PRIOR) == []
