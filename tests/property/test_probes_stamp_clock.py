"""The virtual clock: exact, stateless, the same anywhere."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.config import VirtualClock
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import ABSENT_NS, NS_PER_S

NOW = 1_790_000_000 * NS_PER_S
instants = st.integers(0, 2**62)


@given(
    st.lists(instants, min_size=1, max_size=20),
    st.integers(-(10**15), 10**15),
    st.integers(-(10**12), 10**12),
    st.integers(0, 2**61),
)
def test_offset_and_skew_are_exact(ns: list[int], offset: int, skew_micro_ppb: int, epoch: int) -> None:
    clock = Clock(VirtualClock(offset_ns=float(offset), skew_ppb=skew_micro_ppb / 1e6, epoch_at_ns=epoch))
    shown = clock.reading(np.array(ns, dtype=np.int64)).tolist()
    for t, c in zip(ns, shown, strict=True):
        assert c == t + offset + skew_micro_ppb * (t - epoch) // 10**15  # exact, rounded down


@given(st.integers(0, 2**31), st.lists(st.integers(0, 10**12), min_size=1, max_size=30), st.integers(0, 29))
@settings(max_examples=30)
def test_wander_is_the_same_in_any_cut_and_order(seed: int, ns: list[int], cut: int) -> None:
    wrong = VirtualClock(wander_ns_per_sqrt_s=500.0, seed=seed, epoch_at_ns=NOW)
    at = NOW + np.array(ns, dtype=np.int64)
    whole = Clock(wrong).reading(at)
    other = Clock(wrong)
    parts = [other.reading(at[cut:]), other.reading(at[:cut])]
    assert np.array_equal(whole, np.concatenate([parts[1], parts[0]]))
    assert whole.tolist() == [Clock(wrong).at(int(t)) for t in at]


def test_another_process_agrees() -> None:
    code = (
        "import numpy as np\n"
        "from sdfstream.probes.config import VirtualClock\n"
        "from sdfstream.probes.virtual_clock import Clock\n"
        f"at = {NOW} + np.arange(50) * 77_777_777\n"
        "print(Clock(VirtualClock(1.5, 12.25, 300.0, 9)).reading(at).tolist())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mine = Clock(VirtualClock(1.5, 12.25, 300.0, 9)).reading(NOW + np.arange(50) * 77_777_777).tolist()
    assert result.stdout.strip() == str(mine)


def test_wander_is_brownian() -> None:
    """Zero at the epoch; after T seconds the standard deviation is wander · sqrt(T), increments are independent."""
    sigma, runs = 100.0, 400
    at = NOW + np.array([0, 1, 4, 9]) * NS_PER_S
    walks = np.array(
        [Clock(VirtualClock(wander_ns_per_sqrt_s=sigma, seed=s, epoch_at_ns=NOW)).reading(at) - at for s in range(runs)]
    )
    assert (walks[:, 0] == 0).all()
    assert np.abs(walks.mean(axis=0)).max() < 4 * sigma * 3 / np.sqrt(runs)
    assert walks.std(axis=0)[1:] == pytest.approx([100, 200, 300], rel=0.12)
    steps = np.diff(walks[:, 1:], axis=1)
    assert abs(np.corrcoef(walks[:, 1], steps[:, 0])[0, 1]) < 0.15
    assert abs(np.corrcoef(steps[:, 0], steps[:, 1])[0, 1]) < 0.15


def test_wander_is_continuous_and_never_leaps() -> None:
    clock = Clock(VirtualClock(wander_ns_per_sqrt_s=200.0, seed=3, epoch_at_ns=NOW))
    at = NOW - 2 * NS_PER_S + np.arange(4_000) * 1_000_000
    wander = clock.reading(at) - at
    assert np.abs(np.diff(wander)).max() <= 5 * 200 * np.sqrt(0.1) / 100 + 1
    assert len(clock._knots) <= 256


def test_absent_stays_absent_and_true_clocks_show_the_truth() -> None:
    at = np.array([ABSENT_NS, NOW], dtype=np.int64)
    assert Clock(VirtualClock(5.0, 1.0, 10.0)).reading(at)[0] == ABSENT_NS
    assert Clock().reading(at).tolist() == at.tolist()


def test_a_skew_out_of_reach_is_refused() -> None:
    with pytest.raises(ValueError, match="skew_ppb"):
        Clock(VirtualClock(skew_ppb=2e6))
