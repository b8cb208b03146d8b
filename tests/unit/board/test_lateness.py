"""What is old is told as old: of when board, findings and `why` speak."""

from dataclasses import replace

from sdfstream.board.board import Board
from sdfstream.board.findings_text import line_of
from sdfstream.board.jobs import JobBoard
from sdfstream.board.lateness import HostLateness
from sdfstream.board.status_text import text_of
from sdfstream.board.why import explain
from sdfstream.records import topics
from sdfstream.records.finding import FINDING_KINDS
from sdfstream.records.units import NS_PER_S
from tests.fixtures import board_messages as bm
from tests.fixtures.job_cases import messages_of
from tests.fixtures.job_messages import NOW_NS

S = NS_PER_S
T0 = 1_800_000_000 * S


def test_lateness_is_what_a_statement_took_longer_than_the_fastest() -> None:
    late = HostLateness()
    for i in range(5):
        late.take("h00", T0 + i * S - 7_200 * S, T0 + i * S)
    assert late.of("h00") == 0 == late.of("h01")
    late.take("h00", T0 + 5 * S - 7_200 * S, T0 + 9 * S)
    assert late.of("h00") == 4 * S
    late.take("h01", "odd", T0)
    assert (late.of_half(["h00", "h01", "h02"]), late.of_half(["h00"]), late.of_half([])) == (0, 4 * S, 0)


def test_the_board_speaks_of_what_detect_has_reached() -> None:
    board = Board()
    board.take(bm.small_fabric())
    assert board.known_ns(bm.NOW_NS) == bm.NOW_NS
    assert board.known_ns(bm.NOW_NS, bm.NOW_NS - 12 * S) == bm.NOW_NS - 12 * S
    assert board.known_ns(bm.NOW_NS + 9 * S, behind=True) < bm.NOW_NS + S
    fresh = text_of(board.view(bm.NOW_NS))
    old = text_of(board.view(bm.NOW_NS, known_ns=bm.NOW_NS - 12 * S))
    assert "as of" not in fresh
    assert "12 s ago: messages come late" in old


def test_an_open_finding_of_a_while_ago_is_not_said_to_last() -> None:
    finding = {
        "id": "f",
        "kind": "link-down",
        "status": "open",
        "since_at_ns": T0,
        "subject": {"type": "link", "id": "l"},
    }
    assert ", for 30 s" in line_of(finding, T0 + 30 * S, T0 + 29 * S)
    assert ", open as of 08:00:10 UTC, 20 s ago" in line_of(finding, T0 + 30 * S, T0 + 10 * S)


def test_a_line_says_the_one_direction_that_is_at_fault() -> None:
    subject = {"type": "link", "id": "l0--s1", "direction": "s1->l0"}
    assert "link l0--s1, s1->l0 only  (" in line_of({"id": "f", "kind": "link-down", "subject": subject}, T0)
    assert "link l0--s1  (" in line_of(
        {"id": "f", "kind": "link-down", "subject": {"type": "link", "id": "l0--s1"}}, T0
    )


def test_why_speaks_of_the_past_in_the_past_tense() -> None:
    board = JobBoard()
    board.take(messages_of("hurt"))
    now = explain(board.facts("train-7", NOW_NS))
    then = explain(board.facts("train-7", NOW_NS, NOW_NS - 12 * S))
    assert "holds up" in now.paragraph and "All this is" not in now.paragraph
    assert "holds up" not in then.paragraph and " passes no " not in then.paragraph and " moves " not in then.paragraph
    assert "the network held up job train-7" in then.paragraph and "12 s ago" in then.paragraph
    assert (then.case, then.network, then.known_at_ns) == (now.case, now.network, NOW_NS - 12 * S)
    assert explain(replace(board.facts("train-7", NOW_NS), known_at_ns=NOW_NS - S)).paragraph == now.paragraph


def test_paths_of_rows_that_came_late_are_as_old_as_what_they_say() -> None:
    board = Board()
    alive = {"host": "h00", "complete": False, "changes": []}
    board.take(bm.event(topics.LIVENESS, alive | {"seen_at_ns": T0 + i * S}, T0 + i * S) for i in range(5))
    now_ns = T0 + 20 * S
    board.take([bm.event(topics.LIVENESS, alive | {"seen_at_ns": now_ns - 8 * S}, now_ns), bm.owd([{}], now_ns)])
    assert board.late_ns(now_ns) == 8 * S
    paths = board.view(now_ns)["paths"]
    assert (paths["known"], paths["measured"], paths["stale"]) == (1, 0, 1), "rows of 8 s ago say nothing about now"
    board.take([bm.event(topics.LIVENESS, alive | {"seen_at_ns": now_ns + S}, now_ns + S), bm.owd([{}], now_ns + S)])
    assert board.view(now_ns + S)["paths"]["measured"] == 1, "in time again"


def test_why_has_words_for_every_kind_that_touches_an_unmeasured_job() -> None:
    board = JobBoard()
    board.take(messages_of("hurt"))
    facts = board.facts("train-7", NOW_NS)
    silent = replace(facts.throughput, age_ns=None)
    for kind in FINDING_KINDS:
        finding = {**facts.findings[0], "kind": kind, "subject": {"type": "host", "id": "h00"}}
        said = explain(replace(facts, findings=(finding,), throughput=silent))
        assert said.paragraph and said.case in ("hurt", "host", "not-heard"), kind
        if kind == "agent-degraded":
            assert said.case == "not-heard" and "cannot do all of its work" in said.paragraph
