"""Likelihood of counts of failed trials under a noisy-or of faulty elements: gains, shares, totals (for `blame`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class TrialCounts:
    """Each row is one observation of a path that crosses some elements.

    `failed` of `tried` trials of observation i failed. Entry j says that observation ``row[j]`` crosses element
    ``element[j]`` with probability ``weight[j]`` (1: certainly); an element occurs at most once per observation.
    """

    failed: Floats
    tried: Floats
    row: Ints
    element: Ints
    weight: Floats
    count: Floats
    """Equal observations that each row stands for; a row with failures stands for itself alone."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How observations are read and culprits are chosen: the parameters of `blame.blame`."""

    log_prior: Floats
    noise: float
    least_share: float
    favour: Floats | None
    own: Ints | None
    min_gain: float
    most: int


def fitted(observed: TrialCounts, rules: Rules, chosen: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    r"""The shares of these elements fitted together, each having been chosen beside the earlier ones alone.

    Expectation maximisation of the noisy-or: of the failures of observation i the share :math:`q_c / P_i` falls to c,

    .. math::

        q_c \leftarrow \frac{\sum_i a_{ic} k_i\, q_c / P_i}{\sum_i a_{ic} n_i}.
    """
    if rules.least_share > 0 or len(chosen) < 2:
        return list(chosen)
    number = np.full(rules.log_prior.size, -1, np.int64)
    number[[element for element, _ in chosen]] = np.arange(len(chosen))
    mine = number[observed.element] >= 0
    of, row, weight = number[observed.element[mine]], observed.row[mine], observed.weight[mine]
    rows, row = np.unique(row, return_inverse=True)
    failed, tried = observed.failed[rows] * observed.count[rows], observed.tried[rows] * observed.count[rows]
    share = np.array([share for _, share in chosen])
    exposed = np.maximum(np.bincount(of, weight * tried[row], share.size), 1e-12)
    log_passed = np.log1p(-rules.noise)
    for _ in range(_ROUNDS):
        q = np.minimum(share, 1.0 - rules.noise)
        passed = np.exp(log_passed + np.bincount(row, weight * np.log1p(-q[of]), rows.size))
        blamed = weight * failed[row] * q[of] / np.maximum(1.0 - passed[row], 1e-12)
        share = np.minimum(np.bincount(of, blamed, share.size) / exposed, 1.0)
    return [(element, float(q)) for (element, _), q in zip(chosen, share.tolist(), strict=True)]


def survival(observed: TrialCounts, rules: Rules, chosen: Sequence[tuple[int, float]]) -> Floats:
    """What each observation's trials survive of these elements, whether it crosses them being judged in turn."""
    survive = np.ones(observed.failed.size)
    for element, share in chosen:
        entries = observed.element == element
        crossed = crossed_odds(observed, entries, survive, share, rules.noise)
        survive[observed.row[entries]] *= 1.0 - crossed * min(share, 1.0 - rules.noise)
    return survive


def total_gain(observed: TrialCounts, rules: Rules, elements: Sequence[tuple[int, float]]) -> float:
    """Log-likelihood, less that of blaming nothing, plus the priors of these elements."""
    survive = np.ones(observed.failed.size)
    total = 0.0
    for element, share in elements:
        entries = observed.element == element
        row, weight = observed.row[entries], observed.weight[entries]
        q = min(share, 1.0 - rules.noise)
        change = change_of(observed, row, survive[row], q, rules.noise)
        change = observed.count[row] * np.logaddexp(_log(weight) + change, _log(1.0 - weight))
        total += float(change.sum()) + float(rules.log_prior[element])
        survive[row] *= 1.0 - crossed_odds(observed, entries, survive, share, rules.noise) * q
    return total


def _log(x: Floats) -> Floats:
    result: Floats = np.log(np.maximum(x, 1e-300))
    return result


def change_of(observed: TrialCounts, row: Ints, left: Floats, q: float | Floats, noise: float) -> Floats:
    """Gain of each observation if an element that it crosses fails the share `q`, given the survival `left` so far."""
    p0 = np.clip(1.0 - (1.0 - noise) * left, 1e-9, 1 - 1e-9)
    p1 = np.clip(1.0 - (1.0 - noise) * left * (1.0 - q), 1e-9, 1 - 1e-9)
    failed, passed = observed.failed[row], observed.tried[row] - observed.failed[row]
    result: Floats = failed * np.log(p1 / p0) + passed * (np.log1p(-p1) - np.log1p(-p0))
    return result


def crossed_odds(
    observed: TrialCounts, entries: npt.NDArray[np.bool_], survive: Floats, share: float, noise: float
) -> Floats:
    """Posterior probability that each of these entries' observations crosses its element, which is taken as faulty."""
    row, weight = observed.row[entries], observed.weight[entries]
    change = change_of(observed, row, survive[row], min(share, 1.0 - noise), noise)
    odds = weight * np.exp(np.clip(change, -500, 500))
    result: Floats = odds / np.maximum(odds + 1.0 - weight, 1e-300)
    return result


def gains(observed: TrialCounts, survive: Floats, rules: Rules, free: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Best share and gain of every element, given what is blamed already; −inf for elements that are."""
    elements = rules.log_prior.size
    best_share, best_gain = np.zeros(elements), np.full(elements, -np.inf)
    left = survive[observed.row]
    count = observed.count[observed.row]
    log_crossed, log_missed = _log(observed.weight), _log(1.0 - observed.weight)
    for share in _candidate_shares(observed, survive, elements):
        q = np.clip(share[observed.element], 0.0, 1.0 - rules.noise)
        change = np.logaddexp(log_crossed + change_of(observed, observed.row, left, q, rules.noise), log_missed)
        gain = np.bincount(observed.element, count * change, elements) + rules.log_prior
        better = free & (gain > best_gain) & (share > max(rules.noise, rules.least_share))
        best_gain = np.where(better, gain, best_gain)
        best_share = np.where(better, share, best_share)
    return best_share, best_gain


def _candidate_shares(observed: TrialCounts, survive: Floats, elements: int) -> list[Floats]:
    """Shares to try per element: pooled over all that may cross it, over those that failed at all, and 1."""
    weighted = observed.weight * survive[observed.row] * observed.count[observed.row]
    tried = np.bincount(observed.element, weighted * observed.tried[observed.row], elements)
    failed = np.bincount(observed.element, weighted * observed.failed[observed.row], elements)
    bad = observed.failed[observed.row] > 0
    tried_bad = np.bincount(observed.element, bad * weighted * observed.tried[observed.row], elements)
    among_bad = np.minimum(failed / np.maximum(tried_bad, 1e-12), 1.0)
    return [failed / np.maximum(tried, 1e-12), among_bad, (failed > 0).astype(np.float64)]
