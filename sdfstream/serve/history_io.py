"""Figures over time from the archive, for charts: a pair's delays, a job's throughput, what befell a NIC.

At most `MOST_POINTS` instants: the step grows with the span.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from sdfstream.records.units import NS_PER_S

MOST_POINTS: Final = 600
MOST_EVENTS: Final = 500
LONGEST_S: Final = 31 * 86_400

_PATH: Final = """
SELECT intDiv(toInt64(toUnixTimestamp(s.at)), {step}) * {step} AS at_s,
    if(({is_a}) = (s.dir = 'fwd'), 'out', 'back') AS direction,
    toFloat64(sum(s.n)) AS n, toFloat64(sumIf(s.lost, s.dir = 'fwd')) AS lost, toFloat64(sum(s.ce)) AS ce,
    toFloat64(min(s.owd_min_ns)) AS owd_min_ns, sum(s.owd_p50_sum_ns) / nullIf(sum(s.n), 0) AS owd_p50_ns,
    toFloat64(max(s.owd_p99_ns)) AS owd_p99_ns, toFloat64(max(s.err_ns)) AS err_ns
FROM owd_1s AS s
WHERE s.at >= toDateTime({first}, 'UTC') AND s.at <= toDateTime({last}, 'UTC')
    AND ((({is_a}) AND ({to_b})) OR (({is_b}) AND ({to_a})))
GROUP BY at_s, direction ORDER BY at_s, direction
"""
_JOB: Final = """
SELECT intDiv(toInt64(toUnixTimestamp(j.second)), {step}) * {step} AS at_s,
    avg(j.throughput_bps) AS mean_bps, min(j.slowest_bps) AS least_bps,
    argMin(j.slowest_qp, j.slowest_bps) AS least_qp
FROM v_job_throughput AS j
WHERE j.job = {job} AND j.second >= toDateTime({first}, 'UTC') AND j.second <= toDateTime({last}, 'UTC')
GROUP BY at_s ORDER BY at_s
"""
_NIC: Final = """
SELECT toUnixTimestamp(toDateTime(t.at, 'UTC')) AS at_s, t.what AS what, t.state AS state, t.detail AS detail
FROM v_nic_timeline AS t
WHERE t.nic = {nic} AND t.at >= toDateTime({first}, 'UTC') AND t.at <= toDateTime({last}, 'UTC')
ORDER BY t.at DESC LIMIT {most}
"""
_CELLS: Final = """
SELECT {last} AS at_s, p.src AS src, p.dst AS dst, toFloat64(count()) AS paths,
    toFloat64(countIf(isFinite(p.figure))) AS measured, toFloat64(countIf(p.n = 0 AND p.lost > 0)) AS lost,
    minOrNull(p.floor) AS floor_ns, arraySort(groupArrayIf(p.figure, isFinite(p.figure))) AS sorted,
    if(measured > 0, sorted[toUInt64(greatest(1, ceil({level} * measured)))], NULL) AS value
