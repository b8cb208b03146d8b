"""What was found faulty lately: paths that come back one by one after it are its aftermath, no news of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.records.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

AFTERMATH_NS = 10 * NS_PER_S


class Recent:
    """NICs, links and switches by the bus time at which they were last at fault."""

    def __init__(self, cabling: Cabling) -> None:
        self.cabling = cabling
        self._last: dict[str, int] = {}

    def note(self, subject: str, now_ns: int) -> None:
        """Remember that a subject is at fault now."""
        self._last[subject] = now_ns
        for old in [s for s, at in self._last.items() if now_ns - at > AFTERMATH_NS]:
            del self._last[old]

    def holds(self, subject: str, now_ns: int) -> bool:
        """Whether this subject was at fault a short while ago."""
        return subject in self._last and now_ns - self._last[subject] <= AFTERMATH_NS

    def touched(self, slots: Ints, now_ns: int, *, surely: bool = False) -> Bools:
        """Which of these sessions may (or surely) cross, either way, something at fault a short while ago."""
        fresh = {s for s, at in self._last.items() if now_ns - at <= AFTERMATH_NS}
        if not fresh or not slots.size:
            return np.zeros(slots.size, np.bool_)
        elements = self.cabling.element[slots].reshape(slots.size, -1)
        numbers = [p for p in np.unique(elements[elements >= 0]).tolist() if self.cabling.subject(p).id in fresh]
        least = 0.9 if surely else 0.0
        hit: Bools = np.isin(elements, numbers) & (self.cabling.weight[slots].reshape(slots.size, -1) > least)
        result: Bools = np.logical_or.reduce(hit, axis=1)
        return result

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return dict(self._last)

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._last = {str(k): int(v) for k, v in state.items()}
