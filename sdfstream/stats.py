"""Counters of stages and daemons: received, refused by reason, late, published.

A counter is a plain integer under a dotted name that begins with the stage's name. Counters never go down. Whatever
sheds or refuses something counts it here, and ``status`` and ``top`` show it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sdfstream.troubles import Troubles


@dataclass(slots=True)
class Counters:
    """The counters of one stage, by name.

    Examples
    --------
    >>> c = Counters("sync")
    >>> c.add("refused", "mixed-clocks", 3)
    >>> c.as_dict()
    {'sync.refused.mixed-clocks': 3}
    """

    stage: str
    values: dict[tuple[str, str], int] = field(default_factory=dict)
    troubles: Troubles = field(default_factory=Troubles)
    """What of this part is wrong now, beside what was counted."""

    def add(self, what: str, reason: str = "", n: int = 1) -> None:
        """Add `n` (>= 0) to counter `what`, split by `reason` where there is one."""
        if n:
            key = (what, reason)
            self.values[key] = self.values.get(key, 0) + int(n)

    def get(self, what: str, reason: str = "") -> int:
        """Current value; 0 when nothing was counted."""
        return self.values.get((what, reason), 0)

    def total(self, what: str) -> int:
        """Sum over all reasons of `what`."""
        return sum(n for (name, _), n in self.values.items() if name == what)

    def as_dict(self) -> dict[str, int]:
        """All counters under dotted names, sorted."""
        return {".".join(p for p in (self.stage, *key) if p): n for key, n in sorted(self.values.items())}


class HasCounters(Protocol):
    """A stage, a bus, a board: whatever counts."""

    @property
    def counters(self) -> Counters:
        """Its counters since the process began."""
