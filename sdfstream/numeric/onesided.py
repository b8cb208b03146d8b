"""Learning a level from the smallest of noisy samples that only ever lie above it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.normal import truncation

Float64s = npt.NDArray[np.float64]


def floor_update(
    mean: Float64s, variance: Float64s, minimum: Float64s, excess: Float64s, jitter: Float64s
) -> tuple[Float64s, Float64s]:
    r"""Posterior mean and variance of a level, from a minimum that exceeds it by an exponential amount.

    The level is :math:`y \sim N(m_0, V_0)`; a block's minimum is :math:`m = y + e + j`, with
    :math:`e \sim \mathrm{Exp}` of mean :math:`\mu` (queueing: one-sided) and :math:`j \sim N(0, \sigma^2)` (stamp
    noise: two-sided). The likelihood :math:`\exp(y/\mu)\,\Phi((m - y)/\sigma)` tilts and truncates the normal:

    .. math::

        m_t = m_0 + V_0/\mu, \quad s^2 = V_0 + \sigma^2, \quad a = (m - m_t)/s, \\
        E[y] = m + (m_t - m)\,\sigma^2/s^2 - (V_0/s)\,(h + a), \qquad
        V[y] = V_0 - (V_0^2/s^2)\,h\,(h + a).

    Parameters
    ----------
    mean, variance : (n,) float64, ns and ns²
        Prior of the level; the variance may be huge (no loss of digits).
    minimum : (n,) float64, ns
    excess : (n,) float64, ns, > 0
        Mean of e for a minimum of this block.
    jitter : (n,) float64, ns, >= 0
        Standard deviation of j.

    Returns
    -------
    (mean, variance) : each (n,) float64, ns and ns²
        Moments of the posterior (assumed-density filtering: the next prior is the normal with these moments).

    Notes
    -----
    A minimum far above the level only tilts (weakly, by V₀/μ): a standing queue cannot pull the level up at more than
    that rate, while the first clean packet truncates it down again. That is the *remembered floor*.

    References
    ----------
    .. [1] T. Minka, "A family of algorithms for approximate Bayesian inference", MIT, 2001, section 3.3 (probit site).

    Examples
    --------
    Hardly any prior: the level lies one mean excess below the minimum, give or take one.

    >>> m, v = floor_update(*(np.array([x]) for x in (0.0, 1e18, 500.0, 100.0, 0.0)))
    >>> m.round(3), np.sqrt(v).round(3)
    (array([400.]), array([100.]))
    """
    tilted = mean + variance / excess
    noise = jitter * jitter
    total = variance + noise
    root = np.sqrt(total)
    gap, left = truncation((minimum - tilted) / root)
    share = variance / total
    posterior = minimum + (tilted - minimum) * (noise / total) - share * root * gap
    return posterior, variance * (1.0 - share * (1.0 - left))


def gaussian_update(
    mean: Float64s, variance: Float64s, value: Float64s, value_variance: Float64s
) -> tuple[Float64s, Float64s]:
    r"""Posterior of a normal level after a normal measurement: :math:`K = V_0/(V_0 + R)`.

    Examples
    --------
    >>> gaussian_update(*(np.array([x]) for x in (0.0, 1.0, 2.0, 1.0)))
    (array([1.]), array([0.5]))
    """
    gain = variance / (variance + value_variance)
    return mean + gain * (value - mean), variance * (1.0 - gain)
