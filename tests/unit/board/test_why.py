"""What the board of jobs takes for true: whose finding it is, who is stale, what a command came to; and its bounds."""

from __future__ import annotations

import dataclasses

import pytest

from sdfstream.board import commands as board_commands
from sdfstream.board import jobs as board_jobs
from sdfstream.board.job_facts import JobThroughput, is_idle, is_slow
from sdfstream.board.jobs import JobBoard
from sdfstream.records.finding import Subject
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, FINDING, JOB, LIVENESS, QP_WINDOW
from sdfstream.records.units import NS_PER_S
from tests.fixtures.job_cases import messages_of
from tests.fixtures.job_messages import NOW_NS, PAIRS, World


def board(*messages: Message) -> JobBoard:
    made = JobBoard()
    made.take(sorted(messages, key=lambda m: m.bus_at_ns))
    assert made.counters.as_dict() == {}
    return made


def test_a_queue_pairs_elements_follow_its_path_in_both_directions() -> None:
    qp = PAIRS["train-7"][1]
    made = board(*World().running("train-7"))
    ends = {"tx h00/r0", "rx h00/r0", "tx h02/r0", "rx h02/r0"}
    elements = {"node l0", "node s1", "node l1", "l0->s1", "s1->l1", "l1->s1", "s1->l0"}
    assert made.elements_of(qp) == ends | elements
    assert "l0->s0" not in made.elements_of(qp, 50003)
    assert made.elements_of(qp, 50009) == ends, "not traced: only the ends are known"


@pytest.mark.parametrize(
    ("subject", "suspects", "jobs", "hits"),
    [
        (Subject("link", "l0--s1"), (("l0->s1", 0.9),), (), True),
        (Subject("link", "l0--s1"), (("l0->s1", 0.9),), ("train-8",), False),
        (Subject("link", "l0--s9"), (("l0->s9", 0.9),), (), False),
        (Subject("link", "l0--s9"), (("l0->s9", 0.9),), ("train-7",), True),
        (Subject("nic", "h02/r0"), (("tx h02/r0", 0.9),), (), True),
        (Subject("nic", "h03/r0"), (("tx h03/r0", 0.9), ("tx h02/r0", 0.1)), (), False),
        (Subject("switch", "s1"), (("node s1", 0.9),), (), True),
        (Subject("host", "h00"), (), (), True),
        (Subject("host", "all agents"), (), (), True),
        (Subject("process", "bus"), (), (), True),
        (Subject("path", "h09/r0>h08/r0 udp:1 dscp0 fwd"), (), (), False),
    ],
)
def test_whose_finding_it_is(
    subject: Subject, suspects: tuple[tuple[str, float], ...], jobs: tuple[str, ...], hits: bool
) -> None:
    w = World()
    made = board(*w.running("train-7"), w.finding(subject=subject, suspects=suspects, jobs=jobs))
    assert bool(made.facts("train-7", NOW_NS).findings) is hits


def test_a_finding_of_the_past_counts_for_ten_minutes() -> None:
    w = World()
    ended = w.finding(status="resolved", resolved_at_ns=NOW_NS - 20 * NS_PER_S)
    made = board(*w.running("train-7"), ended)
    assert len(made.facts("train-7", NOW_NS).ended_findings) == 1
    assert made.facts("train-7", NOW_NS + 600 * NS_PER_S).ended_findings == ()


def test_agents_are_stale_by_their_own_rhythm() -> None:
    w = World()
    made = board(*w.shards("train-7"), *w.liveness(["h00"]))
    assert made.facts("train-7", NOW_NS + 3 * NS_PER_S).stale == {}
    assert made.facts("train-7", NOW_NS + 5 * NS_PER_S).stale == {"h00": 6 * NS_PER_S}
    assert made.facts("train-7", NOW_NS + 30 * NS_PER_S).stale == {"h00": 31 * NS_PER_S, "h02": 33 * NS_PER_S}


def test_a_job_is_found_by_id_or_by_its_only_name() -> None:
    w = World()
    shards = w.shards("train-7")
    named = [
        dataclasses.replace(m, body=dataclasses.replace(m.body, data={**m.body.data, "name": "llama"}))
        for m in shards
        if isinstance(m.body, Event)
    ]
    made = board(*named, *w.shards("train-8", "ended"))
    assert made.facts("llama", NOW_NS).job == "train-7"
    assert made.facts("x", NOW_NS).known == ("train-7", "train-8")
    assert made.names() == ("train-7", "train-8")
    summary = made.view(NOW_NS)
    assert [(j["job"], j["name"], j["state"], j["qps"]) for j in summary] == [
        ("train-7", "llama", "running", 4),
        ("train-8", "train-8", "ended", 0),
    ]


def test_the_path_of_a_window_is_newer_than_the_shards() -> None:
    w = World()
    made = board(*w.running("train-7"), *w.windows("train-7", -10, 0, 1e9))
    fact = next(qp for qp in made.facts("train-7", NOW_NS).qps if qp.qp == "h00/r0#17")
    assert fact.path == 50001
    assert fact.rate_bps == pytest.approx(1e9)
    assert (fact.chunks, fact.ce_share, fact.resent_share) == (50, 0.0, 0.0)


def test_slow_needs_something_to_compare_with() -> None:
    assert is_slow(JobThroughput(5e8, 1e9, 10, age_ns=0)) is True
    assert is_slow(JobThroughput(9e8, 1e9, 10, age_ns=0)) is False
    assert is_slow(JobThroughput(0.0, 1e9, 10, age_ns=0)) is True
    assert is_slow(JobThroughput(5e8, 1e9, 2, age_ns=0)) is None
    assert is_slow(JobThroughput(5e8, 1e9, 10, age_ns=11 * NS_PER_S)) is None
    assert is_slow(JobThroughput(None, 1e9, 10, age_ns=0)) is None
    assert is_idle(JobThroughput())


