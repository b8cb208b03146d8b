"""How sure a share is: bounds and tails of the binomial distribution, in numpy only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def wilson(k: npt.ArrayLike, n: npt.ArrayLike, z: float) -> tuple[Floats, Floats]:
    r"""Wilson score interval of a share.

    .. math::

        \frac{\hat p + z^2/2n \pm z\sqrt{\hat p(1-\hat p)/n + z^2/4n^2}}{1 + z^2/n}

    Parameters
    ----------
    k, n : (m,) counts
        Successes and trials, 0 ≤ k ≤ n.
    z : float
        Half width in standard deviations of the normal law; 3.09 gives about 0.1 % on each side.

    Returns
    -------
    low, high : (m,) float64
        Within 0..1. Without trials: 0 and 1, which is to say nothing is known.

    References
    ----------
    .. [1] E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22, 1927.

    Examples
    --------
    >>> low, high = wilson([0, 10], [0, 100], 1.96)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.055], [1.0, 0.174])
    """
    kf, nf = np.asarray(k, np.float64), np.asarray(n, np.float64)
    some = np.maximum(nf, 1.0)
    p = kf / some
    centre = p + z * z / (2 * some)
    half = z * np.sqrt(p * (1 - p) / some + z * z / (4 * some * some))
    scale = 1 + z * z / some
    low = np.where(nf > 0, np.clip((centre - half) / scale, 0.0, 1.0), 0.0)
    high = np.where(nf > 0, np.clip((centre + half) / scale, 0.0, 1.0), 1.0)
    return low, high


def log_tail_bound(k: npt.ArrayLike, n: npt.ArrayLike, p0: float | Floats) -> Floats:
    r"""Chernoff bound on the natural logarithm of P(K ≥ k) for K ~ Binomial(n, p0).

    .. math::

        \ln P \le -n\,\mathrm{KL}(k/n \,\|\, p_0) \quad (k/n > p_0), \qquad 0 \text{ otherwise}

    It is an upper bound at every n, so a false-alarm rate promised with it holds without a normal approximation.

    References
    ----------
    .. [1] R. Arratia, L. Gordon, "Tutorial on large deviations for the binomial distribution", 1989.

    Examples
    --------
    >>> float(log_tail_bound(10, 100, 0.01).round(2))
    -14.45
    """
    kf, nf = np.asarray(k, np.float64), np.asarray(n, np.float64)
    q = np.clip(kf / np.maximum(nf, 1.0), 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(q > 0, q * np.log(q / p0), 0.0)
        down = np.where(q < 1, (1 - q) * np.log((1 - q) / (1 - p0)), 0.0)
    result: Floats = np.where((q > p0) & (nf > 0), -nf * (up + down), 0.0)
    return result
