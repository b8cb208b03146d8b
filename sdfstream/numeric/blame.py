"""Which few elements explain the failures of many trials: greedy maximum likelihood over a noisy-or model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.noisy_or import NoisyOr, Rules, TrialCounts

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
    model = NoisyOr(observed, rules)
    banned: tuple[int, ...] = ()
    found, tried = _pruned(model, banned), set[int]()
    rare = _rare(rules)
    if any(c.element in rare for c in found):
        common = _pruned(model, rare)
        if _preferred(model, common) > _preferred(model, found) + 1e-9:
            found, banned = common, rare
    for _ in range(_MOST_DOUBTED):
        doubted = next((e for e in _doubted(model, found) if e not in tried), None)
        if doubted is None:
            break
        tried.add(doubted)
        other = _pruned(model, (*banned, doubted))
        if _preferred(model, other) > _preferred(model, found) + 1e-9:
            found, banned = other, (*banned, doubted)
    for _ in range(_MOST_APART):
        apart = _apart(model, found)
        if apart is None:
            break
        banned = (*banned, apart)
        found = _pruned(model, banned)
    return _beside_others(model, found)


def _beside_others(model: NoisyOr, found: list[Culprit]) -> list[Culprit]:
    """Each culprit's gain and rivals beside all others: the search met it beside the earlier ones alone."""
    if model.rules.least_share > 0:
        return found
    chosen = _chosen(found)
    taken = np.ones(model.elements, np.bool_)
    taken[[element for element, _ in chosen]] = False
    beside_all = model.gains(model.survival(chosen), taken)
    assessed = []
    for culprit in found:
        others = [c for c in chosen if c[0] != culprit.element]
        free = taken.copy()
        free[culprit.element] = True
        rows = model.row[model.entries(culprit.element)]
        _, gain = model.gains_after(rows, model.survival(others), free, beside_all)
        rivals = _rivals(gain, beside_all[1], culprit.element)
        assessed.append(replace(culprit, gain=float(gain[culprit.element]), rivals=rivals))
    return assessed


def _preferred(model: NoisyOr, found: list[Culprit]) -> float:
    """Log-likelihood and priors of an answer, and how much it is favoured."""
    favour = 0.0 if model.rules.favour is None else float(model.rules.favour[[c.element for c in found]].sum())
    return model.total_gain(model.fitted(_chosen(found))) + favour


_SEVERAL = 10.0
"""Nats."""
_MOST_DOUBTED = 6
_MOST_APART = 4


def _rare(rules: Rules) -> tuple[int, ...]:
    """Elements that are a priori far less likely than the likeliest and no observation's own, such as switches.

    One of them fits the sum of several likely ones badly but better than any alone, so the search takes it first, and
    without it another: only an answer without all of them can be compared with theirs. Where shares are large it fits
    them well: then those alone that are less likely than several others together.
    """
    gap = _SEVERAL if rules.least_share > 0 else 2.0
    rare = rules.log_prior < rules.log_prior.max(initial=-np.inf) - gap
    if rules.own is not None:
        rare[rules.own] = False
    return tuple(np.flatnonzero(rare).tolist())


def _doubted(model: NoisyOr, found: list[Culprit]) -> list[int]:
    """Elements that the greedy search likes too well, without which it is asked again.

    Those that are only maybe crossed by what they explain; and, where shares may be small, those that explain most: one
    that several culprits have in common fits their sum badly, but better than any of them alone.
    """
    rules = model.rules
    vague = [c.element for c in found if _vague(model, c)]
    if rules.least_share > 0 or len(found) < 1:
        return vague
    own = frozenset() if rules.own is None else frozenset(rules.own.tolist())
    wide = [c for c in found if c.element not in vague and c.element not in own and c.rows.size > 1]
    wide.sort(key=lambda c: -c.rows.size)
    return vague + [c.element for c in wide]


