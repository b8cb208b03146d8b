r"""What each session knows by itself about its two clocks: a two-state filter, and the level of its path.

A *site* is (d, g): edge offset (reflector − sender) and its slope, with their covariance. It holds the session's own
evidence only, so that the mesh can add the sites up (`solve`) without counting anything twice. Between blocks it ages
with the random walk of both clocks,

.. math:: q_e^2 = k\,(q_a^2 + q_b^2), \qquad k = P_{site} / P_{mesh},

k being how much better the mesh knows the difference than this session does. In a mesh the wander of a clock is
learned from all its sessions together, so each must forget k times as fast: scaling noise and wander of a Kalman
filter alike scales its variance alike, hence k sessions so aged add up to the filter that had all their data.

The *level* D of the path (half the sum of both directions' floors, free of clock error) is one number with variance
and with its covariance to the mesh's idea of d.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.records.units import Float64s, Int64s
from sdfstream.sync.table import Table

UNKNOWN: Final = 1e18
"""ns²: a clock or session of which nothing is known."""
_MOST: Final = 64.0
"""k at most; beyond, a session hardly counts in the mesh anyway."""


def site_table() -> Table:
    """One row per session; wide columns have a lane per direction (0 forward, 1 reverse)."""
    wide = ("scale", "first", "second", "third", "low", "lately", "before")
    return Table(
        {
            "pair": (np.int64, 0),
            "path": (np.int64, 0),
            "clock_src": (np.int64, 0),
            "clock_dst": (np.int64, 0),
            "seen_at": (np.float64, -1e18),
            "heard_at": (np.float64, -1e18),
            "began_at": (np.float64, 0.0),
            # the site
            "d": (np.float64, 0.0),
            "g": (np.float64, 0.0),
            "dd": (np.float64, UNKNOWN),
            "dg": (np.float64, 0.0),
            "gg": (np.float64, 0.0),
            # the level
            "level": (np.float64, 0.0),
            "level_var": (np.float64, UNKNOWN),
            "level_cov": (np.float64, 0.0),
            "told_mean": (np.float64, 0.0),
            "told_var": (np.float64, 0.0),
            "told_at": (np.float64, 0.0),
            # what packets of this path add to its floor (`walls`)
            "scale": (np.float64, 0.0),
            "blocks": (np.float64, 0.0),
            # quiet sessions (`quiet`)
            **{name: (np.float64, 0.0) for name in ("about", "first", "second", "third")},
            "moments": (np.float64, 0.0),
            "quiet": (np.bool_, False),
            # broken and lost floors (`breaks`)
            "breach": (np.int64, 0),
            "low": (np.float64, np.inf),
            "lately": (np.float64, np.inf),
            "before": (np.float64, np.inf),
            "above": (np.int64, 0),
            # agreement with the mesh (`reduce`)
            "square": (np.float64, 0.0),
            "bias": (np.float64, 0.0),
            "settled": (np.float64, 0.0),
        },
        2,
        wide,
    )


def age(t: Table, dt_s: float, walk: Float64s, phase: Float64s, mesh_var: Float64s, drift_ns: float) -> None:
    """Carry every site `dt_s` forward.

    Parameters
    ----------
    walk, phase : (sessions,) float64
        Random walks of both clocks together: of the frequency (ns²/s³), of the phase (ns²/s).
    mesh_var : (sessions,) float64, ns²
        How well the mesh knows each session's clock difference.
    drift_ns : float
        Random walk of a path's level, ns per √s.
    """
    dd, dg, gg = t["dd"], t["dg"], t["gg"]
    k = np.clip(dd / mesh_var, 1.0, _MOST)
    q = walk * k
    t["d"] += t["g"] * dt_s
    t["dd"] = np.minimum(dd + (2.0 * dg + gg * dt_s) * dt_s + q * (dt_s**3 / 3.0) + phase * k * dt_s, UNKNOWN)
    t["dg"] = dg + gg * dt_s + q * (dt_s * dt_s / 2.0)
    t["gg"] = gg + q * dt_s
    t["level_var"] = np.minimum(t["level_var"] + drift_ns * drift_ns * dt_s, UNKNOWN)


def start(t: Table, i: Int64s, d: Float64s, level: Float64s, skew_limit_ppb: float) -> None:
    """Sites of which a first block is known: `d` and `level` as far off as half the level at most, any slope."""
    spread = np.maximum(level * level, 1e4)
    t["d"][i], t["g"][i] = d, 0.0
    t["dd"][i], t["dg"][i], t["gg"][i] = spread, 0.0, skew_limit_ppb**2
    # nothing says yet how much of the smallest delay was queue
    t["level"][i] = 0.75 * level
    t["level_var"][i], t["level_cov"][i] = spread, 0.0
    t["about"][i] = level
    t["scale"][:, i] = np.maximum(0.25 * level, 10.0)
    t["told_var"][i] = 0.0
    for name in ("blocks", "moments", "breach", "above", "settled", "square", "bias"):
        t[name][i] = 0
    t["quiet"][i] = False


def then(t: Table, i: Int64s, age_s: Float64s) -> tuple[Float64s, Float64s, Float64s, Float64s]:
    """The sites' lines followed back by `age_s`: offset y then, its variance, and its covariances with d and g now."""
    with_d = t["dd"][i] - age_s * t["dg"][i]
    with_g = t["dg"][i] - age_s * t["gg"][i]
    return t["d"][i] - age_s * t["g"][i], np.maximum(with_d - age_s * with_g, 1e-9), with_d, with_g


def learn(t: Table, i: Int64s, age_s: Float64s, y_ref: Float64s, info: Float64s, precision: Float64s) -> None:
    """Take in news about the offsets y of `age_s` ago: `precision` (1/ns²), `info` = precision · (value − y_ref), and
    any tilt.
    """
    y, variance, with_d, with_g = then(t, i, age_s)
    less = 1.0 / (1.0 + precision * variance)
    step = (info - precision * (y - y_ref)) * less
    gain = precision * less
    t["d"][i] += with_d * step
    t["g"][i] += with_g * step
    t["dd"][i] = np.maximum(t["dd"][i] - with_d * with_d * gain, 1e-9)
    t["dg"][i] -= with_d * with_g * gain
    t["gg"][i] = np.maximum(t["gg"][i] - with_g * with_g * gain, 1e-9)


def doubt(t: Table, i: Int64s, size: Float64s) -> None:
    """Something was off by `size` ns: widen the offsets by it, and the slopes by what such an error may have bent."""
    square = size * size
    t["dd"][i] += square
    t["gg"][i] += np.minimum(0.05 * square, 1e6)
