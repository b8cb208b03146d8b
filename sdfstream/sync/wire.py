"""Messages between `sync-edge` and `sync-mesh` as record batches: reduced edges up, estimates down.

All numbers travel as they are (float64), so that processes on several machines compute what one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.topics import EDGE, ESTIMATE
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.estimates import ClockEstimates
from sdfstream.sync.reduce import ReducedEdges
from sdfstream.sync.reference import ReferenceState

MOST_ROWS: Final = 16_384
"""Rows per message: some 3 MB, less than a bus takes at once."""
_FLOATS: Final = {
    "weight_per_ns2": "weight",
    "offset_ns": "offset_ns",
    "skew_weight_per_ppb2": "skew_weight",
    "skew_ppb": "skew_ppb",
    "info_xx_per_ns2": "info_offset",
    "info_xg_per_ns_ppb": "info_cross",
    "info_gg_per_ppb2": "info_skew",
    "square_ns2": "disagreement_ns2",
    "rest_ns2": "residual_ns2",
    "step_ns": "step_ns",
    "alarm_ns2": "surprise_ns2",
}
_BREACHES: Final = {"breached": "breached", "breach_ns2": "breach_ns2"}
"""Of edges; 0 where a message of an earlier version lacks them."""
_COUNTS: Final = {"sessions": "sessions", "bad": "disagreeing", "blocks": "blocks", "tripped": "jumped"}
_ESTIMATES: Final = {
    "offset_ns": "offset_ns",
    "skew_ppb": "skew_ppb",
    "var_xx_ns2": "offset_var_ns2",
    "var_xg_ns_ppb": "offset_skew_cov",
    "var_gg_ppb2": "skew_var_ppb2",
    "walk_ppb2_per_s": "freq_walk",
    "phase_ns2_per_s": "phase_walk",
    "bound_ns2": "bound_ns2",
}

_DRIFTS: Final = {
    "drift_ppb_per_s": "drift_ppb_s",
    "drifted_ns": "drifted_ns",
    "drifted_ppb": "drifted_ppb",
}
"""Of estimates; 0 where a message of an earlier version lacks them."""

_MOST_WEIGHT: Final = 1e15
"""Of a sum of inverse variances: more than any number of sessions of a nanosecond's noise."""
_MOST_SQUARE: Final = 1e37
"""Of a squared difference of two clocks: the square of 2^61 ns."""
_ROUNDED: Final = 1.001
"""A sum of inverse covariances may have lost so much of its determinant."""
_UNITS: Final = ("ns", "ppb")
_MOST_SKEW_PPB: Final = 1e9
"""A clock that runs twice as fast."""
_LIMITS: Final = {
    "weight_per_ns2": (0.0, _MOST_WEIGHT),
    "skew_weight_per_ppb2": (0.0, _MOST_WEIGHT),
    "skew_ppb": (-_MOST_SKEW_PPB, _MOST_SKEW_PPB),
    "info_xx_per_ns2": (0.0, _MOST_WEIGHT),
    "info_gg_per_ppb2": (0.0, _MOST_WEIGHT),
    "square_ns2": (0.0, _MOST_SQUARE),
    "rest_ns2": (0.0, _MOST_SQUARE),
    "alarm_ns2": (0.0, _MOST_SQUARE),
    "breached": (0.0, _MOST_SQUARE),
    "breach_ns2": (0.0, _MOST_SQUARE),
    "usual_ns2": (0.0, _MOST_SQUARE),
    "place_skew_ppb": (-_MOST_SKEW_PPB, _MOST_SKEW_PPB),
    "var_xx_ns2": (0.0, _MOST_SQUARE),
    "var_gg_ppb2": (0.0, _MOST_SQUARE),
    "walk_ppb2_per_s": (0.0, _MOST_SQUARE),
    "phase_ns2_per_s": (0.0, _MOST_SQUARE),
    "bound_ns2": (0.0, _MOST_SQUARE),
    "drift_ppb_per_s": (-_MOST_SKEW_PPB, _MOST_SKEW_PPB),
    "drifted_ppb": (-_MOST_SKEW_PPB, _MOST_SKEW_PPB),
    "drifted_src_ppb": (-_MOST_SKEW_PPB, _MOST_SKEW_PPB),
    "drifted_dst_ppb": (-_MOST_SKEW_PPB, _MOST_SKEW_PPB),
}
"""Of columns that are no plain differences of readings; a row beyond them is of nobody who measured."""


class EdgeRows(NamedTuple):
    """Rows of one message about edges; clock numbers in `edges` point into `names`."""

    tick_at_ns: Int64s
    origin_ns: int | None
    lag_ns: float
    """Smallest lag in the rows; infinite: none."""
    names: list[str]
    edges: ReducedEdges
    base_ns: Int64s
    """(names,) reading less bus time, where `based`."""
    based: Bools
    drifted: Float64s
    """(2, names): what drifts made of offset (ns) and skew (ppb), as far as these sessions have followed it."""


