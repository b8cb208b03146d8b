"""Pushes that fail, are refused, or are let in; and when they begin."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sdfstream.alerts.config import AlertsConfig
from sdfstream.board.board import Board
from sdfstream.errors import UnavailableError
from sdfstream.records import topics
from sdfstream.records.units import NS_PER_S
from sdfstream.serve.alerts_io import Alertmanager, AlertPusher, pushing
from tests.fixtures import board_messages as bm
from tests.fixtures.notes import answered, silence

CONFIG = AlertsConfig("http://am:9093")


class Answers:
    """Answers pushes one after the other; the last one for good."""

    def __init__(self, *answers: tuple[int, str] | UnavailableError) -> None:
        self._answers = list(answers)
        self.posted: list[list[str]] = []

    def __call__(self, alerts: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
        self.posted.append([alert["labels"]["id"] for alert in alerts])
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, UnavailableError):
            raise answer
        return answer


def pusher(answers: Answers) -> AlertPusher:
    board = Board()
    board.take([bm.event(topics.FINDING, bm.finding("f1"))])
    return AlertPusher(CONFIG, "c", board, lambda: True, answers)


@pytest.mark.parametrize("bad", [(503, "no"), (401, "who are you"), (404, "no"), (301, ""), UnavailableError("away")])
async def test_a_push_that_failed_is_tried_again_ever_more_seldom(bad: Any) -> None:
    answers = Answers(*[bad] * 8, (200, ""))
    pushing_it = pusher(answers)
    tried_s = []
    for now_s in range(200):
        before = len(answers.posted)
        await pushing_it.look(float(now_s), bm.NOW_NS)
        if len(answers.posted) > before:
            tried_s.append(now_s)
    assert tried_s == [0, 1, 3, 7, 15, 31, 61, 91, 121]
    assert pushing_it.counters.total("failed") == 8
    assert pushing_it.counters.get("opened") == 1
    assert not pushing_it.counters.troubles.open


async def test_while_it_fails_that_is_a_trouble_of_the_process() -> None:
    pushing_it = pusher(Answers((503, "text that may change")))
    await pushing_it.look(0.0, bm.NOW_NS)
    assert pushing_it.counters.troubles.open == {"alertmanager": "findings are not pushed: Alertmanager answers 503"}


async def test_what_is_refused_is_counted_and_not_tried_at_once_again() -> None:
    answers = Answers((400, "start time"))
    pushing_it = pusher(answers)
    for now_s in range(10):
        await pushing_it.look(float(now_s), bm.NOW_NS)
    assert answers.posted == [["f1"]]
    assert pushing_it.counters.get("refused", "status-400") == 1


async def test_many_are_pushed_some_at_a_time() -> None:
    answers = Answers((200, ""))
    board = Board()
    board.take([bm.event(topics.FINDING, bm.finding(f"f{i}")) for i in range(450)])
    await AlertPusher(CONFIG, "c", board, lambda: True, answers).look(0.0, bm.NOW_NS)
    assert [len(ids) for ids in answers.posted] == [200, 200, 50]
    assert len({i for ids in answers.posted for i in ids}) == 450


async def test_nothing_runs_unless_an_alertmanager_is_named() -> None:
    counted: list[Any] = []
    async with pushing(AlertsConfig(), "c", Board(), lambda: True, counted):
        assert counted == []


def test_who_pushes_is_said_as_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, dict[str, str]]] = []

    def request(_: Any, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        sent.append((path, headers))
        raise ConnectionRefusedError("nobody")

    monkeypatch.setattr(http.client.HTTPConnection, "request", request)
    token = tmp_path / "token"
    token.write_text("s3cret-1\nrest\n")
    for config in (
        CONFIG,
        AlertsConfig("http://ops:p%40ss@am:9093/am/"),
        AlertsConfig("http://am:9093", bearer_file=str(token)),
    ):
        with pytest.raises(UnavailableError) as error:
            Alertmanager(config).post([])
        assert "p%40ss" not in str(error.value)
    assert [path for path, _ in sent] == ["/api/v2/alerts", "/am/api/v2/alerts", "/api/v2/alerts"]
    assert [headers.get("Authorization") for _, headers in sent] == [
        None, "Basic " + base64.b64encode(b"ops:p@ss").decode(), "Bearer s3cret-1",
    ]  # fmt: skip
    token.unlink()
    with pytest.raises(UnavailableError):
        Alertmanager(AlertsConfig("http://am:9093", bearer_file=str(token))).post([])


async def test_what_an_operator_silenced_is_resolved_and_not_pushed() -> None:
    answers = Answers((200, ""))
    pushing_it = pusher(answers)
    await pushing_it.look(0.0, bm.NOW_NS)
    pushing_it._board.take(answered(silence("host", "h03", until_at_ns=bm.NOW_NS + 10 * NS_PER_S)))
    for s in (1, 5, 10):
        await pushing_it.look(float(s), bm.NOW_NS + s * NS_PER_S)
    assert answers.posted == [["f1"], ["f1"], ["f1"]], "opened, resolved, and told again when the silence was over"
    assert pushing_it.counters.get("opened") == 2
    assert pushing_it.counters.get("resolved") == 1
