"""A run's published rows against the truth: clock rows as tracks of errors, delay windows beside the true delays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.group import group_values, quantile
from sdfstream.records import columns
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK, OWD
from sdfstream.records.units import Float64s
from sdfstream.score.clock.sim import World
from sdfstream.twin.clock_model import START_NS

Figures = dict[str, float]
"""Name of a figure to its value; ns where the name does not say otherwise."""
WORST: Final[Figures] = {
    **dict.fromkeys(("rms", "p50", "p99", "max", "bound", "bound_per_rms"), np.inf),
    "covered": 0.0,
}
"""Figures of a stretch without a single row."""


class Track(NamedTuple):
    """One clock's published rows: true time, error, bound, status, age when published; ns but for the time in s."""

    at_s: Float64s
    error: Float64s
    bound: Float64s
    status: npt.NDArray[np.str_]
    age: Float64s

    def between(self, low_s: float, high_s: float = np.inf) -> Track:
        """Rows of a stretch of true time."""
        mask = (self.at_s >= low_s) & (self.at_s < high_s)
        return Track._make(column[mask] for column in self)


Tracks = dict[str, Track]
"""Every clock but the reference, whether it published anything or not."""


class OwdWindows(NamedTuple):
    """Windows of published one-way delay whose packets are known: medians published and true, ns."""

    at_s: Float64s
    forward: npt.NDArray[np.bool_]
    published: Float64s
    true: Float64s
    err: Float64s


@dataclass
class RunTracks:
    """One run of one seed."""

    causal: Tracks
    smoothed: Tracks = field(default_factory=dict)
    delays: OwdWindows | None = None
    """Only of cases that ask for them."""
    troubled: frozenset[str] = frozenset()
    """The clocks that the trouble is about: liars, the one that steps, those cut off."""
    clean: RunTracks | None = None
    """The same seed without the trouble."""


def run_tracks(world: World, outputs: list[tuple[int, Output]], *, with_delays: bool = False) -> RunTracks:
    """The input of the metrics."""
    shown = delays(world, outputs) if with_delays else None
    return RunTracks(tracks(world, outputs), tracks(world, outputs, "smoothed"), shown, frozenset(world.troubled))


def tracks(world: World, outputs: list[tuple[int, Output]], kind: str = "causal") -> Tracks:
    """Published rows of every clock but the reference against the truth."""
    found: dict[str, list[Any]] = {name: [] for name in world.clocks if name != world.reference}
    for bus_at_ns, output in outputs:
        if output.topic != CLOCK.name:
            continue
        body: Any = output.body
        codes, names = columns.names(body, "clock")
        kinds, kind_names = columns.names(body, "kind")
        statuses, status_names = columns.names(body, "status")
        figures = [columns.values(body, c).tolist() for c in ("at_ns", "offset_ns", "err_ns")]
        mine = np.array([name == kind for name in kind_names])[kinds]
        for row in np.flatnonzero(mine).tolist():
            if names[codes[row]] in found:
                state = (figures[0][row], figures[1][row], figures[2][row], status_names[statuses[row]], bus_at_ns)
                found[names[codes[row]]].append(state)
    return {name: _track(world, name, rows) for name, rows in found.items()}


def _track(world: World, name: str, rows: list[Any]) -> Track:
    at_ns, offset, bound, status, bus_at_ns = zip(*rows, strict=True) if rows else ((),) * 5
    at = world.clocks[name].true_time(np.array(at_ns, dtype=np.int64))
    error = np.array(offset, dtype=np.float64) - world.offset(name, at)
    age = (np.array(bus_at_ns, dtype=np.int64) - START_NS) - at
    return Track(at / 1e9, error, np.array(bound, dtype=np.float64), np.array(status, dtype=np.str_), age)


