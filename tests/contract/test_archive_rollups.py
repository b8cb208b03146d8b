"""Roll-ups against their rows, and raw rows around findings."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.migrate_io import migrate
from sdfstream.archive.retention import Retention
from sdfstream.archive.rows import bulk_rows
from sdfstream.archive.target import Folder
from sdfstream.archive.upkeep.passes_io import Upkeep, UpkeepThread
from sdfstream.records import columns
from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK, FINDING, OWD, PROBE
from sdfstream.records.units import ABSENT_NS, NS_PER_S
from tests.fixtures.archive import EPOCH_NS, FINDING_DATA, bulk, event, message
from tests.fixtures.archive_load import probe_messages
from tests.fixtures.archive_windows import START_NS, windows

HOUR_NS = 3600 * NS_PER_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = str(tmp_path_factory.mktemp("rollups") / "archive")
    with Engine.open(path, create=True):
        yield path


@pytest.fixture
def engine(folder: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database of its own in one folder: opening another folder costs a second."""
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    with Engine.open(Folder(folder, name), create=True) as engine:
        migrate(engine)
        yield engine
        engine.command(f"DROP DATABASE {name}")


def insert(engine: Engine, batch: pa.RecordBatch, token: str, *, bus_at_ns: int | None = None) -> None:
    at_ns = max(batch.column("at_ns").to_pylist()) if bus_at_ns is None else bus_at_ns
    engine.insert("derived_owd", bulk_rows(OWD, [message(OWD, batch, bus_at_ns=at_ns)], "t").table, token)


SECONDS = """
    SELECT path, dir, toDateTime(toStartOfSecond(o.at), 'UTC') AS s,
        sum(o.n), if(dir = 'fwd', sum(o.lost), NULL), sum(o.ce),
        min(round(o.owd_min_ns)), max(round(o.owd_p99_ns)), max(round(o.owd_max_ns)),
        sum(round(o.owd_p50_ns * o.n)) / nullIf(sum(o.n), 0), max(ceil(o.err_ns))
    FROM derived_owd AS o GROUP BY path, dir, s ORDER BY path, dir, s
"""
ROLLED = """
    SELECT path, dir, second, n, lost, ce, owd_min_ns, owd_p99_ns, owd_max_ns, owd_p50_ns, err_ns
    FROM v_path_1s ORDER BY path, dir, second
"""


def test_seconds_are_those_of_the_rows_however_they_were_cut_and_repeated(engine: Engine) -> None:
    rng = np.random.default_rng(1)
    batch = windows(40, rng)
    cuts = [0, *sorted(rng.integers(0, batch.num_rows, 5).tolist()), batch.num_rows]
    for number, (a, b) in enumerate(itertools.pairwise(cuts)):
        for _ in range(1 + number % 2):
            insert(engine, batch.slice(a, b - a), f"part-{number}")
    assert engine.rows("SELECT count() FROM derived_owd") == [(batch.num_rows,)]
    wanted = engine.rows(SECONDS)
    assert len(wanted) == 40 * 6
    assert engine.rows(ROLLED) == wanted
    engine.command("OPTIMIZE TABLE owd_1s FINAL")
    assert engine.rows("SELECT count() FROM owd_1s") == [(40 * 6,)]
    assert engine.rows(ROLLED) == wanted


def test_an_insert_that_was_cut_before_its_roll_up_is_completed_by_its_repeat(engine: Engine) -> None:
    """What kill -9 leaves between a table and its view (16 of 22 such kills, facts of the engine)."""
    batch = windows(3, np.random.default_rng(2))
    engine.command("DETACH TABLE owd_1s_of")
    insert(engine, batch, "a")
    engine.command("ATTACH TABLE owd_1s_of")
    assert engine.rows("SELECT count() FROM owd_1s") == [(0,)]
    insert(engine, batch, "a")
    assert engine.rows("SELECT count() FROM derived_owd") == [(batch.num_rows,)]
    assert engine.rows(ROLLED) == engine.rows(SECONDS)


