"""Score card of the clocks: published delay laws and troubles, each with its limits, over many seeds.

A case is simulated (`clock_sim`), run through `SyncStage` as a replay would, and judged against the simulated truth.
Errors are those of published causal rows, all clocks but the reference, in ns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.records import columns
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK
from sdfstream.score import clock_sim
from sdfstream.score.clock_sim import Clock, F, Session, World, drive
from sdfstream.sync import SyncStage

Figures = dict[str, float]
Rows = dict[str, "Track"]
QUEUE_NS: Final = 40e3
"""Mean of the standing queue of the published law: 20 µs and an exponential of mean 20 µs."""


class Track(NamedTuple):
    """One clock's published rows: true time, error, bound, status; ns but for the time in s."""

    at_s: F
    error: F
    bound: F
    status: Any

    def between(self, low_s: float, high_s: float) -> Track:
        """Rows of a stretch of true time."""
        mask = (self.at_s >= low_s) & (self.at_s < high_s)
        return Track(*(column[mask] for column in self))


@dataclass(frozen=True)
class Case:
    """What is simulated, how it is judged, and what must hold: name of a figure to its limit (`least_…`: at least)."""

    name: str
    make: Callable[[int], World]
    seconds: float
    judge: Callable[[World, list[tuple[int, Output]]], Figures]
    limits: Figures = field(default_factory=dict)


def tracks(world: World, outputs: list[tuple[int, Output]], kind: str = "causal") -> Rows:
    """Published rows of every clock but the reference against the truth."""
    found: dict[str, list[Any]] = {}
    for _, output in outputs:
        if output.topic != CLOCK.name or isinstance(output.body, type(None)):
            continue
        body: Any = output.body
        codes, names = columns.names(body, "clock")
        kinds, kind_names = columns.names(body, "kind")
        statuses, status_names = columns.names(body, "status")
        figures = [columns.values(body, c) for c in ("at_ns", "offset_ns", "err_ns")]
        mine = np.array([kind_names[k] == kind for k in kinds])
        for row in np.flatnonzero(mine).tolist():
            found.setdefault(names[codes[row]], []).append(
                (figures[0][row], figures[1][row], figures[2][row], status_names[statuses[row]])
            )
    reference = min(world.clocks)
    result = {}
    for name, rows in found.items():
        if name == reference:
            continue
        at_s = world.clocks[name].true_time(np.array([r[0] for r in rows]))
        truth = world.clocks[name].offset(at_s) - world.clocks[reference].offset(at_s)
        error = np.array([r[1] for r in rows]) - truth
        result[name] = Track(at_s / 1e9, error, np.array([r[2] for r in rows]), np.array([r[3] for r in rows]))
    return result


def figures(rows: Rows, low_s: float, high_s: float = np.inf, names: set[str] | None = None) -> Figures:
    """rms, p99, max, covered, and the median half-width of the bound over a stretch of time."""
    parts = [t.between(low_s, high_s) for n, t in rows.items() if names is None or n in names]
    size = np.abs(np.concatenate([t.error for t in parts]))
    bound = np.concatenate([t.bound for t in parts])
    rms = float(np.sqrt((size**2).mean()))
    return {
        "rms": rms,
        "p99": float(np.quantile(size, 0.99)),
        "max": float(size.max()),
        "covered": float((size <= bound).mean()),
        "bound": float(np.median(bound)),
        "bound_per_rms": float(np.median(bound)) / max(rms, 1e-9),
    }


def steady(low_s: float) -> Callable[[World, list[tuple[int, Output]]], Figures]:
    """Judge everything after `low_s`; smoothed rows too, and when the error last exceeded 1 µs."""

    def judge(world: World, outputs: list[tuple[int, Output]]) -> Figures:
        rows = tracks(world, outputs)
        smoothed = figures(tracks(world, outputs, "smoothed"), low_s)
        late = [t.at_s[np.abs(t.error) > 1000.0] for t in rows.values()]
        late_s = max((float(t.max()) for t in late if t.size), default=0.0)
        early = figures(rows, 15.0, 30.0)
        return {
            **figures(rows, low_s),
            "smoothed_p99": smoothed["p99"],
            "smoothed_covered": smoothed["covered"],
            "microsecond_s": late_s,
            "rms_15_30": early["rms"],
        }

    return judge


def _queue(seed: int) -> World:
    world = clock_sim.pair("B", 64, seed)
    world.sessions[0].extra_forward = _standing(50e9, 80e9)
    return world


def _standing(low: float, high: float) -> Callable[[F, np.random.Generator], F]:
    def more(t: F, g: np.random.Generator) -> F:
        return np.where((t > low) & (t < high), 20e3 + 20e3 * g.exponential(size=t.size), 0.0)

    return more


