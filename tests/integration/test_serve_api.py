"""The API of a running pipeline over real connections: owner, token, past, the stream and coming back to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sdfstream.archive.config import LIVE
from sdfstream.cli import main
from sdfstream.records import topics
from sdfstream.records.message import Output
from sdfstream.serve.service_io import service
from sdfstream.settings import Settings
from tests.fixtures import board_messages as bm


def ask(url: str, path: str, **headers: str) -> tuple[int, Any]:
    where = urlsplit(url)
    link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    try:
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        link.close()


def events(url: str, path: str, most: int, **headers: str) -> Iterator[tuple[str, str, Any]]:
    """(id, event, data) of a stream, until there were `most`."""
    where = urlsplit(url)
    link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    try:
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        while most:
            raw = answer.readline()
            if not raw:
                return  # the server has ended it
            line = raw.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                yield fields["id"], fields["event"], json.loads(fields["data"])
                fields, most = {}, most - 1
    finally:
        link.close()


def _tokens(url: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who comes through a proxy needs one, from when it is given until it is taken back."""
    assert main(["token", "add", "ci", "--role", "view", "--data", str(data)]) == 0
    proxied = {"X-Forwarded-For": "192.0.2.1"}
    with_token = proxied | {"Authorization": f"Bearer {capsys.readouterr().out.strip()}"}
    assert ask(url, "/v1/nics", **proxied)[0] == 401
    assert ask(url, "/v1/nics", **with_token)[0] == 200
    assert main(["token", "remove", "ci", "--data", str(data)]) == 0
    assert ask(url, "/v1/nics", **with_token)[0] == 401, "taken back at once"


@pytest.mark.usefixtures("archive_folder")
async def test_a_running_pipeline_is_asked_over_http(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with service(Settings(data=tmp_path, api="127.0.0.1:0")) as running:
        url = (tmp_path / "api.url").read_text().strip()
        assert url == running.api_url
        status, health = await asyncio.to_thread(ask, url, "/healthz")
        assert (status, health["why"]) == (503, "no host has reported anything yet")

        def follow() -> list[tuple[str, str, Any]]:
            return [e for e in events(url, "/v1/stream?topics=finding", 4)]

        following = asyncio.create_task(asyncio.to_thread(follow))
        await asyncio.sleep(0.5)
        story = bm.small_fabric(time.time_ns())
        await running.bus.publish([Output(m.topic, m.key, m.body) for m in story])
        seen = await following
        assert [e[1] for e in seen if e[1] != "age"][:3] == ["finding"] * 3
        async with asyncio.timeout(20):
            while True:
                status, page = await asyncio.to_thread(ask, url, "/v1/findings?open=true&limit=1")
                if page.get("total", 0) >= 2:
                    break
                await asyncio.sleep(0.1)
        assert (status, page["source"]["kind"]) == (200, "pipeline"), "the owner on loopback needs no token"
        assert page["next"] is not None

        first = next(e for e in seen if e[1] == "finding")
        again = await asyncio.to_thread(
            lambda: [e for e in events(url, "/v1/stream?topics=finding", 3, **{"Last-Event-ID": first[0]})]
        )
        later = [e for e in again if e[1] == "finding"]
        assert later == [e for e in seen if e[1] == "finding"][1 : 1 + len(later)], "what came behind it, once"
        lost = await asyncio.to_thread(
            lambda: [e for e in events(url, "/v1/stream", 2, **{"Last-Event-ID": "another-run-7"})]
        )
        assert [e[1] for e in lost] == ["age", "gap"]

        await asyncio.to_thread(_tokens, url, tmp_path, capsys)
        # what is asked of the past has reached the archive, where a few rows wait for others
        await asyncio.sleep(LIVE.few_age_ms / 1e3 + 2)
        at_ns = time.time_ns() - 200_000_000
        status, then = await asyncio.to_thread(ask, url, f"/v1/findings?at={at_ns}")
        assert status == 200, then
        assert then["source"]["kind"] == "archive"
        assert {"f0", "f1", "f2"} <= {f["id"] for f in then["items"]}
        for question in ("a=h00&b=h01", "nic=h03/r1", "job=none", "cells=owd&percentile=90&by=host"):
            status, found = await asyncio.to_thread(ask, url, f"/v1/history?span_s=600&{question}")
            assert status == 200, (question, found)
            assert bool(found["items"]) == (question != "job=none"), question
    assert not (tmp_path / "api.url").exists()


@pytest.mark.usefixtures("archive_folder")
async def test_a_follower_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with service(Settings(data=tmp_path, api="127.0.0.1:0")) as running:
        url = running.api_url or ""
        following = asyncio.create_task(asyncio.to_thread(lambda: list(events(url, "/v1/stream", 10**6))))
        await asyncio.sleep(0.5)
        await running.bus.publish([Output(topics.FINDING.name, "f1", bm.event(topics.FINDING, bm.finding()).body)])
        await asyncio.sleep(2.0)
        ending_s = time.monotonic()
    assert time.monotonic() - ending_s < 30
    assert [event for _, event, _ in await asyncio.wait_for(following, 40)].count("finding") >= 1


def test_off_is_off_and_an_address_that_is_none_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--data", str(tmp_path), "--api", "nowhere", "--seconds", "1"]) == 2
    assert "must be HOST:PORT" in capsys.readouterr().err
    assert main(["up", "--data", str(tmp_path), "--api", "off", "--seconds", "0.2"]) == 0
    assert "API: off" in capsys.readouterr().err
