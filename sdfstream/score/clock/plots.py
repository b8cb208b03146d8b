"""Pictures of the score card, as SVG: error over time with its bound, distribution beside others, coverage per case."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from sdfstream.errors import ConfigError
from sdfstream.records.units import Float64s
from sdfstream.score.clock.tracks import Track

OVER_TIME: Final[Mapping[str, tuple[float, float] | None]] = {"pair-B-64": None, "queue": (50.0, 80.0), "step": None}
"""Cases drawn over time, and the stretch that is marked, s."""
BESIDE: Final = "pair-B-64"
_STYLE: Final = {
    "svg.hashsalt": "sdfstream",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.figsize": (7.5, 3.4),
    "path.simplify_threshold": 0.5,
}
_POINTS: Final = 300
"""Of a distribution: more is not seen."""
_ROWS: Final = 700
"""Of a track: more is not seen, and makes files large."""


def require() -> Any:
    """The module pyplot of matplotlib, drawing into files.

    Raises
    ------
    ConfigError
        It is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(
            "--plots needs the package matplotlib: pip install 'sdfstream[peers]', or in a checkout: make bench-clock"
        ) from error
    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update(_STYLE)
    return pyplot


def over_time(path: Path, title: str, tracks: Mapping[str, Track], trouble_s: tuple[float, float] | None) -> None:
    """Error of every clock, and the bound of the first, against true time."""
    plt = require()
    figure, axes = plt.subplots()
    tracks = {name: _thinned(track.between(2.0)) for name, track in tracks.items()}
    if trouble_s is not None:
        axes.axvspan(*trouble_s, color="C3", alpha=0.12, lw=0, label="trouble")
    for i, (name, t) in enumerate(tracks.items()):
        axes.plot(t.at_s, t.error, lw=0.9, color=f"C{i}", label=f"error of {name}")
        if i == 0:
            axes.fill_between(t.at_s, -t.bound, t.bound, color="0.85", lw=0, label=f"bound of {name}", step="mid")
    widest = max(float(np.abs(t.error).max()) for t in tracks.values())
    usual = float(np.quantile(next(iter(tracks.values())).bound, 0.9))
    axes.set_ylim(-1.2 * max(widest, usual), 1.2 * max(widest, usual))
    if widest > 20 * usual:  # a step: both the jump and what came before and after must be seen
        axes.set_yscale("symlog", linthresh=max(usual, 1.0))
    axes.set(title=title, xlabel="true time, s", ylabel="ns")
    axes.legend(loc="upper right", fontsize=8)
    _save(plt, figure, path)


def _thinned(t: Track) -> Track:
    every = max(1, -(-t.at_s.size // _ROWS))
    return Track._make(column[::every] for column in t)


def distribution(path: Path, title: str, errors: Mapping[str, Float64s]) -> None:
    """Share of |error| at or below each size."""
    plt = require()
    figure, axes = plt.subplots()
    share = np.concatenate([np.linspace(0, 0.98, _POINTS), np.linspace(0.98, 1.0, 40)[1:]])
    for i, (name, error) in enumerate(errors.items()):
        style = {"lw": 2.0} if i == 0 else {"lw": 1.2, "ls": "--" if "late" in name or "smoothed" in name else "-"}
        axes.plot(np.quantile(np.abs(error), share), share, label=name, **style)
    axes.set(title=title, xlabel="|error|, ns", ylabel="share of estimates", xscale="log", ylim=(0, 1.01))
    axes.set_xlim(left=1.0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
    _save(plt, figure, path)


def coverage(path: Path, result: Mapping[str, Mapping[str, Any]]) -> None:
    """Share of rows outside their bound, per case: all seeds together and the worst one."""
    plt = require()
    names = list(result)[::-1]
    figure, axes = plt.subplots(figsize=(7.5, 0.9 + 0.24 * len(names)))
    least = 1e-5
    for marker, label, pick in (("o", "all seeds", None), ("|", "worst seed", "worst")):
        shares = [(result[n] if pick is None else result[n][pick])["covered"] for n in names]
        axes.plot([max(1.0 - s, least) for s in shares], range(len(names)), marker, label=label, ms=7)
    axes.axvline(1e-3, color="0.4", lw=1.0, ls=":", label="limit 0.1 %")
    axes.set(xscale="log", xlim=(least * 0.7, 1.0), xlabel="share of rows outside err_ns (left edge: none)")
    axes.set_yticks(range(len(names)), names)
    axes.legend(loc="lower right", fontsize=8)
    _save(plt, figure, path)


def _save(plt: Any, figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
