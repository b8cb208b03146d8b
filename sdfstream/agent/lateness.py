"""What an agent gives up when it cannot keep up, and when it takes it back: pure.

Late probes and late rows are worse than few: silence is found late, and a finding from old rows speaks of what is over.
So an agent that is late gives up work in a fixed order, a step at a time: half of its planned sessions' probes, three
quarters, seven eighths, then half the rate of its quick paths. What stands first in a plan (clocks' sessions) goes
last, and the assessment of liveness is never given up.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sdfstream.records.units import NS_PER_MS

DECILE: Final = 0.9
LATE_PROBES_NS: Final = 5 * NS_PER_MS
"""Nine in ten turns of the sender are to be no later: half an interval of a quick path."""
LATE_LOOP_NS: Final = 100 * NS_PER_MS
"""Nine in ten turns of the agent's loop are to be no later: rows are to be on the bus within a quarter of a second."""
LATE_LOOKS: Final = 3
"""So many looks in a row that find it late are a step down. One alone may be a machine that was frozen."""
CALM_LOOKS: Final = 30
"""So many that find it twice as quick as it must be are a step up: what was given up made it so."""


class Rates(NamedTuple):
    """Shares of the rates that are wanted."""

    planned: float = 1.0
    quick: float = 1.0


FULL: Final = Rates()
STEPS: Final = (FULL, Rates(0.5), Rates(0.25), Rates(0.125), Rates(0.125, 0.5))


class TurnLateness(NamedTuple):
    """What the last look found, ns: the ninth decile of the sender's and of the loop's lateness."""

    probes_ns: int
    loop_ns: int

    @property
    def is_late(self) -> bool:
        """Whether it cannot keep up."""
        return self.probes_ns > LATE_PROBES_NS or self.loop_ns > LATE_LOOP_NS

    @property
    def is_calm(self) -> bool:
        """Whether it could do more."""
        return 2 * self.probes_ns <= LATE_PROBES_NS and 2 * self.loop_ns <= LATE_LOOP_NS


class RateGovernor:
    """Which rates an agent may have; `look` is called once a second.

    Examples
    --------
    >>> governor = RateGovernor()
    >>> [governor.look(TurnLateness(0, 10**9)).planned for _ in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.5, 0.25]
    """

    def __init__(self) -> None:
        self._step = 0
        self._late = self._calm = 0

    @property
    def rates(self) -> Rates:
        """The shares that hold now."""
        return STEPS[self._step]

    def look(self, found: TurnLateness) -> Rates:
        """The shares that hold from now on, after what was found."""
        self._late = self._late + 1 if found.is_late else 0
        self._calm = self._calm + 1 if found.is_calm else 0
        if self._late >= LATE_LOOKS:
            self._late = 0
            self._step = min(self._step + 1, len(STEPS) - 1)
        elif self._calm >= CALM_LOOKS:
            self._calm = 0
            self._step = max(self._step - 1, 0)
        return self.rates


def sentence(rates: Rates, cause: str) -> str:
    """What is given up, and why; the same for as long as both are.

    >>> sentence(FULL, "")
    'probes and rows are in time'
    """
    if rates == FULL:
        return "probes and rows are in time"
    given_up = f"planned sessions at {rates.planned:g} of their rate"
    if rates.quick < 1:
        given_up += f", quick paths at {rates.quick:g} of theirs"
    return f"probes and rows come late: {cause}; {given_up}"
