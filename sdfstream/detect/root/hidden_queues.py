"""Queues that no path tells apart: they stand behind others that slow all their paths."""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.records.units import Int64s

_SURELY: Final = 0.9
"""A path crosses a direction when it does so with this probability."""


class HiddenQueues:
    """Directions over which nothing is well: a queue may stand there too, behind those that slow all its paths."""

    def __init__(self, cabling: Cabling, slow: Int64s, well: Int64s) -> None:
        self.cabling, self._paths = cabling, (slow, well)
        self._crossed: tuple[set[int], set[int]] | None = None

    def may_stand(self, start: str, end: str) -> bool:
        """Whether slow paths surely cross the direction ``start->end``, and no path that is well."""
        if "/" in start or "/" in end:  # NICs forward nothing
            return False
        if self._crossed is None:  # most queues lead to none, or to one that is told
            self._crossed = self._over(self._paths[0]), self._over(self._paths[1])
        numbers = set(self.cabling.numbers([f"{start}->{end}"]))
        return bool(numbers & self._crossed[0]) and not numbers & self._crossed[1]

    def _over(self, number: Int64s) -> set[int]:
        element, weight = self.cabling.element[number // 2, number % 2], self.cabling.weight[number // 2, number % 2]
        return set(np.unique(element[weight > _SURELY]).tolist())
