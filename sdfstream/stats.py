"""Counters that sit beside each daemon and stage: received, refused by reason, late, published.

A counter is a plain integer under a dotted name; the first part is the stage. Counters never go down and are
never lost silently: whatever sheds or refuses something counts it here, and ``status`` and ``top`` show it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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


@dataclass(slots=True)
class Vital:
    """How one reader of the bus is getting on."""

    progress_s: float
    """When it last moved, or found nothing left to read; seconds of a monotonic clock."""
    lag: int = 0
    """Messages on the bus that it had not read when it last looked."""
    reached_at_ns: int | None = None
    """Bus time up to which it has dealt with everything; None: it does not go by bus time."""
    oldest_at_ns: int | None = None
    """When the oldest message that it has read and not yet dealt with entered the bus; None: there is none."""


@dataclass(slots=True)
class Vitals:
    """Signs of life of a process's tasks: what its metrics and its health check speak of."""

    tasks: dict[str, Vital] = field(default_factory=dict)
    bus_s: float | None = None
    """When the bus last answered, seconds of the same clock; None: it was never asked."""

    def turned(
        self,
        name: str,
        now_s: float,
        *,
        lag: int = 0,
        moved: bool = False,
        reached_at_ns: int | None = None,
        oldest_at_ns: int | None = None,
    ) -> None:
        """Task `name` came round its loop.

        Progress is to have `moved`, or to have nothing left to read: a loop that turns and gets nothing although
        there is something has stopped, however busy it looks. A task that stands by for another process's turns too,
        as long as its group answers.
        """
        vital = self.tasks.setdefault(name, Vital(now_s))
        if moved or not lag:
            vital.progress_s = now_s
        vital.lag = lag
        vital.reached_at_ns = reached_at_ns
        vital.oldest_at_ns = oldest_at_ns

    def ended(self, name: str) -> None:
        """Task `name` is no longer this process's."""
        self.tasks.pop(name, None)
