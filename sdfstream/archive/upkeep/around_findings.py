"""Which raw rows are copied around a finding, and the statements that do it. Pure.

Each may run any number of times, in any number of processes: a row that is copied again replaces itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.archive.packing import PROBE_COLUMNS
from sdfstream.archive.retention import Retention
from sdfstream.archive.sqltext import literal
from sdfstream.archive.upkeep.rollups import FROM, HOUR_NS, TO
from sdfstream.records.units import NS_PER_S


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


_BETWEEN: Final = f"bus_at >= {FROM} AND bus_at < {TO}"
_PLAIN: Final = (
    "src, dst, clock_src, clock_dst, transport, path, seq, t1_kind, t2_kind, t3_kind, t4_kind, dscp_sent, ecn_sent,"
    " dscp_fwd, ecn_fwd, dscp_rev, ecn_rev, size_bytes, ttl_fwd, ttl_rev, plane, seq_rev, bus_at, bus_seq, bus_key,"
    " bus_id, boot_id, batch_seq"
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
