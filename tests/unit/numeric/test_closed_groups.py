"""Leaves of hosts whose stamps jitter, by which pairs are nearer than all others; and where nobody shares a switch."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric import proximity
from sdfstream.numeric.closed_groups import closed_groups
from sdfstream.numeric.proximity import leaf_groups, least_by_pair

JITTER_US = 3.0


def floors(seed: int, leaf: np.ndarray, peers: int, far_us: float = 4.0, shares_us: float = 0.0):
    """Least of 160 round trips of each pair, with four log-normal stamps each."""
    rng = np.random.default_rng(seed)
    share = rng.uniform(0, shares_us, leaf.size) if shares_us else np.zeros(leaf.size)
    pairs = [
        (i, int(j)) for i in range(leaf.size) for j in rng.choice(np.delete(np.arange(leaf.size), i), peers, False)
    ]
    a, b = np.array(pairs).T
    jitter = rng.lognormal(np.log(JITTER_US), 0.5, (a.size, 160, 4)).sum(axis=2).min(axis=1)
    return least_by_pair(a, b, 1e3 * (15 + far_us * (leaf[a] != leaf[b]) + share[a] + share[b] + jitter))


def test_leaves_of_jittering_hosts_are_closed_and_never_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(leaf: np.ndarray, peers: int) -> int:
        known = 0
        for seed in range(20):
            a, b, floor_ns = floors(seed, leaf, peers, shares_us=1.0)
            label = leaf_groups(leaf.size, a, b, floor_ns)
            together = (label[:, None] == label) & (label >= 0)
            assert not (together & (leaf[:, None] != leaf)).any()
            known += bool((together == (leaf[:, None] == leaf)).all())
        return known

    three, six = np.arange(12) // 4, np.arange(24) // 4
    assert whole(three, 6) >= 8 and whole(six, 8) >= 3
    monkeypatch.setattr(proximity, "closed_groups", lambda *_: None)
    assert whole(three, 6) <= 4 and whole(six, 8) == 0


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shares_us", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("leaf", [np.zeros(12, int), np.arange(12)], ids=["one switch", "none shared"])
def test_neither_chance_nor_slow_hosts_close_groups(leaf: np.ndarray, shares_us: float, seed: int) -> None:
    a, b, floor_ns = floors(seed, leaf, 6, shares_us=shares_us)
    assert closed_groups(leaf.size, a, b, floor_ns) is None


def test_a_group_with_a_far_pair_in_it_is_not_closed_and_pairs_that_only_join_are_not_enough() -> None:
    a, b = np.triu_indices(8, 1)
    near = a // 4 == b // 4
    floor_ns = np.where(near, 15e3, 19e3) + 10.0 * np.arange(a.size)
    assert closed_groups(8, a, b, floor_ns).tolist() == [0, 0, 0, 0, 4, 4, 4, 4]
    odd = floor_ns.copy()
    odd[0] = 19.1e3
    assert closed_groups(8, a, b, odd) is None
    tree = near & (b - a == 1) | ~near
    assert closed_groups(8, a[tree], b[tree], floor_ns[tree]) is None
