"""Growing columns: the state of many small things of one kind, one array per field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


class Table:
    """Named columns of equal length that grow on demand; a fresh row holds each column's default.

    Parameters
    ----------
    defaults : mapping of name to numpy scalar or 1-D array
        An array makes a two-dimensional column, one such array per row.

    Examples
    --------
    >>> t = Table({"seen": np.int64(-1), "bins": np.zeros(3, np.int32)})
    >>> t.ensure(2)
    >>> t["seen"].tolist(), t["bins"].shape
    ([-1, -1], (2, 3))
    """

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._defaults = {name: np.asarray(value) for name, value in defaults.items()}
        self._columns = {name: np.empty((0, *d.shape), d.dtype) for name, d in self._defaults.items()}
        self._views = dict(self._columns)
        self.rows = 0

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The column, ``(rows, ...)``; writing to it changes the table."""
        return self._views[name]

    def ensure(self, rows: int) -> None:
        """Have at least `rows` rows. Views taken before are stale afterwards."""
        if rows <= self.rows:
            return
        for name, default in self._defaults.items():
            column = self._columns[name]
            if rows > column.shape[0]:
                grown = np.empty((max(rows, 2 * column.shape[0], 64), *default.shape), default.dtype)
                grown[: self.rows] = column[: self.rows]
                self._columns[name] = grown
            self._columns[name][self.rows : rows] = default
            self._views[name] = self._columns[name][:rows]
        self.rows = rows

    def reset(self, rows: npt.NDArray[np.int64]) -> None:
        """Give these rows their defaults again."""
        rows = rows[rows < self.rows]
        for name, default in self._defaults.items():
            self._columns[name][rows] = default

    def snapshot(self) -> dict[str, object]:
        """The whole state as plain arrays."""
        return {name: view.copy() for name, view in self._views.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`; a column the state does not know keeps its default."""
        self.rows = 0
        self.ensure(max((len(v) for v in state.values()), default=0))
        for name, value in state.items():
            if name in self._views:
                self._views[name][...] = value
