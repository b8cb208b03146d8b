"""Grafana's boards: the files are what their source says, every query runs on the demo's data, every metric exists.

Grafana itself is not had as a package where the tests run: what it would send is taken from the boards' JSON, with its
macros and variables replaced as its data sources document it, and asked of the real Prometheus and the real engine.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from importlib import util
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sdfstream.archive.query_io import Console
from sdfstream.serve.api import tokens_io
from tests.fixtures import prometheus as tools
from tests.fixtures.archive_story import archive_story
from tests.fixtures.compose import ROOT
from tests.fixtures.kafka_broker import free_ports
from tests.integration.test_alerts import rules

GRAFANA: Final = tools.DEPLOY / "grafana"
_spec = util.spec_from_file_location("boards", GRAFANA / "boards.py")
assert _spec is not None
assert _spec.loader is not None
source: Any = util.module_from_spec(_spec)
sys.modules["boards"] = source
_spec.loader.exec_module(source)

BOARDS: Final = {path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "boards").glob("*.json"))}
PANELS: Final = [(board, panel) for board in BOARDS.values() for panel in board["panels"]]


def title(case: tuple[dict[str, Any], dict[str, Any]]) -> str:
    return f"{case[0]['uid']}: {case[1]['title']}"


def queries(uid: str, key: str) -> list[tuple[str, str]]:
    """(title, query) of every target of the data source `uid`."""
    return [
        (title(case), target[key])
        for case in PANELS
        for target in case[1]["targets"]
        if target["datasource"]["uid"] == uid
    ]


# --- the files ---------------------------------------------------------------------------------------------------


def test_the_files_are_what_their_source_says() -> None:
    assert {f"{board.uid}.json": source.text(board) for board in source.BOARDS} == {
        path.name: path.read_text() for path in (GRAFANA / "boards").glob("*.json")
    }, "python deploy/grafana/boards.py"
    assert [board["title"].split(": ")[1] for board in BOARDS.values()] == [
        "Fleet", "Job", "NICs and flaps", "Pair", "Pipeline",
    ]  # fmt: skip


@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_a_board_is_of_grafanas_model(board: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z-]{1,40}", board["uid"])
    assert board["schemaVersion"] >= 36
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in board["panels"])
        for x, y in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))
    ]
    assert len(cells) == len(set(cells)), "panels lie on each other"
    assert max(x for x, _ in cells) < 24
    for panel in board["panels"]:
        assert panel["type"] in ("stat", "timeseries", "table")
        assert panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        assert panel["fieldConfig"]["defaults"]["noValue"] == "unknown", "no data is never drawn as healthy"
    uids = {b["uid"] for b in BOARDS.values()}
    assert {link["url"].removeprefix("/d/") for link in board["links"]} == uids - {board["uid"]}
    known = {variable["name"] for variable in board["templating"]["list"]}
    assert set(re.findall(r"\$\{(\w+)", json.dumps(board["panels"]))) <= known


def test_what_boards_ask_is_provisioned() -> None:
    file = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "sdfstream.yml").read_text())
    provisioned = {(one["type"], one["uid"]) for one in file["datasources"]}
    asked = {(t["datasource"]["type"], t["datasource"]["uid"]) for _, panel in PANELS for t in panel["targets"]}
    assert asked == provisioned
    (clickhouse,) = [one for one in file["datasources"] if one["type"].startswith("grafana-clickhouse")]
    assert clickhouse["jsonData"]["customSettings"] == [{"setting": "readonly", "value": "2"}]
    assert "password" not in {k for one in file["datasources"] for k in one["jsonData"]}


# --- SQL, on the shipped recording -------------------------------------------------------------------------------


class Asked:
    """Boards' SQL as the plug-in sends it to one archive: its macro, and Grafana's format `sqlstring`, replaced."""

    def __init__(self, data: Path) -> None:
        self.console = Console.open(str(data))
        bounds = "SELECT toUnixTimestamp(min(bus_at)) - 5, toUnixTimestamp(max(bus_at)) + 5 FROM derived_owd"
        self._from, self._to = self.console.answer(bounds).rows[0].values()
        self._chosen: dict[str, str] = {}

    def board(self, uid: str, **chosen: str) -> dict[str, int]:
        """Rows of every panel with SQL, by title; `chosen` in place of a variable's first value."""
        board = BOARDS[uid]
        self._chosen = {}
        for variable in board["templating"]["list"]:
            rows = self.rows(variable["query"])
            self._chosen[variable["name"]] = str(next(iter(rows[0].values()))) if rows else "none"
            self._chosen |= chosen
        found = {}
        for panel in board["panels"]:
            for target in panel["targets"]:
                if "rawSql" in target:
                    rows = self.rows(target["rawSql"])
                    assert panel["type"] != "timeseries" or not rows or "time" in rows[0], panel["title"]
                    found[panel["title"]] = len(rows)
        for mark in board["annotations"]["list"]:
            rows = self.rows(mark["target"]["rawSql"])
            assert rows
            assert {"time", "timeEnd", "title", "text"} <= rows[0].keys()
        return found

    def rows(self, sql: str) -> list[dict[str, Any]]:
        during = rf"\1 >= toDateTime({self._from}) AND \1 <= toDateTime({self._to})"
        sql = re.sub(r"\$__timeFilter\((\w+)\)", during, sql)
        sql = re.sub(r"\$\{(\w+):sqlstring\}", lambda m: "'" + self._chosen[m[1]].replace("'", "''") + "'", sql)
        return list(self.console.answer(sql).rows)


