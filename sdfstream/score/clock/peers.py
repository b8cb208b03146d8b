"""Other estimators on the same draws: the package ``ntpstats`` on pairs, and the per-window model on any world.

`ntpstats` (MIT) is no dependency of the product; ``pip install 'sdfstream[peers]'`` brings it.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, Final

import numpy as np

from sdfstream.errors import ConfigError
from sdfstream.records.units import Float64s
from sdfstream.score.clock.cases import Case
from sdfstream.score.clock.margin import Estimate, per_window
from sdfstream.score.clock.sim import World
from sdfstream.score.clock.tracks import Figures

WINDOW_JOINED: Final = "max margin per 2 s, joined (1-3 s late)"
WINDOW_END: Final = "max margin per 2 s, at its end"
MESH_JOINED: Final = "max margin per 2 s, least squares, joined (1-3 s late)"
MESH_END: Final = "max margin per 2 s, least squares, at its end"
SHOWN: Final = frozenset({"ntpstats hull (8 s)", "ntpstats kalman-dw", WINDOW_JOINED, WINDOW_END})
"""Those drawn beside ours."""

_Fit = Callable[[Any, Any], Any]
NTPSTATS: Final[dict[str, _Fit]] = {
    "ntpstats hull (64 samples)": lambda e, s: e.convex_hull(s, samples=64),
    "ntpstats hull (2 s)": lambda e, s: e.convex_hull(s, window=2.0),
    "ntpstats hull (8 s)": lambda e, s: e.convex_hull(s, window=8.0),
    "ntpstats kalman-dw": lambda e, s: e.run("kalman-dw", s),
    "ntpstats rts-dw (offline)": lambda e, s: e.run("rts-dw", s),
    "ntpstats regression": lambda e, s: e.run("regression", s),
    "ntpstats ptp4l": lambda e, s: e.run("ptp4l", s),
    "ntpstats sptp": lambda e, s: e.run("sptp", s),
    "ntpstats mindelay": lambda e, s: e.run("mindelay", s),
    "ntpstats feedforward": lambda e, s: e.run("feedforward", s),
}
"""Name in the table to call; all defaults but where the name says otherwise."""


def require() -> Any:
    """The module of estimators.

    Raises
    ------
    ConfigError
        It is not installed.
    """
    try:
        from ntpstats import estimators
    except ImportError as error:
        raise ConfigError(
            "--peers needs the package ntpstats: pip install 'sdfstream[peers]', or in a checkout: make bench-clock"
        ) from error
    return estimators


def compared(case: Case, seed: int) -> dict[str, Figures]:
    """rms, p99, max of the other estimators on one seed of a case: same draws, same stretch."""
    return {name: figures(error) for name, error in errors_of(case, seed).items()}


def errors_of(case: Case, seed: int, only: Set[str] | None = None) -> dict[str, Float64s]:
    """Errors of the other estimators, or of those named, over the case's stretch and for its clocks."""
    world = case.make(seed)
    world.messages(case.seconds)
    found = estimates(world, case.seconds, only)
    return {name: errors(world, estimate, *case.stretch_s, case.names(world)) for name, estimate in found.items()}


def estimates(world: World, seconds: float, only: Set[str] | None = None) -> dict[str, Estimate]:
    """The other estimators' estimates of a world whose messages have been made; ntpstats on pairs only."""
    found = {}
    if len(world.clocks) == 2:
        estimators, series = require(), _series(world)
        for name, fit in NTPSTATS.items():
            if only is None or name in only:
                got = fit(estimators, series)
                found[name] = Estimate(got.t, {_other(world): got.offset * -1e9})
    names = (WINDOW_JOINED, WINDOW_END) if len(world.clocks) == 2 else (MESH_JOINED, MESH_END)
    if only is None or only & set(names):
        found |= zip(names, per_window(world, seconds), strict=True)
    return found


def errors(world: World, estimate: Estimate, low_s: float, high_s: float, names: set[str] | None = None) -> Float64s:
    """Errors in a stretch of true time, all clocks together, ns."""
    during = (estimate.at_s >= low_s) & (estimate.at_s < high_s)
    at = estimate.at_s[during] * 1e9
    stretches = [
        offset[during] - world.offset(name, at)
        for name, offset in estimate.offset_ns.items()
        if names is None or name in names
    ]
    return np.concatenate(stretches)


def figures(error: Float64s) -> Figures:
    """rms, p99, max; infinite where there is nothing."""
    if not error.size or np.isnan(error).any():
        return dict.fromkeys(("rms", "p99", "max"), np.inf)
    size = np.abs(error)
    return {"rms": float(np.sqrt((size**2).mean())), "p99": float(np.quantile(size, 0.99)), "max": float(size.max())}


def _other(world: World) -> str:
    return max(world.clocks)


def _series(world: World) -> Any:
    """The pair's exchanges as an NTP client on the second clock would have them: offset = first − second, s."""
    from ntpstats.series import TimeSeries

    x = world.exchanges
    mine = np.flatnonzero(~x["lost"])
    mine = mine[np.argsort(x["sent"][mine], kind="stable")]
    t1, t2, t3, t4 = (x[name][mine] for name in ("t1", "t2", "t3", "t4"))
    middle = (x["sent"][mine] + x["fwd"][mine] + world.turn_ns / 2) / 1e9
    offset = ((t2 - t1) + (t3 - t4)) / 2e9
    delay = ((t4 - t1) - (t3 - t2)) / 1e9
    return TimeSeries(middle, -offset, name="pair", extra={"delay": delay})
