"""Token buckets: what passes never exceeds the rate of its sender, nor that of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.stamp.rates import SHARED, SourceBuckets, TokenBucket
from sdfstream.records.units import NS_PER_MS, NS_PER_S


def test_a_bucket_holds_a_tenth_of_a_second_and_a_clock_that_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(1_000)
    assert [bucket.granted(200, now) for now in (NS_PER_S, NS_PER_S, 0)] == [100, 0, 0]
    assert bucket.granted(200, 50 * NS_PER_MS) == 50


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40 * NS_PER_MS), st.integers(1, 3)), max_size=30))
def test_each_sender_gets_its_rate_and_none_pays_for_another(batches: list[tuple[int, int, int]]) -> None:
    buckets, alone = SourceBuckets(1_000, 7), TokenBucket(1_000)
    buckets.resize(4)
    now, passed, wanted = 0, np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.int64)
    for greedy, pause, modest in batches:
        now += pause
        bucket = np.array([0] * greedy + [1] * modest, dtype=np.int64)
        over = buckets.over(bucket, now)
        good = bucket if over is None else bucket[~over]
        passed += np.bincount(good, minlength=4)
        wanted += np.bincount(bucket, minlength=4)
        alone.granted(greedy, now)
    assert passed[0] <= 100 + now / 1e6 + 1
    if wanted[1] <= 100:
        assert passed[1] == wanted[1]


def test_the_first_of_a_batch_pass() -> None:
    buckets = SourceBuckets(100, 1)
    buckets.resize(2)
    over = buckets.over(np.array([0, 1] * 20), 0)
    assert over is not None
    assert np.flatnonzero(~over).tolist() == list(range(20))
    assert buckets.over(np.array([0]), 0) is not None
    assert buckets.over(np.array([0]), 10 * NS_PER_MS) is None


@pytest.mark.parametrize("salt", [0, 1 << 63])
def test_senders_without_a_bucket_share_some(salt: int) -> None:
    buckets = SourceBuckets(100, salt)
    buckets.resize(10)
    shared = buckets.shared(np.arange(10_000, dtype=np.uint64))
    assert shared.min() >= 10
    assert shared.max() < 10 + SHARED
    assert len(np.unique(shared)) > SHARED // 2