def test_a_command_as_it_stands() -> None:
    made = board(*messages_of("hurt"))
    (view,) = made.commands.views(NOW_NS)
    assert (view["action"], view["state"], view["job"], view["in_force"]) == ("steer", "applied", "train-7", True)
    assert view["lease_left_ns"] == 21 * NS_PER_S
    assert view["gain"] == pytest.approx(9.0)
    assert made.commands.views(NOW_NS, "train-8") == []
    (late,) = made.commands.views(NOW_NS + 22 * NS_PER_S)
    assert (late["lease_left_ns"], late["in_force"]) == (None, False)


def test_a_measured_gain_outlives_the_command() -> None:
    w = World()
    effect = {"path": 50001, "throughput_bps": 1e9}, {"path": 50002, "throughput_bps": 9e8, "n": 20}
    made = board(
        w.command(),
        w.outcome("c1", "applied", 40, before={"path": 50001}, after={"path": 50002}),
        w.outcome("c1", "applied", 30, host="controller", why="no-gain: …", before=effect[0], after=effect[1]),
        w.outcome("c1", "undone", 29),
    )
    (view,) = made.commands.views(NOW_NS)
    assert (view["state"], view["states"], view["gain"]) == ("undone", ["applied", "undone"], pytest.approx(0.9))
    assert (NOW_NS - view["applied_bus_at_ns"]) == 40 * NS_PER_S


def test_a_renewal_keeps_the_beginning_and_an_older_statement_changes_nothing() -> None:
    w = World()
    renewed = w.command(age_s=10, expires_at_ns=NOW_NS + 50 * NS_PER_S)
    made = board(w.command(age_s=40), renewed)
    made.take([w.command(age_s=40)])
    (view,) = made.commands.views(NOW_NS)
    assert NOW_NS - view["began_at_ns"] == 40 * NS_PER_S
    assert view["lease_left_ns"] == 50 * NS_PER_S
    assert (view["state"], view["waits"]) == (None, "no answer yet")


def test_a_hold_that_was_lifted_is_listed_no_more_and_what_is_said_of_findings_never() -> None:
    w = World()
    hold = w.override("o1", "hold", 9, target={"type": "host", "id": "h00"})
    silence = w.override("o2", "silence", 8, target={"type": "host", "id": "h00"})
    made = board(hold, silence)
    assert [o["id"] for o in made.commands.overrides(NOW_NS)] == ["o1"]
    target = {"type": "override", "id": "o1", "override": "o3"}
    refused = w.outcome("o3", "refused", 5, action="lift", target=target, host="controller")
    made.take([w.override("o3", "lift", 6, target={"type": "override", "id": "o1"}), refused])
    assert [o["id"] for o in made.commands.overrides(NOW_NS)] == ["o1"]
    made.take(
        [w.outcome("o3", "applied", 4, action="lift", target=target, host="controller", after={"operator": "ann"})]
    )
    assert made.commands.overrides(NOW_NS) == []


def test_what_answers_an_override_is_no_command() -> None:
    w = World()
    made = board(w.override(), w.outcome("o1", "applied", 4, why="mode is observe"), w.command())
    assert [v["id"] for v in made.commands.views(NOW_NS)] == ["c1"]
    assert [o["why"] for o in made.commands.outcomes(["o1", "c1"], 0)] == ["mode is observe"]
    assert made.commands.outcomes(["o1"], NOW_NS) == []
    assert [o["id"] for o in made.commands.overrides(NOW_NS)] == ["o1"]
    assert made.commands.overrides(NOW_NS + 3600 * NS_PER_S) == []


def test_rubbish_is_counted_and_the_rest_counts() -> None:
    w = World()
    rubbish = [
        w.event(JOB, "k", {"job": 7}, NOW_NS),
        w.event(FINDING, "k", {"id": "x"}, NOW_NS),
        w.event(FINDING, "k", {"id": "x", "kind": "nonsense", "status": "open"}, NOW_NS),
        w.event(COMMAND, "k", {"id": "x"}, NOW_NS),
        w.event(QP_WINDOW, "k", {}, NOW_NS),
        Message(LIVENESS.name, "k", w.windows("train-7", -1, 0, 1.0)[0].body, NOW_NS, 0),
        Message(QP_WINDOW.name, "k", w.windows("train-7", -1, 0, 1.0)[0].body.select(["job"]), NOW_NS, 0),  # type: ignore[union-attr]
    ]
    made = JobBoard()
    made.take([*rubbish, *w.shards("train-7")])
    assert made.counters.total("refused") == len(rubbish)
    assert made.names() == ("train-7",)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_SHARDS", "MOST_FLOWS", "MOST_FINDINGS"):
        monkeypatch.setattr(board_jobs, name, 3)
    monkeypatch.setattr(board_commands, "MOST_COMMANDS", 3)
    w = World()
    made = JobBoard()
    made.take(w.running("train-7", "train-8"))
    assert len(made.names()) == 1
    made.take([w.finding(f"f{i}", status="resolved" if i % 2 else "open") for i in range(9)])
    made.take([w.command(f"c{i}") for i in range(9)])
    assert len(made.commands.views(NOW_NS)) == 3
    assert made.counters.get("shed", "findings") == 6
    assert made.counters.get("forgotten", "commands") == 6
    assert made.counters.get("shed", "flows") > 0
