"""Prometheus's rules and Alertmanager's routes as their own tools see them, and findings on their way to people."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from sdfstream.alerts.config import AlertsConfig
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.records import topics
from sdfstream.records.finding import FINDING_KINDS
from sdfstream.records.message import Message
from sdfstream.serve.alerts_io import AlertPusher
from sdfstream.serve.api import tokens_io
from sdfstream.serve.api_io import ProcessApi
from tests.fixtures import board_messages as bm
from tests.fixtures import prometheus as tools
from tests.fixtures.compose import ROOT
from tests.fixtures.kafka_broker import free_ports

RULES = sorted((tools.DEPLOY / "prometheus" / "rules").glob("*.yml"))


def rules() -> list[dict[str, Any]]:
    return [rule for file in RULES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


# --- the files ---------------------------------------------------------------------------------------------------


def test_promtool_takes_the_rules_and_each_does_what_its_test_says() -> None:
    tools.run("promtool", "check", "config", "--syntax-only", tools.DEPLOY / "prometheus" / "prometheus.yml")
    tools.run("promtool", "check", "rules", *RULES)
    file = tools.DEPLOY / "prometheus" / "rules_test.yml"
    tools.run("promtool", "test", "rules", file)
    tested = yaml.safe_load(file.read_text())["tests"]
    fires = {t["alertname"] for test in tested for t in test["alert_rule_test"] if t.get("exp_alerts")}
    silent = {t["alertname"] for t in tested[0]["alert_rule_test"] if not t.get("exp_alerts")}
    assert fires == silent == {rule["alert"] for rule in rules()}, "each was seen on, and off while all is well"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_a_rule_says_what_how_bad_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("urgent", "warning", "info")
    said = rule["annotations"]
    assert said["summary"].startswith(f"{rule['labels']['severity'].capitalize()} | ")
    assert said["description"].endswith(".")
    page, _, anchor = said["runbook_url"].partition("#")
    text = (ROOT / "docs" / page).read_text()
    assert not anchor or f"\n## {anchor}\n" in text, said["runbook_url"]
    if "kind=" in rule["expr"]:
        assert set(re.findall(r'kind="([^"]+)"', rule["expr"])) <= FINDING_KINDS.keys()


def test_amtool_takes_the_configuration_also_with_mail(tmp_path: Path) -> None:
    path = tools.alertmanager_config(tmp_path, "http://127.0.0.1:9", quick=False)
    tools.run("amtool", "check-config", path)
    lines = path.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.strip() == "# email_configs:")
    end = next(i for i in range(begin, len(lines)) if not lines[i].lstrip().startswith("#"))
    lines[begin:end] = [line.replace("# ", "", 1) for line in lines[begin:end]]
    path.write_text("\n".join(lines))
    assert "SUCCESS" in tools.run("amtool", "check-config", path)
    receivers = {r["name"]: r for r in yaml.safe_load(path.read_text())["receivers"]}
    assert receivers["fabric-urgent"]["email_configs"][0]["send_resolved"] is True


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("severity=urgent class=link kind=nic-down", "fabric-urgent"),
        ("severity=urgent class=node", "fabric-urgent"),
        ("severity=urgent class=workload", "fabric-urgent"),
        ("severity=urgent class=telemetry alertname=SdfDataStale", "operators"),
        ("severity=warning class=clock", "operators"),
        ("severity=warning class=configuration", "operators"),
        ("severity=warning class=link", "webhook"),
        ("severity=info class=link", "webhook"),
        ("severity=warning class=loop", "webhook"),
    ],
)
def test_who_is_told_of_what(tmp_path: Path, labels: str, receiver: str) -> None:
    path = tools.alertmanager_config(tmp_path, "http://127.0.0.1:9")
    said = tools.run("amtool", "config", "routes", "test", f"--config.file={path}", *labels.split())
    assert said.split()[0] == receiver


def test_what_inhibits_and_is_inhibited_exists() -> None:
    config = yaml.safe_load((tools.DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    known = {rule["alert"] for rule in rules()} | {"SdfFinding"}
    for rule in config["inhibit_rules"]:
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            name, values = re.fullmatch(r'(\w+)=~?"([^"]*)"', matcher).groups()  # type: ignore[union-attr]
            if name == "alertname":
                assert set(values.split("|")) <= known, matcher
            if name == "kind":
                assert set(values.split("|")) <= FINDING_KINDS.keys(), matcher


# --- on their way ------------------------------------------------------------------------------------------------


@pytest.fixture
def sink() -> Iterator[tools.Sink]:
    taking = tools.Sink()
    yield taking
    taking.close()


def statement(key: str, status: str, **other: Any) -> Message:
    now_ns = time.time_ns()
    data = bm.finding(key) | {"status": status, "since_at_ns": now_ns - 10**9} | other
    data |= {"resolved_at_ns": now_ns} if status == "resolved" else {}
    return bm.event(topics.FINDING, data, now_ns, key)


def firing(url: str) -> dict[str, str]:
    """Fingerprint by finding id, of what Alertmanager shows now."""
    return {a["labels"]["id"]: a["fingerprint"] for a in tools.get(f"{url}/api/v2/alerts") if "id" in a["labels"]}


def resolved(sink: tools.Sink) -> list[dict[str, Any]]:
    """Bodies that told the webhook of an end."""
    return [body for path, body in sink.posted if path == "/webhook" and body["status"] == "resolved"]


FLAP: dict[str, Any] = {
    "kind": "link-flap", "class": "link", "severity": "urgent", "subject": {"type": "link", "id": "l0--s1"},
    "detail": "link has flapped more than 8 times within the past hour",
}  # fmt: skip


async def test_a_finding_is_told_again_and_resolved_by_a_real_alertmanager(tmp_path: Path, sink: tools.Sink) -> None:
    board = Board()
    (port,) = free_ports(1)
    settings = AlertsConfig(f"http://127.0.0.1:{port}", repeat_s=1.0, expire_s=3.0)
    pusher = AlertPusher(settings, "test", board, lambda: True)
    config = tools.alertmanager_config(tmp_path, sink.url)

    steady_s = itertools.count(0, 100)  # no waiting for another try

    async def look(seconds: float = 0.0) -> None:
        end_s = time.monotonic() + seconds
        while True:
            await pusher.look(next(steady_s), time.time_ns())
            if time.monotonic() >= end_s:
                return
            await asyncio.sleep(0.2)

    board.take([statement("f1", "open", **FLAP)])
    await look()
    assert pusher.counters.get("failed", "unreachable") == 1, "nobody is there yet"
    assert "does not take alerts" in pusher.counters.troubles.open["alertmanager"]
    with tools.alertmanager(tmp_path, config, port) as url:
        await look()
        assert not pusher.counters.troubles.open
        first = firing(url)
        assert first.keys() == {"f1"}
        tools.until(lambda: {p for p, _ in sink.posted} == {"/slack", "/webhook"}, "Slack and webhook")
        slack = next(body for path, body in sink.posted if path == "/slack")
        assert "Urgent | Cluster: link has flapped more than 8 times within the past hour" in str(slack)
        told = next(body for path, body in sink.posted if path == "/webhook")
        assert (told["version"], told["alerts"][0]["fingerprint"]) == ("4", first["f1"])
        board.take([statement("f1", "update", **FLAP, cause="unknown", confidence=0.3)])
        await look(4.0)  # longer than it would last by itself
        assert firing(url) == first, "the same fingerprint, and not resolved in between"
        board.take([statement("f1", "resolved", **FLAP)])
        await look()
        assert firing(url) == {}
        over = tools.until(lambda: resolved(sink), "resolved")
        assert over[0]["alerts"][0]["fingerprint"] == first["f1"]
        board.take([statement("f2", "open", **FLAP)])
        await look()
        assert firing(url).keys() == {"f2"}
    board.take([statement("f2", "resolved", **FLAP), statement("f3", "open", **FLAP)])
    await look()
    assert "alertmanager" in pusher.counters.troubles.open
    with tools.alertmanager(tmp_path, config, port) as url:  # back, with what it remembers
        await look()
        assert firing(url).keys() == {"f3"}, "what ended meanwhile is resolved, what began is there"
        await asyncio.sleep(3.5)
        assert firing(url) == {}, "nobody repeats it: it ends by itself"


async def test_symptoms_are_silenced_by_what_explains_them(tmp_path: Path, sink: tools.Sink) -> None:
    (port,) = free_ports(1)
    config = tools.alertmanager_config(tmp_path, sink.url)
    with tools.alertmanager(tmp_path, config, port) as url:
        board = Board()
        pusher = AlertPusher(AlertsConfig(url), "test", board, lambda: True)
        board.take([statement("f1", "open", kind="nic-down", severity="urgent", **{"class": "link"})])
        await pusher.look(0.0, time.time_ns())
        for words in (
            ("SdfUrgentFindings", "severity=urgent", "class=link"),
            ("SdfUrgentFindings", "severity=urgent", "class=node"),
            ("SdfDataStale", "severity=urgent", "class=telemetry"),
            ("SdfAgentsNotHeard", "severity=warning", "class=telemetry"),
        ):
            tools.run("amtool", f"--alertmanager.url={url}", "alert", "add", *words)

        def inhibited() -> set[tuple[str, str]]:
            shown = tools.get(f"{url}/api/v2/alerts?active=false&inhibited=true&silenced=false")
            return {(a["labels"]["alertname"], a["labels"]["class"]) for a in shown}

        tools.until(lambda: len(inhibited()) == 2, "two are inhibited", 20.0)
        assert inhibited() == {("SdfUrgentFindings", "link"), ("SdfAgentsNotHeard", "telemetry")}


async def test_an_alertmanager_that_refuses_one_alert_gets_the_others(tmp_path: Path, sink: tools.Sink) -> None:
    (port,) = free_ports(1)
    with tools.alertmanager(tmp_path, tools.alertmanager_config(tmp_path, sink.url), port) as url:
        board = Board()
        pusher = AlertPusher(AlertsConfig(url), "test", board, lambda: True)
        board.take([statement("sound", "open", subject={"type": "nic", "id": "h\ufffd\u202e/ü\n"})])
        await pusher.look(0.0, time.time_ns())
        assert firing(url).keys() == {"sound"}
        assert pusher.counters.total("refused") == 0


async def test_what_an_alertmanager_tells_of_is_listed_by_the_read_api(tmp_path: Path, sink: tools.Sink) -> None:
    board, jobs = Board(), JobBoard()
    now = lambda: (time.time_ns(), time.time_ns(), {})  # noqa: E731
    (port,) = free_ports(1)
    tokens = {}
    for role in ("view", "label"):
        tokens[role] = tmp_path / f"{role}-token"
        tokens[role].write_text(tokens_io.add(tmp_path, role, role))
    (snippet,) = re.findall(r"```yaml\n(receivers:.*?)```", (ROOT / "docs" / "alerts.md").read_text(), re.DOTALL)
    async with AsyncExitStack() as stack:
        server = await ProcessApi(board, jobs, now, tmp_path, None).start(stack, "127.0.0.1:0", None)
        told = snippet.replace("http://serve:9465", server.url).replace(
            "/run/secrets/label-token", str(tokens["label"])
        )
        config = tools.alertmanager_config(tmp_path, sink.url)
        shipped = yaml.safe_load(config.read_text())
        shipped["receivers"] += yaml.safe_load(told)["receivers"]
        shipped["route"]["routes"].insert(0, {"receiver": "sdfstream", "continue": True, "group_wait": "100ms"})
        config.write_text(yaml.safe_dump(shipped))
        url = await asyncio.to_thread(stack.enter_context, tools.alertmanager(tmp_path, config, port))
        board.take([statement("f1", "open")])
        await AlertPusher(AlertsConfig(url), "test", board, lambda: True).look(0.0, time.time_ns())
        words = ("NodeInfinibandDown", "severity=warning", "class=link", "instance=h03:9100")
        await asyncio.to_thread(tools.run, "amtool", f"--alertmanager.url={url}", "alert", "add", *words)
        ask = partial(tools.get, f"{server.url}/v1/alerts", token=tokens["view"].read_text())
        await asyncio.to_thread(tools.until, lambda: ask()["total"] == 2, "both are told of")
        items = await asyncio.to_thread(ask)
    assert {(i["labels"]["alertname"], i["finding"], i["status"], i["receiver"]) for i in items["items"]} == {
        ("SdfFinding", "f1", "firing", "sdfstream"), ("NodeInfinibandDown", None, "firing", "sdfstream"),
    }  # fmt: skip
