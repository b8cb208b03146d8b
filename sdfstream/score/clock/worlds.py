"""The worlds of the score card: pairs and meshes with one trouble each, by seed.

Troubled clocks and edges are drawn by a generator of their own, so that the delays of a seed are the same draws with
and without the trouble.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sdfstream.score.clock.delays import bursts, shifted, standing
from sdfstream.score.clock.sim import World, mesh, pair
from sdfstream.twin.clock_model import SimulatedClock, Slew

Make = Callable[[int], World]

QUEUE_FIXED_NS: Final = 20e3
QUEUE_MEAN_NS: Final = 20e3
LIE_NS: Final = 10e3


def chooser(seed: int) -> np.random.Generator:
    """The generator of troubled clocks and edges; apart from the delays' generator."""
    return np.random.Generator(np.random.PCG64([seed, 5]))


def plain_pair(name: str, rate: float, wander_ppb: float = 1.0) -> Make:
    """Two clocks and a published law."""
    return lambda seed: pair(name, rate, seed, wander_ppb)


def plain_mesh(clocks: int, degree: int) -> Make:
    """Law B at 64/s."""
    return lambda seed: mesh(clocks, degree, "B", 64, seed)


def queue(low_s: float, high_s: float) -> Make:
    """A pair with a standing queue ahead."""

    def make(seed: int) -> World:
        world = pair("B", 64, seed)
        world.sessions[0].extra_forward = standing(low_s, high_s, QUEUE_FIXED_NS, QUEUE_MEAN_NS)
        return world

    return make


def half_queued(clocks: int, degree: int, low_s: float, high_s: float) -> Make:
    """A mesh with that queue on a random half of its edges, ahead."""

    def make(seed: int) -> World:
        world = mesh(clocks, degree, "B", 64, seed)
        count = len(world.sessions)
        for i in chooser(seed).choice(count, count // 2, replace=False).tolist():
            world.sessions[i].extra_forward = standing(low_s, high_s, QUEUE_FIXED_NS, QUEUE_MEAN_NS)
        return world

    return make


def liars(clocks: int, degree: int, share: float) -> Make:
    """So many clocks, never the reference, put 10 µs on all stamps about them, with a random sign per edge."""

    def make(seed: int) -> World:
        world, g = mesh(clocks, degree, "B", 64, seed), chooser(seed)
        names = sorted(world.clocks)[1:]
        world.troubled = set(g.choice(names, round(share * clocks), replace=False).tolist())
        for s in world.sessions:
            if s.src in world.troubled or s.dst in world.troubled:
                lie = float(g.choice([-LIE_NS, LIE_NS]))
                s.extra_forward, s.extra_reverse = shifted(lie), shifted(-lie)
        return world

    return make


def stepped(at_s: float, ns: float) -> Make:
    """One clock of a small mesh steps."""

    def make(seed: int) -> World:
        world = mesh(8, 4, "B", 64, seed)
        world.clocks["h03"].step_at_s, world.clocks["h03"].step_ns = at_s, ns
        world.troubled = {"h03"}
        return world

    return make


def slewed(*slews: Slew) -> Make:
    """An NTP daemon slews one clock of a small mesh."""

    def make(seed: int) -> World:
        world = mesh(8, 4, "B", 64, seed)
        world.clocks["h03"].slews = slews
        world.troubled = {"h03"}
        return world

    return make


def islands(low_s: float, high_s: float) -> Make:
    """A mesh of 16 of which six, never the reference, are cut off from the others for a while."""

    def make(seed: int) -> World:
        world = mesh(16, 8, "B", 64, seed)
        world.troubled = set(sorted(world.clocks)[10:])
        for s in world.sessions:
            if (s.src in world.troubled) != (s.dst in world.troubled):
                s.cut_s = (low_s, high_s)
        return world

    return make


def rerouted(low_s: float, high_s: float, ahead_ns: float, back_ns: float) -> Make:
    """A fifth of a mesh's edges are longer by so much for a while; `ahead_ns` with a random sign where one-sided."""

    def make(seed: int) -> World:
        world, g = mesh(16, 8, "B", 64, seed), chooser(seed)
        count = len(world.sessions)
        for i in g.choice(count, count // 5, replace=False).tolist():
            s, sign = world.sessions[i], 1.0 if back_ns else float(g.choice([-1.0, 1.0]))
            s.extra_forward = shifted(sign * ahead_ns, low_s, high_s)
            s.extra_reverse = shifted(back_ns, low_s, high_s)
        return world

    return make


def jittery(name: str, rate: float, noise_ns: float) -> Make:
    """Each of the four stamps is off by a two-sided normal error."""
    return lambda seed: pair(name, rate, seed, stamp_noise_ns=noise_ns)


def bursty(seed: int) -> World:
    """Incast both ways: a quarter of the time, 0.2 s at a stretch on average, 50 µs deep on average."""
    world = pair("B", 64, seed)
    world.sessions[0].extra_forward = world.sessions[0].extra_reverse = bursts(0.2, 0.6, 50e3)
    return world


def lossy(seed: int) -> World:
    """30 % of the exchanges are lost."""
    world = pair("B", 64, seed)
    world.sessions[0].loss = 0.3
    return world


def warming(low_s: float, high_s: float) -> Make:
    """The frequency rises by 2e-8 a second for a while: 1 ppm/°C at 0.02 °C/s."""

    def make(seed: int) -> World:
        world = pair("B", 64, seed)
        warm = SimulatedClock(
            "b", 1e6, 10_000.0, 1.0, ramp_ppb=20.0, ramp_from_s=low_s, ramp_to_s=high_s, rng=chooser(seed)
        )
        world.clocks["b"] = warm
        return world

    return make


def warming_mesh(clocks: int, degree: int, low_s: float, high_s: float, ppb: float = 20.0) -> Make:
    """Every host of a mesh warms up or cools down by that much meanwhile, as at a job's start and end."""

    def make(seed: int) -> World:
        world, g = mesh(clocks, degree, "B", 64, seed), chooser(seed)
        for clock in world.clocks.values():
            clock.warm_up(ppb * float(g.choice([-1.0, 1.0])), low_s, high_s)
        return world

    return make


def lab_clock(low_s: float, high_s: float) -> Make:
    """The lab's virtual clock: 123,456 ns and 10 ppm off, phase wander 200 ns/√s; then a 40 ms queue one way."""

    def make(seed: int) -> World:
        world = pair("B", 64, seed)
        world.clocks["b"] = SimulatedClock("b", 123_456.0, 10_000.0, 0.0, 200.0, rng=chooser(seed))
        world.sessions[0].extra_forward = standing(low_s, high_s, 40e6, 100e3)
        return world

    return make
