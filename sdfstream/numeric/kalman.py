r"""The two-state clock model, many clocks at once: offset x (ns) and skew g (ns per s).

.. math::

    x' = x + g\,dt, \quad g' = g, \qquad
    Q = \begin{pmatrix} p^2 dt + q^2 dt^3/3 & q^2 dt^2/2 \\ q^2 dt^2/2 & q^2 dt \end{pmatrix}

with q the random walk of the frequency (ppb per √s) and p that of the phase (ns per √s). States are arrays of any one
shape, one entry per clock.

References
----------
.. [1] L. Galleani, P. Tavella, "Time and the Kalman filter", IEEE Control Systems 30(2), 2010.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]


class ClockState(NamedTuple):
    """Offset, skew and the three covariances: ns, ns/s, ns², ns²/s, ns²/s²."""

    x: Float64s
    g: Float64s
    xx: Float64s
    xg: Float64s
    gg: Float64s


def predict(s: ClockState, dt: float | Float64s, wander: Float64s, phase: Float64s) -> ClockState:
    """The state `dt` seconds later; `wander` (q) and `phase` (p) broadcast against the state's shape."""
    q2 = wander * wander
    p2 = phase * phase
    # a vector unit's third power may differ in the last bit from that of one number
    cubed = np.array([one**3 for one in dt.ravel().tolist()]).reshape(dt.shape) if isinstance(dt, np.ndarray) else dt**3
    return ClockState(
        s.x + s.g * dt,
        s.g,
        s.xx + (2.0 * s.xg + s.gg * dt) * dt + p2 * dt + q2 * (cubed / 3.0),
        s.xg + s.gg * dt + q2 * (dt * dt / 2.0),
        s.gg + q2 * dt,
    )


class Gain(NamedTuple):
    """The matrix C of a backward step: how much of what was learned later counts now."""

    c00: Float64s
    c01: Float64s
    c10: Float64s
    c11: Float64s


def backward_gain(filtered: ClockState, predicted: ClockState, dt: float | Float64s) -> Gain:
    """Gain of `smooth`: :math:`C = P F^T (P')^{-1}`; `predicted` is `filtered` `dt` seconds later."""
    det = np.maximum(predicted.xx * predicted.gg - predicted.xg * predicted.xg, 1e-300)
    # P Fᵀ, F = [[1, dt], [0, 1]]
    a, b = filtered.xx + filtered.xg * dt, filtered.xg
    c, d = filtered.xg + filtered.gg * dt, filtered.gg
    return Gain(
        (a * predicted.gg - b * predicted.xg) / det,
        (b * predicted.xx - a * predicted.xg) / det,
        (c * predicted.gg - d * predicted.xg) / det,
        (d * predicted.xx - c * predicted.xg) / det,
    )


def smooth(filtered: ClockState, predicted: ClockState, later: ClockState, gain: Gain) -> ClockState:
    r"""One backward step of the Rauch-Tung-Striebel smoother.

    :math:`\hat{x} = x + C (\hat{x}_{+} - x'); \; \hat{P} = P + C (\hat{P}_{+} - P') C^T`.

    Parameters
    ----------
    filtered : State
        After the measurement of this instant.
    predicted : State
        Its prediction to a later instant, before the measurement there.
    later : State
        Smoothed at that later instant.
    gain : Gain
        C, of `backward_gain`.
    """
    c00, c01, c10, c11 = gain
    dx, dg = later.x - predicted.x, later.g - predicted.g
    e00, e01, e11 = later.xx - predicted.xx, later.xg - predicted.xg, later.gg - predicted.gg
    f00, f01 = c00 * e00 + c01 * e01, c00 * e01 + c01 * e11
    f10, f11 = c10 * e00 + c11 * e01, c10 * e01 + c11 * e11
    return ClockState(
        filtered.x + c00 * dx + c01 * dg,
        filtered.g + c10 * dx + c11 * dg,
        np.maximum(filtered.xx + f00 * c00 + f01 * c01, 0.0),
        filtered.xg + f00 * c10 + f01 * c11,
        np.maximum(filtered.gg + f10 * c10 + f11 * c11, 0.0),
    )