def test_a_second_without_a_delay_has_counts_and_no_delays_in_any_roll_up(engine: Engine) -> None:
    rng = np.random.default_rng(3)
    silent = windows(3600, rng, paths=1)
    keep = silent.column("dir").to_numpy(zero_copy_only=False) == "fwd"
    silent = silent.filter(pa.array(keep))
    nothing = {
        f.name: pa.nulls(silent.num_rows, f.type) for f in OWD.columns if f.nullable and pa.types.is_floating(f.type)
    } | {"n": pa.array(np.zeros(silent.num_rows), pa.uint32()), "ce": pa.array(np.zeros(silent.num_rows), pa.uint32())}
    silent = pa.RecordBatch.from_arrays(
        [nothing.get(f.name, silent.column(f.name)) for f in OWD.columns], schema=OWD.columns
    )
    insert(engine, silent, "a")
    insert(engine, windows(2, rng, start_ns=START_NS + 2 * HOUR_NS, paths=1), "b")
    Upkeep(engine, Retention()).run()
    lost = sum(silent.column("lost").to_pylist())
    for view, span in (("v_path_1s", "second"), ("v_path_1m", "minute"), ("v_path_1h", "hour")):
        past = f"{span} < toDateTime({(START_NS + HOUR_NS) // NS_PER_S}, 'UTC')"
        names = "owd_min_ns IS NULL AND owd_max_ns IS NULL AND err_ns IS NULL"
        names += " AND typical_p50_ns IS NULL AND worst_p99_ns IS NULL" if span == "hour" else " AND owd_p50_ns IS NULL"
        got = engine.rows(f"SELECT sum(n), sum(lost), min({names}) FROM {view} WHERE {past}")
        assert got == [(0, lost, 1)], view
    table = "SELECT count() FROM system.columns WHERE database = currentDatabase() AND table = {t:String}"
    for name in ("owd_1s", "owd_1m", "owd_1h"):
        delays = " AND match(name, 'owd_|err_|floor_|excess_') AND position(type, 'Nullable') = 0"
        assert engine.rows(table + delays, {"t": name}) == [(0,)], "every delay may be unknown"


def test_loss_stands_on_the_way_out_and_is_unknown_on_the_way_back(engine: Engine) -> None:
    batch = windows(70, np.random.default_rng(9), start_ns=START_NS + HOUR_NS - 60 * NS_PER_S)
    insert(engine, batch, "a")
    Upkeep(engine, Retention()).run()
    lost = sum(batch.column("lost").to_pylist())
    for view in ("v_path_1s", "v_path_1m", "v_path_now"):
        sql = f"SELECT sumIf(lost, dir = 'fwd'), countIf(lost IS NOT NULL AND dir = 'rev') FROM {view}"
        ((there, back),) = engine.rows(sql)
        assert back == 0, view
        assert view == "v_path_now" or there == lost, view
    assert engine.rows("SELECT sum(lost) > 0, countIf(lost IS NOT NULL AND dir = 'rev') FROM v_path_1h") == [(1, 0)]


MINUTES = "SELECT * FROM v_path_1m ORDER BY src, dst, path, dir, minute"


def test_minutes_are_finished_to_what_the_rows_said_and_stay_when_the_rows_are_gone(engine: Engine) -> None:
    rng = np.random.default_rng(4)
    batch = windows(400, rng)
    insert(engine, batch, "a")
    wanted = engine.rows(MINUTES)
    assert len({row[6] for row in wanted}) == 7
    upkeep = Upkeep(engine, Retention())
    upkeep.run()
    assert engine.rows(MINUTES) == wanted, "six finished, one from its rows"
    assert upkeep.counters.get("finished", "owd_1m") == 6
    late = windows(61, np.random.default_rng(5), start_ns=START_NS + 100 * NS_PER_S)
    insert(engine, late, "late", bus_at_ns=START_NS + 401 * NS_PER_S)
    upkeep.run()
    upkeep.run()
    n = sum(b.column(c).to_numpy().sum() for b in (batch, late) for c in ("n",))
    assert engine.rows("SELECT sum(n) FROM v_path_1m") == [(n,)], "late rows are in, once"
    insert(engine, windows(1, rng, start_ns=START_NS + 420 * NS_PER_S), "next")
    upkeep.run()
    wanted = [row for row in engine.rows(MINUTES) if row[6].minute != 7]
    engine.command("TRUNCATE TABLE derived_owd")
    assert engine.rows(MINUTES) == wanted
    Upkeep(engine, Retention()).run()
    assert engine.rows(MINUTES) == wanted


def test_a_restart_neither_repeats_nor_forgets_a_minute(engine: Engine) -> None:
    batch = windows(300, np.random.default_rng(6), paths=1)
    insert(engine, batch, "a")
    wanted = engine.rows(MINUTES)
    first = Upkeep(engine, Retention())
    first.run()
    second = Upkeep(engine, Retention())
    second.run()
    assert second.counters.get("finished", "owd_1m") <= 3
    assert engine.rows(MINUTES) == wanted
    assert engine.rows("SELECT count() FROM owd_1m FINAL") == [(4 * 2,)]