FROM
(
    {names}SELECT if(s.dir = 'fwd', {src}, {dst}) AS src, if(s.dir = 'fwd', {dst}, {src}) AS dst,
        sum(s.n) AS n, sum(s.lost) AS lost, toFloat64(min(s.floor_ns)) AS floor,
        {figure} AS figure
    FROM owd_1s AS s
    WHERE s.at >= toDateTime({first}, 'UTC') AND s.at <= toDateTime({last}, 'UTC')
    GROUP BY s.src, s.dst, s.transport, s.path, s.dscp, s.dir
) AS p
GROUP BY src, dst ORDER BY src, dst LIMIT {most}
"""
_FIGURES: Final = {
    "owd": "ifNull(sum(s.owd_p50_sum_ns) / nullIf(sum(s.n), 0), nan)",
    "excess": "ifNull(sum(s.owd_p50_sum_ns) / nullIf(sum(s.n), 0) - min(s.floor_ns), nan)",
    "loss": "if(s.dir = 'fwd', ifNull(sum(s.lost) / nullIf(sum(s.n) + sum(s.lost), 0), nan), nan)",
    "ce": "ifNull(sum(s.ce) / nullIf(sum(s.n), 0), nan)",
}
"""Of one path over the stretch; NaN: not known."""
MOST_CELLS: Final = 40_000
_ASIDE: Final = frozenset({"at_s", "sorted"})
TEXTS: Final = frozenset({"direction", "least_qp", "what", "state", "detail", "src", "dst"})
"""Columns that are no figures."""


def statement(asked: Mapping[str, Any], end_ns: int) -> tuple[str, int]:
    """The SQL of a question, and the step between its instants [s].

    Parameters
    ----------
    asked : mapping
        ``a`` and ``b`` (NICs or hosts), or ``job``, or ``nic``, or ``cells`` (one of `FIGURES`) with ``percentile``
        and, where it goes by leaf, ``leaf_of`` (NIC to leaf); ``span_s``.
    end_ns : int, ns since the Unix epoch
        The newest instant.
    """
    from sdfstream.archive.sqltext import literal

    span_s, last = int(asked["span_s"]), end_ns // NS_PER_S
    step = max(1, math.ceil(span_s / MOST_POINTS))
    when = {"first": max(0, last - span_s), "last": last, "step": step}
    if "job" in asked:
        return _JOB.format(job=literal(asked["job"]), **when), step
    if "cells" in asked:
        return _cells(asked, when), step
    if "nic" in asked:
        return _NIC.format(nic=literal(asked["nic"]), most=MOST_EVENTS, **when), step

    def is_at(end: str, column: str) -> str:
        return f"s.{column} = {literal(end)} OR startsWith(s.{column}, {literal(end + '/')})"

    a, b = asked["a"], asked["b"]
    ends = {"is_a": is_at(a, "src"), "is_b": is_at(b, "src"), "to_a": is_at(a, "dst"), "to_b": is_at(b, "dst")}
    return _PATH.format(**ends, **when), step


def _cells(asked: Mapping[str, Any], when: Mapping[str, int]) -> str:
    from sdfstream.archive.sqltext import literal

    leaf_of: Mapping[str, str] = asked.get("leaf_of") or {}

    def group(column: str) -> str:
        host = f"splitByChar('/', s.{column})[1]"
        return f"transform(s.{column}, nics, leaves, 'no leaf')" if leaf_of else host

    nics, leaves = (", ".join(map(literal, names)) for names in (leaf_of.keys(), leaf_of.values()))
    names = f"WITH [{nics}] AS nics, [{leaves}] AS leaves " if leaf_of else ""  # once: SQL has a longest text
    # of a session's way back its reflector is the sender
    level = float(asked.get("percentile", 50)) / 100
    figure = _FIGURES[asked["cells"]]
    return _CELLS.format(
        src=group("src"), dst=group("dst"), level=level, figure=figure, names=names, most=MOST_CELLS, **when
    )


def history(data: str, url: str | None, asked: Mapping[str, Any], end_ns: int) -> dict[str, Any]:
    """``{"step_ns", "items"}``, each item with ``at_ns``, the oldest first (of a NIC: the newest).

    Raises
    ------
    UnavailableError, ArchiveError
        There is no archive, or it does not answer.
    """
    from sdfstream.archive.query_io import Console

    sql, step = statement(asked, end_ns)
    console = Console.open(data, url)
    try:
        rows = console.answer(sql).rows
    finally:
        console.close()
    return {"step_ns": step * NS_PER_S, "items": [_item(row) for row in rows]}


def _item(row: Mapping[str, Any]) -> dict[str, Any]:
    """64-bit numbers come as text."""
    figures = {name: v if name in TEXTS or v is None else float(v) for name, v in row.items() if name not in _ASIDE}
    return {"at_ns": int(row["at_s"]) * NS_PER_S, **figures}
