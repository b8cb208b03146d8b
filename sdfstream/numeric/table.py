"""Growing columns: the state of many small things of one kind, one array per field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_LEAST_ROWS = 16


class Table:
    """Named columns of equal length that grow on demand; a fresh row holds each column's default.

    Columns grow by doubling. Views taken before rows were added, dropped or moved are stale afterwards.

    Parameters
    ----------
    defaults : mapping of name to numpy scalar or 1-D array
        An array makes a column of shape (rows, values), one such array per row.
    wide : mapping of name to 1-D array
        Columns of shape (values, rows): the rows of one value lie side by side.

    Examples
    --------
    >>> t = Table({"seen": np.int64(-1), "bins": np.zeros(3, np.int32)}, {"floor_ns": np.zeros(2)})
    >>> t.ensure(4)
    >>> t["seen"].tolist(), t["bins"].shape, t["floor_ns"].shape
    ([-1, -1, -1, -1], (4, 3), (2, 4))
    """

    def __init__(self, defaults: Mapping[str, Any], wide: Mapping[str, Any] | None = None) -> None:
        transposed = {name: np.asarray(value)[:, None] for name, value in (wide or {}).items()}
        self._defaults = {name: np.asarray(value) for name, value in defaults.items()} | transposed
        self._wide = frozenset(transposed)
        self._columns: dict[str, Array] = {name: self._empty(name, 0) for name in self._defaults}
        self._views = dict(self._columns)
        self.rows = 0

    def __getitem__(self, name: str) -> Array:
        """The column over the rows in use; writing to it changes the table."""
        return self._views[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._views[name][...] = value

    def ensure(self, rows: int) -> None:
        """Have at least `rows` rows."""
        if rows <= self.rows:
            return
        for name, default in self._defaults.items():
            column = self._columns[name]
            size = column.shape[-1] if name in self._wide else column.shape[0]
            if rows > size:
                grown = self._empty(name, max(rows, 2 * size, _LEAST_ROWS))
                self._used(name, grown, self.rows)[...] = self._views[name]
                column = self._columns[name] = grown
            if name in self._wide:
                column[:, self.rows : rows] = default
            else:
                column[self.rows : rows] = default
            self._views[name] = self._used(name, column, rows)
        self.rows = rows

    def grow(self, rows: int) -> None:
        """Append `rows` fresh rows."""
        self.ensure(self.rows + rows)

    def reset(self, rows: npt.NDArray[np.int64]) -> None:
        """Give these rows their defaults again."""
        rows = rows[rows < self.rows]
        for name, default in self._defaults.items():
            self._columns[name][(slice(None), rows) if name in self._wide else rows] = default

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        """Drop the rows where `mask` is False; the others close up, in order."""
        self._replace(
            {name: view[..., mask] if name in self._wide else view[mask] for name, view in self._views.items()}
        )

    def scatter(self, at: npt.NDArray[np.int64], rows: int) -> None:
        """Have `rows` rows, of which old row j is ``at[j]``; the others are fresh."""
        old = self._views
        self._replace({name: self._empty(name, 0) for name in self._defaults})
        self.ensure(rows)
        for name, column in old.items():
            self._views[name][(slice(None), at) if name in self._wide else at] = column

    def _empty(self, name: str, rows: int) -> Array:
        default = self._defaults[name]
        shape = (default.shape[0], rows) if name in self._wide else (rows, *default.shape)
        return np.empty(shape, default.dtype)

    def _used(self, name: str, column: Array, rows: int) -> Array:
        return column[:, :rows] if name in self._wide else column[:rows]

    def _replace(self, columns: dict[str, Array]) -> None:
        self._columns, self._views = columns, dict(columns)
        name, column = next(iter(columns.items()))
        self.rows = column.shape[-1] if name in self._wide else column.shape[0]

    def snapshot(self) -> dict[str, object]:
        """The whole state as plain arrays."""
        return {name: view.copy() for name, view in self._views.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`; a column the state does not know holds its default."""
        self._replace({name: self._empty(name, 0) for name in self._defaults})
        lengths = (np.shape(value)[-1 if name in self._wide else 0] for name, value in state.items())
        self.ensure(max(lengths, default=0))
        for name, value in state.items():
            if name in self._views:
                self._views[name][...] = value