class EstimateRows(NamedTuple):
    """Rows of one message about clocks, all of one tick."""

    tick_at_ns: int
    clocks: int
    usual_ns2: float
    names: list[str]
    estimates: ClockEstimates


def edge_batches(
    tick_at_ns: int,
    origin_ns: int | None,
    lag_ns: float,
    names: list[str],
    edges: ReducedEdges,
    base_ns: Int64s,
    based: Bools,
    drifted: Float64s,
) -> Iterator[pa.RecordBatch]:
    """Batches of ``sdf.derived.edge.v1``; `base_ns`, `based` and `drifted` (offset, skew) are by clock."""
    assert EDGE.columns is not None
    for low in range(0, edges.src.size, MOST_ROWS):
        e = ReducedEdges._make(column[low : low + MOST_ROWS] for column in edges)
        n = e.src.size
        yield columns.build(
            EDGE.columns,
            {
                "tick_at_ns": np.full(n, tick_at_ns),
                "origin_ns": _alike(n, origin_ns, pa.int64()),
                "lag_ns": _alike(n, lag_ns if lag_ns < np.inf else None, pa.float64()),
                "clock_src": _name_column(e.src, names),
                "clock_dst": _name_column(e.dst, names),
                "base_src_ns": columns.nullable(base_ns[e.src], based[e.src], pa.int64()),
                "base_dst_ns": columns.nullable(base_ns[e.dst], based[e.dst], pa.int64()),
                **{name: getattr(e, field) for name, field in _FLOATS.items()},
                **{name: getattr(e, field).astype(np.uint32) for name, field in _COUNTS.items()},
                "heard": pa.array(e.recent),
                "breached": e.breached.astype(np.uint32),
                "breach_ns2": e.breach_ns2,
                **{f"drifted_src_{unit}": drifted[k, e.src] for k, unit in enumerate(_UNITS)},
                **{f"drifted_dst_{unit}": drifted[k, e.dst] for k, unit in enumerate(_UNITS)},
            },
        )


def read_edges(batch: pa.RecordBatch) -> EdgeRows:
    """Rows of a message about edges.

    Raises
    ------
    FormatError
        A column is missing, of another type, or has a null where none may be; a number is not finite, or of nobody who
        measured (`_LIMITS`); an inverse covariance is none.
    """
    sides = [columns.names(batch, f"clock_{end}") for end in ("src", "dst")]
    if any((codes < 0).any() for codes, _ in sides):
        raise FormatError("null", "clock")
    names = list(dict.fromkeys([*sides[0][1], *sides[1][1]]))
    number = {name: k for k, name in enumerate(names)}
    src, dst = (
        np.array([number[name] for name in own], dtype=np.int64)[codes] if own else codes.astype(np.int64)
        for codes, own in sides
    )
    floats = {field: _finite(batch, name) for name, field in _FLOATS.items()}
    if (np.square(floats["info_cross"]) > floats["info_offset"] * floats["info_skew"] * _ROUNDED).any():
        raise FormatError("out-of-range", "info_xg_per_ns_ppb")
    counts = {field: columns.values(batch, name).astype(np.float64) for name, field in _COUNTS.items()}
    breaches = {field: _finite_or_0(batch, name) for name, field in _BREACHES.items()}
    recent = columns.values(batch, "heard").astype(np.bool_)
    edges = ReducedEdges(src=src, dst=dst, recent=recent, **floats, **counts, **breaches)
    base_ns, based = np.full(len(names), np.iinfo(np.int64).min), np.zeros(len(names), dtype=np.bool_)
    drifted = np.zeros((2, len(names)))
    for end, clock in (("src", src), ("dst", dst)):
        given = _present(batch, f"base_{end}_ns")
        bases = columns.filled(batch, f"base_{end}_ns", 0).astype(np.int64)
        np.maximum.at(base_ns, clock[given], bases[given])
        based[clock[given]] = True
        for k, unit in enumerate(_UNITS):
            drifted[k, clock] = _finite_or_0(batch, f"drifted_{end}_{unit}")
    origin, lag = _present(batch, "origin_ns"), _present(batch, "lag_ns")
    return EdgeRows(
        columns.values(batch, "tick_at_ns").astype(np.int64),
        int(columns.filled(batch, "origin_ns", 0)[origin].max()) if origin.any() else None,
        float(columns.filled(batch, "lag_ns", 0.0)[lag].min()) if lag.any() else np.inf,
        names,
        edges,
        base_ns,
        based,
        drifted,
    )


