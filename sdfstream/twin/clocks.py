"""The clocks of all hosts as one table: offset, skew, thermal drift and faults, read for many stamps at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import Float64s, Int64s
from sdfstream.twin.clock_model import SimulatedClock

if TYPE_CHECKING:
    from sdfstream.twin.faults import TwinFault
    from sdfstream.twin.scenario import ClockSpec

_PERIOD_S = 240.0
"""Of the warming and cooling with a host's load."""


class Clocks:
    """Offsets of all hosts' clocks at full seconds, linear between; a step is added at its instant."""

    def __init__(
        self, hosts: list[str], spec: ClockSpec, seconds: float, faults: list[TwinFault], rng: np.random.Generator
    ) -> None:
        self.hosts, knots = hosts, np.arange(int(seconds) + 8)
        offsets = []
        for name in hosts:
            clock = SimulatedClock(
                name, rng.uniform(-1, 1) * spec.ms * 1e6, rng.uniform(-1, 1) * spec.ppm * 1e3, 1.0,
                seconds=knots.size + 1, rng=rng,
            )  # fmt: skip
            phase = rng.uniform(0, 2 * np.pi)
            swing_ns = spec.thermal_ppb * _PERIOD_S / (2 * np.pi)
            warm = swing_ns * (np.sin(2 * np.pi * knots / _PERIOD_S + phase) - np.sin(phase))
            offsets.append(clock.offset(knots.astype(np.float64) * 1e9) + warm)
        self._knots = np.array(offsets)
        self._slopes = np.diff(self._knots, axis=1)
        self.steps = [
            (hosts.index(f.target), f.spec.at, f.value("us") * 1e3) for f in faults if f.spec.kind == "clock-step"
        ]
        self.drifts = [
            (hosts.index(f.target), f.spec.at, min(f.end_s, seconds), f.value("us") * 1e3)
            for f in faults
            if f.spec.kind == "clock-faulty"
        ]
        """Host, from, to (s), and how many ns a second its clock runs off meanwhile; what it has gained it retains."""

    def offset(self, host: Int64s, true_ns: Int64s) -> Float64s:
        """(n,) ns by which each host's clock is ahead at true times since the start."""
        second = true_ns // 1_000_000_000
        at = host * self._slopes.shape[1] + second
        found: Float64s = self._slopes.ravel()[at] * ((true_ns - second * 1_000_000_000) * 1e-9)
        found += self._knots.ravel()[host * self._knots.shape[1] + second]
        for number, at_s, ns in self.steps:
            found += ns * ((host == number) & (true_ns >= at_s * 1e9))
        for number, from_s, to_s, ns in self.drifts:
            found += ns * ((host == number) * (np.clip(true_ns * 1e-9, from_s, to_s) - from_s))
        return found

    def shown(self, host: int, true_ns: int, start_ns: int) -> int:
        """A host's reading at one true time, ns since the Unix epoch."""
        second = true_ns // 1_000_000_000
        ns: float = self._knots.item(host, second)
        ns += self._slopes.item(host, second) * ((true_ns - second * 1_000_000_000) * 1e-9)
        ns += sum(step_ns for number, at_s, step_ns in self.steps if host == number and true_ns >= at_s * 1e9)
        ns += sum(
            each_ns * (min(max(true_ns * 1e-9, from_s), to_s) - from_s)
            for number, from_s, to_s, each_ns in self.drifts
            if host == number
        )
        return start_ns + true_ns + round(ns)

    def truth(self, start_ns: int) -> list[dict[str, Any]]:
        """Lines of ``truth/clock.jsonl``."""
        lines = []
        for number, name in enumerate(self.hosts):
            stepped = [at_s for host, at_s, _ in self.steps if host == number]
            ns = np.arange(self._slopes.shape[1], dtype=np.int64) * 1_000_000_000
            turns = [round(at_s * 1e9) - side for at_s in stepped for side in (1, 0)]
            turns += [round(at_s * 1e9) for host, *ends, _ in self.drifts if host == number for at_s in ends]
            at: npt.NDArray[np.int64] = np.unique(np.concatenate([ns, np.array(turns, np.int64)]))
            for t, offset in zip(at.tolist(), self.offset(np.full(at.size, number), at).tolist(), strict=True):
                lines.append({"clock": name, "at_ns": start_ns + t, "offset_ns": offset})
        return lines
