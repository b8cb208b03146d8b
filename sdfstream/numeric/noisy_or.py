"""Likelihood of counts of failed trials under a noisy-or of faulty elements: gains, shares, totals (for `blame`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

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


class NoisyOr:
    """The likelihood of one set of observations, for many answers: what no answer changes is worked out once.

    Entries are held in the order of their elements, those of one element in the order in which they came.
    """

    def __init__(self, observed: TrialCounts, rules: Rules) -> None:
        self.observed, self.rules = observed, rules
        self.elements = rules.log_prior.size
        self._order = np.argsort(observed.element, kind="stable")
        self._starts = np.searchsorted(observed.element[self._order], np.arange(self.elements + 1)).tolist()
        self.row, self.weight = observed.row[self._order], observed.weight[self._order]
        self._element = observed.element[self._order]
        self._failed, self._count = observed.failed[self.row], observed.count[self.row]
        self._tried = observed.tried[self.row]
        self._passed = self._tried - self._failed
        self._log_crossed, self._log_missed = _log(self.weight), _log(1.0 - self.weight)

    def entries(self, element: int) -> slice:
        """Where an element's entries are."""
        return slice(self._starts[element], self._starts[element + 1])

    @cached_property
    def first_gains(self) -> tuple[Floats, Floats]:
        """`gains` where nothing is blamed."""
        return self.gains(np.ones(self.observed.failed.size), np.ones(self.elements, np.bool_))

    def fitted(self, chosen: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
        r"""The shares of these elements fitted together, each having been chosen beside the earlier ones alone.

        Expectation maximisation of the noisy-or: of the failures of observation i the share :math:`q_c / P_i` falls
        to c,

        .. math::

            q_c \leftarrow \frac{\sum_i a_{ic} k_i\, q_c / P_i}{\sum_i a_{ic} n_i}.
        """
        observed, rules = self.observed, self.rules
        if rules.least_share > 0 or len(chosen) < 2:
            return list(chosen)
        number = np.full(self.elements, -1, np.int64)
        number[[element for element, _ in chosen]] = np.arange(len(chosen))
        mine = np.sort(np.concatenate([self._order[self.entries(element)] for element, _ in chosen]))
        of, row, weight = number[observed.element[mine]], observed.row[mine], observed.weight[mine]
        rows, row = np.unique(row, return_inverse=True)
        failed, tried = observed.failed[rows] * observed.count[rows], observed.tried[rows] * observed.count[rows]
        share = np.array([share for _, share in chosen])
        exposed = np.maximum(np.bincount(of, weight * tried[row], share.size), 1e-12)
        weighted_failed = weight * failed[row]
        log_passed = np.log1p(-rules.noise)
        for _ in range(_ROUNDS):
            q = np.minimum(share, 1.0 - rules.noise)
            passed = np.exp(log_passed + np.bincount(row, weight * np.log1p(-q)[of], rows.size))
            blamed = weighted_failed * q[of] / np.maximum(1.0 - passed, 1e-12)[row]
            share = np.minimum(np.bincount(of, blamed, share.size) / exposed, 1.0)
        return [(element, float(q)) for (element, _), q in zip(chosen, share.tolist(), strict=True)]

    def survival(self, chosen: Sequence[tuple[int, float]]) -> Floats:
        """What each observation's trials survive of these elements, whether it crosses them being judged in turn."""
        survive = np.ones(self.observed.failed.size)
        for element, share in chosen:
            crossed = self.crossed_odds(element, survive, share)
            survive[self.row[self.entries(element)]] *= 1.0 - crossed * min(share, 1.0 - self.rules.noise)
        return survive

    def crossed_odds(self, element: int, survive: Floats, share: float) -> Floats:
        """Posterior probability that each observation of this element crosses it, which is taken as faulty."""
        at = self.entries(element)
        change = self._change(at, self._before(survive[self.row[at]]), min(share, 1.0 - self.rules.noise))
        return self._odds(at, change)

    def total_gain(self, chosen: Sequence[tuple[int, float]]) -> float:
        """Log-likelihood, less that of blaming nothing, plus the priors of these elements."""
        return self.total_gains([chosen])[0]

    def total_gains(self, answers: Sequence[Sequence[tuple[int, float]]]) -> list[float]:
        """`total_gain` of several answers, each of which names some elements of the longest in its order."""
        shares = [dict(answer) for answer in answers]
        total = [0.0] * len(answers)
        survive = np.ones((len(answers), self.observed.failed.size))
        for element, _ in max(answers, key=len):
            named = [i for i, answer in enumerate(shares) if element in answer]
            at = self.entries(element)
            row = self.row[at]
            where = np.ix_(np.array(named), row)
            left = survive[where]
            q = np.minimum(np.array([[shares[i][element]] for i in named]), 1.0 - self.rules.noise)
            change = self._change(at, self._before(left), q)
            gain = (self._count[at] * self._expected(at, change)).sum(axis=1).tolist()
            prior = float(self.rules.log_prior[element])
            for i, one in zip(named, gain, strict=True):
                total[i] += one + prior
            survive[where] = left * (1.0 - self._odds(at, change) * q)
        return total

    def gains(self, survive: Floats, free: Bools) -> tuple[Floats, Floats]:
        """Best share and gain of every element, given what is blamed already; −inf for elements that are."""
        blank = np.zeros(self.elements), np.full(self.elements, -np.inf)
        return self._best_of(slice(None), survive, free, blank)

    def gains_after(
        self, rows: Ints, survive: Floats, free: Bools, known: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """`gains`, where they were `known` before the survival of these observations changed, and with it no other."""
        changed = np.zeros(self.observed.failed.size, np.bool_)
        changed[rows] = True
        stale = ~free
        stale[self._element[changed[self.row]]] = True
        blank = np.where(stale, 0.0, known[0]), np.where(stale, -np.inf, known[1])
        return self._best_of(np.flatnonzero((stale & free)[self._element]), survive, free & stale, blank)

    def _best_of(
        self, at: slice | Ints, survive: Floats, free: Bools, best: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """`best`, and of `free` elements what is better; `at` are all entries of these."""
        best_share, best_gain = best
        element, left = self._element[at], survive[self.row[at]]
        before = self._before(left)
        least = max(self.rules.noise, self.rules.least_share)
        for share in self._candidate_shares(at, left, before[1]):
            q = _within(share, 0.0, 1.0 - self.rules.noise)[element]
            weighed = self._count[at] * self._expected(at, self._change(at, before, q))
            gain = np.bincount(element, weighed, self.elements) + self.rules.log_prior
            better = free & (gain > best_gain) & (share > least)
            best_gain = np.where(better, gain, best_gain)
            best_share = np.where(better, share, best_share)
        return best_share, best_gain

    def _candidate_shares(self, at: slice | Ints, left: Floats, p0: Floats) -> list[Floats]:
        """Shares to try per element: over all that may cross it, over those that failed at all, and 1.

        Where shares may be small, the first is what fails beyond what is blamed already, `p0`, each observation being
        weighed by how well it shows that: a faint element that shares its paths with worse ones would seem as bad.
        """
        weighted = self.weight[at] * left * self._count[at]
        tried, its_failed = self._tried[at], self._failed[at]
        is_faint = self.rules.least_share <= 0
        pooled = weighted / p0 if is_faint else weighted
        beyond = its_failed - tried * p0 if is_faint else its_failed
        among = np.where(its_failed > 0, weighted * tried, 0.0)
        each = (pooled * tried, pooled * beyond, among, weighted * its_failed)
        all_tried, all_beyond, tried_bad, failed = (np.bincount(self._element[at], x, self.elements) for x in each)
        among_bad = np.minimum(failed / np.maximum(tried_bad, 1e-12), 1.0)
        every = (failed > 0).astype(np.float64)
        shares = [np.minimum(all_beyond / np.maximum(all_tried, 1e-12), 1.0), among_bad, every]
        return shares[:2] if np.array_equal(among_bad, every) else shares

    def _before(self, left: Floats) -> tuple[Floats, Floats, Floats]:
        """What `_change` needs of the survival so far: all survived, odds of failing, logarithm of those of passing."""
        left = (1.0 - self.rules.noise) * left
        p0 = _within(1.0 - left, 1e-9, 1 - 1e-9)
        return left, p0, np.log1p(-p0)

    def _change(self, at: slice | Ints, before: tuple[Floats, Floats, Floats], q: float | Floats) -> Floats:
        """Gain of entries if their element, crossed, fails the share `q`."""
        left, p0, log_passing = before
        p1 = _within(1.0 - left * (1.0 - q), 1e-9, 1 - 1e-9)
        result: Floats = self._failed[at] * np.log(p1 / p0) + self._passed[at] * (np.log1p(-p1) - log_passing)
        return result

    def _expected(self, at: slice | Ints, change: Floats) -> Floats:
        """The gain where only the odds of crossing are known."""
        result: Floats = np.logaddexp(self._log_crossed[at] + change, self._log_missed[at])
        return result

    def _odds(self, at: slice, change: Floats) -> Floats:
        weight = self.weight[at]
        odds = weight * np.exp(_within(change, -500, 500))
        result: Floats = odds / np.maximum(odds + (1.0 - weight), 1e-300)
        return result


def _log(x: Floats) -> Floats:
    result: Floats = np.log(np.maximum(x, 1e-300))
    return result


def _within(x: Floats, low: float, high: float) -> Floats:
    """`numpy.clip` for small arrays, at a quarter of its price."""
    result: Floats = np.minimum(np.maximum(x, low), high)
    return result