def test_hours_carry_sketches_that_merge(engine: Engine) -> None:
    rng = np.random.default_rng(7)
    for hour in range(3):
        insert(engine, windows(600, rng, start_ns=START_NS + hour * HOUR_NS), f"h{hour}")
    Upkeep(engine, Retention()).run()
    assert engine.rows("SELECT uniqExact(hour), count() FROM owd_1h FINAL") == [(2, 2 * 6)]
    assert engine.rows("SELECT uniqExact(hour), count() FROM v_path_1h") == [(3, 3 * 6)], "the running one too"
    exact = """
        SELECT path, dir, quantilesExactLow(0.48, 0.52, 0.98, 0.998)(owd_max_ns)
        FROM v_path_1s WHERE n > 0 AND second < toDateTime({end:Int64}, 'UTC') GROUP BY path, dir ORDER BY path, dir
    """
    merged = """
        SELECT path, dir, quantilesDDMerge(0.01, 0.5, 0.9, 0.99)(worst)
        FROM owd_1h FINAL GROUP BY path, dir ORDER BY path, dir
    """
    end = (START_NS + 2 * HOUR_NS) // NS_PER_S
    pairs = zip(engine.rows(exact, {"end": end}), engine.rows(merged), strict=True)
    for (*_, (low, high, lower, higher)), (*_, (p50, _, p99)) in pairs:
        assert 0.99 * low <= p50 <= 1.01 * high, "to 1 % of a value of nearly that rank"
        assert 0.99 * lower <= p99 <= 1.01 * higher


def test_clocks_by_minute_stay_when_their_rows_are_gone(engine: Engine) -> None:
    rng = np.random.default_rng(8)
    batches = [message(CLOCK, bulk(CLOCK, 50, rng), i, bus_at_ns=START_NS + i * 20 * NS_PER_S) for i in range(20)]
    engine.insert("state_clock", bulk_rows(CLOCK, batches, "t").table, "a")
    sql = "SELECT * EXCEPT statuses, arraySort(statuses) FROM v_clock_1m ORDER BY clock, kind, minute"
    wanted = engine.rows(sql)
    Upkeep(engine, Retention()).run()
    got = engine.rows(sql)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert a[:4] == b[:4]
        assert a[4:-1] == pytest.approx(b[4:-1])
    engine.command("TRUNCATE TABLE state_clock")
    last = max(row[2] for row in wanted)
    assert len(engine.rows(sql)) == len([row for row in wanted if row[2] < last])


# -- raw rows around findings -----------------------------------------------------------------------------------


def _finding(subject: tuple[str, str], said_ns: int, **given: Any) -> Message:
    kind, name = subject
    data = FINDING_DATA | {"subject": {"type": kind, "id": name}, "since_at_ns": said_ns - 2 * NS_PER_S} | given
    return event(FINDING, data, said_ns % 1000, bus_at_ns=said_ns)


