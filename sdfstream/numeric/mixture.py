"""Shares behind counts of events: of causes that act on overlapping sets of trials, and how shares are distributed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_ROUNDS = 20
_LOSSY = np.geomspace(2e-3, 0.5, 13)
"""Shares beyond the healthy one that `healthy_share` allows for."""
_HEALTHY, _SORTINGS = 0.7, 40


def fit_shares(events: Floats, trials: Floats, exposure: Floats, normal: float) -> tuple[Floats, float]:
    r"""Poisson maximum likelihood of shares, and the log-likelihood reached.

    Events of path s come at the rate :math:`\lambda_s = n_s (\epsilon + \sum_j a_{js} x_j)`; expectation maximisation
    gives

    .. math::

        x_j \leftarrow x_j \, \frac{\sum_s a_{js} n_s k_s / \lambda_s}{\sum_s a_{js} n_s}.

    Parameters
    ----------
    events, trials : (paths,) float64
        k and n of each path.
    exposure : (causes, paths) float64
        a: how often a trial of the path meets the cause.
    normal : float
        ε: share of trials that bring an event without any cause; above 0.

    Returns
    -------
    share : (causes,) float64
        x of each cause, from 0 on; 0 of a cause that no trial meets.
    log_likelihood : float
        :math:`\sum_s k_s \ln \lambda_s - \lambda_s`, nats; comparable between sets of causes over the same counts.

    References
    ----------
    .. [1] W. Richardson, "Bayesian-Based Iterative Method of Image Restoration", JOSA 62, 1972.

    Examples
    --------
    >>> both = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    >>> share, _ = fit_shares(np.array([10.0, 30.0, 20.0]), np.full(3, 1000.0), both, 1e-6)
    >>> share.round(3).tolist()
    [0.01, 0.02]
    """
    if not exposure.size:
        rate = np.maximum(trials * normal, 1e-300)
        return np.zeros(exposure.shape[0]), float((events * np.log(rate) - rate).sum())
    met = exposure @ trials
    share = np.where(met > 0, (exposure @ events) / np.maximum(met, 1e-12), 0.0)
    for _ in range(_ROUNDS):
        expected = normal + share @ exposure
        share = np.where(met > 0, share * (exposure @ (events / expected)) / np.maximum(met, 1e-12), 0.0)
    rate = np.maximum(trials * (normal + share @ exposure), 1e-300)
    return share, float((events * np.log(rate) - rate).sum())


def healthy_share(events: Floats, trials: Floats) -> float:
    r"""The share of events that paths without any cause have in common, while some paths have one.

    A path is healthy, with the rate p, or one of a ladder of lossy ones, at :math:`p + l_g`: expectation maximisation
    of a Poisson mixture, in p and the weights. Paths have too few events each for their ratios to say it: at 600 trials
    and 0.05 % most have none. Where counts are too small to tell the two apart it errs upwards, to the mean of all.

    Parameters
    ----------
    events, trials : (paths,) float64
        k and n of each path; some n above 0.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> rates = np.where(np.arange(600) < 400, 5e-4, 1e-2)
    >>> round(healthy_share(rng.poisson(600 * rates).astype(float), np.full(600, 600.0)), 4)
    0.0005
    """
    pairs, count = np.unique(np.stack([events, trials]), axis=1, return_counts=True)
    k, n = pairs
    share = max(1e-6, float(count @ k) / float(count @ n))
    weight = np.r_[_HEALTHY, np.full(_LOSSY.size, (1.0 - _HEALTHY) / _LOSSY.size)]
    for _ in range(_SORTINGS):
        rates = np.r_[share, share + _LOSSY]
        log_likelihood = k[:, None] * np.log(rates) - n[:, None] * rates
        member = weight * np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
        member /= member.sum(axis=1, keepdims=True)
        weight = count @ member / count.sum()
        healthy = count * member[:, 0]
        share = max(1e-6, float(healthy @ k) / max(1e-12, float(healthy @ n)))
    return share
