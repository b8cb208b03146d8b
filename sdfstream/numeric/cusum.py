"""One-sided CUSUM with a bounded score: has something stood high for long enough?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.table import Table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class PersistenceCusum:
    r"""Alarm per slot once its score has stood well above 1 for `windows` samples net, with hysteresis.

    .. math::

        S \leftarrow \min(S_{max},\; \max(0,\; S + \operatorname{clip}(z - 1, -\tfrac12, \tfrac12))), \qquad
        \text{on at } S \ge \tfrac12\,windows, \quad \text{off at } S = 0

    With z = excess / threshold one sample can add at most one half, however wild it is, so a single outlier never
    alarms; one at rest takes one half off again. A mean score below 1 never alarms for long; one just above does,
    in its time.

    Parameters
    ----------
    windows : int
        Samples above the threshold that raise the alarm.
    release : int
        Samples at rest that clear it (S is capped at ``release / 2``); at least `windows`.

    References
    ----------
    .. [1] E. S. Page, "Continuous Inspection Schemes", Biometrika 41, 1954; the clipped score makes it a robust CUSUM
       (P. Huber, "A robust version of the probability ratio test", 1965).

    Examples
    --------
    >>> c = PersistenceCusum(windows=3, release=5)
    >>> c.ensure(1)
    >>> [bool(c.update(np.array([0]), np.array([z]))[0]) for z in (9.0, 0.0, 9.0, 9.0, 9.0)]
    [False, False, False, False, True]
    """

    def __init__(self, windows: int, release: int) -> None:
        if not 0 < windows <= release:
            raise ValueError("0 < windows <= release")
        self.on_at, self.cap = 0.5 * windows, 0.5 * release
        self.table = Table({"level": np.float64(0.0), "on": np.bool_(False)})

    @property
    def on(self) -> Bools:
        """(slots,) alarm raised."""
        return self.table["on"]

    def ensure(self, slots: int) -> None:
        """Have at least this many slots."""
        self.table.ensure(slots)

    def update(self, slots: Ints, z: Floats) -> Bools:
        """Take one score for each of these slots (each at most once per call); the alarms after it."""
        level = np.clip(self.table["level"][slots] + np.clip(z - 1.0, -0.5, 0.5), 0.0, self.cap)
        on: Bools = (level >= self.on_at) | (self.table["on"][slots] & (level > 0))
        self.table["level"][slots] = level
        self.table["on"][slots] = on
        return on

    def snapshot(self) -> dict[str, object]:
        """The whole state as plain arrays."""
        return self.table.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.table.restore(state)
