"""The five boards of Grafana, written from here into ``boards/*.json``: ``python deploy/grafana/boards.py``.

A panel is one line: its kind, title, unit, and a query in PromQL (Prometheus) or SQL (ClickHouse). The JSON is
Grafana's dashboard model, schemaVersion 39 (Grafana 10.3 and later). A test holds the files to this source, every query
to the demo's data, and every metric to what ``/metrics`` has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PROMETHEUS: Final = {"type": "prometheus", "uid": "sdf-prometheus"}
CLICKHOUSE: Final = {"type": "grafana-clickhouse-datasource", "uid": "sdf-clickhouse"}
WIDTH: Final = 24
Json = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One panel: `query` is SQL when it begins with SELECT, else PromQL (several: legend → expression)."""

    kind: str
    """stat, timeseries or table."""
    title: str
    query: str | dict[str, str]
    unit: str = "short"
    """Of Grafana's list: s, percentunit, bps, bytes, ns, short."""
    width: int = 12
    says: str = ""
    bad: float | None = None
    """From this value on it is red."""
    good: float | None = None
    """Up to below this value it is red."""


@dataclass(frozen=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    says: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()
    """(name, SQL of its values)."""
    marks: str = ""
    """SQL of what is marked on the time axis: time, timeEnd, title, text."""


NICS: Final = "SELECT DISTINCT nic FROM state_nic ORDER BY nic"
FINDINGS: Final = (
    "SELECT severity, kind, subject_id AS subject, since_at, duration_s, cause, confidence, remedy, id "
    "FROM v_findings WHERE status != 'resolved' ORDER BY severity = 'urgent' DESC, since_at DESC LIMIT 100"
)
MARKS: Final = (
    "SELECT since_at AS time, coalesce(resolved_at, now64(9, 'UTC')) AS timeEnd, concat(severity, ' ', kind) AS title, "
    "concat(subject_id, ' (', cause, ')') AS text FROM v_findings WHERE $__timeFilter(since_at)"
)


def path(figure: str, where: str = "") -> str:
    """SQL of one figure of all paths of the chosen pair, both directions."""
    return (
        f"SELECT second AS time, concat(dir, ' ', toString(path)) AS path, {figure} FROM v_path_1s "
        f"WHERE src = ${{src:sqlstring}} AND dst = ${{dst:sqlstring}} AND $__timeFilter(second) {where}ORDER BY time"
    )


BOARDS: Final = (
    Board(
        "sdf-fleet",
        "sdfstream: Fleet",
        "How the fabric is now, and how old that is. Grey or no data is unknown, not healthy.",
        (
            Panel("stat", "Data is of now", "min(sdf_data_fresh)", width=4, good=1, says="0: nothing here is of now."),
            Panel("stat", "Age of data", "max(sdf_data_age_seconds)", "s", 4, bad=5),
            Panel("stat", "Urgent findings", 'sum(sdf_findings_open{severity="urgent"})', width=4, bad=1),
            Panel("stat", "NICs unhealthy", 'sum(sdf_nics{state="unhealthy"})', width=4, bad=1),
            Panel("stat", "NICs unknown", 'sum(sdf_nics{state="unknown"})', width=4, bad=1),
            Panel("stat", "Hosts not heard", 'sum(sdf_hosts{state="stale"})', width=4, bad=1),
            Panel("timeseries", "NICs by state", {"{{state}}": "sum by (state) (sdf_nics)"}),
            Panel("timeseries", "Open findings", {"{{severity}}": "sum by (severity) (sdf_findings_open)"}),
            Panel(
                "timeseries",
                "Paths in trouble",
                {"{{which}}": 'sum by (which) (sdf_paths{which=~"lossy|marked|silent|stale"})'},
            ),
            Panel(
                "timeseries",
                "Delay",
                {
                    "median of all paths": "max(sdf_owd_median_seconds)",
                    "p99 over floor": "max(sdf_owd_excess_p99_seconds)",
                },
                "s",
            ),
            Panel("table", "Open findings", FINDINGS, width=24),
            Panel(
                "table",
                "Worst link directions, newest minute",
                "SELECT direction, paths, excess_least_ns, excess_most_ns, lost_share, ce_share "
                "FROM v_links_worst LIMIT 20",
                width=24,
                says="A path counts on every link that it crosses: a link is as guilty as the paths that it alone has.",
            ),
        ),
    ),
    Board(
        "sdf-pair",
        "sdfstream: Pair",
        "Two NICs, every path between them, both directions.",
        (
            Panel("timeseries", "One-way delay", path("owd_p50_ns / 1e9 AS delay"), "s", 24),
            Panel("timeseries", "Delay over the path's floor", path("excess_p50_ns / 1e9 AS excess"), "s"),
            Panel(
                "timeseries",
                "Error bar of the delay",
                path("err_ns / 1e9 AS error"),
                "s",
                says="The true delay is within the bar around the measured one.",
            ),
            Panel("timeseries", "Loss", path("lost / (n + lost) AS loss", "AND dir = 'fwd' "), "percentunit"),
            Panel("timeseries", "Packets with CE", path("ce AS marked"), "short"),
            Panel(
                "table",
                "Newest minute",
                "SELECT path, dscp, dir, n, lost_share, ce, owd_p50_ns, excess_p50_ns, err_ns FROM v_path_now "
                "WHERE src = ${src:sqlstring} AND dst = ${dst:sqlstring} ORDER BY path, dir",
                width=24,
            ),
        ),
        (
            ("src", "SELECT DISTINCT src FROM v_path_1s ORDER BY src"),
            ("dst", "SELECT DISTINCT dst FROM v_path_1s WHERE src = ${src:sqlstring} ORDER BY dst"),
        ),
        MARKS,
    ),
    Board(
        "sdf-job",
        "sdfstream: Job",
        "What a job gets, what its slowest queue pair gets, and what was found and done meanwhile.",
        (
            Panel(
                "timeseries",
                "Throughput",
                'SELECT second AS time, throughput_bps AS "all queue pairs", slowest_bps AS "the slowest" '
                "FROM v_job_throughput WHERE job = ${job:sqlstring} AND $__timeFilter(second) ORDER BY time",
                "bps",
                24,
            ),
            Panel(
                "timeseries",
                "By queue pair",
                "SELECT second AS time, qp, throughput_bps FROM v_qp WHERE job = ${job:sqlstring} "
                "AND $__timeFilter(second) ORDER BY time",
                "bps",
            ),
            Panel(
                "timeseries",
                "Retransmits by queue pair",
                "SELECT second AS time, qp, retransmits FROM v_qp WHERE job = ${job:sqlstring} "
                "AND $__timeFilter(second) ORDER BY time",
            ),
            Panel("timeseries", "Jobs", {"{{state}}": "sum by (state) (sdf_jobs)"}),
            Panel(
                "timeseries",
                "The loop",
                {
                    "in force": "sum(sdf_commands_in_force)",
                    "wait for approval": "sum(sdf_commands_waiting)",
                    "{{state}} in 5 min": "sum by (state) (increase(sdf_command_outcomes_total[5m]))",
                },
            ),
            Panel(
                "table",
                "Jobs",
                "SELECT job, name, state, ranks, hosts, qps, since_at FROM v_jobs "
                "ORDER BY state = 'ended', job LIMIT 200",
                width=24,
            ),
            Panel(
                "table",
                "Commands",
                "SELECT issued_at, action, target, mode, state, why, before, after, gain FROM v_commands "
                "WHERE job = ${job:sqlstring} ORDER BY issued_at DESC LIMIT 100",
                width=24,
            ),
        ),
        (("job", "SELECT DISTINCT job FROM v_jobs ORDER BY job"),),
        MARKS,
    ),
    Board(
        "sdf-nic",
        "sdfstream: NICs and flaps",
        "The story of one NIC, and which NICs and links go up and down.",
        (
            Panel("stat", "Flapping", 'sum(sdf_findings_open_of_kind{kind="link-flap"})', width=6, bad=1),
            Panel(
                "stat", "Down", 'sum(sdf_findings_open_of_kind{kind=~"nic-down|link-down|host-silent"})', width=6, bad=1
            ),
            Panel("stat", "Port errors", 'sum(sdf_findings_open_of_kind{kind="port-errors"})', width=6, bad=1),
            Panel("stat", "Cables elsewhere", 'sum(sdf_findings_open_of_kind{kind="miscabled"})', width=6, bad=1),
            Panel(
                "timeseries",
                "Carrier changes by NIC",
                "SELECT at AS time, nic, max(carrier_changes) AS changes FROM raw_port WHERE $__timeFilter(at) "
                "GROUP BY at, nic ORDER BY time",
            ),
            Panel(
                "timeseries",
                "Received errors by NIC",
                "SELECT at AS time, nic, max(rx_errors) AS errors FROM raw_port WHERE $__timeFilter(at) "
                "GROUP BY at, nic ORDER BY time",
            ),
            Panel(
                "table",
                "Flaps and outages found",
                "SELECT status, severity, kind, subject_id AS subject, since_at, duration_s, cause FROM v_findings "
                "WHERE kind IN ('link-flap', 'nic-down', 'link-down', 'host-silent') ORDER BY since_at DESC LIMIT 100",
                width=24,
            ),
            Panel(
                "table",
                "Health as last stated",
                "SELECT nic, direction, state, since_at, why, age_s FROM v_nic_state "
                "ORDER BY state = 'healthy', nic LIMIT 200",
                says="age_s: how long ago that was; an old statement is none about now.",
            ),
            Panel(
                "table",
                "Everything about the chosen NIC",
                "SELECT at, what, state, detail FROM v_nic_timeline WHERE nic = ${nic:sqlstring} AND $__timeFilter(at) "
                "ORDER BY at DESC LIMIT 500",
            ),
        ),
        (("nic", NICS),),
        MARKS,
    ),
    Board(
        "sdf-pipeline",
        "sdfstream: Pipeline",
        "Whether sdfstream itself gets on.",
        (
            Panel("stat", "Processes well", "min(sdfstream_healthy)", width=6, good=1),
            Panel("stat", "Troubles", "sum(sdfstream_troubles)", width=6, bad=1),
            Panel("stat", "Findings speak of", "max(sdf_findings_age_seconds)", "s", 6, bad=5),
            Panel(
                "stat",
                "Least room on a disk",
                "min(sdfstream_data_disk_free_bytes / sdfstream_data_disk_size_bytes)",
                "percentunit",
                6,
                good=0.05,
            ),
            Panel(
                "timeseries", "Behind the bus", {"{{task}}": "max by (task) (sdfstream_task_bus_time_age_seconds)"}, "s"
            ),
            Panel("timeseries", "Messages not read", {"{{task}}": "sum by (task) (sdfstream_task_lag_messages)"}),
            Panel(
                "timeseries",
                "Refused and lost per second",
                {
                    "refused {{instance}}": "rate(sdfstream_refused_total[1m])",
                    "lost {{instance}}": "rate(sdfstream_lost_total[1m])",
                },
            ),
            Panel("timeseries", "Clocks", {"{{status}}": "sum by (status) (sdf_clocks)"}),
            Panel("timeseries", "Memory", {"{{instance}}": "process_resident_memory_bytes"}, "bytes"),
            Panel("timeseries", "Processors used", {"{{instance}}": "rate(process_cpu_seconds_total[1m])"}),
            Panel(
                "timeseries",
                "How old rows are when they reach the bus, p99",
                "SELECT minute AS time, what, max(p99_ms) / 1e3 AS p99 FROM v_freshness WHERE $__timeFilter(minute) "
                "GROUP BY minute, what ORDER BY time",
                "s",
            ),
            Panel(
                "table",
                "What could not be read",
                "SELECT topic, reason, count() AS messages, max(bus_at) AS last FROM reject GROUP BY topic, reason "
                "ORDER BY messages DESC LIMIT 50",
            ),
        ),
    ),
)


def dashboard(board: Board) -> Json:
    """`board` as Grafana's JSON."""
    links = [
        {"type": "link", "title": other.title.split(": ")[1], "url": f"/d/{other.uid}", "keepTime": True}
        for other in BOARDS
        if other is not board
    ]
    made: list[Json] = []
    x = y = height = 0
    for panel in board.panels:
        if x + panel.width > WIDTH:
            x, y = 0, y + height
        height = 4 if panel.kind == "stat" else 8
        made.append(_panel(panel, len(made) + 1, {"x": x, "y": y, "w": panel.width, "h": height}))
        x += panel.width
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.says,
        "tags": ["sdfstream"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "utc",
        "links": links,
        "templating": {"list": [_variable(name, sql) for name, sql in board.variables]},
        "annotations": {"list": [_marks(board.marks)] if board.marks else []},
        "panels": made,
    }


def targets(panel: Panel) -> list[Json]:
    """Queries of a panel, as Grafana sends them to the data source."""
    if isinstance(panel.query, str) and panel.query.startswith("SELECT"):
        # the plug-in's numbers of its formats: 0 time series, 1 table
        form, kind = (0, "timeseries") if panel.kind == "timeseries" else (1, "table")
        return [
            {
                "refId": "A", "datasource": CLICKHOUSE, "editorType": "sql", "queryType": kind, "format": form,
                "rawSql": panel.query,
            }
        ]  # fmt: skip
    asked = panel.query if isinstance(panel.query, dict) else {"": panel.query}
    return [
        {
            "refId": chr(ord("A") + i), "datasource": PROMETHEUS, "editorMode": "code", "expr": expression,
            "legendFormat": legend, "instant": panel.kind == "stat", "range": panel.kind != "stat",
        }
        for i, (legend, expression) in enumerate(asked.items())
    ]  # fmt: skip


def _panel(panel: Panel, number: int, at: Json) -> Json:
    asked = targets(panel)
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.bad is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.bad}]
    if panel.good is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.good}]
    custom = {"spanNulls": False, "lineWidth": 1, "fillOpacity": 0} if panel.kind == "timeseries" else {}
    options: Json = {
        "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background", "graphMode": "none"},
        "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "table": {"showHeader": True},
    }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": asked[0]["datasource"],
        "gridPos": at,
        "targets": asked,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit, "noValue": "unknown", "custom": custom, "color": {"mode": "thresholds"}
                if panel.kind == "stat" else {"mode": "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": options[panel.kind],
    }  # fmt: skip


def _variable(name: str, sql: str) -> Json:
    return {
        "name": name, "label": name, "type": "query", "datasource": CLICKHOUSE, "query": sql, "refresh": 2, "sort": 1,
        "multi": False, "includeAll": False, "hide": 0,
    }  # fmt: skip


def _marks(sql: str) -> Json:
    target = {"editorType": "sql", "queryType": "table", "format": 1, "rawSql": sql, "refId": "Anno"}
    return {"name": "Findings", "datasource": CLICKHOUSE, "enable": True, "iconColor": "red", "target": target}


def text(board: Board) -> str:
    """What its file holds."""
    return json.dumps(dashboard(board), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all files."""
    for board in BOARDS:
        (Path(__file__).parent / "boards" / f"{board.uid}.json").write_text(text(board))


if __name__ == "__main__":
    main()
