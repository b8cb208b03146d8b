"""The board: what is healthy, what is not known, what is worst, and that nothing heard is never healthy."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.board.board import MOST_RESOLVED, Board
from sdfstream.records import topics
from sdfstream.records.message import Message
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.output_io import compact
from tests.fixtures import board_messages as bm

NOW = bm.NOW_NS


def board_of(*messages: Message) -> Board:
    board = Board()
    board.take(messages)
    return board


def states(view: dict[str, Any]) -> dict[str, str]:
    return {n["nic"]: n["state"] for n in view["nic_list"]}


def test_a_small_fabric() -> None:
    view = board_of(*bm.small_fabric()).view(NOW, full=True)
    assert view["nics"] == {"healthy": 12, "unhealthy": 1, "unknown": 2, "absent": 1, "known": 16}
    got = states(view)
    assert (got["h03/r1"], got["h05/r0"], got["h06/r0"]) == ("unhealthy", "unknown", "absent")
    assert [f["id"] for f in view["findings"]["open"]] == ["f1", "f2"]
    assert view["findings"]["resolved"] == 1
    assert view["clocks"]["by_status"] == {"synced": 7, "holdover": 1}
    assert view["clocks"]["worst"][0]["clock"] == "h07"
    assert view["clocks"]["worst_err_ns"] == 1400.0
    assert json.loads(compact(view))["at_ns"] == NOW


def test_an_empty_board_calls_nothing_healthy() -> None:
    view = Board().view(NOW, full=True)
    assert view["nics"] == {"healthy": 0, "unhealthy": 0, "unknown": 0, "absent": 0, "known": 0}
    assert view["pipeline"]["age_ns"] is None
    assert view["paths"]["measured"] == 0


def test_a_nic_known_only_from_its_port_or_the_plan_is_unknown() -> None:
    plan = {"nodes": [], "links": [], "nics": [{"id": "h01/r0", "host": "h01", "rail": 0}]}
    board = board_of(bm.ports({"h00/r0": "up"}), bm.event(topics.TOPOLOGY, plan))
    assert states(board.view(NOW, full=True)) == {"h00/r0": "unknown", "h01/r0": "unknown"}


def test_one_direction_unhealthy_makes_the_nic_unhealthy_and_shows_which() -> None:
    board = board_of(bm.ports({"h00/r0": "up"}), bm.nic_state("h00/r0", "tx", "healthy"))
    (nic,) = board.view(NOW, full=True)["nic_list"]
    assert (nic["tx"], nic["rx"], nic["state"]) == ("healthy", "unknown", "unknown")
    board.take([bm.nic_state("h00/r0", "rx", "unhealthy", why="nothing arrives")])
    (nic,) = board.view(NOW, full=True)["nic_list"]
    assert (nic["tx"], nic["rx"], nic["state"], nic["why"]) == ("healthy", "unhealthy", "unhealthy", "nothing arrives")


def test_what_has_gone_silent_is_unknown_not_healthy() -> None:
    board = board_of(*bm.small_fabric())
    assert board.view(NOW + 4 * NS_PER_S)["nics"]["healthy"] == 12
    late = board.view(NOW + 6 * NS_PER_S, full=True)
    assert (late["nics"]["healthy"], late["nics"]["unknown"]) == (0, 16)
    assert late["paths"]["measured"] == 0
    assert late["clocks"]["by_status"] == {"unknown": 8}
    assert "nothing heard for" in late["nic_list"][0]["why"]
    assert late["pipeline"]["hosts_stale"] == 7


def test_probes_alone_keep_a_host_fresh() -> None:
    board = board_of(*(bm.nic_state("h00/r0", direction, "healthy") for direction in ("tx", "rx")))
    board.take([bm.owd([{}], NOW + 10 * NS_PER_S, "h00")])
    assert states(board.view(NOW + 11 * NS_PER_S, full=True))["h00/r0"] == "healthy"


def test_loss_marks_and_excess_of_paths_and_their_order() -> None:
    rows = [
        {"path": 1, "excess_p50_ns": 400_000.0},
        {"path": 2, "n": 9, "lost": 1},
        {"path": 3, "ce": 2},
        {"path": 4},
    ]
    paths = board_of(bm.owd(rows)).view(NOW)["paths"]
    assert [p["path"] for p in paths["worst"]] == [2, 3, 1, 4]
    assert paths["worst"][0]["loss"] == pytest.approx(0.1)
    assert paths["worst"][1]["ce"] == pytest.approx(1.0)
    assert paths["worst"][2]["excess_p50_ns"] == pytest.approx(400_000.0)
    assert paths["worst"][0]["id"] == "h00/r0>h01/r0 udp:2 dscp46 fwd"
    assert (paths["measured"], paths["lossy"], paths["marked"]) == (4, 1, 1)


def test_an_old_fault_fades_and_a_new_one_shows() -> None:
    board = board_of(*(bm.owd([{"excess_p50_ns": 1e6}], NOW + i * NS_PER_S) for i in range(10)))
    for i in range(10, 22):
        board.take([bm.owd([{"excess_p50_ns": 0.0}], NOW + i * NS_PER_S)])
    (path,) = board.view(NOW + 21 * NS_PER_S)["paths"]["worst"]
    assert path["excess_p50_ns"] < 1e6 / 8


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(1, 5))
def test_cutting_a_stream_of_rows_into_messages_changes_nothing(paths: list[int], size: int) -> None:
    rows = [{"path": p, "src": f"h{p % 7}/r0", "lost": p % 3, "excess_p50_ns": 100.0 * p} for p in paths]
    whole = board_of(bm.owd(rows)).view(NOW, worst=100)["paths"]
    cut = board_of(*(bm.owd(rows[i : i + size]) for i in range(0, len(rows), size))).view(NOW, worst=100)["paths"]
    by_id = {p["id"]: p for p in cut["worst"]}
    assert len(by_id) == len(set(paths)) == whole["known"]
    for path in whole["worst"]:
        assert by_id[path["id"]] == pytest.approx(path)


def test_a_finding_is_updated_resolved_and_bounded() -> None:
    board = board_of(bm.event(topics.FINDING, bm.finding("a")))
    board.take([bm.event(topics.FINDING, bm.finding("a", "update", kind="link-down"))])
    assert [f["kind"] for f in board.findings(open_only=True)] == ["link-down"]
    board.take([bm.event(topics.FINDING, bm.finding("a", "resolved"))])
    assert board.findings(open_only=True) == []
    assert [f["status"] for f in board.findings()] == ["resolved"]
    board.take(bm.event(topics.FINDING, bm.finding(f"x{i}", "resolved")) for i in range(MOST_RESOLVED + 5))
    assert len(board.findings()) == MOST_RESOLVED


@pytest.mark.parametrize(
    "bad",
    [
        bm.event(topics.NIC, {"nic": "h00/r0"}),
        bm.event(topics.NIC, {"nic": "h00/r0", "direction": "up", "state": "healthy"}),
        bm.event(topics.NIC, {"nic": 7, "direction": "tx", "state": "healthy"}),
        bm.event(topics.FINDING, {"id": "x"}),
        bm.event(topics.LIVENESS, {"complete": True, "changes": []}),
        bm.event(topics.OWD, {}),
        bm.message(topics.OWD, pa.record_batch({"src": pa.array(["a"])})),
        bm.message(topics.CLOCK, pa.record_batch({"clock": pa.array(["a"])})),
        bm.message(topics.PORT, pa.record_batch({"nic": pa.array(["a"])})),
        bm.message(topics.NIC, pa.record_batch({"nic": pa.array(["a"])})),
        bm.event(topics.TOPOLOGY, {"nics": [{}]}),
    ],
)
def test_what_cannot_be_read_is_counted_and_harms_nothing(bad: Message) -> None:
    board = board_of(*bm.small_fabric())
    before = board.view(NOW)["nics"]
    board.take([bad])
    assert board.view(NOW)["nics"] == before
    assert board.counters.total("refused") == 1
    assert any(bad.topic in name for name in board.view(NOW)["pipeline"]["lost"])


def test_null_names_are_refused_row_by_row() -> None:
    message = bm.owd([{"path": 1}, {"path": 2}])
    body = message.body
    assert isinstance(body, pa.RecordBatch)
    at = body.schema.get_field_index("src")
    fields = [f.with_nullable(True) for f in body.schema]
    arrays = [pa.array([None, "h00/r0"]).dictionary_encode() if i == at else c for i, c in enumerate(body.columns)]
    board = board_of(bm.message(topics.OWD, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))))
    assert [p["path"] for p in board.view(NOW)["paths"]["worst"]] == [2]
    assert board.counters.get("refused", "owd.null-name") == 1


def test_ten_thousand_nics_are_summed_up_with_the_bad_ones_listed() -> None:
    board = Board()
    for h in range(1250):
        host = f"h{h:04d}"
        board.take([bm.ports({f"{host}/r{r}": "up" for r in range(8)}, NOW, host)])
        for r in range(8):
            state = "unhealthy" if (h, r) == (777, 3) else "healthy"
            board.take([bm.nic_state(f"{host}/r{r}", direction, state) for direction in ("tx", "rx")])
    view = board.view(NOW, hosts=20)
    assert view["nics"]["known"] == 10_000
    assert len(view["grid"]["hosts"]) == 20
    assert "h0777" in [h["host"] for h in view["grid"]["hosts"]]
    assert view["grid"]["more"] == {"hosts": 1230, "healthy": 9840, "unhealthy": 0, "unknown": 0, "absent": 0}
    assert len(compact(view)) < 50_000


def test_rates_lag_and_losses_of_the_pipeline() -> None:
    board = Board()
    for i in range(100):
        board.take([bm.owd([{}, {"path": 2}], NOW + i * NS_PER_S // 10)])
    now = NOW + 10 * NS_PER_S
    lost = {"sync.refused.x": 2, "bus.shed": 9, "sync.rows": 5}
    view = board.view(now, counters=lost, lag={"sync": 4})["pipeline"]
    assert view["rates"][topics.OWD.name]["rows_per_s"] == pytest.approx(20, rel=0.1)
    assert view["lag"] == {"sync": 4}
    assert list(view["lost"]) == ["bus.shed", "sync.refused.x"]


def test_silent_paths_follow_changes_and_complete_lists_of_hosts_that_still_speak() -> None:
    def said(states: dict[int, str], *, complete: bool = False, at_ns: int = NOW) -> Message:
        path = {"src": "h00/r0", "dst": "h01/r0", "transport": "udp", "dscp": 0, "role": "sender"}
        changes = [{**path, "path": n, "state": state} for n, state in states.items()]
        changes.append({**path, "path": 9, "role": "reflector", "state": "silent"})
        data = {"host": "h00", "boot_id": "b", "seen_at_ns": at_ns, "complete": complete, "changes": changes}
        return bm.event(topics.LIVENESS, data, at_ns)

    def silent(now_ns: int = NOW) -> int:
        found: int = board.view(now_ns)["paths"]["silent"]
        return found

    board = board_of(said({1: "silent", 2: "alive", 3: "silent"}, complete=True))
    assert silent() == 2
    board.take([said({2: "silent"})])
    assert silent() == 3
    board.take([said({2: "silent", 3: "alive"})])
    assert silent() == 2
    board.take([said({}), said({1: "unknown"})])
    assert silent() == 1
    assert silent(NOW + 6 * NS_PER_S) == 0
    board.take([said({1: "silent", 2: "alive"}, complete=True, at_ns=NOW + 7 * NS_PER_S)])
    assert silent(NOW + 7 * NS_PER_S) == 1
    board.take([bm.event(topics.LIVENESS, {"host": "h00", "changes": None}, NOW + 7 * NS_PER_S)])
    assert silent(NOW + 7 * NS_PER_S) == 1
    assert board.counters.total("refused") == 1


def test_paths_without_rows_for_long_are_forgotten_and_the_others_stay() -> None:
    board = Board()
    for minute in range(30):  # a sender that takes other source ports every minute, and one that keeps its own
        at_ns = NOW + minute * 60 * NS_PER_S
        rows = [{"src": f"h{minute:02}/r0", "path": 50_000 + minute, "owd_p50_ns": 7e3}, {"src": "h99/r0"}]
        board.take([bm.owd(rows, at_ns)])
    view = board.view(at_ns, worst=5)["paths"]
    assert view["known"] == 12 and view["measured"] == 2
    assert {(w["src"], w["path"], w["owd_p50_ns"]) for w in view["worst"]} == {
        ("h29/r0", 50_029, 7e3),
        ("h99/r0", 50_001, 1e4),
    }


def test_made_up_hosts_nics_and_ports_do_not_crowd_out_those_that_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdfstream.board.board.MOST_HOSTS", 4)
    monkeypatch.setattr("sdfstream.board.board.MOST_NICS", 4)
    board = Board()
    for k in range(20):
        board.take([bm.ports({"h00/r0": "up"}, key="h00"), bm.ports({f"x{k}/r0": "up"}, key=f"x{k}")])
    view = board.view(NOW, full=True)
    assert view["pipeline"]["hosts"] == 4
    assert "h00/r0" in states(view) and len(states(view)) == 4
    assert board.counters.get("shed", "host") == board.counters.get("shed", "nic") == 17
