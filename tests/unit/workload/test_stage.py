"""The workload stage: windows of what queue pairs got."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.records.message import Event, Message
from sdfstream.records.topics import CLOCK, QP, QP_WINDOW
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.workload.config import WorkloadConfig
from sdfstream.workload.stage import WorkloadStage
from tests.checks import check_stage, run
from tests.fixtures.qp_world import START_NS, WINDOW_NS, Chunk, HostClock, World, busy

MS = NS_PER_MS


def _rows(stage: WorkloadStage, messages: list[Message], seconds: float = 6.0) -> list[dict]:
    """Every published row, with the bus time it was published at."""
    out = run(stage, messages, messages[0].bus_at_ns + round(seconds * NS_PER_S))
    for _, output in out:
        assert output.topic == QP_WINDOW.name
        assert {row["src"].split("/")[0] for row in output.body.to_pylist()} == {output.key}
    return [row | {"said_ns": at} for at, output in out for row in output.body.to_pylist()]


def _world(**given) -> World:
    return World([HostClock(0.0, 0.0), HostClock(2_000_000.0, 10_000.0)], 2, **given)


def test_the_battery() -> None:
    plain = check_stage(WorkloadStage, busy(7).messages(4.0))
    assert sum(o.body.num_rows for _, o in plain) > 100


def test_the_battery_with_backlog_and_an_unknown_clock() -> None:
    world = busy(8)
    world.clocks[2] = replace(world.clocks[2], status="unsynced")
    messages = world.messages(4.0)
    moved = [replace(m, bus_at_ns=m.bus_at_ns + 700 * MS) if i % 7 == 0 else m for i, m in enumerate(messages)]
    check_stage(WorkloadStage, sorted(moved, key=lambda m: m.bus_at_ns))


def test_one_chunk_by_hand() -> None:
    world = _world()
    world.chunks = [Chunk(1, START_NS + 10 * MS, START_NS + 30 * MS, START_NS + 10 * MS + 70_000, 5000, 50007, 2, 3)]
    (row,) = _rows(WorkloadStage(), world.messages(1.0))
    assert START_NS + 250 * MS <= row.pop("said_ns") <= START_NS + 400 * MS
    assert row.pop("owd_min_ns") == pytest.approx(70_000, abs=2)
    assert row.pop("owd_p50_ns") == pytest.approx(70_000, abs=2)
    assert row.pop("owd_max_ns") == pytest.approx(70_000, abs=2)
    assert row.pop("duration_p50_ns") == row.pop("duration_max_ns") == pytest.approx(20 * MS, rel=1e-4)
    assert row == {
        "at_ns": START_NS, "window_ns": WINDOW_NS, "job": "job-1", "rank": 1, "peer_rank": 0, "qp": "h01/r0#1",
        "src": "h01/r0", "dst": "h00/r0", "transport": "udp", "path": 50007, "dst_port": 4791, "dscp": 26, "n": 1,
        "bytes": 5000, "packets": 5, "ce": 2, "retransmits": 3, "err_ns": 1000.0,
    }  # fmt: skip


def test_waiting_windows_are_published_on_the_path_before() -> None:
    world = _world()
    world.chunks = [
        Chunk(0, START_NS + 10 * MS, START_NS + 20 * MS, None, 100, 50001),
        Chunk(0, START_NS + 30 * MS, START_NS + 450 * MS, None, 200, 50002, None, 9),
    ]
    got = _rows(WorkloadStage(), world.messages(1.0))
    assert [(r["at_ns"] - START_NS, r["n"], r["bytes"], r["path"], r["retransmits"]) for r in got] == [
        (0, 1, 100, 50001, 0),
        (100 * MS, 0, 0, 50001, None),
        (200 * MS, 0, 0, 50001, None),
        (300 * MS, 0, 0, 50001, None),
        (400 * MS, 1, 200, 50002, 9),
    ]
    assert got[1]["owd_p50_ns"] is None and got[1]["duration_max_ns"] is None


def test_a_very_long_wait_is_published_up_to_a_limit_and_the_rest_counted() -> None:
    world = _world()
    world.chunks = [Chunk(0, START_NS + MS, START_NS + 2050 * MS, None, 100)]
    stage = WorkloadStage(WorkloadConfig(max_waiting=3))
    got = _rows(stage, world.messages(3.0))
    assert [(r["at_ns"] - START_NS) // (100 * MS) for r in got] == [17, 18, 19, 20]
    assert stage.counters.get("windows-cut") == 17


@pytest.mark.parametrize("status", ["unsynced", "faulty"])
def test_an_unknown_clock_leaves_delays_null_and_throughput_true(status: str) -> None:
    world = _world()
    world.clocks[1] = replace(world.clocks[1], status=status, offset_ns=-7200e9)
    at = START_NS + 10 * MS
    world.chunks = [Chunk(q, at, at + 5 * MS, at + 50_000, 100) for q in (0, 1)]
    stage = WorkloadStage()
    near, far = sorted(_rows(stage, world.messages(1.0)), key=lambda r: r["qp"])
    assert (near["owd_p50_ns"], near["err_ns"], far["owd_p50_ns"]) == (None, None, None)
    assert (near["bytes"], far["bytes"]) == (100, 100)
    assert near["at_ns"] == START_NS and far["at_ns"] == START_NS, "told at 103 ms of bus time, 20 ms ahead"
    assert stage.counters.get("unclocked") == 1


def test_without_any_clock_state_bus_time_stands_in() -> None:
    world = _world()
    world.chunks = [Chunk(0, START_NS + 10 * MS, START_NS + 20 * MS, None, 100)]
    stage = WorkloadStage()
    (row,) = _rows(stage, world.messages(1.0, clocks=False))
    assert (row["at_ns"], row["bytes"], row["owd_p50_ns"]) == (START_NS + 100 * MS, 100, None)


def test_a_clock_state_grows_stale() -> None:
    world = _world()
    world.chunks = [Chunk(0, START_NS + 4000 * MS, START_NS + 4020 * MS, START_NS + 4001 * MS, 100)]
    messages = [m for m in world.messages(5.0) if m.topic == QP.name or m.bus_at_ns < START_NS]
    stage = WorkloadStage()
    (row,) = _rows(stage, messages)
    assert row["owd_p50_ns"] is None and stage.counters.get("unclocked") == 1


def test_wide_error_bars_withhold_the_delay() -> None:
    world = _world()
    world.clocks[1] = replace(world.clocks[1], err_ns=2e6)
    world.chunks = [Chunk(0, START_NS + 10 * MS, START_NS + 20 * MS, START_NS + 11 * MS, 100)]
    stage = WorkloadStage()
    (row,) = _rows(stage, world.messages(1.0))
    assert row["owd_p50_ns"] is None and stage.counters.get("owd-withheld") == 1


def test_one_clock_for_both_ends_has_no_error() -> None:
    world = World([HostClock(5e6, 0.0)], 1)
    world.chunks = [Chunk(0, START_NS + 10 * MS, START_NS + 20 * MS, START_NS + 11 * MS, 100)]
    (row,) = _rows(WorkloadStage(), world.messages(1.0))
    assert row["err_ns"] == 0.0 and row["owd_p50_ns"] == pytest.approx(MS, abs=2)


def test_late_chunks_count_in_the_oldest_open_window_and_old_backlog_is_only_counted() -> None:
    world = _world()
    first = Chunk(0, START_NS + 10 * MS, START_NS + 20 * MS, None, 100)
    world.chunks = [first]
    (reported,) = [m for m in world.messages(1.0) if m.topic == QP.name]
    clocks = [m for m in world.messages(9.0) if m.topic == CLOCK.name]
    late = replace(reported, bus_at_ns=reported.bus_at_ns + 2 * NS_PER_S)
    stage = WorkloadStage()
    (row,) = _rows(stage, sorted([*clocks, late], key=lambda m: m.bus_at_ns), 10.0)
    assert 1_600 * MS <= row["at_ns"] - START_NS <= 1_900 * MS and row["bytes"] == 100
    assert stage.counters.get("late") == 1
    stale = replace(reported, bus_at_ns=reported.bus_at_ns + 7 * NS_PER_S)
    stage = WorkloadStage()
    assert _rows(stage, sorted([*clocks, stale], key=lambda m: m.bus_at_ns), 10.0) == []
    assert (stage.counters.get("stale"), stage.counters.get("stale-bytes")) == (1, 100)


def test_windows_are_held_open_as_long_as_chunks_take_to_be_reported() -> None:
    world = busy(13, pairs=2, seconds=3.0)
    prompt = world.messages(4.0)
    slow = [replace(m, bus_at_ns=m.bus_at_ns + 450 * MS) if m.topic == QP.name else m for m in prompt]
    stage, plain = WorkloadStage(), WorkloadStage()
    got = {(r["qp"], r["at_ns"]): r for r in _rows(stage, sorted(slow, key=lambda m: m.bus_at_ns))}
    wanted = {(r["qp"], r["at_ns"]): r for r in _rows(plain, prompt)}
    assert plain.counters.get("late") == 0
    assert stage.counters.get("late") <= 0.15 * len(world.chunks), "until the lag is known"
    settled = {key for key in wanted if key[1] >= START_NS + NS_PER_S}
    assert {k: v["bytes"] for k, v in got.items() if k in settled} == {k: wanted[k]["bytes"] for k in settled}
    behind = max(r["said_ns"] - r["at_ns"] for key, r in got.items() if key in settled and r["n"])
    assert behind <= 1_000 * MS


def test_reference_time_may_lie_hours_from_bus_time() -> None:
    world = busy(3, lead_ns=-7200 * NS_PER_S)
    stage = WorkloadStage()
    got = _rows(stage, world.messages(5.0))
    assert sum(r["bytes"] for r in got) == sum(c.bytes for c in world.chunks)
    assert min(r["at_ns"] for r in got) >= START_NS and stage.counters.get("late") == 0
    assert stage.counters.get("rebased") == 1, "from no clock at all to the first"


def test_a_jump_of_reference_time_loses_nothing() -> None:
    before, after = busy(4, seconds=1.0), busy(5, seconds=1.0)
    first = before.messages(1.6)
    shift = first[-1].bus_at_ns - START_NS + NS_PER_S
    second = [replace(m, bus_at_ns=m.bus_at_ns + shift, boot_id="b") for m in after.messages(2.0)]
    stage = WorkloadStage()
    got = _rows(stage, first + second, 9.0)
    assert sum(r["bytes"] for r in got) == sum(c.bytes for c in before.chunks + after.chunks)


def test_a_repeated_message_counts_once() -> None:
    world = busy(6)
    messages = world.messages(4.0)
    again = [m if i % 3 else replace(m, bus_seq=m.bus_seq + 10_000) for i, m in enumerate(messages)]
    twice = sorted([*messages, *(m for m in again if m.bus_seq >= 10_000)], key=lambda m: m.bus_at_ns)
    stage, plain = WorkloadStage(), WorkloadStage()
    assert _rows(stage, twice) == _rows(plain, messages)
    assert stage.counters.get("repeated") > 50


def test_what_cannot_be_read_is_refused_and_the_rest_goes_on() -> None:
    world = _world()
    world.chunks = [Chunk(0, START_NS + 10 * MS, START_NS + 20 * MS, None, 100)]
    messages = world.messages(1.0)
    (good,) = [m for m in messages if m.topic == QP.name]
    body = good.body
    column = {f.name: i for i, f in enumerate(QP.columns)}

    def with_(name: str, array: pa.Array) -> Message:
        loose = pa.schema([pa.field(f.name, array.type if f.name == name else f.type) for f in QP.columns])
        arrays = [array if i == column[name] else body.column(i) for i in range(body.num_columns)]
        return replace(good, boot_id="", body=pa.RecordBatch.from_arrays(arrays, schema=loose))

    bad = [
        replace(good, body=Event("t", "s", "i", 0, {})),
        replace(good, boot_id="", body=body.drop_columns(["bytes"])),
        with_("bytes", pa.array([None], pa.uint64())),
        with_("bytes", pa.array([(1 << 64) - 1], pa.uint64())),
        with_("sent_at_ns", pa.array([-(1 << 63)], pa.int64())),
        with_("acknowledged_at_ns", pa.array([(1 << 63) - 1], pa.int64())),
        replace(good, topic="sdf.raw.port.v1"),
    ]
    stage = WorkloadStage()
    where = messages.index(good)
    got = _rows(stage, [*messages[:where], *bad, *messages[where:]])
    assert [r["bytes"] for r in got] == [100]
    refused = {reason: n for (what, reason), n in stage.counters.values.items() if what == "refused"}
    assert refused == {"form": 1, "column-missing": 1, "null": 1, "range": 3}
    assert stage.counters.get("ignored", "sdf.raw.port.v1") == 1


def test_plain_text_names_and_absent_nullable_columns_are_read() -> None:
    world = _world()
    world.chunks = [Chunk(0, START_NS + 10 * MS, START_NS + 20 * MS, START_NS + 11 * MS, 100)]
    messages = world.messages(1.0)
    for i, m in enumerate(messages):
        if m.topic == QP.name:
            table = pa.Table.from_batches([m.body]).drop_columns(["ce", "retransmits", "arrived_at_ns"])
            names = ("job", "qp", "src", "dst", "clock_src", "clock_dst", "transport")
            for name in names:
                at = table.schema.get_field_index(name)
                table = table.set_column(at, name, table.column(name).cast(pa.utf8()))
            messages[i] = replace(m, body=table.to_batches()[0])
    (row,) = _rows(WorkloadStage(), messages)
    assert (row["bytes"], row["ce"], row["retransmits"], row["owd_p50_ns"]) == (100, None, None, None)


def test_queue_pairs_and_chunks_are_bounded_and_counted() -> None:
    world = busy(9, pairs=6)
    stage = WorkloadStage(WorkloadConfig(max_pairs=4, max_chunks=50))
    got = _rows(stage, world.messages(5.0))
    saved = {r["qp"] for r in got}
    assert len(saved) == 4
    reported = sum(c.bytes for c in world.chunks if world.name(c.qp) in saved)
    assert sum(r["bytes"] for r in got) == reported
    assert stage.counters.get("refused", "too-many-pairs") == sum(world.name(c.qp) not in saved for c in world.chunks)


def test_too_many_chunks_close_windows_early_and_lose_none() -> None:
    world = busy(9, pairs=40)
    stage = WorkloadStage(WorkloadConfig(max_chunks=30))
    got = _rows(stage, world.messages(5.0))
    assert sum(r["bytes"] for r in got) == sum(c.bytes for c in world.chunks)
    assert stage.counters.get("closed-early") > 3000


def test_a_queue_pair_without_chunks_is_forgotten() -> None:
    world = busy(10, seconds=1.0)
    stage = WorkloadStage(WorkloadConfig(forget_ns=5 * NS_PER_S, max_pairs=6))
    messages = world.messages(2.0)
    end = messages[-1].bus_at_ns + 130 * NS_PER_S
    run(stage, messages, end)
    later = busy(11, hosts=5, pairs=6, seconds=1.0)
    shift = end - START_NS
    run(
        stage, [replace(m, bus_at_ns=m.bus_at_ns + shift, boot_id="x") for m in later.messages(2.0)], end + 9 * NS_PER_S
    )
    assert stage.counters.get("refused", "too-many-pairs") == 0


@pytest.mark.parametrize("field", ["window_ns", "max_late_ns", "lateness_ns"])
def test_settings_that_cannot_work_are_refused(field: str) -> None:
    with pytest.raises(Exception, match=f"workload.{field}"):
        WorkloadConfig(**{field: -1})


def test_medians_and_extremes_are_those_of_numpy() -> None:
    world = _world()
    delays = [10_000, 40_000, 25_000, 90_000]
    for i, d in enumerate(delays):
        at = START_NS + (10 + i) * MS
        world.chunks.append(Chunk(0, at, at + 2 * MS + i * MS, at + d, 10))
    (row,) = _rows(WorkloadStage(), world.messages(1.0))
    assert [row["owd_min_ns"], row["owd_p50_ns"], row["owd_max_ns"]] == pytest.approx(
        [10_000, float(np.median(delays)), 90_000], abs=3
    )
    assert row["duration_p50_ns"] == 3.5 * MS and row["duration_max_ns"] == 5 * MS
