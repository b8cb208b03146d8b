"""Which few elements explain the failures of many trials: greedy maximum likelihood over a noisy-or model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.noisy_or import Rules, TrialCounts, crossed_odds, fitted, gains, survival, total_gain

__all__ = ["Culprit", "TrialCounts", "blame"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
    rules = Rules(log_prior, noise, least_share, favour, own, min_gain, most)
    banned: tuple[int, ...] = ()
    found, tried = _pruned(observed, rules, banned), set[int]()
    rare = _rare(rules)
    if any(c.element in rare for c in found):
        common = _pruned(observed, rules, rare)
        if _preferred(observed, rules, common) > _preferred(observed, rules, found) + 1e-9:
            found, banned = common, rare
    for _ in range(_MOST_DOUBTED):
        doubted = next((e for e in _doubted(observed, rules, found) if e not in tried), None)
        if doubted is None:
            break
        tried.add(doubted)
        other = _pruned(observed, rules, (*banned, doubted))
        if _preferred(observed, rules, other) > _preferred(observed, rules, found) + 1e-9:
            found, banned = other, (*banned, doubted)
    for _ in range(_MOST_APART):
        apart = _apart(observed, rules, found)
        if apart is None:
            break
        banned = (*banned, apart)
        found = _pruned(observed, rules, banned)
    return _beside_others(observed, rules, found)


def _beside_others(observed: TrialCounts, rules: Rules, found: list[Culprit]) -> list[Culprit]:
    """Each culprit's gain and rivals beside all others: the search met it beside the earlier ones alone."""
    if rules.least_share > 0:
        return found
    chosen = _chosen(found)
    taken = np.ones(rules.log_prior.size, np.bool_)
    taken[[element for element, _ in chosen]] = False
    _, next_gain = gains(observed, survival(observed, rules, chosen), rules, taken)
    assessed = []
    for culprit in found:
        others = [c for c in chosen if c[0] != culprit.element]
        free = taken.copy()
        free[culprit.element] = True
        _, gain = gains(observed, survival(observed, rules, others), rules, free)
        rivals = _rivals(gain, next_gain, culprit.element)
        assessed.append(replace(culprit, gain=float(gain[culprit.element]), rivals=rivals))
    return assessed


def _preferred(observed: TrialCounts, rules: Rules, found: list[Culprit]) -> float:
    """Log-likelihood and priors of an answer, and how much it is favoured."""
    favour = 0.0 if rules.favour is None else float(rules.favour[[c.element for c in found]].sum())
    return total_gain(observed, rules, fitted(observed, rules, _chosen(found))) + favour


_MOST_DOUBTED = 6
_MOST_APART = 4


def _rare(rules: Rules) -> tuple[int, ...]:
    """Elements that are a priori far less likely than the likeliest and no observation's own, such as switches.

    One of them fits the sum of several likely ones badly but better than any alone, so the search takes it first, and
    without it another: only an answer without all of them can be compared with theirs.
    """
    if rules.least_share > 0:
        return ()
    rare = rules.log_prior < rules.log_prior.max(initial=-np.inf) - 2.0
    if rules.own is not None:
        rare[rules.own] = False
    return tuple(np.flatnonzero(rare).tolist())


def _doubted(observed: TrialCounts, rules: Rules, found: list[Culprit]) -> list[int]:
    """Elements that the greedy search likes too well, without which it is asked again.

    Those that are only maybe crossed by what they explain; and, where shares may be small, those that explain most: one
    that several culprits have in common fits their sum badly, but better than any of them alone.
    """
    vague = [c.element for c in found if _vague(observed, c)]
    if rules.least_share > 0 or len(found) < 1:
        return vague
    own = frozenset() if rules.own is None else frozenset(rules.own.tolist())
    wide = [c for c in found if c.element not in vague and c.element not in own and c.rows.size > 1]
    wide.sort(key=lambda c: -c.rows.size)
    return vague + [c.element for c in wide]


