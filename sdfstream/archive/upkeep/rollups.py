"""The statements by which roll-ups by minute and hour are finished. Pure.

Each may run any number of times, in any number of processes: what it writes replaces what an earlier run wrote.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sdfstream.records.units import NS_PER_S

MINUTE_NS: Final = 60 * NS_PER_S
HOUR_NS: Final = 3600 * NS_PER_S

FROM: Final = "fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')"
TO: Final = "fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')"
_PATH: Final = "src, dst, transport, path, dscp, dir"

FINISH_PATHS: Final = f"""
INSERT INTO owd_1m
SELECT
    toStartOfMinute(toDateTime(o.at, 'UTC')) AS minute,
    o.src, o.dst, o.transport, o.path, o.dscp, o.dir,
    sum(o.n), sum(o.lost), sum(o.ce),
    min(o.owd_min_ns),
    quantileExactWeighted(0.5)(o.owd_p50_ns, o.n),
    quantileExactWeighted(0.99)(o.owd_p99_ns, o.n),
    max(o.owd_max_ns),
    quantileExactWeighted(0.5)(o.excess_p50_ns, o.n),
    max(o.err_ns),
    now64(3, 'UTC')
FROM derived_owd AS o
WHERE o.at >= {FROM} AND o.at < {TO}
GROUP BY minute, {", ".join(f"o.{name}" for name in _PATH.split(", "))}
"""

FINISH_HOURS: Final = f"""
INSERT INTO owd_1h
({_PATH}, hour, n, lost, ce, seconds, owd_min_ns, owd_max_ns, err_ns, floor_ns, typical, worst, finished_at)
SELECT
    s.src, s.dst, s.transport, s.path, s.dscp, s.dir, toStartOfHour(s.at) AS hour,
    sum(s.n), sum(s.lost), sum(s.ce), countIf(s.n > 0),
    min(s.owd_min_ns), max(s.owd_max_ns), max(s.err_ns), min(s.floor_ns),
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.99)(ifNull(toFloat64(s.owd_p50_sum_ns) / s.n, 0), s.n > 0),
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.99)(ifNull(toFloat64(s.owd_max_ns), 0), s.n > 0),
    now64(3, 'UTC')
FROM
(
    SELECT
        {_PATH}, at, sum(t.n) AS n, sum(t.lost) AS lost, sum(t.ce) AS ce, min(t.owd_min_ns) AS owd_min_ns,
        max(t.owd_max_ns) AS owd_max_ns, sum(t.owd_p50_sum_ns) AS owd_p50_sum_ns, max(t.err_ns) AS err_ns,
        min(t.floor_ns) AS floor_ns
    FROM owd_1s AS t
    WHERE at >= {FROM} AND at < {TO}
    GROUP BY {_PATH}, at
) AS s
GROUP BY hour, {", ".join(f"s.{name}" for name in _PATH.split(", "))}
SETTINGS optimize_aggregation_in_order = 1
"""

FINISH_CLOCKS: Final = f"""
INSERT INTO clock_1m
SELECT
    c.clock, c.kind, toStartOfMinute(toDateTime(c.bus_at, 'UTC')) AS minute,
    count(), avg(c.offset_ns), min(c.offset_ns), max(c.offset_ns), avg(c.skew_ppb),
    quantileExact(0.5)(c.err_ns), max(c.err_ns), avg(c.status = 'synced'), groupUniqArray(c.status), now64(3, 'UTC')
FROM state_clock AS c
WHERE c.bus_at >= {FROM} AND c.bus_at < {TO}
GROUP BY c.clock, c.kind, minute
"""


@dataclass(frozen=True, slots=True)
class Finisher:
    """Rolls rows of `source` up into a table of finished spans of time."""

    table: str
    column: str
    """A span's beginning in `table`."""
    source: str
    """The table whose new rows name the spans to roll up, or to roll up again."""
    span_of: str
    """The span that a row of `source` belongs to."""
    span_ns: int
    most: int
    """Spans in one statement."""
    sql: str
    made_of: str
    """The table that `sql` reads."""
    made_of_span: str
    """The span that a row of `made_of` belongs to."""

    @property
    def touched(self) -> str:
        """Spans of the rows that came after {since_ns}, as ns; the newest of them; the newest row's bus time."""
        return (
            f"SELECT arraySort(groupUniqArray(toInt64(toUnixTimestamp({self.span_of})) * 1000000000)),"
            f" toUnixTimestamp64Nano(max(bus_at)) FROM {self.source}"
            " WHERE bus_at > fromUnixTimestamp64Nano({since_ns:Int64}, 'UTC')"
        )

    @property
    def touched_by(self) -> str:
        """Spans of the rows in {partition} of `made_of`, as ns."""
        return (
            f"SELECT arraySort(groupUniqArray(toInt64(toUnixTimestamp({self.made_of_span})) * 1000000000))"
            f" FROM {self.made_of}"
            " WHERE _partition_id = {partition:String}"
        )

    @property
    def finished(self) -> str:
        """Spans that are finished, from {from_ns} on."""
        return (
            f"SELECT arraySort(groupUniqArray(toInt64(toUnixTimestamp({self.column})) * 1000000000)) FROM {self.table}"
            f" WHERE {self.column} >= toDateTime(intDiv({{from_ns:Int64}}, 1000000000), 'UTC')"
        )


_AT_MINUTE: Final = "toStartOfMinute(toDateTime(at, 'UTC'))"
_BUS_MINUTE: Final = "toStartOfMinute(toDateTime(bus_at, 'UTC'))"
_AT_HOUR: Final = "toStartOfHour(toDateTime(at, 'UTC'))"
FINISHERS: Final = (
    Finisher("owd_1m", "minute", "derived_owd", _AT_MINUTE, MINUTE_NS, 5, FINISH_PATHS, "derived_owd", _AT_MINUTE),
    Finisher(
        "clock_1m", "minute", "state_clock", _BUS_MINUTE, MINUTE_NS, 60, FINISH_CLOCKS, "state_clock", _BUS_MINUTE
    ),
    Finisher("owd_1h", "hour", "derived_owd", _AT_HOUR, HOUR_NS, 1, FINISH_HOURS, "owd_1s", "toStartOfHour(at)"),
)


def due(pending: Collection[int], span_ns: int, most: int) -> list[tuple[int, int]]:
    """The spans that begin at `pending` and are over, as stretches (from, to) of at most `most` spans.

    A span is over when a later one has begun. Rows that come late touch it again, and it is made again.

    >>> due([0, 60, 120, 300, 360], 60, 2)
    [(0, 120), (120, 180), (300, 360)]
    """
    out: list[tuple[int, int]] = []
    for at in sorted(pending)[:-1]:
        if out and out[-1][1] == at and at + span_ns - out[-1][0] <= most * span_ns:
            out[-1] = (out[-1][0], at + span_ns)
        else:
            out.append((at, at + span_ns))
    return out
