"""Fixed-lag smoothing: the textbook's backward recursion, clock by clock, and clocks that come and go meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sdfstream.numeric.codec import dump, load
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.sync.estimates import ClockEstimates
from sdfstream.sync.sessions import UNKNOWN
from sdfstream.sync.smoother import STEP_SKEW, Smoother

WALK, PHASE, R = 4.0, 0.09, 100.0
DT = TICK_NS / NS_PER_S
F = np.array([[1.0, DT], [0.0, 1.0]])
Q = np.array([[PHASE * DT + WALK * DT**3 / 3.0, WALK * DT * DT / 2.0], [WALK * DT * DT / 2.0, WALK * DT]])
LIMIT_PPB = 50_000.0


def filtered(ticks: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """True states, and a matrix Kalman filter's means and covariances after each tick."""
    g = np.random.default_rng(seed)
    truth = np.array([0.0, 5.0])
    mean, p = np.zeros(2), np.diag([1e4, 1e4])
    h = np.array([1.0, 0.0])
    truths, means, covariances = [], [], []
    for _ in range(ticks):
        truth = F @ truth + np.linalg.cholesky(Q) @ g.standard_normal(2)
        mean, p = F @ mean, F @ p @ F.T + Q
        gain = p @ h / (p[0, 0] + R)
        mean = mean + gain * (truth[0] + np.sqrt(R) * g.standard_normal() - mean[0])
        p = p - np.outer(gain, h @ p)
        truths.append(truth), means.append(mean), covariances.append(p)
    return truths, means, covariances


