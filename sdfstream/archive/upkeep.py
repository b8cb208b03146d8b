"""The statements by which the archive finishes roll-ups and copies raw rows around findings. Pure.

Each may run any number of times, in any number of processes: what it writes replaces what an earlier run wrote.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.archive.packing import PROBE_COLUMNS
from sdfstream.archive.retention import Retention
from sdfstream.archive.sqltext import literal
from sdfstream.records.units import NS_PER_S

MINUTE_NS: Final = 60 * NS_PER_S
HOUR_NS: Final = 3600 * NS_PER_S

_FROM: Final = "fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')"
_TO: Final = "fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')"
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
WHERE o.at >= {_FROM} AND o.at < {_TO}
GROUP BY minute, {", ".join(f"o.{name}" for name in _PATH.split(", "))}
"""

FINISH_HOURS: Final = f"""
INSERT INTO owd_1h
SELECT
    toStartOfHour(s.at) AS hour,
    s.src, s.dst, s.transport, s.path, s.dscp, s.dir,
    sum(s.n), sum(s.lost), sum(s.ce), countIf(s.n > 0),
    min(s.owd_min_ns), max(s.owd_max_ns), max(s.err_ns),
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.99)(ifNull(toFloat64(s.owd_p50_sum_ns) / s.n, 0), s.n > 0),
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.99)(ifNull(toFloat64(s.owd_max_ns), 0), s.n > 0),
    now64(3, 'UTC')
FROM
(
    SELECT
        {_PATH}, at, sum(t.n) AS n, sum(t.lost) AS lost, sum(t.ce) AS ce, min(t.owd_min_ns) AS owd_min_ns,
        max(t.owd_max_ns) AS owd_max_ns, sum(t.owd_p50_sum_ns) AS owd_p50_sum_ns, max(t.err_ns) AS err_ns
    FROM owd_1s AS t
    WHERE at >= {_FROM} AND at < {_TO}
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
WHERE c.bus_at >= {_FROM} AND c.bus_at < {_TO}
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

    @property
    def touched(self) -> str:
        """Spans of the rows that came after {since_ns}, as ns; the newest of them; the newest row's bus time."""
        return (
            f"SELECT arraySort(groupUniqArray(toInt64(toUnixTimestamp({self.span_of})) * 1000000000)),"
            f" toUnixTimestamp64Nano(max(bus_at)) FROM {self.source}"
            " WHERE bus_at > fromUnixTimestamp64Nano({since_ns:Int64}, 'UTC')"
        )

    @property
    def finished(self) -> str:
        """Spans that are finished, from {from_ns} on."""
        return (
            f"SELECT arraySort(groupUniqArray(toInt64(toUnixTimestamp({self.column})) * 1000000000)) FROM {self.table}"
            f" WHERE {self.column} >= toDateTime(intDiv({{from_ns:Int64}}, 1000000000), 'UTC')"
        )