def _apart(observed: TrialCounts, rules: Rules, found: list[Culprit]) -> int | None:
    """A culprit in whose stead the own elements of what it explains do better beside the others; None: there is none.

    Where shares may be small only the whole answer shows that: paths that cross two culprits lose more than either's.
    """
    if rules.own is None or rules.least_share > 0:
        return None
    own = rules.own
    chosen = fitted(observed, rules, _chosen(found))
    whole = total_gain(observed, rules, chosen)
    for culprit in found:
        if culprit.element in own or not culprit.rows.size:
            continue
        others = fitted(observed, rules, [c for c in chosen if c[0] != culprit.element])
        free = np.ones(rules.log_prior.size, np.bool_)
        free[[element for element, _ in others]] = False
        _, gain = gains(observed, survival(observed, rules, others), rules, free)
        mine = gain[own[observed.row[(observed.element == culprit.element) & (observed.row < own.size)]]]
        if total_gain(observed, rules, others) + float(mine[mine > 0].sum()) > whole:
            return culprit.element
    return None


def _vague(observed: TrialCounts, culprit: Culprit) -> bool:
    """Whether it only may be crossed by what it explains: the greedy search likes such elements too well."""
    mine = (observed.element == culprit.element) & np.isin(observed.row, culprit.rows)
    return bool((observed.weight[mine] < 0.99).any())


def _pruned(observed: TrialCounts, rules: Rules, banned: Sequence[int]) -> list[Culprit]:
    """The greedy answer without these elements, and without those that later ones made idle."""
    found = _greedy(observed, rules, (), banned)
    needed = _prune(observed, rules, _chosen(found))
    if len(needed) < len(found):
        found = _greedy(observed, rules, needed, banned)
    if rules.least_share > 0 or len(found) < 2:
        return found
    shares = dict(fitted(observed, rules, _chosen(found)))
    return [replace(c, share=shares[c.element]) for c in found]


def _chosen(found: list[Culprit]) -> list[tuple[int, float]]:
    return [(c.element, c.share) for c in found]


def _greedy(observed: TrialCounts, rules: Rules, first: Sequence[int], banned: Sequence[int]) -> list[Culprit]:
    """Blame the best element, again and again; those in `first` before any other, those `banned` never."""
    survive = np.ones(observed.failed.size)
    free, barred = np.ones(rules.log_prior.size, np.bool_), np.zeros(rules.log_prior.size, np.bool_)
    barred[list(banned)] = True
    share, gain = gains(observed, survive, rules, free)
    culprits: list[Culprit] = []
    while len(culprits) < rules.most:
        best = _best(np.where(barred, -np.inf, gain), rules, [p for p in first if free[p]])
        if barred[best] or not gain[best] >= rules.min_gain:
            break
        entries = observed.element == best
        rows = observed.row[entries]
        crossed = crossed_odds(observed, entries, survive, share[best], rules.noise)
        explained = rows[(observed.failed[rows] > 0) & (survive[rows] > 0.5) & (crossed > 0.5)]
        free[best] = False
        if rules.own is not None and rules.least_share > 0 and best not in rules.own[explained]:
            apart = gain[rules.own[explained]]
            if float(apart[apart > 0].sum()) > gain[best]:
                barred[best] = True
                continue
        survive[rows] *= 1.0 - crossed * min(share[best], 1.0 - rules.noise)
        next_share, next_gain = gains(observed, survive, rules, free)
        rivals = _rivals(gain, next_gain, best) if rules.least_share > 0 else ((best, 1.0),)
        culprits.append(Culprit(best, float(share[best]), float(gain[best]), explained, rivals))
        share, gain = next_share, next_gain
    return culprits


def _best(gain: Floats, rules: Rules, first: Sequence[int]) -> int:
    chosen = gain if rules.favour is None else gain + rules.favour
    for element in sorted(first, key=lambda p: -float(chosen[p])):
        if gain[element] >= rules.min_gain:
            return element
    return int(np.argmax(chosen))


def _prune(observed: TrialCounts, rules: Rules, chosen: list[tuple[int, float]]) -> list[int]:
    """Parts that are still needed once all are blamed: an early, vague one may be made idle by later, sharp ones."""
    needed = list(chosen)
    while len(needed) > 1:
        needed = fitted(observed, rules, needed)
        whole = total_gain(observed, rules, needed)
        without = [
            total_gain(observed, rules, fitted(observed, rules, needed[:i] + needed[i + 1 :]))
            for i in range(len(needed))
        ]
        i = int(np.argmax(without))
        if without[i] <= whole + 1e-9:
            break
        del needed[i]
    return [element for element, _ in needed]


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
