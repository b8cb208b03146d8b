"""What people see: top at several widths, status, findings; shapes beside colours; nothing healthy without data."""

import io
import json
from typing import Any

import pytest
from rich.console import Console

from sdfstream.board import findings_text, humanize
from sdfstream.board.board import Board
from sdfstream.board.status_text import text_of
from sdfstream.board.top_view import render
from sdfstream.board.why_text import trouble
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.output_io import compact
from tests.fixtures import board_messages as bm

NOW = bm.NOW_NS


def seen(board: Board, now_ns: int = NOW, **options: Any) -> dict[str, Any]:
    """A view as a client gets it: through JSON, without nulls."""
    return dict(json.loads(compact(board.view(now_ns, run={"started_at_ns": NOW - 60 * NS_PER_S}, **options))))


def drawn(view: dict[str, Any], width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(render(view, width))
    return out.getvalue()


@pytest.fixture
def fabric() -> Board:
    board = Board()
    board.take(bm.small_fabric())
    return board


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160, 240])
def test_top_fits_every_width_and_shows_the_same(fabric: Board, width: int) -> None:
    text = drawn(seen(fabric), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text, "no colour codes without a terminal"
    assert "✖✖" in text
    assert "◌◌" in text
    assert "h03" in text


def test_top_shows_the_worst_path_with_its_direction(fabric: Board) -> None:
    text = drawn(seen(fabric), 120)
    assert "h00/r0 → h04/r0  udp:50001 dscp46" in text
    assert "100 %" in text
    assert "h00/r0 ← h03/r0" in text
    assert "nic-down" in text


def test_no_data_is_said_and_never_healthy() -> None:
    view = seen(Board())
    for text in (drawn(view, 80), text_of(view)):
        assert "no data yet" in text
        assert "●●" not in text
    assert "nothing is being watched" in drawn(view, 80)


def test_stale_data_is_said(fabric: Board) -> None:
    text = drawn(seen(fabric, NOW + 30 * NS_PER_S), 100)
    assert "data 30 s old" in text
    assert "0 healthy" in text
    assert "hosts are silent" in text


def test_many_nics_per_host_become_counts() -> None:
    board = Board()
    nics = {f"h00/mlx5_{i}": "up" for i in range(64)}
    board.take([bm.ports(nics)])
    board.take(
        bm.nic_state(n, direction, "unhealthy" if n.endswith("_7") else "healthy")
        for n in nics
        for direction in ("tx", "rx")
    )
    assert "h00 ✖1 ●63" in drawn(seen(board), 80)


def test_hosts_that_do_not_fit_are_summed_up(fabric: Board) -> None:
    text = drawn(seen(fabric, hosts=3), 100)
    assert "and 5 hosts more: ● 10 healthy" in text
    assert "h03" in text


def test_status_lists_what_is_odd(fabric: Board) -> None:
    text = text_of(seen(fabric, full=True))
    assert "● 12 healthy  ✖ 1 unhealthy  ? 2 unknown  ◌ 1 absent" in text
    assert "✖ h03/r1: tx unhealthy, rx unhealthy, port up; no probe passes" in text
    assert "2 open, 1 resolved" in text
    assert "worst error bound 1.4 µs" in text


def test_findings_filters_and_detail() -> None:
    known = [
        bm.finding("a1", since_at_ns=NOW - 30 * NS_PER_S),
        bm.finding(
            "b2", "resolved", kind="loss", since_at_ns=NOW - 900 * NS_PER_S, resolved_at_ns=NOW - 800 * NS_PER_S
        ),
    ]

    def ids(**options: Any) -> list[str]:
        return [f["id"] for f in findings_text.select(known, NOW, **{"kind": None, **options})]

    assert ids() == ["a1", "b2"]
    assert ids(open_only=True) == ["a1"]
    assert ids(since_s=60.0) == ["a1"]
    assert ids(kind="loss") == ["b2"]
    assert ids(kind="nic-down", since_s=10.0) == []
    detail = findings_text.detail_of(known[0], NOW)
    assert "evidence   silent paths 14 paths (normally 0 paths) at h03/r1" in detail
    assert "remedy     Look at the cable of h03/r1." in detail
    assert "suspect    h03/r1 (97 %)" in detail
    assert "resolved, lasted 1 min 40 s" in findings_text.line_of(known[1], NOW)


def test_a_finding_with_nothing_but_an_id_is_shown() -> None:
    assert "x" in findings_text.detail_of({"id": "x"}, NOW)


@pytest.mark.parametrize("text", ["", "x", "-5s", "1w", "nan", "1e12"])
def test_odd_durations_are_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        humanize.seconds(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ns"), (-1500, "−1.5 µs"), (999_999, "1000 µs"), (59.99e9, "60 s"), (float("nan"), "–"), (True, "–")],
)
def test_durations(value: Any, text: str) -> None:
    assert humanize.duration(value) == text


def test_the_direction_of_a_nic_at_fault_is_no_other_place_in_doubt() -> None:
    nic = {"type": "nic", "id": "h03/r1"}
    finding = {"id": "f1", "kind": "nic-down", "subject": nic, "since_at_ns": NOW - NS_PER_S, "cause": "link-failure"}
    sends, receives = "h03/r1->l1", "l1->h03/r1"
    said = trouble({**finding, "suspects": [{"id": sends, "probability": 1.0}]}, NOW)
    assert said.startswith("NIC h03/r1 (what it sends) ")
    both = [{"id": name, "probability": 0.5} for name in (sends, receives)]
    said = trouble({**finding, "suspects": both}, NOW)
    assert "(what it sends and what it receives)" in said
    assert "or else" not in said


def test_a_link_that_marks_what_hardly_waited_is_not_called_congested() -> None:
    finding = {"id": "f1", "kind": "ecn-marks", "subject": {"type": "link", "id": "l0--s1"}, "since_at_ns": NOW}
    assert "congested" in trouble({**finding, "cause": "queueing"}, NOW)
    said = trouble({**finding, "cause": "ecn-mistuned"}, NOW)
    assert "hardly waited" in said and "congested" not in said
