"""Prometheus's figures: what can be counted is there from the start, what is not known is not."""

from __future__ import annotations

from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.records import topics
from sdfstream.records.command import STATES
from sdfstream.records.finding import FINDING_KINDS
from sdfstream.serve.api.figures import families
from sdfstream.serve.api.picture import Picture
from tests.fixtures import board_messages as bm
from tests.fixtures.notes import answered, silence

Samples = dict[tuple[str, ...], float]


def samples(board: Board, at_ns: int = bm.NOW_NS, known_at_ns: int = bm.NOW_NS) -> Samples:
    found = families(Picture(board, JobBoard(), at_ns, known_at_ns))
    return {(s.name, *s.labels.values()): s.value for family in found for s in family.samples}


def test_an_empty_board_says_nought_where_it_can_and_nothing_else() -> None:
    said = samples(Board())
    assert {key[1] for key in said if key[0] == "sdf_findings_open_of_kind"} == FINDING_KINDS.keys()
    assert {key[1:] for key in said if key[0] == "sdf_findings_open"} == {
        (of_class, severity)
        for of_class in ("link", "node", "configuration", "workload", "clock", "telemetry")
        for severity in ("info", "warning", "urgent")
    }
    assert {key[1] for key in said if key[0] == "sdf_command_outcomes_total"} == STATES.keys()
    assert set(said.values()) == {0.0}
    assert not {key for key in said if key[0] in ("sdf_data_age_seconds", "sdf_owd_median_seconds")}


def test_findings_hosts_and_how_late_findings_are() -> None:
    board = Board()
    board.take(bm.small_fabric())
    board.take([bm.event(topics.FINDING, bm.finding("f8", kind="link-flap", severity="urgent"))])
    now_ns = bm.NOW_NS + 10**9
    said = samples(board, now_ns, now_ns - 3 * 10**9)
    opened = board.findings(open_only=True)
    assert sum(n for key, n in said.items() if key[0] == "sdf_findings_open") == len(opened)
    assert sum(n for key, n in said.items() if key[0] == "sdf_findings_open_of_kind") == len(opened)
    assert said["sdf_findings_open_of_kind", "link-flap"] == 1
    assert said["sdf_findings_age_seconds",] == 3.0
    assert said["sdf_hosts", "reporting"] + said["sdf_hosts", "stale"] == board.pipeline(now_ns, {})["hosts"] > 0
    later = samples(board, now_ns + 60 * 10**9, now_ns)
    assert later["sdf_hosts", "reporting"] == 0
    assert later["sdf_hosts", "stale"] > 0


def test_silenced_findings_are_counted_apart() -> None:
    board = Board()
    board.take([*bm.small_fabric(), *answered(silence("nic", "h03/r1"))])
    said = samples(board)
    assert sum(n for key, n in said.items() if key[0] == "sdf_findings_open") == 2, "they are open all the same"
    assert {key[1:]: n for key, n in said.items() if key[0] == "sdf_findings_silenced" and n} == {("link", "urgent"): 1}
    assert said["sdf_findings_silenced_of_kind", "nic-down"] == 1
    assert said["sdf_findings_silenced_of_kind", "congestion"] == 0
