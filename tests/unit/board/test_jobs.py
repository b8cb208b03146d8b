"""Jobs and the last commands in status and top: what they get, who is slowest, what hurts them, what was done."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.board.status_text import text_of
from sdfstream.board.top_view import render, rows_for
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import TOPICS
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.output_io import compact
from sdfstream.serve.job_queries_io import MOST_SHOWN, JobQueries
from sdfstream.serve.queries import PipelineQueries
from sdfstream.workload.stage import WorkloadStage
from tests.checks import run
from tests.fixtures.job_messages import NOW_NS, PAIRS, World
from tests.fixtures.qp_world import busy


def _seen(*messages: Any) -> dict[str, Any]:
    """The board as a client gets it."""
    board, jobs = Board(), JobBoard()
    published = sorted(messages, key=lambda m: m.bus_at_ns)
    board.take([m for m in published if m.topic in Board.reads])
    jobs.take([m for m in published if m.topic in JobBoard.reads])
    answers = PipelineQueries(board, lambda: (NOW_NS, {}, {}, {}), JobQueries(jobs, lambda output: True))
    return dict(json.loads(compact(answers({"want": "board"}))))


def _story() -> list[Any]:
    w = World()
    slow = {PAIRS["train-7"][1].qp: 25e6, **{qp.qp: 100e6 for qp in PAIRS["train-7"][:1] + PAIRS["train-7"][2:]}}
    armed = w.command("arm", action="failover", set={"watch": [], "alternates": [], "hold_down_ms": 1}, age_s=50)
    return [
        *w.running("train-7", "train-8"),
        *w.windows("train-7", -60, -30, 100e6),
        *w.windows("train-7", -30, 0, slow),
        w.finding(),
        w.command(),
        w.outcome(),
        armed,
        w.outcome("arm", "accepted", action="failover", age_s=49),
    ]


@pytest.mark.parametrize("topic", [*Board.reads, *JobBoard.reads])
def test_events_of_types_that_a_topic_does_not_know_change_no_view(topic: str) -> None:
    """Of no shape, since a later version may write them: a finding without a status could not be shown."""
    usual = _seen(*_story())
    if TOPICS[topic].columns is not None:
        return
    story = _story()
    data = {"id": "f9", "kind": "link-down", "since_at_ns": 1, "subject": {}, "jobs": ["train-7"], "links": [{}]}
    event = Event(f"{topic}.later", "noc", "e", NOW_NS, data)
    view = _seen(*story, Message(topic, "noc", event, story[-1].bus_at_ns, 10**6))
    assert view["jobs"] == usual["jobs"] and view["findings"] == usual["findings"] and view["nics"] == usual["nics"]


def test_the_board_shows_jobs_and_commands() -> None:
    view = _seen(*_story())
    first, second = view["jobs"]["list"]
    assert (first["job"], first["state"], first["findings"]) == ("train-7", "running", ["f1"])
    assert first["slowest_qp"] == PAIRS["train-7"][1].qp
    assert first["slowest_bps"] == pytest.approx(25e6, rel=0.01)
    assert first["throughput_bps"] == pytest.approx(325e6, rel=0.01)
    assert second["job"] == "train-8" and "slowest_qp" not in second
    commands = view["commands"]
    assert (commands["known"], commands["in_force"], commands["armed"]) == (2, 2, 1)
    assert [c["id"] for c in commands["last"]] == ["c1"], "a failover that only waits is none of the last deeds"


def test_status_says_it_in_words() -> None:
    text = text_of(_seen(*_story()))
    assert "jobs       2 running, 0 ended" in text
    assert "train-7: 2 ranks on 2 hosts, 325 Mbit/s" in text
    assert f"slowest {PAIRS['train-7'][1].qp} 25 Mbit/s" in text
    assert "hurt by congestion link l0--s1" in text and "; hurts train-7" in text
    assert "commands   2 in force, of them 1 armed failovers" in text
    assert "steer" in text and "(c1)" in text
    empty = text_of(_seen())
    assert "jobs       none known" in empty and "commands   none" in empty


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_top_fits_every_width(width: int) -> None:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(render(_seen(*_story()), width))
    text = out.getvalue()
    assert max(len(line) for line in text.splitlines()) <= width
    assert "Jobs" in text and "train-7" in text and "325 Mbit/s" in text
    assert "commands: 2 in force, 1 armed" in text


def test_without_jobs_top_has_no_such_list_and_with_them_lists_are_shorter() -> None:
    out = io.StringIO()
    Console(file=out, width=100, force_terminal=False).print(render(_seen(), 100))
    assert "Jobs" not in out.getvalue()
    assert rows_for(60, 100, 4, 20, jobs=True) < rows_for(60, 100, 4, 20)


def test_the_answer_is_bounded() -> None:
    w = World()
    view = _seen(*(w.command(f"c{i}") for i in range(MOST_SHOWN + 20)))
    assert len(view["commands"]["last"]) == MOST_SHOWN and view["commands"]["known"] == MOST_SHOWN + 20


def test_what_the_workload_stage_says_is_read_whole() -> None:
    jobs, world = JobBoard(), busy(12)
    out = run(WorkloadStage(), world.messages(4.0), world.chunks[-1].sent_ns + 9 * NS_PER_S)
    assert any(row["n"] == 0 and row["ce"] is None for _, o in out for row in o.body.to_pylist())
    jobs.take([Message(o.topic, o.key, o.body, at, i) for i, (at, o) in enumerate(out)])
    assert jobs.counters.as_dict() == {}