def _apart(model: NoisyOr, found: list[Culprit]) -> int | None:
    """A culprit in whose stead the own elements of what it explains do better beside the others; None: there is none.

    Where shares may be small only the whole answer shows that: paths that cross two culprits lose more than either's.
    """
    own = model.rules.own
    if own is None or model.rules.least_share > 0:
        return None
    chosen = model.fitted(_chosen(found))
    whole = model.total_gain(chosen)
    for culprit in found:
        if culprit.element in own or not culprit.rows.size:
            continue
        others = model.fitted([c for c in chosen if c[0] != culprit.element])
        free = np.ones(model.elements, np.bool_)
        free[[element for element, _ in others]] = False
        _, gain = model.gains(model.survival(others), free)
        rows = model.row[model.entries(culprit.element)]
        mine = gain[own[rows[rows < own.size]]]
        if model.total_gain(others) + float(mine[mine > 0].sum()) > whole:
            return culprit.element
    return None


def _vague(model: NoisyOr, culprit: Culprit) -> bool:
    """Whether it only may be crossed by what it explains: the greedy search likes such elements too well."""
    entries = model.entries(culprit.element)
    vague = model.weight[entries] < 0.99
    return bool(vague.any() and np.isin(model.row[entries][vague], culprit.rows).any())


def _pruned(model: NoisyOr, banned: Sequence[int]) -> list[Culprit]:
    """The greedy answer without these elements, and without those that later ones made idle."""
    found = _greedy(model, (), banned)
    needed = _prune(model, _chosen(found))
    if len(needed) < len(found):
        found = _greedy(model, needed, banned)
    if model.rules.least_share > 0 or len(found) < 2:
        return found
    shares = dict(model.fitted(_chosen(found)))
    return [replace(c, share=shares[c.element]) for c in found]


def _chosen(found: list[Culprit]) -> list[tuple[int, float]]:
    return [(c.element, c.share) for c in found]


def _greedy(model: NoisyOr, first: Sequence[int], banned: Sequence[int]) -> list[Culprit]:
    """Blame the best element, again and again; those in `first` before any other, those `banned` never."""
    rules, failed = model.rules, model.observed.failed
    survive = np.ones(failed.size)
    free, barred = np.ones(model.elements, np.bool_), np.zeros(model.elements, np.bool_)
    barred[list(banned)] = True
    unlikely = barred & np.isin(np.arange(model.elements), _rare(rules))
    share, gain = model.first_gains
    culprits: list[Culprit] = []
    while len(culprits) < rules.most:
        best = _best(np.where(barred, -np.inf, gain), rules, [p for p in first if free[p]])
        if barred[best] or not gain[best] >= rules.min_gain:
            break
        rows = model.row[model.entries(best)]
        crossed = model.crossed_odds(best, survive, share[best])
        explained = rows[(failed[rows] > 0) & (survive[rows] > 0.5) & (crossed > 0.5)]
        free[best] = False
        if rules.own is not None and rules.least_share > 0 and best not in rules.own[explained]:
            apart = gain[rules.own[explained]]
            if float(apart[apart > 0].sum()) > gain[best]:
                barred[best] = unlikely[best] = True
                continue
        survive[rows] *= 1.0 - crossed * min(share[best], 1.0 - rules.noise)
        next_share, next_gain = model.gains_after(rows, survive, free, (share, gain))
        # what several others explain together better is no rival of one of them
        alone = np.where(unlikely, -np.inf, gain)
        rivals = _rivals(alone, next_gain, best) if rules.least_share > 0 else ((best, 1.0),)
        culprits.append(Culprit(best, float(share[best]), float(gain[best]), explained, rivals))
        share, gain = next_share, next_gain
    return culprits


def _best(gain: Floats, rules: Rules, first: Sequence[int]) -> int:
    chosen = gain if rules.favour is None else gain + rules.favour
    for element in sorted(first, key=lambda p: -float(chosen[p])):
        if gain[element] >= rules.min_gain:
            return element
    return int(np.argmax(chosen))


def _prune(model: NoisyOr, chosen: list[tuple[int, float]]) -> list[int]:
    """Parts that are still needed once all are blamed: an early, vague one may be made idle by later, sharp ones."""
    needed = list(chosen)
    while len(needed) > 1:
        needed = model.fitted(needed)
        fewer = [model.fitted(needed[:i] + needed[i + 1 :]) for i in range(len(needed))]
        whole, *without = model.total_gains([needed, *fewer])
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