def test_every_panels_sql_answers_on_the_demos_data(shipped_replay: Path) -> None:
    asked = Asked(shipped_replay)
    try:
        # the one whose link goes down; of its job board see below
        rows = {uid: asked.board(uid, **({"nic": "h01/r1"} if uid == "sdf-nic" else {})) for uid in BOARDS}
    finally:
        asked.console.close()
    shown = {title for uid, by_title in rows.items() if uid != "sdf-job" for title, n in by_title.items() if n}
    asked_for = {title for uid, by_title in rows.items() if uid != "sdf-job" for title in by_title}
    assert asked_for - shown <= {"What could not be read"}, "of the shipped recording everything can be read"


def test_the_job_boards_sql_answers_where_a_job_was_moved(tmp_path: Path) -> None:
    archive_story(str(tmp_path / "archive"))  # the shipped recording has no job
    asked = Asked(tmp_path)
    try:
        rows = asked.board("sdf-job", job="train-7")
    finally:
        asked.console.close()
    assert set(rows) == {"Throughput", "By queue pair", "Retransmits by queue pair", "Jobs", "Commands"}
    assert all(rows.values()), rows


# --- PromQL and the rules, on a real Prometheus that scrapes a running pipeline ------------------------------------


def end(running: subprocess.Popen[bytes]) -> None:
    running.terminate()
    try:
        running.wait(120)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A pipeline whose agents are the recording's, scraped by the shipped configuration; Prometheus's URL."""
    folder = tmp_path_factory.mktemp("scraped")
    data, (api, process) = folder / "data", free_ports(2)
    with ExitStack() as stack:

        def program(*words: str) -> None:
            with (folder / f"{words[0]}.log").open("wb") as log:
                running = subprocess.Popen(
                    [sys.executable, "-m", "sdfstream", *words], stdout=log, stderr=log, cwd=ROOT
                )
            stack.callback(end, running)

        program("up", "--data", str(data), "--api", f"127.0.0.1:{api}", "--metrics", f"127.0.0.1:{process}")
        tools.until(lambda: (data / "api.url").exists(), "the API", 180.0)
        (folder / "api-token").write_text(tokens_io.add(data, "prometheus", "view"))
        program("play", "--loop", "--bus", f"link:{data / 'agents.sock'}")
        with tools.prometheus(folder, config(folder, api, process)) as url:
            tools.until(
                lambda: _value(url, "sum(sdf_findings_open) + sum(sdf_findings_resolved)") > 0, "a finding", 120.0
            )
            tools.until(lambda: len(tools.query(url, "rate(process_cpu_seconds_total[1m])")) > 0, "two scrapes")
            yield url


def config(folder: Path, api: int, process: int) -> Path:
    """The shipped configuration, its targets and its token where they are here."""
    shipped = yaml.safe_load((tools.DEPLOY / "prometheus" / "prometheus.yml").read_text())
    shipped["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    shipped["rule_files"] = [str(tools.DEPLOY / "prometheus" / "rules" / "*.yml")]
    here = {"sdfstream-fabric": f"127.0.0.1:{api}", "sdfstream-process": f"127.0.0.1:{process}"}
    scraping = [job for job in shipped["scrape_configs"] if job["job_name"] in here]
    for job in scraping:
        job["static_configs"] = [{"targets": [here[job["job_name"]]]}]
        if "authorization" in job:
            assert job["authorization"]["credentials_file"] == "/run/secrets/api-token"
            job["authorization"]["credentials_file"] = str(folder / "api-token")
    assert len(scraping) == 2
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(shipped | {"scrape_configs": scraping}))
    tools.run("promtool", "check", "config", path)
    return path


def _value(url: str, expression: str) -> float:
    found = tools.query(url, expression)
    return float(found[0]["value"][1]) if found else -1.0


def test_every_panels_and_rules_metrics_exist_and_answer(scraped: str) -> None:
    assert {series["metric"]["job"]: series["value"][1] for series in tools.query(scraped, "up")} == {
        "sdfstream-fabric": "1", "sdfstream-process": "1",
    }  # fmt: skip
    names = set(tools.get(f"{scraped}/api/v1/label/__name__/values")["data"])
    asked = dict(queries("sdf-prometheus", "expr"))
    asked |= {f"rule {rule['alert']}": rule["expr"] for rule in rules()}
    # only where an Alertmanager is named, and while the archive has rows to insert
    only_then = {"sdfstream_alerts_failed_total", "sdfstream_task_oldest_age_seconds"}
    for what, expression in asked.items():
        used = set(re.findall(r"\b(?:sdf|sdfstream|process)_\w+", re.sub(r'"[^"]*"', "", expression)))
        assert used or expression.startswith("up{"), what
        assert used <= names | only_then, (what, used - names)
    for what, expression in queries("sdf-prometheus", "expr"):
        # an increase needs two scrapes of a series that begins with the first command's outcome
        tools.until(partial(tools.query, scraped, expression), f"{what}: {expression}", 60.0)
    loaded = tools.get(f"{scraped}/api/v1/rules")["data"]["groups"]
    evaluated = {rule["name"]: rule["health"] for group in loaded for rule in group["rules"]}
    assert set(evaluated) == {rule["alert"] for rule in rules()}
    assert set(evaluated.values()) == {"ok"}
    for series in tools.get(f"{scraped}/api/v1/series?match[]={{__name__=~%22sdf_.*%22}}")["data"]:
        assert not {"nic", "src", "dst", "path", "host"} & series.keys(), "no label per NIC or pair"
