"""Errors of a recording's clock estimates against its true clocks, and whether the published bound held.

The simulated score card of the clocks is `score.clock`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import Bools, Float64s, Int64s

Data = Mapping[str, Any]
_MEASURES: Final = (("error_p50_ns", 50.0), ("error_p99_ns", 99.0), ("error_max_ns", 100.0))


class TrueClocks:
    """True offsets from ``truth/clock.jsonl``: lines {clock, at_ns, offset_ns}.

    ``at_ns`` is true time, ``offset_ns`` that clock − true time; between two lines of a clock its offset is
    linear, before the first and after the last unknown. A clock with a single line has that offset always.
    """

    def __init__(self, lines: Iterable[Data]) -> None:
        by_clock: dict[str, list[tuple[int, float]]] = {}
        for line in lines:
            by_clock.setdefault(str(line["clock"]), []).append((int(line["at_ns"]), float(line["offset_ns"])))
        self._base_ns = min((at_ns for rows in by_clock.values() for at_ns, _ in rows), default=0)
        self._curves = {clock: self._curve(sorted(rows)) for clock, rows in by_clock.items()}

    @property
    def names(self) -> list[str]:
        """Clocks whose truth is known, sorted."""
        return sorted(self._curves)

    def offset_ns(self, clock: str, at_ns: Int64s) -> Float64s:
        """(n,) true offset of `clock` at true times `at_ns`, ns; NaN where it is not known."""
        curve = self._curves.get(clock)
        if curve is None:
            return np.full(len(at_ns), np.nan)
        times, offsets = curve
        if len(times) == 1:
            return np.full(len(at_ns), offsets[0])
        found: Float64s = np.interp(self._since(at_ns), times, offsets, left=np.nan, right=np.nan)
        return found

    def true_time_ns(self, clock: str, reading_ns: Int64s) -> Int64s:
        """True times at which `clock` read `reading_ns`; two steps suffice for skews below 1e-3."""
        at_ns = reading_ns
        for _ in range(2):
            offset_ns = np.nan_to_num(self._held(clock, at_ns))
            at_ns = reading_ns - np.rint(offset_ns).astype(np.int64)
        return at_ns

    def _held(self, clock: str, at_ns: Int64s) -> Float64s:
        curve = self._curves.get(clock)
        if curve is None:
            return np.full(len(at_ns), np.nan)
        held: Float64s = np.interp(self._since(at_ns), *curve)
        return held

    def _since(self, at_ns: Int64s) -> Float64s:
        since: Float64s = (at_ns - self._base_ns).astype(np.float64)  # exact below 2^53 ns = 104 days
        return since

    def _curve(self, rows: list[tuple[int, float]]) -> tuple[Float64s, Float64s]:
        times = np.array([at_ns - self._base_ns for at_ns, _ in rows], np.float64)
        return times, np.array([offset for _, offset in rows], np.float64)


def clock_errors(truth: TrueClocks, rows: Mapping[str, Any], kind: str = "causal") -> dict[str, Any]:
    """Errors of estimated offsets.

    Parameters
    ----------
    truth : TrueClocks
    rows : mapping of column to (n,) array or list
        clock, at_ns, offset_ns, err_ns, status, kind of ``sdf.state.clock.v1``.
    kind : str
        ``causal`` or ``smoothed``.

    Returns
    -------
    dict
        ``reference``: the clock that all offsets are against, of those whose offset is always 0 the one with the
        smallest bound; without one None, and nothing is assessed. ``clocks``: per clock n, ``bias_ns``, the median,
        99th percentile and largest |error|, and ``bound_held``, the share of rows with |error| ≤ err_ns. ``all``:
        the same over all clocks but the reference.

    Notes
    -----
    error = estimate − (true offset of that clock − true offset of the reference), both at the true time of the
    row. Only rows of status ``synced`` are assessed; the others are counted in ``not_judged``.
    """
    states = _States.of(rows, kind)
    names = sorted(set(states.clock.tolist()))
    reference = _reference(states, names)
    result: dict[str, Any] = {"reference": reference, "kind": kind, "clocks": {}, "not_judged": 0}
    if reference is None:
        result["not_judged"] = len(states.clock)
        return result
    errors, bounds = [], []
    for name in names:
        of_clock = states.clock == name
        error, err_ns = _errors(truth, states, of_clock, name, reference), states.err_ns[of_clock]
        assessed = states.synced[of_clock] & np.isfinite(error)
        result["not_judged"] += int((~assessed).sum())
        if name != reference and assessed.any():
            result["clocks"][name] = _measures(error[assessed], err_ns[assessed])
            errors.append(error[assessed])
            bounds.append(err_ns[assessed])
    if errors:
        result["all"] = _measures(np.concatenate(errors), np.concatenate(bounds))
    return result


class _States(NamedTuple):
    """Rows of one kind of ``sdf.state.clock.v1``, as arrays."""

    clock: npt.NDArray[np.object_]
    at_ns: Int64s
    offset_ns: Float64s
    err_ns: Float64s
    synced: Bools

    @classmethod
    def of(cls, rows: Mapping[str, Any], kind: str) -> _States:
        chosen = np.asarray(rows["kind"], object) == kind
        return cls(
            np.asarray(rows["clock"], object)[chosen],
            np.asarray(rows["at_ns"], np.int64)[chosen],
            np.asarray(rows["offset_ns"], np.float64)[chosen],
            np.asarray(rows["err_ns"], np.float64)[chosen],
            (np.asarray(rows["status"], object) == "synced")[chosen],
        )


def _reference(states: _States, names: Iterable[str]) -> str | None:
    """The clock that all offsets are against: of those whose offset is always 0 the one with the smallest bound."""
    zero = [
        (float(states.err_ns[states.clock == name].max()), name)
        for name in names
        if not states.offset_ns[states.clock == name].any()
    ]
    return min(zero)[1] if zero else None


def _errors(truth: TrueClocks, states: _States, of_clock: Bools, name: str, reference: str) -> Float64s:
    """Estimate − true offset against the reference, ns; NaN where the truth is not known."""
    at_ns = truth.true_time_ns(name, states.at_ns[of_clock])
    true_ns = truth.offset_ns(name, at_ns) - truth.offset_ns(reference, at_ns)
    error: Float64s = states.offset_ns[of_clock] - true_ns
    return error


def _measures(error_ns: Float64s, err_ns: Float64s) -> dict[str, Any]:
    size = np.abs(error_ns)
    return {
        "n": len(size),
        "bias_ns": float(error_ns.mean()),
        **{name: float(np.percentile(size, q)) for name, q in _MEASURES},
        "bound_p50_ns": float(np.median(err_ns)),
        "bound_held": float((size <= err_ns).mean()),
    }
