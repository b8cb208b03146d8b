r"""A Gaussian truncated by a soft bound: what remains of :math:`N(y; m, P)` when y is known to lie below w.

.. math::

    p(y) \propto N(y; m, P)\, \Phi\!\left(\frac{w - y}{\sigma}\right), \qquad
    \beta = \frac{w - m}{\sqrt{P + \sigma^2}}, \qquad r = \frac{\phi(\beta)}{\Phi(\beta)},

.. math::

    m' = m - \frac{P\, r}{\sqrt{P + \sigma^2}}, \qquad P' = P - \frac{P^2\, r (\beta + r)}{P + \sigma^2}.

σ is how soft the bound is. The normal law with these two moments replaces the true, lop-sided one (assumed-density
filtering, also called moment matching).

References
----------
.. [1] C. Rasmussen, C. Williams, "Gaussian Processes for Machine Learning", 2006, eq. 3.58 and 3.85-3.87.
.. [2] W. Press et al., "Numerical Recipes", section 6.2: the rational approximation of erfc, relative error 1.2e-7.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]

_ERFCX: Final = (
    -1.26551223,
    1.00002368,
    0.37409196,
    0.09678418,
    -0.18628806,
    0.27886807,
    -1.13520398,
    1.48851587,
    -0.82215223,
    0.17087277,
)
_ROOT_2: Final = float(np.sqrt(2.0))
_ROOT_2_PI: Final = float(np.sqrt(2.0 / np.pi))


def scaled_erfc(z: Float64s) -> Float64s:
    """exp(z²)·erfc(z); relative error 1.2e-7 for z >= 0. Below −26 it is infinite."""
    t = 1.0 / (1.0 + 0.5 * np.abs(z))
    power = np.full_like(t, _ERFCX[-1])
    for coefficient in _ERFCX[-2::-1]:
        power = power * t + coefficient
    tail = t * np.exp(power)
    result: Float64s = np.where(z >= 0.0, tail, 2.0 * np.exp(np.minimum(z * z, 700.0)) - tail)
    return result


def truncate(mean: Float64s, variance: Float64s, bound: Float64s, bound_var: Float64s) -> tuple[Float64s, Float64s]:
    """How far the bound moves the mean (<= 0), and how much variance it takes away (>= 0, < `variance`).

    Parameters
    ----------
    mean, variance : (n,) float64
        Of y; variance > 0.
    bound : (n,) float64
        y lies below it.
    bound_var : (n,) float64
        Variance of the bound itself.

    Examples
    --------
    Half of a normal law: the mean of what is left lies √(2/π) away.

    >>> shift, drop = truncate(np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1))
    >>> shift.round(4), drop.round(4)
    (array([-0.7979]), array([0.6366]))
    """
    total = variance + bound_var
    root = np.sqrt(total)
    beta = (bound - mean) / root
    ratio = _ROOT_2_PI / scaled_erfc(beta / -_ROOT_2)
    gain = variance / root
    return -gain * ratio, np.clip(gain * gain * ratio * (beta + ratio), 0.0, 0.999999 * variance)
