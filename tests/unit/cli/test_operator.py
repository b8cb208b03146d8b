"""The operator's verbs as a user calls them, against a pipeline's socket with a controller that answers."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.cli import main
from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.records.command import Outcome
from sdfstream.records.message import Event, Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import OUTCOME, OVERRIDE
from sdfstream.serve import operator_keys_io, overrides_io
from sdfstream.serve.job_queries_io import BackgroundPublisher, JobQueries
from sdfstream.serve.queries import PipelineQueries
from sdfstream.serve.query_io import QueryServer, fetch
from tests.fixtures.job_cases import messages_of
from tests.fixtures.job_messages import NOW_NS, World

Reply = Callable[[dict[str, Any]], list[tuple[str, str, str]]]
"""Override data → (about which id, state, why)."""


@asynccontextmanager
async def pipeline(data: Path, jobs: JobBoard, reply: Reply | None = None) -> AsyncIterator[list[dict[str, Any]]]:
    """A live socket over `jobs` whose controller answers overrides by `reply`; yields the overrides it saw."""
    began_ns = time.monotonic_ns()
    bus = MemoryBus(lambda: NOW_NS + time.monotonic_ns() - began_ns)
    seen: list[dict[str, Any]] = []
    reader = await bus.subscribe("test", [OVERRIDE.name, OUTCOME.name])

    async def control() -> None:
        while True:
            for message in await reader.read(timeout_s=1.0):
                jobs.take([message])
                assert isinstance(message.body, Event)
                if message.topic == OVERRIDE.name:
                    seen.append(dict(message.body.data))
                    for about, state, why in reply(seen[-1]) if reply else ():
                        said = Outcome(about, state, why, "controller", time.time_ns())
                        event = Event(OUTCOME.name, "actuate", f"{about}-{state}", 1, said.as_data())
                        await bus.publish([Output(OUTCOME.name, about, event)])

    publishing = BackgroundPublisher(bus)
    answers = JobQueries(jobs, publishing, operators=lambda: operator_keys_io.trusted(data), mode="dry-run")
    gauges = lambda: (NOW_NS, {}, {}, {})  # noqa: E731
    server = QueryServer(PipelineQueries(Board(), gauges, answers), data)
    await server.start()
    task = asyncio.create_task(control())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.close()
        await publishing.close()
        await bus.close()


async def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = await asyncio.to_thread(main, list(words))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def jobs() -> JobBoard:
    made = JobBoard()
    made.take(messages_of("hurt"))
    return made


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> int:
    """The verbs' clock stands at the end of the story."""
    monkeypatch.setattr("sdfstream.cli.edge_io.now_ns", lambda: NOW_NS)
    return NOW_NS


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "keygen", "--data", str(tmp_path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    key = Path(made["key"])
    assert key == tmp_path / "keys" / "operator.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert len(key.read_bytes()) == 32
    public = base64.b64decode(Path(made["public"]).read_text())
    assert operator_keys_io.trusted(tmp_path) == {operator_keys_io.user(): public}
    assert operator_keys_io.ensure(tmp_path).key_id == made["key_id"]
    assert main(["policy", "keygen", "--data", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_key_that_is_not_safe_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keygen"):
        operator_keys_io.read(tmp_path)
    operator_keys_io.make(tmp_path)
    key = operator_keys_io.key_path(tmp_path)
    key.chmod(0o640)
    with pytest.raises(ConfigError, match="read by others"):
        operator_keys_io.read(tmp_path)
    key.chmod(0o600)
    key.write_bytes(b"short")
    with pytest.raises(ConfigError, match="5 bytes"):
        operator_keys_io.read(tmp_path)
    (tmp_path / "keys" / "operators" / "eve.pub").write_text("no key")
    with pytest.raises(ConfigError, match="no public key"):
        operator_keys_io.trusted(tmp_path)


async def test_commands_and_why_by_the_socket(
    tmp_path: Path, jobs: JobBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", str(tmp_path))
    async with pipeline(tmp_path, jobs):
        code, out, _ = await call(capsys, "commands", *data)
        assert code == 0
        assert out.startswith("07:59:19 UTC  steer      qp h00/r0#17  of train-7  [enforce]")
        assert "applied 50001→50002" in out
        assert "gain ×9.00" in out
        code, out, _ = await call(capsys, "commands", *data, "--job", "train-8", "--json")
        assert json.loads(out) == {"at_ns": NOW_NS, "commands": [], "source": {"kind": "pipeline"}}
        code, out, _ = await call(capsys, "commands", *data, "--since", "30s")
        assert out == "no commands\n"
        code, out, _ = await call(capsys, "why", "train-7", *data)
        assert code == 0
        assert out.startswith("Yes, the network holds up job train-7: link l0--s1 (from l0 to s1)")
        code, out, _ = await call(capsys, "why", "train-7", *data, "--json")
        verdict = json.loads(out)
        assert (verdict["network"], verdict["findings"], verdict["jobs"]) == ("yes", ["f1"], ["train-8"])
        assert verdict["numbers"]["throughput_before_n"] == 51
        code, out, _ = await call(capsys, "why", "nope", *data)
        assert (code, out.partition(".")[0]) == (2, "Nobody told of a job 'nope'; known are train-7 and train-8")
        assert (await asyncio.to_thread(fetch, tmp_path, {"want": "jobs"}))["jobs"][0]["findings"] == ["f1"]


async def test_an_undo_is_signed_and_waits_for_the_outcome(
    tmp_path: Path, jobs: JobBoard, now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    signer = operator_keys_io.ensure(tmp_path)
    reply: Reply = lambda o: [(o["id"], "accepted", "taken"), (o["command"], "undone", "back on 50001")]  # noqa: E731
    async with pipeline(tmp_path, jobs, reply) as seen:
        code, out, err = await call(capsys, "undo", "--all", "--data", str(tmp_path))
        assert code == 0
        assert out.startswith("undo c1: undone by controller at ")
        assert out.endswith(": back on 50001\n")
        assert "may act again" in err
    (override,) = seen
    assert KeyRing([signer.public]).refuses(override) == ""
    assert (override["what"], override["command"], override["operator"]) == ("undo", "c1", operator_keys_io.user())
    assert override["expires_at_ns"] - override["issued_at_ns"] == 60_000_000_000


async def test_a_refusal_and_silence_are_exit_2_with_a_sentence(
    tmp_path: Path, jobs: JobBoard, now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    operator_keys_io.ensure(tmp_path)
    data = ("--data", str(tmp_path), "--wait", "1")
    async with pipeline(
        tmp_path, jobs, lambda o: [(o["id"], "refused", "unknown-key: not trusted")] * (o["what"] == "mode")
    ):
        code, out, _ = await call(capsys, "policy", "mode", "observe", *data)
        assert (code, "refused by controller" in out, "not trusted" in out) == (2, True, True)
        code, out, err = await call(capsys, "approve", "c9", "c8", *data, "--json")
        assert code == 2
        assert [o["command"] for o in json.loads(out)["overrides"]] == ["c9", "c8"]
        assert "no outcome of o-" in err
        assert "within 1 s" in err
    code, _, err = await call(capsys, "approve", "c9", *data)
    assert (code, "no pipeline runs" in err) == (2, True)


async def test_policy_is_shown_changed_and_held(
    tmp_path: Path, jobs: JobBoard, now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    operator_keys_io.ensure(tmp_path)
    data = ("--data", str(tmp_path))
    async with pipeline(tmp_path, jobs, lambda o: [(o["id"], "applied", f"{o['what']} is in force")]) as seen:
        code, out, _ = await call(capsys, "policy", "mode", "observe", *data)
        assert (code, out.startswith("mode: applied by controller")) == (0, True)
        code, _, _ = await call(capsys, "policy", "hold", "job:train-7", "--for", "10m", *data)
        assert code == 0
        assert [(o["what"], o["set"], o["target"]) for o in seen] == [
            ("mode", {"mode": "observe"}, {}), ("hold", {}, {"type": "job", "id": "train-7"}),
        ]  # fmt: skip
        assert seen[1]["expires_at_ns"] - NOW_NS == 600_000_000_000
        code, out, _ = await call(capsys, "policy", "show", *data)
        assert code == 0
        for line in (
            "mode                   observe, by",
            "(in the settings dry-run",
            "held                   job train-7",
        ):
            assert line in out
        assert f"operators trusted      {operator_keys_io.user()}" in out
        assert "commands in force      1, 0 wait for approval" in out
    for words, sentence in (
        (("policy", "mode", "on"), "no mode 'on'"),
        (("policy", "hold", "train-7"), "no target"),
        (("policy", "mode"), "needs a mode"),
        (("policy", "mode", "observe", "--for", "1h"), "stays until"),
        (("policy", "hold", "all", "--for", "soon"), "--for"),
        (("undo",), "--job JOB, or --all"),
        (("undo", "c1", "--all"), "--job JOB, or --all"),
        (("undo", "--all", "--bus", "kafka://x:1"), "name the command ids"),
        (("approve", "c1", "--bus", "memory"), "kafka://HOST:PORT"),
    ):
        code, _, err = await call(capsys, *words, *data)
        assert (code, sentence in err) == (2, True), (words, err)


async def test_the_socket_takes_no_rubbish(tmp_path: Path, jobs: JobBoard) -> None:
    session = overrides_io.OperatorSession(tmp_path, operator_keys_io.ensure(tmp_path), "ann")
    good = overrides_io.signed(session, "mode", NOW_NS, 60, set_={"mode": "observe"})
    old = overrides_io.signed(session, "mode", NOW_NS - 10**12, 60)
    async with pipeline(tmp_path, jobs) as seen:
        for request, sentence in (
            ({"want": "override"}, "cannot be read"),
            ({"want": "override", "override": {**good, "id": 7}}, "id must be str"),
            ({"want": "override", "override": old}, "lapsed"),
            ({"want": "outcomes", "ids": "all", "since_ns": 0}, "ids must be"),
            ({"want": "outcomes", "ids": ["a"], "since_ns": None}, "since_ns"),
            ({"want": "why", "job": 7}, "job must be text"),
            ({"want": "nonsense"}, "known are board, findings, topology, jobs, commands, why"),
        ):
            with pytest.raises(UnavailableError, match=sentence):
                await asyncio.to_thread(fetch, tmp_path, request)
        taken = await asyncio.to_thread(fetch, tmp_path, {"want": "override", "override": {**good, "extra": 1}})
        assert taken["taken"] == good["id"]
        async with asyncio.timeout(5):
            while not seen:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert seen == [{**good, "extra": 1}], "what was signed goes on as it came; the controller will say forged"


def test_answers_are_sorted_to_their_overrides(tmp_path: Path) -> None:
    asked = [{"id": "o1", "command": "c1", "what": "undo"}, {"id": "o2", "command": "", "what": "mode"}]
    answers = overrides_io.OverrideOutcomes(asked)
    assert not answers.done(100.0)
    answers.take({"command": "o1", "state": "accepted"})
    answers.take({"command": "other", "state": "applied"})
    answers.take({"command": "c1", "state": "applied"})
    answers.take({"command": "proposal x", "target": {"override": "o2"}, "state": "applied"})
    assert not answers.done(overrides_io.GRACE_S / 2), "the command's own outcome may still come"
    assert answers.done(overrides_io.GRACE_S)
    answers.take({"command": "c1", "state": "undone"})
    assert answers.done(0.0)
    assert {k: v["state"] for k, v in answers.found.items()} == {"o1": "undone", "o2": "applied"}


def test_following_prints_each_change_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    w, jobs = World(), JobBoard()
    jobs.take([w.command(), w.outcome("c1", "accepted", 41)])
    rounds = iter([[], [], [w.outcome("c1", "applied", 2)], [], [w.command("c2", 1)]])

    def answer(*_: object) -> dict[str, Any]:
        try:
            jobs.take(next(rounds))
        except StopIteration:
            raise KeyboardInterrupt from None
        return {"at_ns": NOW_NS, "commands": jobs.commands.views(NOW_NS)}

    monkeypatch.setattr("sdfstream.serve.query_io.fetch", answer)
    monkeypatch.setattr("sdfstream.cli.edge_io.wait", lambda _: None)
    assert main(["commands", "--follow", "--json"]) == 130
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(c["id"], c.get("state")) for c in found] == [("c1", "accepted"), ("c1", "applied"), ("c2", None)]
