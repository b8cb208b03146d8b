"""Many small mappings of features as three arrays, for a snapshot: a tenth of what they take as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from sdfstream.detect.learned.features import Features


def packed(rows: Iterable[Features]) -> dict[str, Any]:
    """Names, and for every value the number of its name; `sizes` has how many values each mapping has."""
    names: dict[str, int] = {}
    numbers, values, sizes = [], [], []
    for row in rows:
        sizes.append(len(row))
        for name, value in row.items():
            numbers.append(names.setdefault(name, len(names)))
            values.append(value)
    return {
        "names": list(names),
        "numbers": np.array(numbers, np.int32),
        "values": np.array(values, np.float64),
        "sizes": np.array(sizes, np.int32),
    }


def unpacked(saved: Mapping[str, Any]) -> list[dict[str, float]]:
    """What `packed` was given.

    Raises
    ------
    ValueError
        The sizes are not those of the values.

    Examples
    --------
    >>> unpacked(packed([{"a": 1.0}, {}, {"b": 2.0, "a": 3.0}]))
    [{'a': 1.0}, {}, {'b': 2.0, 'a': 3.0}]
    """
    names = saved["names"]
    pairs = zip([names[n] for n in saved["numbers"].tolist()], saved["values"].tolist(), strict=True)
    sizes = saved["sizes"].tolist()
    if min(sizes, default=0) < 0 or sum(sizes) != len(saved["values"]):
        raise ValueError("sizes of packed features that are not those of their values")
    return [dict(islice(pairs, size)) for size in sizes]
