"""Which few elements explain the failures of many trials: greedy maximum likelihood over a noisy-or model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
class Culprit:
    """One element that is blamed, and whom the evidence cannot tell from it."""

    element: int
    share: float
    """Estimated probability that the element fails a trial that crosses it."""
    gain: float
    """Log-likelihood gained by blaming it, prior included, in nats."""
    rows: Ints
    """Observations it explains: failed ones that cross it and no earlier culprit."""
    rivals: tuple[tuple[int, float], ...]
    """(element, posterior probability) of all elements that could stand in its stead, itself included, likely first."""


def blame(
    observed: TrialCounts,
    log_prior: Floats,
    *,
    noise: float = 1e-3,
    least_share: float = 0.0,
    favour: Floats | None = None,
    own: Ints | None = None,
    min_gain: float = 3.0,
    most: int = 16,
) -> list[Culprit]:
    r"""Smallest set of faulty elements that makes the observations likely.

    An observation that crosses the elements C fails a trial with probability
    :math:`P_C = 1 - (1-\epsilon)\prod_{c \in C \cap F}(1 - q_c)`. The set F and the shares q are chosen one element at
    a time, each time the one with the largest gain of

    .. math::

        \sum_i \ln \mathrm{E}_C\left[P_C^{k_i} (1-P_C)^{n_i-k_i}\right] + \sum_{c \in F} \ln \frac{\pi_c}{1 - \pi_c},

    the expectation being over that element: crossed with probability :math:`a_{ic}`, the same for all trials.

    Parameters
    ----------
    trials : Trials
    log_prior : (elements,) float64
        :math:`\ln(\pi_c / (1 - \pi_c))` of every element: how likely it is to be faulty before anything is seen.
    noise : float
        :math:`\epsilon`: share of trials that fails without any faulty element.
    least_share : float
        A faulty element fails at least this share of trials: near 1 where a fault is all or nothing.
    favour : (elements,) float64, optional
        Added to the gains when the best element is chosen, and nowhere else: it settles near ties.
    own : (n,) int64, optional
        An element of each observation that no other crosses. A shared one is passed over when the own elements of the
        observations it would explain do so better, priors included: then they have nothing in common.
    min_gain : float
        Stop when the best further element gains less than this many nats.
    most : int
        Stop after this many culprits.

    Notes
    -----
    A success on a path that surely crosses an element speaks against that element as strongly as its share allows; a
    path that only may cross it (weight < 1) speaks in proportion. Cost: O(entries) per culprit.

    References
    ----------
    .. [1] V. Harsh et al., "Flock: Accurate Network Fault Localization at Scale", CoNEXT 2023 (the model and the
       greedy search over single-element changes).
    """
    rules = _Rules(log_prior, noise, least_share, favour, own, min_gain, most)
    found = _pruned(observed, rules, ())
    for vague in [c.element for c in found if _vague(observed, c)][:_MOST_VAGUE]:
        other = _pruned(observed, rules, (vague,))
        if _preferred(observed, rules, other) > _preferred(observed, rules, found) + 1e-9:
            found = other
    return found


def _preferred(observed: TrialCounts, rules: _Rules, found: list[Culprit]) -> float:
    """Log-likelihood and priors of an answer, and how much it is favoured."""
    favour = 0.0 if rules.favour is None else float(rules.favour[[c.element for c in found]].sum())
    return _total(observed, rules, _chosen(found)) + favour


_MOST_VAGUE = 4


def _vague(observed: TrialCounts, culprit: Culprit) -> bool:
    """Whether it only may be crossed by what it explains: the greedy search likes such elements too well."""
    mine = (observed.element == culprit.element) & np.isin(observed.row, culprit.rows)
    return bool((observed.weight[mine] < 0.99).any())


def _pruned(observed: TrialCounts, rules: _Rules, banned: Sequence[int]) -> list[Culprit]:
    """The greedy answer without these elements, and without those that later ones made idle."""
    found = _greedy(observed, rules, (), banned)
    needed = _prune(observed, rules, _chosen(found))
    return found if len(needed) == len(found) else _greedy(observed, rules, needed, banned)


def _chosen(found: list[Culprit]) -> list[tuple[int, float]]:
    return [(c.element, c.share) for c in found]


@dataclass(frozen=True, slots=True)
class _Rules:
    log_prior: Floats
    noise: float
    least_share: float
    favour: Floats | None
    own: Ints | None
    min_gain: float
    most: int


def _greedy(observed: TrialCounts, rules: _Rules, first: Sequence[int], banned: Sequence[int]) -> list[Culprit]:
    """Blame the best element, again and again; those in `first` before any other, those `banned` never."""
    survive = np.ones(observed.failed.size)
    free, barred = np.ones(rules.log_prior.size, np.bool_), np.zeros(rules.log_prior.size, np.bool_)
    barred[list(banned)] = True
    share, gain = _gains(observed, survive, rules, free)
    culprits: list[Culprit] = []
    while len(culprits) < rules.most:
        best = _best(np.where(barred, -np.inf, gain), rules, [p for p in first if free[p]])
        if barred[best] or not gain[best] >= rules.min_gain:
            break
        entries = observed.element == best
        rows = observed.row[entries]
        crossed = _crossed(observed, entries, survive, share[best], rules.noise)
        explained = rows[(observed.failed[rows] > 0) & (survive[rows] > 0.5) & (crossed > 0.5)]
        free[best] = False
        if rules.own is not None and best not in rules.own[explained]:
            apart = gain[rules.own[explained]]
            if float(apart[apart > 0].sum()) > gain[best]:
                barred[best] = True
                continue
        survive[rows] *= 1.0 - crossed * min(share[best], 1.0 - rules.noise)
        next_share, next_gain = _gains(observed, survive, rules, free)
        rivals = _rivals(gain, next_gain, best)
        culprits.append(Culprit(best, float(share[best]), float(gain[best]), explained, rivals))
        share, gain = next_share, next_gain
    return culprits


def _best(gain: Floats, rules: _Rules, first: Sequence[int]) -> int:
    chosen = gain if rules.favour is None else gain + rules.favour
    for element in sorted(first, key=lambda p: -float(chosen[p])):
        if gain[element] >= rules.min_gain:
            return element
    return int(np.argmax(chosen))


def _prune(observed: TrialCounts, rules: _Rules, chosen: list[tuple[int, float]]) -> list[int]:
    """Parts that are still needed once all are blamed: an early, vague one may be made idle by later, sharp ones."""
    needed = list(chosen)
    while len(needed) > 1:
        whole = _total(observed, rules, needed)
        without = [_total(observed, rules, needed[:i] + needed[i + 1 :]) for i in range(len(needed))]
        i = int(np.argmax(without))
        if without[i] <= whole + 1e-9:
            break
        del needed[i]
    return [element for element, _ in needed]


def _total(observed: TrialCounts, rules: _Rules, elements: Sequence[tuple[int, float]]) -> float:
    """Log-likelihood, less that of blaming nothing, plus the priors of these elements."""
    survive = np.ones(observed.failed.size)
    total = 0.0
    for element, share in elements:
        entries = observed.element == element
        row, weight = observed.row[entries], observed.weight[entries]
        q = min(share, 1.0 - rules.noise)
        change = _change(observed, row, survive[row], q, rules.noise)
        change = observed.count[row] * np.logaddexp(_log(weight) + change, _log(1.0 - weight))
        total += float(change.sum()) + float(rules.log_prior[element])
        survive[row] *= 1.0 - _crossed(observed, entries, survive, share, rules.noise) * q
    return total


def _log(x: Floats) -> Floats:
    result: Floats = np.log(np.maximum(x, 1e-300))
    return result


def _change(observed: TrialCounts, row: Ints, left: Floats, q: float | Floats, noise: float) -> Floats:
    """Gain of each observation if an element that it crosses fails the share `q`, given the survival `left` so far."""
    p0 = np.clip(1.0 - (1.0 - noise) * left, 1e-9, 1 - 1e-9)
    p1 = np.clip(1.0 - (1.0 - noise) * left * (1.0 - q), 1e-9, 1 - 1e-9)
    failed, passed = observed.failed[row], observed.tried[row] - observed.failed[row]
    result: Floats = failed * np.log(p1 / p0) + passed * (np.log1p(-p1) - np.log1p(-p0))
    return result


def _crossed(
    observed: TrialCounts, entries: npt.NDArray[np.bool_], survive: Floats, share: float, noise: float
) -> Floats:
    """Posterior probability that each of these entries' observations crosses its element, which is taken as faulty."""
    row, weight = observed.row[entries], observed.weight[entries]
    change = _change(observed, row, survive[row], min(share, 1.0 - noise), noise)
    odds = weight * np.exp(np.clip(change, -500, 500))
    result: Floats = odds / np.maximum(odds + 1.0 - weight, 1e-300)
    return result


