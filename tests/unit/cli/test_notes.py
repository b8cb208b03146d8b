"""`silence` and `label` as a user calls them, against a pipeline's socket and the controller itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.stage import ActuateStage, Authority
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.records.topics import OUTCOME, OVERRIDE
from sdfstream.serve import operator_keys_io
from sdfstream.serve.job_queries_io import BackgroundPublisher, JobQueries
from sdfstream.serve.queries import PipelineQueries
from sdfstream.serve.query_io import QueryServer
from tests.fixtures import board_messages as bm
from tests.unit.cli.test_operator import call


@asynccontextmanager
async def pipeline(data: Path) -> AsyncIterator[None]:
    """A socket over boards, and a controller that trusts the folder's operators."""
    began_ns = time.monotonic_ns()
    clock = lambda: bm.NOW_NS + time.monotonic_ns() - began_ns  # noqa: E731
    bus, board, jobs = MemoryBus(clock), Board(), JobBoard()
    board.take(bm.small_fabric())
    operators = KeyRing(operator_keys_io.trusted(data).values())
    stage = ActuateStage(ActuateConfig(), Authority(Signer(bytes(32)), operators, 7))
    reader = await bus.subscribe("test", [OVERRIDE.name, OUTCOME.name])

    async def control() -> None:
        while True:
            for message in await reader.read(timeout_s=1.0):
                board.take([message])
                jobs.take([message])
                if message.topic == OVERRIDE.name:
                    await bus.publish(stage.step([message], message.bus_at_ns))

    publishing = BackgroundPublisher(bus)
    answers = JobQueries(jobs, publishing, operators=lambda: operator_keys_io.trusted(data), mode="dry-run")
    server = QueryServer(PipelineQueries(board, lambda: (clock(), {}, {}, {}), answers), data)
    await server.start()
    task = asyncio.create_task(control())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.close()
        await publishing.close()
        await bus.close()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a key; the verbs' clock is the story's."""
    monkeypatch.setattr("sdfstream.cli.edge_io.now_ns", lambda: bm.NOW_NS)
    operator_keys_io.ensure(tmp_path)
    return tmp_path


async def test_a_silence_is_set_seen_listed_and_lifted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more, me = ("--data", str(data)), operator_keys_io.user()
    async with pipeline(data):
        code, out, _ = await call(capsys, "silence", "host:h03", "--for", "2h", "--reason", "firmware", *more)
        assert code == 0
        assert out.startswith("silence: applied by controller at 08:00:0")
        assert "findings about host h03 are shown as silenced meanwhile" in out
        code, out, _ = await call(capsys, "findings", *more)
        assert f"; silenced until 10:00 UTC by {me}: firmware" in out
        assert out.count("silenced") == 1
        _, out, _ = await call(capsys, "findings", *more, "--json")
        (marked,) = [f["silence"] for f in json.loads(out)["findings"] if f.get("silence")]
        assert (marked["by"], marked["until_ns"] - bm.NOW_NS) == (me, 7200 * 10**9)
        _, out, _ = await call(capsys, "status", *more)
        assert "2 open (1 silenced), 1 resolved" in out
        code, out, _ = await call(capsys, "silence", "--list", *more)
        assert out == f"{marked['id']}  in-force  host h03, until 10:00 UTC; by {me}: firmware\n"
        code, out, _ = await call(capsys, "silence", "--lift", marked["id"], *more)
        assert (code, f"silence {marked['id']} is over" in out) == (0, True)
        _, out, _ = await call(capsys, "findings", *more)
        assert "silenced" not in out
        code, out, _ = await call(capsys, "silence", "--list", *more, "--json")
        assert [(s["state"], s["lifted_by"]) for s in json.loads(out)["silences"]] == [("lifted", me)]
        code, out, _ = await call(capsys, "silence", "--lift", marked["id"], *more)
        assert (code, "unknown-override" in out) == (2, True)


async def test_a_maintenance_is_planned_ahead(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("silence", "link:s1--l0", "--from", "3h", "--for", "30m", "--kind", "loss", "--maintenance")
    async with pipeline(data):
        code, out, _ = await call(capsys, *words, "--data", str(data), "--json")
        assert code == 0
        assert json.loads(out)["overrides"][0]["outcome"]["target"]["id"] == "l0--s1"
        code, out, _ = await call(capsys, "silence", "--list", "--data", str(data))
        line = "planned   link l0--s1 (loss only), maintenance, from 11:00 UTC until 11:30 UTC; by "
        assert line in out


async def test_a_finding_is_labelled_by_the_beginning_of_its_id(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--data", str(data))
    async with pipeline(data):
        code, out, _ = await call(capsys, "label", "f1", "cabling", "--note", "swapped", *more)
        assert (code, "finding f1 was cabling, says" in out) == (0, True)
        _, out, _ = await call(capsys, "findings", "f1", *more)
        assert f"; labelled cabling by {operator_keys_io.user()}: swapped" in out
        code, _, err = await call(capsys, "label", "f", "false-alarm", *more)
        assert (code, "3 findings have ids that begin with 'f'" in err) == (2, True)
        code, _, err = await call(capsys, "label", "x", "false-alarm", *more)
        assert (code, "no finding has an id that begins with 'x'" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("silence",), "name one subject"),
        (("silence", "h03"), "write finding:NAME, nic:NAME"),
        (("silence", "nic:"), "is no subject"),
        (("silence", "rack:7"), "is no subject"),
        (("silence", "all", "--list"), "name one subject"),
        (("silence", "all", "--kind", "rain"), "no kind 'rain' of findings; there are nic-down"),
        (("silence", "all", "--for", "soon"), "--for: 'soon' is not a duration"),
        (("silence", "all", "--for", "8d"), "within 7d"),
        (("silence", "all", "--from", "6d", "--for", "2d"), "within 7d"),
        (("silence", "all", "--from", "2020-01-01"), "lies in the past"),
        (("silence", "all", "--from", "noon"), "no instant"),
        (("silence", "all", "--reason", "x" * 501), "500 characters"),
        (("silence", "all", "--at", "10m"), "--at and --url are of --list"),
        (("silence", "--lift", "o-1", "--reason", "x"), "takes no other option"),
        (("label", "f1", "gremlins"), "no cause 'gremlins'; there are link-failure"),
    ],
)
async def test_what_cannot_be_is_a_sentence(
    data: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    code, _, err = await call(capsys, *words, "--data", str(data))
    assert (code, sentence in err) == (2, True), err