def estimate_batches(
    tick_at_ns: int, names: list[str], b: ClockEstimates, usual_ns2: float
) -> Iterator[pa.RecordBatch]:
    """Batches of ``sdf.derived.estimate.v1``."""
    assert ESTIMATE.columns is not None
    for low in range(0, b.n, MOST_ROWS):
        span = slice(low, min(low + MOST_ROWS, b.n))
        n = span.stop - low
        yield columns.build(
            ESTIMATE.columns,
            {
                "tick_at_ns": np.full(n, tick_at_ns),
                "clocks": np.full(n, b.n, dtype=np.uint32),
                "origin_ns": np.full(n, b.origin_ns),
                "now_ns": np.full(n, b.at_ns),
                "lag_ns": np.full(n, b.lag_ns),
                "usual_ns2": np.full(n, usual_ns2),
                "place_at_ns": np.full(n, b.reference_state.at_ns),
                "place_base_ns": np.full(n, b.reference_state.base_ns),
                "place_offset_ns": np.full(n, b.reference_state.offset_ns),
                "place_skew_ppb": np.full(n, b.reference_state.skew_ppb),
                "clock": columns.name_column(np.arange(n), names[span]),
                "base_ns": columns.nullable(b.table["base_ns"][span], b.table["based"][span], pa.int64()),
                **{name: b.table[column][span].copy() for name, column in (_ESTIMATES | _DRIFTS).items()},
            },
        )


def read_estimates(batch: pa.RecordBatch) -> EstimateRows | None:
    """Rows of a message about clocks; None of an empty one.

    Raises
    ------
    FormatError
        As `read_edges`; or the rows are of several ticks.
    """
    codes, dictionary = columns.names(batch, "clock")
    ticks, clocks = columns.values(batch, "tick_at_ns"), columns.values(batch, "clocks")
    if not ticks.size:
        return None
    if (codes < 0).any():
        raise FormatError("null", "clock")
    if (ticks != ticks[0]).any() or (clocks != clocks[0]).any():
        raise FormatError("ticks-mixed", "one message speaks of one tick")
    b = ClockEstimates()
    b.table.grow(ticks.size)
    for name, column in _ESTIMATES.items():
        b.table[column] = _finite(batch, name)
    for name, column in _DRIFTS.items():
        b.table[column] = _finite_or_0(batch, name)
    b.table["based"] = _present(batch, "base_ns")
    b.table["base_ns"] = columns.filled(batch, "base_ns", 0)
    b.origin_ns = int(columns.values(batch, "origin_ns")[0])
    b.at_ns, b.lag_ns = float(_finite(batch, "now_ns")[0]), float(_finite(batch, "lag_ns")[0])
    state = (_finite(batch, f"place_{name}")[0] for name in ("at_ns", "offset_ns", "skew_ppb"))
    at, offset, skew = map(float, state)
    b.reference_state = ReferenceState(at, int(columns.values(batch, "place_base_ns")[0]), offset, skew)
    names = [dictionary[code] for code in codes.tolist()]
    return EstimateRows(int(ticks[0]), int(clocks[0]), float(_finite(batch, "usual_ns2")[0]), names, b)


def _name_column(codes: Int64s, names: list[str]) -> pa.Array:
    """A name column whose dictionary holds what is used only."""
    used, inverse = np.unique(codes, return_inverse=True)
    return columns.name_column(inverse, [names[k] for k in used.tolist()])


def _alike(rows: int, value: float | None, kind: pa.DataType) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.array([value], kind).take(pa.array(np.zeros(rows, np.int32)))


def _finite_or_0(batch: pa.RecordBatch, name: str) -> Float64s:
    """A column that earlier versions have not: 0 where it is absent or null."""
    return _checked(columns.filled(batch, name, 0.0).astype(np.float64), name)


def _finite(batch: pa.RecordBatch, name: str) -> Float64s:
    try:
        result: Float64s = columns.values(batch, name).astype(np.float64)
    except (TypeError, ValueError) as problem:
        raise FormatError("column-type", name) from problem
    return _checked(result, name)


def _checked(result: Float64s, name: str) -> Float64s:
    if not np.isfinite(result).all():
        raise FormatError("not-finite", name)
    low, high = _LIMITS.get(name, (-_MOST_SQUARE, _MOST_SQUARE))
    if result.size and not low <= result.min() <= result.max() <= high:
        raise FormatError("out-of-range", name)
    return result


def _present(batch: pa.RecordBatch, name: str) -> Any:
    index = batch.schema.get_field_index(name)
    if index < 0:
        raise FormatError("column-missing", name)
    return batch.column(index).is_valid().to_numpy(zero_copy_only=False)
