"""A simulated clock: its reading at each true time, and the inverse."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import Float64s

START_NS = 1_800_000_000 * 1_000_000_000
"""True time 0 of every simulation, ns since the Unix epoch."""


def seeded(seed: int) -> np.random.Generator:
    """The generator of a published seed: numpy's own default, so that others can draw the same."""
    return np.random.Generator(np.random.PCG64(seed))


class Slew(NamedTuple):
    """A daemon turns the clock's frequency by `ppb` from `from_s` to `to_s`."""

    from_s: float
    to_s: float
    ppb: float


@dataclass
class SimulatedClock:
    """reading = true time + offset(true time)."""

    name: str
    offset_ns: float = 0.0
    skew_ppb: float = 0.0
    wander_ppb: float = 0.0
    """Frequency random walk per √s, in steps of one second."""
    phase_ns: float = 0.0
    """Phase random walk per √s, in steps of 10 ms."""
    step_at_s: float = np.inf
    step_ns: float = 0.0
    ramp_ppb: float = 0.0
    """Steady change of the frequency per second (a warming room: 2e-8/s at most), between the next two instants."""
    ramp_from_s: float = 0.0
    ramp_to_s: float = np.inf
    slews: tuple[Slew, ...] = ()
    seconds: int = 4000
    rng: np.random.Generator = field(default_factory=lambda: seeded(0))

    def __post_init__(self) -> None:
        self._skew = self.skew_ppb + np.cumsum(self.wander_ppb * self.rng.standard_normal(self.seconds))
        self._ramp()
        walk = self.phase_ns * 0.1 * self.rng.standard_normal(self.seconds * 100 if self.phase_ns else 1)
        self._walk = np.concatenate([[0.0], np.cumsum(walk)])

    def _ramp(self) -> None:
        ramped_s = np.clip(np.arange(self.seconds), self.ramp_from_s, self.ramp_to_s) - self.ramp_from_s
        self._skew = self._skew + self.ramp_ppb * ramped_s
        self._at = np.concatenate([[0.0], np.cumsum(self._skew)])

    def warm_up(self, ppb: float, from_s: float, to_s: float) -> None:
        """Change the frequency by `ppb` per second between two instants; a clock made without such a ramp."""
        self.ramp_ppb, self.ramp_from_s, self.ramp_to_s = ppb, from_s, to_s
        self._ramp()

    def offset(self, t: Float64s) -> Float64s:
        """Offset in ns at true time `t` (ns since the start)."""
        s = t / 1e9
        k = np.clip(np.floor(s).astype(int), 0, self.seconds - 1)
        line: Float64s = self.offset_ns + self._at[k] + self._skew[k] * (s - k)
        if self.phase_ns:
            line = line + np.interp(s * 100, np.arange(self._walk.size), self._walk)
        for slew in self.slews:
            line = line + slew.ppb * (np.clip(s, slew.from_s, slew.to_s) - slew.from_s)
        return line + self.step_ns * (s >= self.step_at_s)

    def reading(self, t: Float64s, noise_ns: Float64s | float = 0.0) -> npt.NDArray[np.int64]:
        """Reading at true time `t`, ns since the Unix epoch; `noise_ns` is the error of the stamp."""
        return START_NS + np.rint(t + self.offset(t) + noise_ns).astype(np.int64)

    def true_time(self, reading_ns: npt.NDArray[np.int64]) -> Float64s:
        """True time (ns since the start) at which the clock shows `reading_ns`."""
        t = (reading_ns - START_NS).astype(np.float64)
        guess = t.copy()
        for _ in range(4):
            guess = t - self.offset(guess)
        return guess