def _gains(observed: TrialCounts, survive: Floats, rules: _Rules, free: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Best share and gain of every element, given what is blamed already; −inf for elements that are."""
    elements = rules.log_prior.size
    best_share, best_gain = np.zeros(elements), np.full(elements, -np.inf)
    left = survive[observed.row]
    count = observed.count[observed.row]
    log_crossed, log_missed = _log(observed.weight), _log(1.0 - observed.weight)
    for share in _candidate_shares(observed, survive, elements):
        q = np.clip(share[observed.element], 0.0, 1.0 - rules.noise)
        change = np.logaddexp(log_crossed + _change(observed, observed.row, left, q, rules.noise), log_missed)
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


def _rivals(gain: Floats, next_gain: Floats, best: int) -> tuple[tuple[int, float], ...]:
    """Posterior over the elements that could stand in the best one's stead, given that exactly one of them does.

    An element whose gain outlives the blame of `best` explains something else: another fault, no rival.
    """
    explained_away = next_gain < 0.5 * gain
    explained_away[best] = True
    near = np.flatnonzero((gain >= gain[best] - 6.0) & explained_away)
    odds = np.exp(gain[near] - gain[near].max())  # `best` may have been favoured over a larger gain
    posterior = odds / odds.sum()
    order = np.lexsort((near, -posterior))
    return tuple((int(near[i]), float(posterior[i])) for i in order[:16] if posterior[i] >= 0.01)
