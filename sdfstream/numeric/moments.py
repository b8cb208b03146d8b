"""Exponentially weighted mean and variance of many slots at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.table import Table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class EwMoments:
    r"""Running mean and variance per slot, forgetting with weight `alpha` per sample.

    .. math::

        a_n = \max(\alpha, 1/n), \quad d = x - m, \quad m \leftarrow m + a_n d, \quad
        v \leftarrow (1 - a_n)(v + a_n d^2)

    The first 1/alpha samples count equally, so the estimate starts as the plain mean and (population) variance.

    Parameters
    ----------
    alpha : float
        Weight of a new sample once the slot is warm, 0 < alpha ≤ 1.

    References
    ----------
    .. [1] T. Finch, "Incremental calculation of weighted mean and variance", 2009, section 9.

    Examples
    --------
    >>> m = EwMoments(alpha=0.01)
    >>> m.ensure(1)
    >>> for x in (1.0, 2.0, 3.0):
    ...     m.update(np.array([0]), np.array([x]))
    >>> m.mean[0], m.variance[0].round(3)
    (np.float64(2.0), np.float64(0.667))
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.table = Table({"n": np.int64(0), "mean": np.float64(0.0), "variance": np.float64(0.0)})

    @property
    def mean(self) -> Floats:
        """(slots,) in the unit of the samples."""
        return self.table["mean"]

    @property
    def variance(self) -> Floats:
        """(slots,) in the squared unit of the samples."""
        return self.table["variance"]

    @property
    def count(self) -> Ints:
        """(slots,) samples seen."""
        return self.table["n"]

    def ensure(self, slots: int) -> None:
        """Have at least this many slots."""
        self.table.ensure(slots)

    def update(self, slots: Ints, x: Floats) -> None:
        """Take one sample for each of these slots; a slot occurs at most once per call."""
        n = self.table["n"][slots] + 1
        a = np.maximum(self.alpha, 1.0 / n)
        d = x - self.table["mean"][slots]
        self.table["n"][slots] = n
        self.table["mean"][slots] += a * d
        self.table["variance"][slots] = (1 - a) * (self.table["variance"][slots] + a * d * d)

    def snapshot(self) -> dict[str, object]:
        """The whole state as plain arrays."""
        return self.table.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.table.restore(state)
