"""Link event damping: additive increase, exponential decay of a penalty."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Damping:
    r"""Penalty of one port: `step` per down event, halved every `half_life_s`.

    Suppressed once the penalty exceeds `suppress`; free again when it has decayed to `reuse`. The ceiling
    :math:`reuse \cdot 2^{max\_suppress / half\_life}` bounds how long a port can stay suppressed after its last event.

    References
    ----------
    .. [1] SONiC, "Link event damping HLD" (RFC 2439 in spirit): penalty 1000 per down event; its worked trace with
       suppress 1600, reuse 1200, half-life 15 s, max-suppress 30 s is this class's test.

    Examples
    --------
    >>> d = Damping()
    >>> d.down(0), d.suppressed_at(0)
    (1000.0, False)
    >>> d.down(4_000_000_000) > 1600, d.suppressed_at(4_000_000_000), d.suppressed_at(40_000_000_000)
    (True, True, False)
    """

    suppress: float = 1600.0
    reuse: float = 1200.0
    half_life_s: float = 15.0
    max_suppress_s: float = 30.0
    step: float = 1000.0
    penalty: float = 0.0
    at_ns: int = 0
    suppressed: bool = False

    @property
    def ceiling(self) -> float:
        """Largest penalty: 4800 with the defaults."""
        return self.reuse * math.pow(2.0, self.max_suppress_s / self.half_life_s)

    def penalty_at(self, now_ns: int) -> float:
        """Penalty decayed to `now_ns`; changes nothing."""
        age_s = max(0, now_ns - self.at_ns) / 1e9
        return self.penalty * math.pow(2.0, -age_s / self.half_life_s)

    def suppressed_at(self, now_ns: int) -> bool:
        """Whether the port's events are held back at `now_ns`."""
        return self.suppressed and self.penalty_at(now_ns) > self.reuse

    def down(self, now_ns: int) -> float:
        """Count one down event; the penalty after it."""
        held = self.suppressed_at(now_ns)
        self.penalty = min(self.ceiling, self.penalty_at(now_ns) + self.step)
        self.at_ns = now_ns
        self.suppressed = held or self.penalty > self.suppress
        return self.penalty
