"""Name columns whose dictionary never changes, built once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records.arrow import coded, text


class Names:
    """A dictionary column whose dictionary is built once: code to name, None for null."""

    def __init__(self, names: Sequence[str | None]) -> None:
        entries = sorted({n for n in names if n is not None})
        place = {name: i for i, name in enumerate(entries)}
        self._code = np.array([-1 if n is None else place[n] for n in names], dtype=np.int32)
        self._entries = text(entries)

    def column(self, code: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """The names of `code` (n,) as dictionary<int32, utf8>."""
        return coded(self._code[code], self._entries)
