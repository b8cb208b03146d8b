"""Hosts that share a switch as inferred from delays, against the truth of the twin.

References
----------
Hubert, Arabie: Comparing partitions. Journal of Classification 2, 1985 (the adjusted Rand index).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import comb

from sdfstream.board.paths import PathTable
from sdfstream.board.proximity import round_trips
from sdfstream.errors import FormatError
from sdfstream.numeric.proximity import leaf_groups
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import OWD
from sdfstream.stats import Counters


class MeasuredGroups:
    """Takes corrected delays; which NICs share a leaf by the newest of them."""

    def __init__(self, from_ns: int) -> None:
        self._from_ns = from_ns
        self._paths = PathTable(Counters("score"))
        self._at_ns = 0

    def take(self, message: Message) -> None:
        """Take a message; what is not a delay, or before the instant that was given, changes nothing."""
        if message.topic == OWD.name and message.bus_at_ns >= self._from_ns and not isinstance(message.body, Event):
            self._at_ns = message.bus_at_ns
            try:
                self._paths.take(message.body, message.bus_at_ns)
            except FormatError:
                return

    def against(self, leaf_of: Mapping[str, str]) -> float | None:
        """Adjusted Rand index against the true leaf of each NIC; None where no NIC was measured.

        A NIC of no known group is alone in one of its own.
        """
        figures = self._paths.figures()
        known = [number for number, nic in enumerate(figures.nics) if nic in leaf_of]
        if not known:
            return None
        found = leaf_groups(len(figures.nics), *round_trips(figures, self._at_ns)).tolist()
        mine = [found[number] if found[number] >= 0 else -1 - number for number in known]
        return adjusted_rand(mine, [leaf_of[figures.nics[number]] for number in known])


def adjusted_rand(found: Sequence[Hashable], true: Sequence[Hashable]) -> float:
    """Agreement of two partitions of the same things: 1 for the same, about 0 for unrelated ones.

    >>> adjusted_rand([0, 0, 1, 1], ["a", "a", "b", "b"]), adjusted_rand([0, 1, 2, 3], ["a", "a", "b", "b"])
    (1.0, 0.0)
    """
    both = _pairs(Counter(zip(found, true, strict=True)).values())
    of_found, of_true, whole = _pairs(Counter(found).values()), _pairs(Counter(true).values()), comb(len(true), 2)
    expected = of_found * of_true / whole if whole else 0.0
    most = (of_found + of_true) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def _pairs(sizes: Iterable[int]) -> int:
    return sum(comb(size, 2) for size in sizes)