def _queue_figures(world: World, outputs: list[tuple[int, Output]]) -> Figures:
    rows = tracks(world, outputs)
    during = figures(rows, 50.0, 85.0)
    error = np.concatenate([t.between(51.0, 80.0).error for t in rows.values()])
    # a forward delay is shown short by just the clock error, averaged over both ends
    return {**during, "least_shown": 1.0 - float(np.abs(error).mean()) / QUEUE_NS}


def _half_queued(seed: int) -> World:
    world = clock_sim.mesh(16, 6, "B", 64, seed)
    for s in world.sessions[::2]:
        s.extra_forward = _standing(25e9, 55e9)
    return world


def _half_figures(world: World, outputs: list[tuple[int, Output]]) -> Figures:
    rows = tracks(world, outputs)
    error = np.concatenate([t.between(26.0, 55.0).error for t in rows.values()])
    return {**figures(rows, 25.0, 55.0), "least_shown": 1.0 - float(np.abs(error).mean()) / QUEUE_NS}


LIARS: Final = ("h05", "h17")


def _liars(seed: int) -> World:
    """A mesh of 40 in which two clocks add 10 µs, with a random sign per edge, to everything about them."""
    world = clock_sim.mesh(40, 10, "B", 64, seed)
    for s in world.sessions:
        if s.src in LIARS or s.dst in LIARS:
            lie = float(world.rng.choice([-1.0, 1.0])) * 10e3
            s.extra_forward, s.extra_reverse = _always(lie), _always(-lie)
    return world


def _always(ns: float) -> Callable[[F, np.random.Generator], F]:
    return lambda t, g: np.full(t.size, ns)


def _liar_figures(world: World, outputs: list[tuple[int, Output]]) -> Figures:
    rows = tracks(world, outputs)
    good = set(rows) - set(LIARS)
    accused = {n: t.at_s[t.status == "faulty"] for n, t in rows.items()}
    flagged = [float(accused[n].min()) if accused[n].size else np.inf for n in LIARS]
    return {
        **figures(rows, 15.0, names=good),
        "flagged_s": max(flagged),
        "wrongly": float(sum(accused[n].size > 0 for n in good)),
    }


def _step(seed: int) -> World:
    world = clock_sim.mesh(8, 4, "B", 64, seed)
    world.clocks["h03"].step_at_s, world.clocks["h03"].step_ns = 30.0, 250e3
    return world


def _step_figures(world: World, outputs: list[tuple[int, Output]]) -> Figures:
    rows = tracks(world, outputs)
    mine = rows["h03"].between(30.0, 70.0)
    told = mine.at_s[mine.status != "synced"]
    outside = mine.at_s[np.abs(mine.error) > mine.bound]
    others = set(rows) - {"h03"}
    before, after = figures(rows, 20.0, 30.0, others), figures(rows, 30.0, 45.0, others)
    return {
        "told_s": float(told.min()) - 30.0 if told.size else np.inf,
        "inside_s": float(outside.max()) - 30.0 if outside.size else 0.0,
        "others_p99_before": before["p99"],
        "others_p99_after": after["p99"],
        "others_ratio": after["p99"] / before["p99"],
        "p99_15s_later": figures(rows, 45.0, 60.0, {"h03"})["p99"],
    }


def _lab(seed: int) -> World:
    """The lab's virtual clock: phase wander 200 ns/√s, then a 40 ms queue one way for 30 s."""
    world = clock_sim.pair("B", 64, seed)
    world.clocks["b"] = Clock("b", 123_456.0, 10_000.0, 0.0, 200.0, rng=world.rng)

    def queue(t: F, g: np.random.Generator) -> F:
        return np.where((t > 50e9) & (t < 80e9), 40e6 + 100e3 * g.exponential(size=t.size), 0.0)

    world.sessions[0].extra_forward = queue
    return world


def _jitter(seed: int) -> World:
    """Exponential 2 µs and 5 ns of two-sided stamp noise."""
    world = clock_sim.pair("B", 64, seed)
    world.sessions[0].forward = lambda g, n: 10e3 + 2e3 * g.exponential(size=n) + 5.0 * g.standard_normal(n)
    return world


def _bursts(seed: int) -> World:
    """On-off incast: bursts of 0.2 s on average, a quarter of the time, 50 µs deep, forward."""
    world = clock_sim.pair("B", 64, seed)

    def bursts(t: F, g: np.random.Generator) -> F:
        slots = int(t.max() / 2e8) + 2
        return np.where((g.uniform(size=slots) < 0.25)[(t / 2e8).astype(int)], 50e3 * g.exponential(size=t.size), 0.0)

    world.sessions[0].extra_forward = bursts
    return world


