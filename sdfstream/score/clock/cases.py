"""Score card of the clocks: published delay laws and troubles, each with its limits, over many seeds.

A case is simulated (`worlds`), run through `SyncStage` as a replay would, and compared with the simulated truth
(`metrics`). Errors are those of published rows, all clocks but the reference, in ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from sdfstream.score.clock import metrics, worlds
from sdfstream.score.clock.metrics import Metric
from sdfstream.score.clock.sim import World, drive
from sdfstream.score.clock.tracks import Figures, RunTracks, run_tracks
from sdfstream.score.clock.worlds import Make
from sdfstream.sync import SyncStage
from sdfstream.twin.clock_model import Slew


@dataclass(frozen=True)
class Case:
    """A simulated world, its metric, and limits: name of a figure to its limit (`least_…`: at least)."""

    name: str
    what: str
    make: Make
    seconds: float
    stretch_s: tuple[float, float]
    """Rows of this stretch of true time give rms, p99, max and covered; others' estimates are compared there too."""
    metric: Metric
    limits: Mapping[str, float] = field(default_factory=dict)
    clean: Make | None = None
    """The same world without the trouble, where the metric compares."""
    delays: bool = False
    """Whether the metric needs one-way delays."""
    peers: bool = False
    """Whether other estimators are run on the same draws."""
    whose: Literal["all", "good", "troubled"] = "all"
    """The clocks whose errors give rms, p99, max and covered: all, those in no trouble, or those in trouble."""

    def names(self, world: World) -> set[str]:
        """The clocks whose errors count."""
        others = set(world.clocks) - {world.reference}
        return {"all": others, "good": others - world.troubled, "troubled": set(world.troubled)}[self.whose]


_BOUND: Final = {"least_covered": 0.999, "bound_per_rms": 4.0}
_FRESH: Final = {"age_ms": 250.0, "gap_ms": 150.0}
_QUEUE: Final = {"p99": 200.0, "least_shown": 0.99, "phantom": 0.01, "least_covered": 0.999}
_UNDISTURBED: Final = {"others_ratio": 1.2}


def _published(name: str, what: str, make: Make, seconds: float, low_s: float, limits: Figures) -> Case:
    """A pair under a published law."""
    return Case(
        name,
        what,
        make,
        seconds,
        (low_s, np.inf),
        metrics.steady_state(low_s),
        {**limits, **_BOUND, **_FRESH},
        peers=True,
    )


def _trouble(name: str, what: str, make: Make, low_s: float = 40.0, *, peers: bool = False) -> Case:
    """A pair of which only an honest bound is asked."""
    return Case(name, what, make, 100, (low_s, np.inf), metrics.steady_state(low_s), _BOUND, peers=peers)


