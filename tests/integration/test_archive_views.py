"""Views against figures worked out by hand, and the README's queries as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.migrate_io import migrations
from sdfstream.archive.retention import Retention
from sdfstream.archive.rows import bulk_rows
from sdfstream.archive.upkeep.passes_io import Upkeep
from sdfstream.records.topics import OWD, PROBE
from sdfstream.records.units import NS_PER_S
from tests.fixtures.archive import message
from tests.fixtures.archive_story import PATHS, START_NS, archive_story, owd, probe

ROOT = Path(__file__).parents[2]
README = ROOT / "schemas" / "clickhouse" / "README.md"
DOCS = ROOT / "docs" / "archive.md"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = str(tmp_path_factory.mktemp("story") / "archive")
    archive_story(folder)
    engine = Engine.open(folder)
    yield engine
    engine.close()


def test_path_minutes(engine: Engine) -> None:
    columns = "path, n, lost, ce, owd_min_ns, owd_p50_ns, owd_p99_ns, owd_max_ns, excess_p50_ns, err_ns"
    got = engine.rows(f"SELECT {columns} FROM v_path_1m ORDER BY path, minute")
    quiet = (1000.0, 1100.0, 1200.0, 1300.0, 100.0, 50.0)
    assert got == [
        (50001, 120, 0, 0, *quiet),
        (50001, 120, 2, 0, *quiet),
        (50002, 120, 0, 0, *quiet),
        (50002, 120, 0, 60, 41000.0, 41100.0, 41200.0, 41300.0, 40100.0, 50.0),
    ]
    assert engine.rows("SELECT DISTINCT lost_share FROM v_path_1m WHERE lost > 0") == [(2 / 122,)]


def test_a_minute_without_a_single_delay_has_null_delays_and_full_loss(engine: Engine) -> None:
    sql = """SELECT sum(n), sum(lost) / nullIf(sum(n) + sum(lost), 0), quantileExactWeighted(0.5)(owd_p50_ns, n)
             FROM derived_owd WHERE n = 0"""
    assert engine.rows(sql) == [(0, 1.0, None)]


def test_path_now_is_the_newest_minute_of_the_archive(engine: Engine) -> None:
    got = engine.rows("SELECT path, n, lost, excess_p50_ns FROM v_path_now ORDER BY path")
    assert got == [(50001, 120, 2, 100.0), (50002, 120, 0, 40100.0)]


def test_nic_state_is_the_latest_per_nic_and_direction(engine: Engine) -> None:
    got = engine.rows("SELECT nic, direction, state, why FROM v_nic_state ORDER BY direction")
    assert got == [("h00/r0", "rx", "unhealthy", "no probe leaves it"), ("h00/r0", "tx", "healthy", "")]
    ((age_s,),) = engine.rows("SELECT min(age_s) FROM v_nic_state")
    assert age_s > 0


def test_one_row_per_finding_as_last_stated(engine: Engine) -> None:
    columns = "id, kind, status, subject_id, confidence, duration_s, statements, evidence, suspects, jobs"
    first, second = engine.rows(f"SELECT {columns} FROM v_findings ORDER BY id")
    assert first[:7] == ("f1", "congestion", "resolved", "l0--s1", 0.9, 58.0, 3)
    assert first[7] == '[{"what":"excess","value":40000}]'
    assert first[9] == ["train-7"]
    assert second[:7] == ("f2", "loss", "open", "l0--s1", 0.9, 1.0, 1)
    assert engine.rows("SELECT count() FROM v_findings WHERE opened_at = since_at + toIntervalSecond(1)") == [(2,)]


def test_clocks_as_last_stated_with_their_history(engine: Engine) -> None:
    columns = "clock, status, offset_ns, err_ns, updates, synced_share, err_max_ns, offset_min_ns, offset_max_ns"
    assert engine.rows(f"SELECT {columns} FROM v_clock") == [
        ("h00", "synced", 0.0, 0.0, 12, 1.0, 0.0, 0.0, 0.0),
        ("h01", "synced", 610.0, 150.0, 12, 11 / 12, 150.0, 500.0, 610.0),
    ]
    got = engine.rows("SELECT kind, updates, offset_avg_ns FROM v_clock_1m WHERE clock = 'h01' ORDER BY kind, minute")
    assert got == [("causal", 6, 525.0), ("causal", 6, 585.0), ("smoothed", 1, 499.0)]


def test_paths_cross_the_links_that_their_trace_says(engine: Engine) -> None:
    for spine, (_, _, path) in enumerate(PATHS):
        got = engine.rows(f"SELECT direction FROM v_path_links WHERE path = {path} ORDER BY direction")
        wanted = ["h00/r0->l0", f"l0->s{spine}", f"s{spine}->l1", "l1->h01/r0"]
        assert sorted(wanted) == [d for (d,) in got]


def test_the_worst_links_are_those_that_only_the_delayed_path_crosses(engine: Engine) -> None:
    got = engine.rows("SELECT direction, paths, excess_least_ns, excess_most_ns, lost FROM v_links_worst")
    assert {d for d, *_ in got[:2]} == {"l0->s1", "s1->l1"}
    assert [row[1:] for row in got[:2]] == [(1, 40100.0, 40100.0, 0)] * 2
    shared = {d: rest for d, *rest in got}["h00/r0->l0"]
    assert shared == [2, 100.0, 40100.0, 2]


def test_a_links_minute_holds_its_worst_queue_with_its_error(engine: Engine) -> None:
    columns = "direction, spans, queue_ns, worst_queue_ns, worst_queue_err_ns, worst_queue_bytes, utilisation"
    assert engine.rows(f"SELECT {columns} FROM v_hops") == [
        ("s1->l1", 2, 40_000.0, 50_000.0, 500.0, 62_500.0, 0.9),
        ("s1->l1", 1, 0.0, 0.0, 0.0, 0.0, 0.2),
    ]


def test_liveness_has_one_row_per_path(engine: Engine) -> None:
    got = engine.rows("SELECT host, observer, role, path, dscp, state, missed FROM v_liveness")
    assert got == [("h00", "h00/r0", "sender", 50001, 0, "silent", 16)]


def test_stamps_of_a_probe_and_of_a_lost_one(engine: Engine) -> None:
    stamps = "t2_ns - t1_ns, t3_ns - t2_ns, t4_ns - t1_ns, turn_ns, rtt_ns"
    got = engine.rows(f"SELECT {stamps} FROM raw_probe WHERE transport = 'udp' ORDER BY t1")
    assert got == [(20_000, 30_000, 71_000, 30_000, 41_000), (None,) * 5]


def test_two_clocks_of_one_host_are_no_probe(engine: Engine) -> None:
    assert engine.rows("SELECT transport, count() FROM raw_probe GROUP BY transport ORDER BY transport") == [
        ("host", 1),
        ("udp", 2),
    ]
    assert engine.rows("SELECT DISTINCT transport FROM v_probe") == [("udp",)]
    got = engine.rows("SELECT system_clock, nic_clock, window_ns, ahead_ns FROM v_host_edge")
    assert got == [("h00", "h00/r0", 1_000, 37e9)]


def test_commands_with_their_lease_and_what_became_of_them(engine: Engine) -> None:
    columns = "id, action, target, mode, lease_s, statements, state, why, said_by, before, gain, reason"
    steered, refused = engine.rows(f"SELECT {columns} FROM v_commands")
    assert steered[:9] == ("c1", "steer", "h00/r0#2", "enforce", 10.0, 2, "applied", "it gained", "controller")
    assert steered[9:] == ('{"throughput_bps":25000000,"n":50}', 4.0, ["f1"])
    assert refused[:8] == ("p1", "steer", "h00/r0#2", None, None, 0, "refused", "not-selectable: all ports go one way")
    ((seconds,),) = engine.rows("SELECT dateDiff('second', issued_at, renewed_at) FROM v_commands WHERE id = 'c1'")
    assert seconds == 5


def test_what_operators_said_of_findings(engine: Engine) -> None:
    columns = "id, subject_type, subject, kinds, maintenance, operator, reason, lifted_by, lifted_at = until_at"
    assert engine.rows(f"SELECT {columns} FROM v_silences") == [
        ("s1", "link", "l0--s1", ["loss"], False, "anna", "optic", "ben", True)
    ]
    assert engine.rows("SELECT finding, cause, operator, labels FROM v_labels") == [("f1", "false-alarm", "ben", 2)]
    ((seconds,),) = engine.rows("SELECT dateDiff('second', from_at, until_at) FROM v_silences")
    assert seconds == 71


def test_jobs_over_their_hosts(engine: Engine) -> None:
    got = engine.rows("SELECT job, name, state, ranks, hosts, nics, qps, ended_hosts FROM v_jobs")
    assert got == [
        ("train-7", "train-7", "running", 2, ["h00", "h01"], ["h00/r0", "h01/r0"], 2, []),
        ("old-1", "done", "ended", 1, ["h01"], ["h01/r0"], 0, ["h01"]),
    ]
    assert engine.rows("SELECT job, host FROM v_job_parts") == [
        ("old-1", "h01"),
        ("train-7", "h00"),
        ("train-7", "h01"),
    ]


def test_queue_pairs_with_the_links_they_cross_and_could_cross(engine: Engine) -> None:
    columns = "qp, use, dir, source_port, links, complete, traced_at IS NULL"
    got = engine.rows(f"SELECT {columns} FROM v_job_paths WHERE qp = 'h00/r0#1'")
    data = [["h00/r0->l0", f"l0->s{s}", f"s{s}->l1", "l1->h01/r0"] for s in (0, 1)]
    answers = ["h01/r0->l1", "l1->s0", "s0->l0", "l0->h00/r0"]
    assert got == [
        ("h00/r0#1", "now", "data", 50001, data[0], True, 0),
        ("h00/r0#1", "now", "answers", 50001, answers, True, 0),
        ("h00/r0#1", "alternate", "data", 50002, data[1], True, 0),
        ("h00/r0#1", "alternate", "answers", 50002, [], None, 1),
    ]
    got = engine.rows("SELECT path, use FROM v_job_paths WHERE qp = 'h00/r0#2' AND dir = 'data'")
    assert got == [(50003, "now"), (50002, "alternate")], "as last stated, after the move"


def test_what_queue_pairs_and_their_job_got_by_second(engine: Engine) -> None:
    columns = "throughput_bps, path, n, retransmits, waiting_windows, owd_min_ns"
    got = engine.rows(f"SELECT {columns} FROM v_qp WHERE qp = 'h00/r0#2' ORDER BY second")
    assert got[9:16] == [
        (100_000_000, 50002, 10, 0, 0, 2000.0),
        *[(22_500_000, 50002, 9, 30, 1, 2000.0)] * 5,
        (100_000_000, 50003, 10, 0, 0, 2000.0),
    ]
    got = engine.rows("SELECT throughput_bps, slowest_bps, slowest_qp, qps FROM v_job_throughput ORDER BY second")
    assert len(got) == 30
    assert got[9:11] == [(200_000_000, 100_000_000, "h00/r0#1", 2), (122_500_000, 22_500_000, "h00/r0#2", 2)]


def test_gains_as_stated_and_as_measured(engine: Engine) -> None:
    columns = "id, state, stated_gain, before_bps, after_bps, gain, retransmits_before, retransmits_after"
    ((*stated, before, after, gain, lost, lost_after),) = engine.rows(f"SELECT {columns} FROM v_gains")
    assert stated == ["c1", "applied", 4.0]
    assert (before, after) == pytest.approx((22.5e6 / 0.9109, 100e6 / 0.901)), "over the time with a chunk outstanding"
    assert gain == pytest.approx(after / before)
    assert (lost, lost_after) == (5 * 9 * 3, None), "unknown is no 0"


def test_instants_of_a_chunk(engine: Engine) -> None:
    columns = "arrived_at_ns - sent_at_ns, completed_at_ns - sent_at_ns, acknowledged_at_ns - sent_at_ns"
    got = engine.rows(f"SELECT chunk, {columns} FROM raw_qp WHERE qp = 'h00/r0#1' ORDER BY chunk")
    assert got[1:] == [(1, 20_000, 90_000_000, 90_100_000), (2, None, None, 90_100_000)]


def _queries(page: Path = README) -> list[str]:
    found = re.findall(r"```sql\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [sql for sql in found if "ENGINE = Kafka" not in sql]  # those: test_bus_clickhouse_subscribes.py


@pytest.mark.parametrize("sql", _queries())
def test_the_readmes_query_runs_and_finds_something(engine: Engine, sql: str) -> None:
    assert engine.rows(sql.strip().rstrip(";")), sql


def test_the_readme_names_every_view_and_table(engine: Engine) -> None:
    text = README.read_text(encoding="utf-8")
    names = [n for (n,) in engine.rows("SELECT name FROM system.tables WHERE database = 'sdf'")]
    assert [n for n in names if f"`{n}`" not in text] == []
    assert len(_queries()) >= 10


def test_the_published_migrations_are_the_packages() -> None:
    published = {p.name: p.read_text(encoding="utf-8") for p in README.parent.glob("*.sql")}
    assert published == {m.name: m.sql for m in migrations()}, (
        "cp sdfstream/archive/migrations/*.sql schemas/clickhouse/"
    )


# -- when the rows themselves have aged -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def aged(engine: Engine) -> Iterator[Engine]:
    """The story two hours later: everything finished and kept; whoever looks at raw rows finds none from then."""
    later = START_NS + 2 * 3600 * NS_PER_S
    more = [message(OWD, owd(later, 0, [1000.0, 1100.0, 1200.0, 1300.0]), bus_at_ns=later)]
    engine.insert("derived_owd", bulk_rows(OWD, more, "later").table, "later")
    crossing = probe(START_NS + 61 * NS_PER_S, lost=True)  # the path that crosses the finding's link
    place = crossing.schema.get_field_index("path")
    crossing = crossing.set_column(place, crossing.schema.field(place), pa.array([50002], pa.uint32()))
    late = [message(PROBE, crossing, bus_at_ns=START_NS + 61 * NS_PER_S)]
    late.append(message(PROBE, probe(later, lost=False), 1, bus_at_ns=later))
    engine.insert("raw_probe", bulk_rows(PROBE, late, "later").table, "later")
    Upkeep(engine, Retention(raw_hours=3)).run()
    yield engine


@pytest.mark.parametrize("sql", _queries(DOCS))
def test_the_archive_pages_query_runs_and_finds_something(aged: Engine, sql: str) -> None:
    assert aged.rows(sql.strip().rstrip(";")), sql


def test_the_story_of_a_nic(aged: Engine) -> None:
    got = aged.rows("SELECT what, state FROM v_nic_timeline WHERE nic = 'h00/r0' ORDER BY at, state")
    assert {("health", "tx unknown"), ("health", "tx healthy"), ("health", "rx unhealthy"), ("port", "up")} <= set(got)
    assert len([row for row in got if row[0] == "port"]) == 1, "a reading that says the same is no event"
    assert ("command", "steer applied") in got


def test_evidence_by_the_piece(aged: Engine) -> None:
    got = aged.rows("SELECT id, what, value, status FROM v_finding_evidence ORDER BY id")
    assert got == [("f1", "excess", 40000.0, "resolved"), ("f2", "excess", 41000.0, "open")]


def test_seconds_and_hours_of_the_story(aged: Engine) -> None:
    columns = "n, lost, ce, owd_min_ns, owd_p50_ns, owd_p99_ns, owd_max_ns, excess_p50_ns, err_ns"
    at = START_NS // NS_PER_S
    got = aged.rows(f"SELECT {columns} FROM v_path_1s WHERE second = toDateTime({at + 119}, 'UTC') ORDER BY path")
    assert got == [
        (2, 2, 0, 1000, 1100.0, 1200, 1300, 100.0, 50),
        (2, 0, 1, 41000, 41100.0, 41200, 41300, 40100.0, 50),
    ]
    hours = aged.rows("SELECT path, n, lost, seconds, owd_max_ns FROM v_path_1h ORDER BY path, hour")
    assert hours == [(50001, 240, 2, 120, 1300), (50001, 2, 0, 1, 1300), (50002, 240, 0, 120, 41300)], (
        "the running one too"
    )


def test_freshness_by_minute(aged: Engine) -> None:
    got = aged.rows("SELECT what, rows, p99_ms, max_ms FROM v_freshness WHERE what = 'probe' ORDER BY minute")
    assert got == [("probe", 2, 0.0, 0.0), ("probe", 1, 0.0, 0.0), ("probe", 1, 0.0, 0.0)]


def test_what_was_kept_of_the_path_that_crosses_the_findings_link(aged: Engine) -> None:
    kept = aged.rows("SELECT finding, status, subject, paths, probes, windows FROM v_kept ORDER BY finding, status")
    assert [row[:5] for row in kept] == [
        ("f1", "open", "link l0--s1", 1, 1),
        ("f1", "resolved", "link l0--s1", 1, 1),
        ("f2", "open", "link l0--s1", 1, 1),
    ]
    assert aged.rows("SELECT path, count() FROM v_probe_kept GROUP BY path") == [(50002, 1)]
    assert aged.rows("SELECT path, count() FROM v_owd_kept GROUP BY path") == [(50002, 120)]
