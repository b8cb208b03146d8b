"""Silences and labels on the boards: only what the controller took up counts, in whichever order it comes."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from sdfstream.board import finding_notes as module
from sdfstream.board import findings_text, status_text, top_view
from sdfstream.board.board import Board
from sdfstream.board.finding_notes import FindingNotes
from sdfstream.board.jobs import JobBoard
from sdfstream.board.why import explain
from sdfstream.records.message import Message
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from tests.fixtures import board_messages as bm
from tests.fixtures.job_cases import messages_of
from tests.fixtures.job_messages import NOW_NS
from tests.fixtures.notes import answered, asked, label, lift, silence

HOUR_NS = 3600 * NS_PER_S


def board(*more: Message) -> Board:
    made = Board()
    made.take([*bm.small_fabric(), *answered(*more)])
    return made


def silences_of(of: Board, now_ns: int = NOW_NS) -> dict[str, Any]:
    return {f["id"]: f["silence"] and f["silence"]["id"] for f in of.findings(now_ns=now_ns)}


def test_only_what_the_controller_applied_counts() -> None:
    assert silences_of(board(silence("host", "h03")))["f1"] == "s1"
    for more in ({"host": "h03"}, {"state": "refused"}, {"state": "accepted"}, {"action": "override"}):
        assert silences_of(board(silence("host", "h03", **more)))["f1"] is None, more
    assert silences_of(board(silence("host", "h02"))) == {"f1": None, "f2": None, "f0": None}


def test_no_outcome_counts_that_no_operator_asked_for() -> None:
    """Agents write outcomes too: none of them may silence what is found about it, nor what another override asked."""
    of = Board()
    forged = silence("all", "*"), label("f1", "false-alarm"), lift("s1")
    of.take([*bm.small_fabric(), *forged, asked(label("f1", "cabling"))])
    of.take([silence("all", "*", key=f"label-f1-{NOW_NS}")])
    assert silences_of(of)["f1"] is None
    assert [f["label"] for f in of.findings(now_ns=NOW_NS)] == [None] * 3
    assert of.counters.as_dict() == {"board.refused.sdf.control.outcome.v1.unasked": 4}


def test_a_silence_begins_ends_and_is_lifted() -> None:
    planned = silence("all", "*", from_at_ns=NOW_NS + HOUR_NS, until_at_ns=NOW_NS + 2 * HOUR_NS)
    of = board(planned)
    assert [silences_of(of, NOW_NS + int(h * HOUR_NS))["f1"] for h in (0, 1, 1.9, 2)] == [None, "s1", "s1", None]
    assert [s["state"] for s in of.notes.silences(NOW_NS)] == ["planned"]
    lifted = lift("s1", at_ns=NOW_NS + int(1.5 * HOUR_NS))
    for story in ((planned, lifted), (lifted, planned), (planned, lifted, planned)):
        of = board(*story)
        assert [silences_of(of, NOW_NS + int(h * HOUR_NS))["f1"] for h in (1, 1.5)] == ["s1", None]
        (shown,) = of.notes.silences(NOW_NS + 2 * HOUR_NS)
        assert (shown["state"], shown["lifted_by"]) == ("lifted", "ben")


def test_of_several_the_one_that_ends_last_is_shown_and_what_is_resolved_needs_none() -> None:
    of = board(silence("nic", "h03/r1", "s1"), silence("host", "h03", "s2", until_at_ns=NOW_NS + 9 * HOUR_NS))
    of.take(answered(lift("s2", at_ns=NOW_NS + HOUR_NS // 2)))
    assert [silences_of(of, NOW_NS + at)["f1"] for at in (0, HOUR_NS // 2)] == ["s2", "s1"]
    assert silences_of(board(silence("all", "*")))["f0"] is None


def test_a_later_label_takes_the_place_of_an_earlier_one() -> None:
    of = board(label("f1", "cabling"), label("f1", "false-alarm", at_ns=NOW_NS + 2, by="ben", note="test"))
    of.take(answered(label("f1", "cabling", at_ns=NOW_NS + 1)))
    (found,) = [f for f in of.findings(now_ns=NOW_NS) if f["id"] == "f1"]
    assert found["label"] == {"cause": "false-alarm", "by": "ben", "note": "test", "at_ns": NOW_NS + 2}


def test_memory_is_bounded_and_what_is_forgotten_is_counted(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MOST_SILENCES", 3)
    monkeypatch.setattr(module, "MOST_LABELS", 2)
    notes = FindingNotes(Counters("board"))
    notes.take_all(answered(silence("nic", "h0/r0", "old", until_at_ns=NOW_NS - 1, from_at_ns=NOW_NS - 2)))
    for n in range(5):
        notes.take_all(answered(silence("nic", f"h{n}/r0", f"s{n}"), label(f"f{n}", "cabling"), lift(f"x{n}")))
    assert [s["id"] for s in notes.silences(NOW_NS)] == ["s2", "s3", "s4"]
    assert notes.counters.get("forgotten", "silences") == 3
    assert notes.counters.get("forgotten", "finding-notes") == 3 + 2


def test_what_cannot_be_read_is_counted_and_changes_nothing_else() -> None:
    of = board(silence("rack", "7"), label("f1", "cabling"))
    assert of.counters.as_dict() == {"board.refused.sdf.control.outcome.v1.subject": 1}
    assert [f["id"] for f in of.findings(now_ns=NOW_NS) if f["label"]] == ["f1"]


def test_people_see_who_silenced_what_and_how_many() -> None:
    of = board(
        silence("host", "h03", reason="firmware", until_at_ns=NOW_NS + 390 * 60 * NS_PER_S), label("f1", "cabling")
    )
    said = "silenced until 14:30 UTC by anna: firmware; labelled cabling by anna"
    view = of.view(NOW_NS)
    assert (len(view["findings"]["open"]), view["findings"]["silenced"]) == (2, 1)
    (found,) = [f for f in view["findings"]["open"] if f["id"] == "f1"]
    assert findings_text.line_of(found, NOW_NS).endswith(said)
    text = status_text.text_of(view)
    assert "2 open (1 silenced), 1 resolved" in text
    assert text.index("congestion") < text.index(said), "what is not silenced comes first"
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(top_view.render(view | {"jobs": {}}, 140))
    drawn = console.export_text()
    assert "2 open findings (1 silenced)" in drawn
    assert "nic-down, silenced" in drawn
    assert f"nic h03/r1: {said}" in drawn


def test_why_says_that_its_finding_is_silenced() -> None:
    jobs = JobBoard()
    jobs.take([*messages_of("hurt"), *answered(silence("link", "l0--s1", reason="swap"), label("f1", "false-alarm"))])
    said = explain(jobs.facts("train-7", NOW_NS)).paragraph
    assert "; finding f1; silenced until 09:00 UTC by anna: swap; labelled a false alarm by anna)" in said