FINISHERS: Final = (
    Finisher("owd_1m", "minute", "derived_owd", "toStartOfMinute(toDateTime(at, 'UTC'))", MINUTE_NS, 5, FINISH_PATHS),
    Finisher(
        "clock_1m", "minute", "state_clock", "toStartOfMinute(toDateTime(bus_at, 'UTC'))", MINUTE_NS, 60, FINISH_CLOCKS
    ),
    Finisher("owd_1h", "hour", "derived_owd", "toStartOfHour(toDateTime(at, 'UTC'))", HOUR_NS, 1, FINISH_HOURS),
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


@dataclass(frozen=True, slots=True)
class FindingStatement:
    """A finding's message that it is open or resolved."""

    finding: str
    status: str
    subject_type: str
    subject: str
    since_ns: int | None
    said_ns: int
    """Bus time."""


@dataclass(frozen=True, slots=True)
class RetainedWindow:
    """Raw rows to copy for one finding: a span of bus time and a condition on paths."""

    statement: FindingStatement
    from_ns: int
    to_ns: int
    where: str
    """A condition on the columns of ``raw_probe``; its parameters are in `parameters`."""
    parameters: dict[str, Any]


def window(statement: FindingStatement, retention: Retention) -> RetainedWindow | None:
    """The rows to copy for `statement`; None when its subject names no path."""
    scope = scope_of(statement.subject_type, statement.subject)
    if scope is None:
        return None
    around_ns = round(retention.around_minutes * 60 * NS_PER_S)
    since_ns = statement.said_ns
    if statement.status == "open" and statement.since_ns is not None:
        since_ns = min(
            statement.said_ns, max(statement.since_ns, statement.said_ns - HOUR_NS)
        )  # a wrong clock must not scan days
    where, parameters = scope
    return RetainedWindow(statement, since_ns - around_ns, statement.said_ns + around_ns, where, parameters)


_PROBE_PATH: Final = "src, dst, transport, path, dscp_sent"
_PATH_ID: Final = re.compile(r"^(\S+)>(\S+) (\w+):(\d+) dscp(\d+)(?: (?:fwd|rev))?$")


def scope_of(kind: str, name: str) -> tuple[str, dict[str, Any]] | None:
    """A condition for the rows of ``raw_probe`` that a finding's subject concerns, with its parameters.

    >>> scope_of("nic", "h00/r1")
    ('src = {nic:String} OR dst = {nic:String}', {'nic': 'h00/r1'})
    """
    if kind == "path" and (found := _PATH_ID.match(name)):
        src, dst, transport, path, dscp = found.groups()
        values = {"src": src, "dst": dst, "transport": transport, "path": int(path), "dscp": int(dscp)}
        sql = (
            "src = {src:String} AND dst = {dst:String} AND transport = {transport:String}"
            " AND path = {path:UInt32} AND dscp_sent = {dscp:UInt8}"
        )
        return sql, values
    if kind in ("nic", "port", "qp"):
        nic = name.rpartition(":")[0] or name if kind == "port" else name.partition("#")[0]
        return "src = {nic:String} OR dst = {nic:String}", {"nic": nic}
    if kind == "host":
        return "startsWith(src, {host:String}) OR startsWith(dst, {host:String})", {"host": f"{name}/"}
    if kind == "clock":
        return "clock_src = {clock:String} OR clock_dst = {clock:String}", {"clock": name}
    if kind in ("link", "switch"):
        crossed = "link = {part:String}" if kind == "link" else "has(splitByString('--', link), {part:String})"
        crossing = f"SELECT src, dst, transport, path, dscp FROM v_path_links WHERE {crossed}"
        sql = f"({_PROBE_PATH}) IN ({crossing}) OR has({{ends:Array(String)}}, src) OR has({{ends:Array(String)}}, dst)"
        return sql, {"part": name, "ends": [end for end in name.split("--") if "/" in end]}
    if kind == "job":
        nics = "(SELECT arrayJoin(nics) FROM v_jobs WHERE job = {job:String})"
        return f"src IN {nics} AND dst IN {nics}", {"job": name}
    return None


_BETWEEN: Final = f"bus_at >= {_FROM} AND bus_at < {_TO}"
_PLAIN: Final = (
    "src, dst, clock_src, clock_dst, transport, path, seq, t1_kind, t2_kind, t3_kind, t4_kind, dscp_sent, ecn_sent,"
    " dscp_fwd, ecn_fwd, dscp_rev, ecn_rev, size_bytes, ttl_fwd, ttl_rev, plane, bus_at, bus_seq, bus_key, bus_id,"
    " boot_id, batch_seq"
)
_PROBE: Final = f"{', '.join(PROBE_COLUMNS)}, {_PLAIN}"
_OWD: Final = (
    "at, window_ns, src, dst, transport, path, dscp, dir, n, lost, ce, owd_min_ns, owd_p50_ns, owd_p99_ns, owd_max_ns,"
    " excess_p50_ns, err_ns, bus_at, bus_seq, bus_key, bus_id, boot_id, batch_seq"
)


def worst_paths(w: RetainedWindow) -> str:
    """Query for the path ids of the window, those with most loss and delay first."""
    return f"""
        SELECT {_PROBE_PATH} FROM raw_probe
        WHERE {_BETWEEN} AND transport != 'host' AND ({w.where})
        GROUP BY {_PROBE_PATH}
        ORDER BY countIf(rtt_high IS NULL) DESC, max(rtt_high) - min(rtt_high) DESC, {_PROBE_PATH}
    """


def copies(paths: Sequence[tuple[str, str, str, int, int]]) -> tuple[str, str]:
    """The statements that copy rows of `paths` between {from_ns} and {to_ns}: of raw_probe, of derived_owd."""
    listed = ", ".join(f"({literal(s)}, {literal(d)}, {literal(t)}, {int(p)}, {int(c)})" for s, d, t, p, c in paths)
    probe = f"INSERT INTO raw_probe_kept ({_PROBE}) SELECT {_PROBE} FROM raw_probe WHERE {_BETWEEN}"
    owd = f"INSERT INTO derived_owd_kept ({_OWD}) SELECT {_OWD} FROM derived_owd WHERE {_BETWEEN}"
    return f"{probe} AND ({_PROBE_PATH}) IN ({listed})", f"{owd} AND (src, dst, transport, path, dscp) IN ({listed})"


def counts(paths: Sequence[tuple[str, str, str, int, int]]) -> str:
    """Query for the number of rows that `copies` copies."""
    probe, owd = (sql.partition(" SELECT ")[2].partition(" FROM ")[2] for sql in copies(paths))
    return f"SELECT (SELECT count() FROM {probe}), (SELECT count() FROM {owd})"