def _numbered(m):
    """As of reflectors that every seventh probe never reached."""
    at = m.body.schema.get_field_index("seq_rev")
    seq = columns.values(m.body, "seq")
    answered = columns.instants(m.body, "t4_ns") != ABSENT_NS
    numbers = columns.nullable(seq - seq // 7, answered, pa.uint32())
    return replace(m, body=m.body.set_column(at, PROBE.columns.field(at), numbers))


def _fill(engine: Engine, findings: list[Message]) -> list[Message]:
    """A minute and a half of probes of one host's hundred paths, and findings."""
    from sdfstream.archive.insert_io import build_rows

    probes = [_numbered(m) for m in probe_messages(160_000, rounds=16, senders=1)]
    engine.insert("raw_probe", bulk_rows(PROBE, probes, "t").table, "probes")
    if findings:
        engine.insert("event_finding", build_rows(FINDING, findings, "t").table, "findings")
    return probes


KEEP = Retention(around_minutes=0.25)
IN_WINDOW = """
    SELECT count() FROM raw_probe WHERE bus_at >= fromUnixTimestamp64Nano({a:Int64}, 'UTC')
    AND bus_at < fromUnixTimestamp64Nano({b:Int64}, 'UTC') AND
"""


def test_rows_around_a_finding_stay_when_the_others_are_gone(engine: Engine) -> None:
    said_ns = EPOCH_NS + 40 * NS_PER_S
    _fill(engine, [_finding(("nic", "h00/r3"), said_ns)])
    span = {"a": said_ns - 17 * NS_PER_S, "b": said_ns + 15 * NS_PER_S}
    mine = "(src = 'h00/r3' OR dst = 'h00/r3')"
    ((wanted,),) = engine.rows(IN_WINDOW + mine, span)
    assert wanted > 1000
    upkeep = Upkeep(engine, KEEP)
    upkeep.run()
    upkeep.run()
    assert engine.rows("SELECT count(), countIf(NOT (src = 'h00/r3' OR dst = 'h00/r3')) FROM v_probe_kept") == [
        (wanted, 0)
    ]
    assert engine.rows("SELECT finding, status, subject, left_out, probes FROM v_kept") == [
        ("f1", "open", "nic h00/r3", 0, wanted)
    ]
    sums = "SELECT count(), sum(rtt_ns), sum(t4_ns), sum(rx_host_ns), sum(seq_rev), countIf(lost) FROM"
    names = "(SELECT rtt_ns, t4_ns, rx_host_ns, seq_rev, t41_ns IS NULL AS lost FROM raw_probe{} WHERE {} AND "
    between = (
        "bus_at >= fromUnixTimestamp64Nano({a:Int64}, 'UTC') AND bus_at < fromUnixTimestamp64Nano({b:Int64}, 'UTC'))"
    )
    exact = engine.rows(sums + names.format("", mine) + between, span)
    assert exact[0][4] > 0
    engine.command("TRUNCATE TABLE raw_probe")
    assert engine.rows(sums + names.format("_kept", mine) + between, span) == exact, "to the bit"


def test_a_crash_between_copy_and_ledger_and_findings_that_overlap_double_nothing(engine: Engine) -> None:
    said_ns = EPOCH_NS + 40 * NS_PER_S
    both = [_finding(("nic", "h00/r3"), said_ns), _finding(("host", "h00"), said_ns + NS_PER_S, id="f2")]
    _fill(engine, both)
    Upkeep(engine, KEEP).run()
    engine.command("TRUNCATE TABLE kept_window")
    Upkeep(engine, KEEP).run()
    host = {"a": said_ns - 16 * NS_PER_S, "b": said_ns + 16 * NS_PER_S}
    nic = {"a": said_ns - 17 * NS_PER_S, "b": said_ns - 16 * NS_PER_S}
    mine = "(src = 'h00/r3' OR dst = 'h00/r3')"
    wanted = engine.rows(IN_WINDOW + "1", host)[0][0] + engine.rows(IN_WINDOW + mine, nic)[0][0]
    assert engine.rows("SELECT count() FROM v_probe_kept") == [(wanted,)]
    assert engine.rows("SELECT count() FROM v_kept") == [(2,)]


def test_only_the_worst_paths_of_a_wide_finding_stay_and_the_others_are_counted(engine: Engine) -> None:
    said_ns = EPOCH_NS + 40 * NS_PER_S
    _fill(engine, [_finding(("host", "h00"), said_ns), _finding(("rail", "r0"), said_ns, id="f3")])
    upkeep = Upkeep(engine, replace(KEEP, kept_paths=7))
    upkeep.run()
    upkeep.run()
    assert engine.rows("SELECT paths, left_out FROM v_kept") == [(7, 93)]
    assert engine.rows("SELECT uniqExact(src, dst, path) FROM v_probe_kept") == [(7,)]
    assert upkeep.counters.get("unscoped") == 1, "said once"


def test_a_window_is_copied_when_its_rows_are_there_and_not_before(engine: Engine) -> None:
    _fill(engine, [_finding(("nic", "h00/r3"), EPOCH_NS + 90 * NS_PER_S)])
    upkeep = Upkeep(engine, KEEP)
    upkeep.run()
    assert upkeep.counters.get("kept", "findings") == 0
    assert Upkeep(engine, replace(KEEP, raw_hours=None)).run() is None


def test_the_thread_does_its_work_and_a_failure_does_not_end_it(engine: Engine) -> None:
    insert(engine, windows(130, np.random.default_rng(1), paths=1), "a")
    engine.command("RENAME TABLE owd_1m TO hidden")
    thread = UpkeepThread(Engine.open(engine.target), Retention(every_s=0.05))
    _wait(lambda: thread.counters.get("failed") > 0)
    engine.command("RENAME TABLE hidden TO owd_1m")
    _wait(lambda: thread.counters.get("finished", "owd_1m") >= 2)
    thread.close()


def _wait(done: Any) -> None:
    for _ in range(600):
        if done():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")
