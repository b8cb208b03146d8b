"""Software pacing: the average is the limit, whatever the caller does."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.verbs.pacer import PostPacer

S = 1_000_000_000


@pytest.mark.parametrize("rate_bps", [100_000, 10_000_000, 400_000_000_000])
def test_the_rate_is_never_exceeded_and_nearly_reached(rate_bps: int) -> None:
    pacer, rng, now_ns, sent, posts = PostPacer(rate_bps), np.random.default_rng(7), S, 0, 0
    while now_ns < 3 * S and posts < 200_000:
        octets = int(rng.integers(1, 1 + min(1 << 16, rate_bps // 80)))
        wait_ns = pacer.reserve(octets, now_ns)
        now_ns += wait_ns + int(rng.integers(0, 100))  # a caller that is a little late
        sent, posts = sent + octets, posts + 1
        assert (sent - octets) * 8 <= rate_bps * (now_ns - S + 2_000_000) / S + 1
    if rate_bps <= 10_000_000:
        assert sent * 8 >= 0.99 * rate_bps * 2


def test_no_limit_never_waits_and_leaves_no_debt() -> None:
    pacer = PostPacer()
    assert [pacer.reserve(1 << 20, S + i) for i in range(5)] == [0] * 5
    pacer.rate_bps = 8_000
    assert pacer.reserve(1_000, S + 5) == 0


def test_a_pause_is_no_credit_for_a_burst() -> None:
    pacer = PostPacer(8_000_000)
    pacer.reserve(1_000, S)
    waits = [pacer.reserve(1_000, 60 * S) for _ in range(4)]
    assert waits[0] == waits[1] == waits[2] == 0  # 2 ms of credit, 1 ms each
    assert waits[3] > 0
