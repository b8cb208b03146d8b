"""Clocks of which little is known yet: a tenth of a second of probes, some of them late, and then a long silence.

Two readings of one clock, 1.1 µs apart; of 32 sessions each sends a probe or three. A bound holds the truth from the
first row on, and while nothing comes. Seeds 1-3.
"""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.records.units import NS_PER_S
from sdfstream.score.clock.sim import Session, SimulatedClock, World, drive, seeded
from sdfstream.score.clock.tracks import Track, tracks
from sdfstream.sync import SyncStage
from tests.fixtures.sync_sim import START_NS
from tests.scenarios.test_sync_late import moved

PORTS = 16
PROBED_S, END_S = 0.9, 6.0


def near(g: np.random.Generator, n: int) -> np.ndarray:
    """Delays of a path of 1.1 µs that hardly queues."""
    return 1100.0 + g.exponential(300.0, n)


def estimated(seed: int, edges: tuple[tuple[str, str], ...], late_s: dict[str, float], skew_ppb: float) -> Track:
    """Clock b's rows, when probes of `edges` were sent for `PROBED_S` and each host's reach the bus so much later."""
    g = seeded(seed)
    clocks = {"a": SimulatedClock("a", rng=g), "b": SimulatedClock("b", 1e5, skew_ppb, 1.0, rng=g)}
    sessions = [Session(*edge, 3.0, near, path=49152 + port) for edge in edges for port in range(PORTS)]
    messages = moved(World(clocks, sessions, g).messages(PROBED_S), lambda host, t: t + late_s[host])
    return tracks(World(clocks, sessions, g), drive(SyncStage(), messages, START_NS + int(END_S * NS_PER_S)))["b"]


@pytest.mark.parametrize("skew_ppb", [0.0, 8000.0])
@pytest.mark.parametrize(
    ("edges", "late_s"),
    [
        ((("b", "a"),), {"a": 0.1, "b": 0.1}),
        ((("a", "b"), ("b", "a")), {"a": 0.6, "b": 0.1}),
        ((("a", "b"), ("b", "a")), {"a": 1.2, "b": 0.1}),
    ],
    ids=["one end probes", "one end 0.5 s behind", "one end 1.1 s behind"],
)
def test_the_bound_of_a_young_clock_holds(
    edges: tuple[tuple[str, str], ...], late_s: dict[str, float], skew_ppb: float
) -> None:
    for seed in range(1, 4):
        t = estimated(seed, edges, late_s, skew_ppb)
        known = t.status != "unsynced"
        share = np.abs(t.error[known]) / t.bound[known]
        print(f"{edges} {late_s} {skew_ppb:g} ppb, seed {seed}: {known.sum()} rows, {share.max():.2f} of the bound")
        assert known.sum() > 40
        assert share.max() <= 1.0