def figures(rows: Tracks, low_s: float, high_s: float = np.inf, names: set[str] | None = None) -> Figures:
    """rms, p50, p99, max, covered, and the median half-width of the bound, over a stretch of time.

    All rows count, whatever their status. A clock without a row in the stretch makes the whole the worst there is.
    """
    selected = [t.between(low_s, high_s) for n, t in rows.items() if names is None or n in names]
    if not selected or not all(t.error.size for t in selected):
        return dict(WORST)
    size = np.abs(np.concatenate([t.error for t in selected]))
    bound = np.concatenate([t.bound for t in selected])
    rms = float(np.sqrt((size**2).mean()))
    return {
        "rms": rms,
        "p50": float(np.median(size)),
        "p99": float(np.quantile(size, 0.99)),
        "max": float(size.max()),
        "covered": float((size <= bound).mean()),
        "bound": float(np.median(bound)),
        "bound_per_rms": float(np.median(bound)) / max(rms, 1e-9),
    }


def freshness(rows: Tracks, low_s: float) -> Figures:
    """How old the oldest row was when published, and the longest time between two rows of a clock, ms."""
    selected = [t.between(low_s) for t in rows.values()]
    if not selected or not all(t.age.size > 1 for t in selected):
        return {"age_ms": np.inf, "gap_ms": np.inf}
    gaps = [np.diff(t.at_s + t.age / 1e9).max() * 1e3 for t in selected]
    return {"age_ms": float(max(t.age.max() for t in selected)) / 1e6, "gap_ms": float(max(gaps))}


def delays(world: World, outputs: list[tuple[int, Output]], window_ns: int = 100_000_000) -> OwdWindows:
    """Published medians beside those of the packets sent in that window; windows of other packets are left out.

    A window is cut on the reference's time by the sender's stamp. Packets that came after it closed are counted in
    a later one by sync; then the two counts differ and neither window can be compared.
    """
    truth = _true_windows(world, window_ns)
    session = {(s.src, s.dst): i for i, s in enumerate(world.sessions)}
    selected = []
    for _, output in outputs:
        if output.topic != OWD.name:
            continue
        body: Any = output.body
        ends = zip(_names(body, "src"), _names(body, "dst"), strict=True)
        of = np.array([session[a.partition("/")[0], b.partition("/")[0]] for a, b in ends])
        forward = np.array([name == "fwd" for name in _names(body, "dir")])
        window = columns.values(body, "at_ns") // window_ns
        p50, err = columns.filled(body, "owd_p50_ns", np.nan), columns.filled(body, "err_ns", np.nan)
        selected.append((_key(window - START_NS // window_ns, of, forward), columns.values(body, "n"), p50, err))
    if not selected or not truth.key.size:
        return OwdWindows._make(np.empty(0, dtype) for dtype in ("f8", "?", "f8", "f8", "f8"))
    key, n, p50, err = (np.concatenate(column) for column in zip(*selected, strict=True))
    at = np.minimum(np.searchsorted(truth.key, key), truth.key.size - 1)
    known = (truth.key[at] == key) & (truth.n[at] == n)
    at_s = (key[known] >> 32) * window_ns / 1e9
    return OwdWindows(at_s, (key[known] & 1) == 0, p50[known], truth.median[at[known]], err[known])


class _Windows(NamedTuple):
    key: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    median: Float64s


def _key(window: Any, session: Any, forward: Any) -> npt.NDArray[np.int64]:
    """One number for a window since the start, session and direction; it sorts by window."""
    result: npt.NDArray[np.int64] = (window << 32) | (session.astype(np.int64) << 1) | ~forward & 1
    return result


def _names(body: Any, name: str) -> list[str]:
    codes, names = columns.names(body, name)
    return [names[c] for c in codes.tolist()]


def _true_windows(world: World, window_ns: int) -> _Windows:
    x = world.exchanges
    whole = ~x["lost"]
    window = world.clocks[world.reference].reading(x["sent"][whole]) // window_ns - START_NS // window_ns
    forward = np.ones(window.size, dtype=np.bool_)
    key = np.concatenate([_key(window, x["session"][whole], direction) for direction in (forward, ~forward)])
    groups, ordered = group_values(key, np.concatenate([x["fwd"][whole], x["rev"][whole]]))
    return _Windows(groups.key, groups.size, quantile(groups, ordered, 0.5))
