"""When a host speaks about its liveness: changes at once, a sign of life every second, everything now and then.

The complete list lets a reader that came late, or lost a message, catch up. It costs the most bytes, so it comes at
the start, once the changes have settled, and every ten seconds; the sign of life in between lists nothing.
"""

from __future__ import annotations

from typing import Final

from sdfstream.records.units import NS_PER_S

BEAT_NS: Final = NS_PER_S
"""Longest silence of a host that has nothing to tell."""
COMPLETE_NS: Final = 10 * NS_PER_S
"""Longest time without a complete list."""
SETTLED_NS: Final = NS_PER_S
"""Without a change for this long, changes have settled."""


class Beat:
    """The rhythm of one host; steady time, ns."""

    def __init__(self, now_ns: int) -> None:
        self._beat_at = now_ns
        self._complete_at = now_ns
        self._periodic_at = now_ns

    def is_due(self, now_ns: int) -> bool:
        """Whether a sign of life is due, changes or not."""
        return now_ns >= self._beat_at

    def is_complete_due(self, now_ns: int) -> bool:
        """Whether the complete list is due."""
        return now_ns >= min(self._complete_at, self._periodic_at)

    def said(self, now_ns: int, *, complete: bool, changed: bool) -> None:
        """An event was published: the complete list, or with changes, or an empty one."""
        self._beat_at = now_ns + BEAT_NS
        if complete:
            self._periodic_at = self._complete_at = now_ns + COMPLETE_NS
        elif changed:
            self._complete_at = now_ns + SETTLED_NS