CASES: Final = (
    _published(
        "pair-B-64",
        "pair, law B, 64/s",
        worlds.plain_pair("B", 64),
        120,
        40,
        {"rms": 25, "p99": 65, "max": 100},
    ),
    _published("pair-B-16", "pair, law B, 16/s", worlds.plain_pair("B", 16), 160, 60, {"rms": 50, "p99": 130}),
    _published(
        "pair-B-64-wander",
        "pair, law B, 64/s, frequency wander 1e-8/√s",
        worlds.plain_pair("B", 64, 10.0),
        120,
        40,
        {"rms": 60, "p99": 170},
    ),
    _published("pair-A-16", "pair, law A, 16/s", worlds.plain_pair("A", 16), 120, 40, {"rms": 1.8, "p99": 5}),
    _published("pair-L40-64", "pair, law L40, 64/s", worlds.plain_pair("L40", 64), 120, 40, {"rms": 3, "p99": 8}),
    _published("pair-L90-64", "pair, law L90, 64/s", worlds.plain_pair("L90", 64), 120, 40, {"rms": 500, "p99": 1300}),
    Case(
        "mesh-64",
        "mesh of 64 clocks, 320 edges, law B, 64/s",
        worlds.plain_mesh(64, 10),
        40,
        (20, np.inf),
        metrics.steady_state(20),
        {"p99": 30, "smoothed_p99": 13, **_BOUND, **_FRESH},
        peers=True,
    ),
    Case(
        "cold-start",
        "pair, law B, 64/s, from the first packet on, 1 ms and 10 ppm off",
        worlds.plain_pair("B", 64),
        60,
        (15, np.inf),
        metrics.cold_start,
        {"microsecond_s": 5, "steady_ratio": 1.5, "least_covered": 0.999},
    ),
    Case(
        "queue",
        "pair, law B, 64/s, 30 s standing queue one way (20 µs + exponential 20 µs)",
        worlds.queue(50, 80),
        100,
        (50, 85),
        metrics.queueing(50, 80),
        _QUEUE,
        delays=True,
        peers=True,
    ),
    Case(
        "queue-half-mesh",
        "mesh of 32 clocks, 160 edges, that queue on half of them",
        worlds.half_queued(32, 10, 25, 55),
        60,
        (25, 60),
        metrics.queueing(25, 55),
        _QUEUE,
        delays=True,
        peers=True,
    ),
    Case(
        "liars",
        "mesh of 40 clocks, 200 edges, 5 % of the clocks lie by ±10 µs; good clocks",
        worlds.liars(40, 10, 0.05),
        30,
        (15, np.inf),
        metrics.falsetickers(15),
        {"clean_ratio": 1.2, "flagged_s": 10, "wrongly": 0},
        clean=worlds.plain_mesh(40, 10),
        peers=True,
        whose="good",
    ),
    Case(
        "step",
        "mesh of 8 clocks, one steps by 250 µs",
        worlds.stepped(25, 250e3),
        55,
        (40, np.inf),
        metrics.clock_step(25),
        {"told_s": 2, "inside_s": 15, **_UNDISTURBED},
        clean=worlds.plain_mesh(8, 4),
        peers=True,
        whose="troubled",
    ),
    Case(
        "lab-clock",
        "phase wander 200 ns/√s under a 40 ms one-way queue for 30 s",
        worlds.lab_clock(50, 80),
        100,
        (20, np.inf),
        metrics.steady_state(20),
        {"p50": 500, "max": 5000, "least_covered": 1.0},
    ),
    Case(
        "slew",
        "mesh of 8 clocks, a daemon slews one at 500 ppm: 4 ms forward, later 2 ms back",
        worlds.slewed(Slew(20, 28, 500_000.0), Slew(34, 38, -500_000.0)),
        60,
        (20, np.inf),
        metrics.clock_slew(20, 38),
        {"inside_s": 15, "least_covered": 0.999, **_UNDISTURBED},
        clean=worlds.plain_mesh(8, 4),
        peers=True,
        whose="troubled",
    ),
    Case(
        "islands",
        "mesh of 16 clocks, six are cut off for 20 s and come back",
        worlds.islands(20, 40),
        60,
        (20, np.inf),
        metrics.partition(20, 40),
        {"inside_s": 15, "least_covered": 0.999},  # the others lose edges, and with them accuracy
        clean=worlds.plain_mesh(16, 8),
    ),
    Case(
        "reroute",
        "mesh of 16 clocks, a fifth of the edges 3 µs longer both ways for 20 s",
        worlds.rerouted(20, 40, 3e3, 3e3),
        50,
        (20, np.inf),
        metrics.steady_state(20),
        {"least_covered": 0.999},
    ),
    Case(
        "reroute-one-way",
        "mesh of 16 clocks, a fifth of the edges ±500 ns one way for 20 s",
        worlds.rerouted(20, 40, 500.0, 0.0),
        50,
        (20, np.inf),
        metrics.steady_state(20),
        {"least_covered": 0.999},
    ),
    _trouble("jitter-2", "pair, law L40, 64/s, stamps ±2 ns", worlds.jittery("L40", 64, 2.0)),
    _trouble("jitter-10", "pair, law L40, 64/s, stamps ±10 ns", worlds.jittery("L40", 64, 10.0)),
    _trouble(
        "bursts", "pair, law B, 64/s, incast both ways a quarter of the time, 50 µs deep", worlds.bursty, peers=True
    ),
    _trouble("loss-30", "pair, law B, 64/s, 30 % of the exchanges lost", worlds.lossy),
    _trouble("ramp", "pair, law B, 64/s, frequency rises by 2e-8/s for 30 s", worlds.warming(50, 80), peers=True),
    Case(
        "warming",
        "mesh of 8 clocks, 28 edges, each clock's frequency rises or falls by 2e-8/s for 30 s",
        worlds.warming_mesh(8, 7, 30, 60),
        80,
        (20, np.inf),
        metrics.steady_state(20),
        {"p99": 60, **_BOUND},
    ),
)
BY_NAME: Final = {case.name: case for case in CASES}


def run(case: Case, seed: int) -> Figures:
    """One seed of one case."""
    return case.metric(simulate(case, seed))


def simulate(case: Case, seed: int) -> RunTracks:
    """Run sync on one seed of a case."""
    found = _once(case.make(seed), case)
    if case.clean is not None:
        found.clean = _once(case.clean(seed), case)
    return found


def _once(world: World, case: Case) -> RunTracks:
    return run_tracks(world, drive(SyncStage(), world.messages(case.seconds)), with_delays=case.delays)


def summary(case: Case, found: Sequence[Figures]) -> dict[str, Any]:
    """Median and worst of every figure over the seeds; which limits the median meets, and which the worst seed.

    Coverage is a share of rows, so `met` takes that of all seeds together.
    """
    median, worst = spread(found).values()
    typical = {**median, "covered": float(np.mean([f["covered"] for f in found]))}
    return {
        **{name: typical[name] for name in ("rms", "p99", "max", "covered")},
        "median": median,
        "worst": worst,
        "limits": dict(case.limits),
        "met": {name: holds(name, limit, typical) for name, limit in case.limits.items()},
        "met_worst": {name: holds(name, limit, worst) for name, limit in case.limits.items()},
    }


def spread(found: Sequence[Figures]) -> dict[str, Figures]:
    """Median and worst of every figure over the seeds."""
    return {
        "median": {n: float(np.median([f[n] for f in found])) for n in found[0]},
        "worst": {n: float((np.min if _more_is_better(n) else np.max)([f[n] for f in found])) for n in found[0]},
    }


def holds(name: str, limit: float, found: Mapping[str, float]) -> bool:
    """Whether a figure keeps its limit; one that is not a number does not."""
    value = found.get(figure_of(name, found), np.nan)
    return bool(value >= limit) if name.startswith("least_") else bool(value <= limit)


def figure_of(limit: str, found: Mapping[str, float]) -> str:
    """The figure that a limit is about: ``least_covered`` is about ``covered``."""
    return limit if limit in found else limit.removeprefix("least_")


def _more_is_better(name: str) -> bool:
    return name.startswith("least_") or name.endswith("covered")