def smoothed_by_matrices(
    means: list[np.ndarray], covariances: list[np.ndarray], more: Callable[[int], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Rauch, Tung and Striebel; `more(k)`: what the step to tick k doubted besides Q."""
    mean, p = means[-1], covariances[-1]
    out = [(mean[0], p[0, 0])]
    for k in range(len(means) - 2, -1, -1):
        ahead, p_ahead = F @ means[k], F @ covariances[k] @ F.T + Q + more(k + 1)
        c = covariances[k] @ F.T @ np.linalg.inv(p_ahead)
        mean, p = means[k] + c @ (mean - ahead), covariances[k] + c @ (p - p_ahead) @ c.T
        out.append((mean[0], p[0, 0]))
    x, v = np.array(out[::-1]).T
    return x, v


def estimates(at: float, mean: np.ndarray, p: np.ndarray, clocks: int = 1) -> ClockEstimates:
    b = ClockEstimates()
    b.at_ns = at
    b.table.grow(clocks)
    row = {
        "offset_ns": mean[0],
        "skew_ppb": mean[1],
        "offset_var_ns2": p[0, 0],
        "offset_skew_cov": p[0, 1],
        "skew_var_ppb2": p[1, 1],
        "freq_walk": WALK,
    }
    for name, value in {**row, "phase_walk": PHASE, "based": True}.items():
        b.table[name] = value
    return b


def remembering(ticks: int, seed: int = 1, doubts: dict[int, float] | None = None, clocks: int = 1) -> tuple:
    smoother = Smoother(30 * TICK_NS, LIMIT_PPB)
    _, means, covariances = found = filtered(ticks, seed)
    for k, (mean, p) in enumerate(zip(means, covariances, strict=True)):
        smoother.push(estimates(k * float(TICK_NS), mean, p, clocks), np.full(clocks, (doubts or {}).get(k, 0.0)))
    return smoother, *found


@pytest.mark.parametrize("doubts", [{}, {17: 400.0}])
def test_it_is_the_textbooks_recursion(doubts: dict[int, float]) -> None:
    smoother, _, means, covariances = remembering(40, doubts=doubts)
    got = smoother.flush()

    def more(k: int) -> np.ndarray:
        size = doubts.get(k, 0.0)
        return np.diag([size**2, (STEP_SKEW * size) ** 2])

    x, v = smoothed_by_matrices(means, covariances, more)
    np.testing.assert_allclose([s.offset_ns[0] for s in got], x, rtol=1e-7)
    np.testing.assert_allclose([s.variance[0] for s in got], v, rtol=1e-7)
    assert [s.at_ns for s in got] == [k * float(TICK_NS) for k in range(40)]


def test_hindsight_is_better_and_knows_it() -> None:
    """Seeds 0-39; the middle of 60 ticks."""
    before, after, found = [], [], []
    for seed in range(40):
        smoother, truths, means, _ = remembering(60, seed)
        at = smoother.flush()[30]
        before.append(means[30][0] - truths[30][0])
        after.append(at.offset_ns[0] - truths[30][0])
        found.append(at.variance[0])
    print(f"rms {np.std(before):.2f} causal, {np.std(after):.2f} smoothed, told {np.sqrt(np.mean(found)):.2f}")
    assert np.std(after) < 0.85 * np.std(before)
    assert 0.5 < np.mean(np.square(after)) / np.mean(found) < 2.0


def test_ticks_are_due_when_old_enough_and_then_forgotten() -> None:
    smoother, _, _, _ = remembering(40)
    due = smoother.due(39.0 * TICK_NS)
    assert [s.at_ns for s in due] == [k * float(TICK_NS) for k in range(10)]
    assert smoother.due(39.0 * TICK_NS) == []
    assert [s.at_ns for s in smoother.flush()] == [k * float(TICK_NS) for k in range(10, 40)]
    assert smoother.flush() == []


def test_many_clocks_are_smoothed_some_at_a_time_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def flushed() -> list[list[bytes]]:
        smoother = Smoother(30 * TICK_NS, LIMIT_PPB)
        g = np.random.default_rng(3)
        _, means, covariances = filtered(12, 3)
        for k, (mean, p) in enumerate(zip(means, covariances, strict=True)):
            b = estimates(k * float(TICK_NS), mean, p, clocks=5)
            b.table["offset_ns"] += g.normal(0.0, 5.0, 5)
            b.table["offset_var_ns2"][k % 5] = UNKNOWN  # one without a history at every tick
            smoother.push(b, np.where(g.random(5) < 0.1, 400.0, 0.0))
        return [[np.asarray(column).tobytes() for column in s] for s in smoother.flush()]

    whole = flushed()
    monkeypatch.setattr("sdfstream.sync.smoother._CLOCKS_AT_ONCE", 2)
    assert flushed() == whole and len(whole) == 12


def test_clocks_that_come_are_not_there_before_and_change_nothing_for_the_others() -> None:
    plain = remembering(20)[0].flush()
    smoother = remembering(20)[0]
    smoother.scatter(np.array([1]), 3)
    got = smoother.flush()
    for before, after in zip(plain, got, strict=True):
        assert after.known.tolist() == [False, True, False]
        assert after.offset_ns[1] == before.offset_ns[0]
        assert after.variance[1] == before.variance[0]
        assert after.variance[0] == UNKNOWN


def test_clocks_that_go_are_forgotten() -> None:
    smoother = remembering(20, clocks=3)[0]
    plain = remembering(20)[0].flush()
    smoother.keep(np.array([False, True, False]))
    assert [s.offset_ns.tolist() for s in smoother.flush()] == [s.offset_ns.tolist() for s in plain]


def test_what_is_remembered_comes_back_from_its_bytes() -> None:
    smoother, other = remembering(20)[0], Smoother(30 * TICK_NS, LIMIT_PPB)
    other.restore(load(dump(smoother.snapshot())))
    assert dump(other.snapshot()) == dump(smoother.snapshot())
    assert [s.offset_ns.tolist() for s in other.flush()] == [s.offset_ns.tolist() for s in smoother.flush()]


def test_a_clock_that_may_be_anywhere_tells_nothing_of_what_it_was() -> None:
    """A step by two seconds: variances beyond what is kept apart. What was before stays what it was then."""
    smoother, _, means, covariances = remembering(30, doubts={17: 2e9})
    got = smoother.flush()
    x, v = smoothed_by_matrices(means[:17], covariances[:17], lambda _: np.zeros((2, 2)))
    np.testing.assert_allclose([s.offset_ns[0] for s in got[:17]], x, rtol=1e-7)
    np.testing.assert_allclose([s.variance[0] for s in got[:17]], v, rtol=1e-7)
