"""The truth of a simulated world as lines of a recording's ``truth/clock.jsonl``."""

from __future__ import annotations

from typing import Any

import numpy as np

from sdfstream.score.clock.sim import World
from sdfstream.twin.clock_model import START_NS, SimulatedClock


def truth_lines(world: World, seconds: float) -> list[dict[str, Any]]:
    """Lines {clock, at_ns, offset_ns} between which every clock's offset is linear, 2 s beyond the end included."""
    return [line for clock in world.clocks.values() for line in _lines(clock, seconds + 2.0)]


def _lines(clock: SimulatedClock, seconds: float) -> list[dict[str, Any]]:
    knots = np.arange(0.0, seconds, 0.01 if clock.phase_ns else 1.0) * 1e9
    turns = [edge * 1e9 for slew in clock.slews for edge in (slew.from_s, slew.to_s)]
    if np.isfinite(clock.step_at_s):
        turns += [clock.step_at_s * 1e9 - 1.0, clock.step_at_s * 1e9]
    at = np.unique(np.concatenate([knots, turns]))
    offsets = clock.offset(at).tolist()
    return [
        {"clock": clock.name, "at_ns": START_NS + round(t), "offset_ns": offset}
        for t, offset in zip(at.tolist(), offsets, strict=True)
    ]