def _loss(seed: int) -> World:
    world = clock_sim.pair("B", 64, seed)
    world.sessions[0].loss = 0.3
    return world


def _ramp(seed: int) -> World:
    world = clock_sim.pair("B", 64, seed)
    world.clocks["b"] = Clock("b", 1e6, 10_000.0, 1.0, ramp_ppb=20.0, rng=world.rng)
    return world


def _reroute(seed: int) -> World:
    """Both ways become 3 µs longer after 50 s, and 3 µs shorter again after 80 s, on one session of a mesh's."""
    world = clock_sim.mesh(8, 4, "B", 64, seed)
    longer: Callable[[F, np.random.Generator], F] = lambda t, g: np.where((t > 25e9) & (t < 45e9), 3e3, 0.0)  # noqa: E731
    world.sessions[0].extra_forward = world.sessions[0].extra_reverse = longer
    return world


def _pair(law: str, rate: float, wander_ppb: float = 1.0) -> Callable[[int], World]:
    return lambda seed: clock_sim.pair(law, rate, seed, wander_ppb)


_BOUND: Final = {"least_covered": 0.999, "bound_per_rms": 4.0}
_COLD: Final = {"microsecond_s": 5.0}
CASES: Final = (
    Case("pair-B-64", _pair("B", 64), 120, steady(40), {"rms": 25, "p99": 65, "max": 100, **_BOUND, **_COLD}),
    Case("pair-B-16", _pair("B", 16), 160, steady(60), {"rms": 50, "p99": 130, **_BOUND}),
    Case("pair-B-64-wander", _pair("B", 64, 10.0), 120, steady(40), {"rms": 60, "p99": 170, **_BOUND}),
    Case("pair-A-16", _pair("A", 16), 120, steady(40), {"rms": 1.8, "p99": 5, **_BOUND}),
    Case("pair-L40-64", _pair("L40", 64), 120, steady(40), {"rms": 3, "p99": 8, **_BOUND}),
    Case("pair-L90-64", _pair("L90", 64), 120, steady(40), {"rms": 500, "p99": 1300, **_BOUND}),
    Case(
        "mesh-64",
        lambda seed: clock_sim.mesh(64, 10, "B", 64, seed),
        40,
        steady(20),
        {"p99": 30, "smoothed_p99": 13, **_BOUND},
    ),
    Case("queue", _queue, 100, _queue_figures, {"p99": 200, "least_shown": 0.99, "least_covered": 0.999}),
    Case("queue-half-mesh", _half_queued, 60, _half_figures, {"least_shown": 0.99, "least_covered": 0.999}),
    Case("liars", _liars, 30, _liar_figures, {"flagged_s": 10, "wrongly": 0}),
    Case("liars-none", lambda seed: clock_sim.mesh(40, 10, "B", 64, seed), 30, _liar_figures, {"wrongly": 0}),
    Case("step", _step, 65, _step_figures, {"told_s": 2, "inside_s": 15, "others_ratio": 1.5}),
    Case("lab-clock", _lab, 100, steady(20), {"max": 5000, "least_covered": 1.0}),
    Case("jitter", _jitter, 100, steady(40), _BOUND),
    Case("bursts", _bursts, 100, steady(40), _BOUND),
    Case("loss-30", _loss, 100, steady(40), _BOUND),
    Case("ramp", _ramp, 100, steady(40), _BOUND),
    Case("reroute", _reroute, 60, steady(20), {"least_covered": 0.999}),
)


def run(case: Case, seed: int) -> Figures:
    """One seed of one case."""
    world = case.make(seed)
    return case.judge(world, drive(SyncStage(), world.messages(case.seconds)))


def summary(case: Case, found: list[Figures]) -> dict[str, Any]:
    """Median and worst of every figure over the seeds, and which limits the median meets."""
    names = found[0]
    median = {n: float(np.median([f[n] for f in found])) for n in names}
    low = {"covered", "smoothed_covered", "least_shown"}
    worst = {n: float((np.min if n in low else np.max)([f[n] for f in found])) for n in names}
    pooled = float(np.mean([f["covered"] for f in found])) if "covered" in names else None
    met = {}
    for name, limit in case.limits.items():
        if name == "least_covered":
            met[name] = pooled is not None and pooled >= limit
        elif name.startswith("least_"):
            met[name] = median[name] >= limit
        else:
            met[name] = median[name] <= limit
    return {"median": median, "worst": worst, "covered_all": pooled, "limits": case.limits, "met": met}


__all__ = ["CASES", "Case", "Session", "Track", "figures", "run", "summary", "tracks"]
