"""Row 9: escapes, line feeds and overrides in names of hosts and jobs never reach a terminal, a log or JSON."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sdfstream import cli
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.board.why import explain
from sdfstream.errors import UnavailableError
from sdfstream.runtime import logs_io, output_io
from sdfstream.serve.job_queries_io import JobQueries
from tests.fixtures import board_messages as bm
from tests.fixtures.job_cases import messages_of
from tests.fixtures.job_messages import NOW_NS

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\nfindings   0 open\r\u202egpj.\u2066\u200b\u2028\x7f\ud800[bold][/]"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]")
FIXED = {"state", "status", "severity", "kind", "class", "type", "tx", "rx", "port", "mode", "case", "action", "what"}
"""Keys whose values are words of our own, which the board itself has looked up."""


def hostile(value: Any, key: str = "") -> Any:
    """`value` with EVIL in every name and text."""
    if isinstance(value, str):
        return value if key in FIXED or key.endswith("transport") else f"{value}{EVIL}"
    if key == "cells":
        return value  # states by column
    if isinstance(value, Mapping):
        return {f"{k}{EVIL}" if key in ("lost", "lag", "by_status") else k: hostile(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [hostile(v, key) for v in value]
    return value


def told() -> dict[str, dict[str, Any]]:
    """What a pipeline answers to each request of a verb."""
    fabric, jobs = Board(), JobBoard()
    fabric.take(bm.small_fabric())
    jobs.take(messages_of("hurt"))
    view = fabric.view(NOW_NS, counters={"sync.refused.x": 3}, lag={"sync": 1}, run={}, full=True)
    view |= JobQueries(jobs, None, operators=dict, mode="enforce").summary(NOW_NS)  # type: ignore[arg-type]
    override = {"what": "hold", "expires_at_ns": NOW_NS + 10**10, "target": {"type": "qp", "id": "q"}}
    return {
        "board": view,
        "findings": {"at_ns": NOW_NS, "findings": fabric.findings()},
        "commands": {"at_ns": NOW_NS, "commands": jobs.commands.views(NOW_NS, None)},
        "why": {"verdict": explain(jobs.facts("train-7", NOW_NS)).as_data()},
        "policy": {
            "at_ns": NOW_NS, "mode": "enforce", "operators": ["ops"],
            "overrides": [override | {"operator": "ops", "id": "o1"}],
            "mode_by": {"operator": "ops", "at_ns": NOW_NS},
        },
    }  # fmt: skip


VERBS = (
    ["status"],
    ["top", "--once", "--width", "200"],
    ["findings"],
    ["findings", ""],
    ["commands"],
    ["why", "train-7"],
    ["policy", "show"],
)


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, evil: bool, verb: list[str]) -> str:
    answers: Any = json.loads(json.dumps(told()))
    answers = {k: hostile(v) for k, v in answers.items()} if evil else answers
    monkeypatch.setattr("sdfstream.serve.query_io.fetch", lambda _, request, **__: answers[request["want"]])
    monkeypatch.setattr("sdfstream.serve.query_io.fetch_board", lambda *_, **__: answers["board"])
    monkeypatch.setattr("sdfstream.cli.edge_io.now_ns", lambda: NOW_NS)
    assert cli.main([word or answers["findings"]["findings"][0]["id"] for word in verb]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_no_verb_lets_a_name_be_more_than_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    clean = run(capsys, monkeypatch, False, verb)
    shown = run(capsys, monkeypatch, True, verb)
    assert OBEYED.search(shown) is None
    assert "\\x1b" in shown or "owned" in shown
    shown.encode()
    if verb[0] != "top":  # which wraps
        assert shown.count("\n") == clean.count("\n"), "a name made a line of its own"
        assert not any(line.startswith("findings   0 open") for line in shown.splitlines())
    as_json = run(capsys, monkeypatch, True, [v for v in verb if v not in ("--once",)] + ["--json"])
    assert as_json.isascii() and OBEYED.search(as_json) is None
    assert json.loads(as_json)


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UnavailableError(f"no job {EVIL}")

    monkeypatch.setattr("sdfstream.serve.query_io.fetch", refuse)
    assert cli.main(["status"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and OBEYED.search(said) is None


class Answers:
    """A console whose engine returns a hostile row."""

    def text(self, sql: str, fmt: str) -> bytes:
        return f"a\t{EVIL.replace(chr(0xD800), '')}\n".encode() + b"\xff\x9b\n"

    def catalogue(self) -> list[tuple[str, str]]:
        return [(f"v_{EVIL}", EVIL), ("v_b", "doc")]

    def close(self) -> None:
        """Nothing is open."""


def test_rows_of_sql(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sdfstream.archive.query_io.Console.open", lambda *_, **__: Answers())
    for terminal, verb, is_safe in (
        (False, ["sql", "SELECT 1"], True),
        (True, ["sql", "SELECT 1", "--format", "TSV"], True),
        (True, ["sql", "SELECT 1"], True),
        (False, ["sql", "SELECT 1", "--format", "Native"], False),  # for a program: byte for byte
    ):
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
        monkeypatch.setattr(out, "isatty", lambda is_one=terminal: is_one)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            assert cli.main(verb) == 0
        raw = out.buffer.getvalue()  # type: ignore[attr-defined]
        assert (raw == Answers().text("", "")) is not is_safe
        if is_safe:
            assert OBEYED.search(raw.decode().replace("\t", "")) is None
    assert cli.main(["sql"]) == 0
    listed = capsys.readouterr().out
    assert listed.count("\n") == 2 and OBEYED.search(listed) is None


def test_text_that_verbs_make_of_results() -> None:
    from sdfstream.agent.report import table
    from sdfstream.score.report import aligned

    paths = [{"src": f"h{EVIL}", "dst": EVIL, "path": 1, "dscp": 0, "n": 1, "lost": 1, "ce_fwd": 0, "ce_rev": 0,
              "ttl_fwd": [], "ttl_rev": []}]  # fmt: skip
    for text in (table(paths), aligned([("a", "b"), (EVIL, EVIL)])):
        assert text.count("\n") == 1 and OBEYED.search(text) is None


def test_progress_and_followed_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output_io.progress(EVIL)
    output_io.say(EVIL)
    output_io.complain(EVIL)
    output_io.show_progress(EVIL)
    out, err = capsys.readouterr()
    assert OBEYED.search(out + err) is None


def test_a_log_line_stays_one_line_and_a_traceback_cannot_forge_one() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logs_io.VisibleFormatter("%(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    log.warning("%s cannot be used: %s", f"h1/{EVIL}", EVIL)
    assert written.getvalue().count("\n") == 1
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.exception("step failed")
    assert OBEYED.search(written.getvalue()) is None
    assert all(line.startswith("  | ") for line in written.getvalue().splitlines()[2:])


def test_what_nobody_caught_is_logged_as_text(tmp_path: Path) -> None:
    import subprocess

    code = (
        "import sys, threading, logging\nfrom sdfstream.runtime import logs_io\n"
        "logs_io.to_stderr(logging.WARNING); logs_io.log_defects()\n"
        f"def end(): raise ValueError({EVIL!r})\n"
        "t = threading.Thread(target=end, name='helper'); t.start(); t.join(); end()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=Path.cwd())
    said = done.stderr.decode()
    assert done.returncode == 1
    assert "thread helper ended by a defect" in said and "ValueError ended the process" in said
    assert OBEYED.search(said) is None
