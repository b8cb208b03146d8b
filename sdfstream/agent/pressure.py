"""When the bus takes rows more slowly than they are made: how many go at once, and which are left out.

A bus that answers but cannot keep up must not get rows that are seconds old: a finding from them comes too late, and
clocks made from them are wrong. So the chunks become smaller, and once rows have waited for `LATE_NS` while others
went, every second batch of them is left out, again and again until they are fresh. A bus that does not answer is
another matter: it is away, and all is retained for it as long as there is room (`publish_io`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sdfstream.agent.queues import QueuedOutput
from sdfstream.records.topics import PROBE
from sdfstream.records.units import NS_PER_S

LATE_NS: Final = 2 * NS_PER_S
"""Rows that have waited longer are thinned out."""
_TAKEN: Final = 8
"""Chunks that went since: a bus that stood still for a moment, or was slow with one, catches up by itself."""
_STALL_S: Final = 1.0
"""A chunk that took longer met a bus that stood still: what waited meanwhile is not thinned out."""
_WANTED_S: Final = 0.2
"""A chunk is to take so long."""
_SMOOTHING: Final = 0.3


class Pressure:
    """What one queue's bus takes.

    Parameters
    ----------
    least_bytes, most_bytes : int
        Of a chunk.
    """

    def __init__(self, least_bytes: int, most_bytes: int) -> None:
        self._least, self._most = least_bytes, most_bytes
        self._bytes_s = 0.0
        self._taken_at_ns: deque[int] = deque(maxlen=_TAKEN)
        self._stalled_until_ns = 0

    @property
    def chunk_bytes(self) -> int:
        """How much to send at once."""
        return self._most if not self._bytes_s else int(min(max(self._bytes_s * _WANTED_S, self._least), self._most))

    def took(self, size_bytes: int, seconds: float, now_ns: int) -> None:
        """The bus took a chunk, in so long."""
        rate = size_bytes / max(seconds, 1e-3)
        if seconds > _WANTED_S or rate > self._bytes_s:  # a small chunk that went at once says only "at least"
            self._bytes_s += (rate - self._bytes_s) * (_SMOOTHING if self._bytes_s else 1.0)
        self._taken_at_ns.append(now_ns)
        if seconds > _STALL_S:
            self._stalled_until_ns = now_ns

    def lost(self) -> None:
        """The bus is away: what it takes once it is back is not known."""
        self._bytes_s = 0.0
        self._taken_at_ns.clear()

    def back(self, now_ns: int) -> None:
        """It is back: what waited meanwhile is not thinned out, however many chunks it makes."""
        self._stalled_until_ns = now_ns

    def is_late(self, since_ns: int, now_ns: int) -> bool:
        """Whether rows that wait since then wait because the bus cannot keep up."""
        if since_ns < self._stalled_until_ns or len(self._taken_at_ns) < _TAKEN:
            return False
        return now_ns - since_ns > LATE_NS and self._taken_at_ns[0] > since_ns


def thin_out(held: deque[QueuedOutput]) -> list[QueuedOutput]:
    """Take every second batch of probe rows of each host out of `held`; those, oldest first."""
    retained: list[QueuedOutput] = []
    left_out: list[QueuedOutput] = []
    leave: dict[str, bool] = {}
    for item in reversed(held):  # the newest stays
        if item.output.topic == PROBE.name and leave.get(item.output.key, False):
            left_out.append(item)
        else:
            retained.append(item)
        if item.output.topic == PROBE.name:
            leave[item.output.key] = not leave.get(item.output.key, False)
    held.clear()
    held.extend(reversed(retained))
    return left_out[::-1]
