"""When a host publishes its liveness: changes at once, a heartbeat every second, the complete list now and then.

The complete list lets a reader catch up that came late or lost a message. It costs the most bytes, so it comes at the
start, once the changes have settled, and every ten seconds; a heartbeat lists nothing.
"""

from __future__ import annotations

from typing import Final

from sdfstream.records.units import NS_PER_S

HEARTBEAT_NS: Final = NS_PER_S
"""Longest pause between two liveness events of a host."""
COMPLETE_NS: Final = 10 * NS_PER_S
"""Longest time without a complete list."""
SETTLED_NS: Final = NS_PER_S
"""Without a change for this long, changes have settled."""


class Heartbeat:
    """The rhythm of one host's liveness events; steady clock, ns."""

    def __init__(self, now_ns: int) -> None:
        self._due_at_ns = now_ns
        self._settled_at_ns = now_ns
        self._complete_at_ns = now_ns

    def is_due(self, now_ns: int) -> bool:
        """Whether a heartbeat is due, changes or not."""
        return now_ns >= self._due_at_ns

    def is_complete_due(self, now_ns: int) -> bool:
        """Whether the complete list is due."""
        return now_ns >= min(self._settled_at_ns, self._complete_at_ns)

    def published(self, now_ns: int, *, complete: bool, changed: bool) -> None:
        """An event was published: the complete list, or with changes, or an empty one."""
        self._due_at_ns = now_ns + HEARTBEAT_NS
        if complete:
            self._complete_at_ns = self._settled_at_ns = now_ns + COMPLETE_NS
        elif changed:
            self._settled_at_ns = now_ns + SETTLED_NS
