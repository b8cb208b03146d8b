"""Messages to Arrow tables: every column arrives, unknown stays null, what cannot be read is refused."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sdfstream.archive import packing, tables
from sdfstream.archive.batching import message_bytes
from sdfstream.archive.events import PICKS, event_rows
from sdfstream.archive.rows import bulk_rows, cast_columns, reject_rows
from sdfstream.errors import FormatError
from sdfstream.records import arrow
from sdfstream.records.joins import JOINS
from sdfstream.records.message import Event
from sdfstream.records.topics import CLOCK, FINDING, NIC, OWD, PROBE, TOPICS, TOPOLOGY, Topic
from tests.fixtures.archive import BULK, BUS_COLUMNS, EPOCH_NS, EVENTS, FINDING_DATA, bulk, event, message


def stored_names(topic: Topic) -> list[str]:
    """The stored columns of a topic, those of the bus not among them."""
    packed = tables.packed_fields(topic)
    plain = [tables.stored_name(topic, field) for field in topic.columns or () if field.name not in packed]
    return [*(packing.PROBE_COLUMNS if packed else ()), *plain]


@pytest.mark.parametrize("topic", BULK, ids=lambda t: t.name)
def test_every_column_of_a_bulk_topic_arrives_under_its_stored_name(topic) -> None:
    rng = np.random.default_rng(1)
    batches = [bulk(topic, n, rng) for n in (3, 0, 5)]
    out = bulk_rows(topic, [message(topic, b, i) for i, b in enumerate(batches)], "run")
    assert out.rejects == ()
    assert out.table.num_rows == 8
    assert out.table.column_names == [*stored_names(topic), *BUS_COLUMNS]
    assert out.table.column("bus_seq").to_pylist() == [0] * 3 + [2] * 5
    assert out.table.column("bus_id").to_pylist() == ["run"] * 8


def test_stamps_are_stored_exactly_in_columns_even_when_they_wrap() -> None:
    lowest, highest = -(2**63), 2**63 - 1
    t1 = pa.array([EPOCH_NS, 5, lowest, highest, -1], pa.int64())
    t2 = pa.array([None, 7, highest, lowest, 4], pa.int64())
    t3 = pa.array([9, None, 0, highest, lowest], pa.int64())
    t4 = pa.array([EPOCH_NS + 1, 8, lowest, None, highest], pa.int64())
    host = pa.array([None, -1, 2**31 - 1, -(2**31), 511], pa.int32())
    columns = packing.probe_columns(t1, t2, t3, t4, host, host)
    assert _unpacked(columns) == [a.to_pylist() for a in (t1, t2, t3, t4, host)]


def test_what_stands_where_a_value_is_null_is_zero_and_no_noise() -> None:
    """So the same rows are the same bytes, and bytes that compress."""
    some = pa.array([5, None, 7, None], pa.int64())
    host = pa.array([None, 3, None, 4], pa.int32())
    columns = packing.probe_columns(pa.array([1, 2, 3, 4], pa.int64()), some, some, some, host, host)
    for name in ("ahead_ns", "turn_high", "rtt_high", "tx_high", "rx_high"):
        unknown = arrow.nulls(columns[name])
        assert unknown.any(), name
        assert not arrow.plain(columns[name])[unknown].any(), name


@pytest.mark.parametrize("topic", BULK, ids=lambda t: t.name)
def test_many_messages_give_the_rows_that_they_give_one_by_one(topic) -> None:
    rng = np.random.default_rng(2)
    sent = [message(topic, bulk(topic, int(n), rng), i) for i, n in enumerate(rng.integers(0, 4, 150))]
    at_once = bulk_rows(topic, sent, "run").table
    singly = pa.concat_tables([bulk_rows(topic, [one], "run").table for one in sent])
    assert at_once.to_pylist() == singly.to_pylist()


def _unpacked(columns) -> list[list]:
    """What the ALIAS columns of 0007_probe_in_parts.sql compute."""

    def wrap(x):
        return None if x is None else (x + 2**63) % 2**64 - 2**63

    def whole(name, bits):
        both = zip(columns[f"{name}_high"].to_pylist(), columns[f"{name}_low"].to_pylist(), strict=True)
        return [None if h is None else (h << bits) + low for h, low in both]

    slots = zip(columns["t1_slot"].to_pylist(), columns["t1_low"].to_pylist(), strict=True)
    rows = []
    stored = (columns["ahead_ns"].to_pylist(), whole("turn", 9), whole("rtt", 9), whole("tx", 9))
    for (slot, low), ahead, turn, rtt, tx in zip(slots, *stored, strict=True):
        t1 = (slot << 20) + low
        t21 = None if ahead is None else wrap(ahead + ((rtt or 0) >> 1))
        t31 = None if turn is None else wrap(turn + (t21 or 0))
        between = 0 if t31 is None or t21 is None else wrap(t31 - t21)
        t41 = None if rtt is None else wrap(rtt + between)
        rows.append((t1, *(None if d is None else wrap(t1 + d) for d in (t21, t31, t41)), tx))
    return [list(column) for column in zip(*rows, strict=True)]


def test_an_insert_stored_by_an_older_sdfstream_is_brought_to_the_layout_of_today() -> None:
    batch = bulk(PROBE, 50, np.random.default_rng(4))
    now = bulk_rows(PROBE, [message(PROBE, batch)], "run").table
    t1 = batch.column("t1_ns")
    then = {name: now.column(name) for name in now.column_names if name not in packing.PROBE_COLUMNS}
    then |= {"t1": t1.cast(tables.INSTANT), "tx_host_ns": batch["tx_host_ns"], "rx_host_ns": batch["rx_host_ns"]}
    then |= {f"t{i}1_ns": pc.subtract(batch[f"t{i}_ns"], t1) for i in (2, 3, 4)}
    brought = packing.current("raw_probe", pa.table(then))
    assert brought.select(now.column_names).equals(now)
    assert packing.current("raw_probe", now) is now
    assert packing.current("state_nic", now) is now


def test_delays_are_rounded_to_a_sixteenth_of_a_nanosecond_and_no_further() -> None:
    batch = bulk(OWD, 100, np.random.default_rng(3))
    table = bulk_rows(OWD, [message(OWD, batch)], "run").table
    for name in ("owd_min_ns", "excess_p50_ns", "err_ns"):
        given, stored = batch.column(name).to_pylist(), table.column(name).to_pylist()
        for a, b in zip(given, stored, strict=True):
            assert (a is None) == (b is None)
            assert a is None or (abs(a - b) <= 1 / 32 and (b * 16).is_integer())


def test_clock_offsets_are_stored_to_the_last_bit() -> None:
    batch = bulk(CLOCK, 20, np.random.default_rng(3))
    table = bulk_rows(CLOCK, [message(CLOCK, batch)], "run").table
    assert table.column("offset_ns").combine_chunks().equals(batch.column("offset_ns"))


def test_unknown_boot_and_batch_number_are_null() -> None:
    batch = bulk(CLOCK, 1, np.random.default_rng(0))
    table = bulk_rows(CLOCK, [message(CLOCK, batch, 4, boot_id="", batch_seq=-1)], "run").table
    assert table.column("boot_id").to_pylist() == [None]
    assert table.column("batch_seq").to_pylist() == [None]


def test_a_foreign_producers_forms_are_accepted() -> None:
    batch = bulk(CLOCK, 3, np.random.default_rng(0))
    plain = pa.record_batch(
        {
            f.name: batch.column(i).cast(pa.large_utf8()) if pa.types.is_dictionary(f.type) else batch.column(i)
            for i, f in enumerate(CLOCK.columns)
        }
        | {"new_column": pa.array([1, 2, 3])}
    )
    out = cast_columns(plain, CLOCK.columns)
    assert out.schema.equals(CLOCK.columns)
    assert out.column("clock").to_pylist() == batch.column("clock").to_pylist()


def test_an_absent_nullable_column_is_null_and_an_absent_required_one_is_refused() -> None:
    batch = bulk(PROBE, 2, np.random.default_rng(0))
    without = batch.drop_columns(["plane"])
    assert cast_columns(without, PROBE.columns).column("plane").null_count == 2
    older = bulk_rows(PROBE, [message(PROBE, batch.drop_columns(["seq_rev"])), message(PROBE, batch, 1)], "run")
    assert older.rejects == ()
    assert older.table.column("seq_rev").to_pylist() == [None] * 2 + batch.column("seq_rev").to_pylist()
    out = bulk_rows(PROBE, [message(PROBE, batch.drop_columns(["seq"])), message(PROBE, batch, 1)], "run")
    assert out.table.num_rows == 2
    assert [(r.reason, r.detail, r.rows) for r in out.rejects] == [("column-missing", "seq", 2)]
    refused = reject_rows(out.rejects, "run")
    assert pa.ipc.open_stream(refused.column("body")[0].as_py()).read_all().num_rows == 2


def test_a_row_with_a_null_where_none_is_allowed_is_refused_and_the_rest_goes_on() -> None:
    batch = bulk(CLOCK, 3, np.random.default_rng(0))
    batch = batch.set_column(2, CLOCK.columns.field(2), pa.array([1.0, None, 3.0]))
    out = bulk_rows(CLOCK, [message(CLOCK, batch)], "run")
    assert out.table.column("offset_ns").to_pylist() == [1.0, 3.0]
    assert [(r.reason, r.detail, r.rows) for r in out.rejects] == [("null", "offset_ns", 1)]


def test_a_column_of_another_type_is_refused_with_its_name() -> None:
    batch = bulk(CLOCK, 1, np.random.default_rng(0)).drop_columns(["n"]).append_column("n", pa.array(["many"]))
    with pytest.raises(FormatError, match="column-type: n is string, not uint32"):
        cast_columns(batch, CLOCK.columns)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_fills_its_typed_columns_and_keeps_its_payload(name: str) -> None:
    topic = TOPICS[name]
    out = event_rows(topic, [event(topic, EVENTS[name])], "run")
    assert out.rejects == ()
    row = out.table.to_pylist()[0]
    assert [p.column for p in PICKS[name] if p.column in row] == [p.column for p in PICKS[name]]
    assert row["event_type"] == name
    assert '"' in row["data"]


def test_finding_columns() -> None:
    table = event_rows(FINDING, [event(FINDING, FINDING_DATA)], "run").table
    row = table.to_pylist()[0]
    assert (row["subject_type"], row["subject_id"], row["resolved_at"], row["jobs"]) == (
        "link",
        "l0--s1",
        None,
        ["train-7"],
    )
    assert table.column("since_at").cast(pa.int64()).to_pylist() == [EPOCH_NS]


def test_odd_fields_become_null_and_stay_in_the_payload() -> None:
    odd = {"path": 2**40, "dscp": True, "hops": "none", "complete": 1, "traced_at_ns": 1.5, "src": ["x"]}
    row = event_rows(TOPOLOGY, [event(TOPOLOGY, odd)], "run").table.to_pylist()[0]
    assert [row[n] for n in ("path", "dscp", "complete", "traced_at", "src")] == [None] * 5
    assert row["hops"] == []
    assert '"path":1099511627776' in row["data"]


def test_events_without_their_key_or_without_json_are_refused() -> None:
    good = EVENTS[NIC.name]
    bad = [
        event(NIC, {k: v for k, v in good.items() if k != "nic"}, 1),
        event(NIC, good | {"why": float("nan")}, 2),
        event(NIC, good | {"why": object()}, 3),
        message(NIC, bulk(CLOCK, 1, np.random.default_rng(0)), 4),
        message(NIC, Event("t", "s", "\ud800", 1, good), 5),
        message(NIC, Event("t", "s", "i", 2**63, good), 6),
    ]
    out = event_rows(NIC, [event(NIC, good), *bad], "run")
    assert out.table.num_rows == 1
    reasons = ["field-missing", "not-json", "not-json", "form", "envelope", "envelope"]
    assert [r.reason for r in out.rejects] == reasons
    assert reject_rows(out.rejects, "run").column("bus_seq").to_pylist() == [1, 2, 3, 4, 5, 6]


def test_a_lone_surrogate_does_not_lose_the_event() -> None:
    data = EVENTS[NIC.name] | {"why": "bad \ud800 text", "state": "healthy"}
    row = event_rows(NIC, [event(NIC, data)], "run").table.to_pylist()[0]
    assert row["why"] is None
    assert "\\ud800" in row["data"]


def test_an_event_on_a_bulk_topic_is_refused() -> None:
    out = bulk_rows(CLOCK, [replace(event(NIC, EVENTS[NIC.name]), topic=CLOCK.name)], "run")
    assert out.table.num_rows == 0
    assert [r.reason for r in out.rejects] == ["form"]


@pytest.mark.parametrize("topic", BULK, ids=lambda t: t.name)
def test_a_messages_size_is_about_what_arrow_counts(topic) -> None:
    batch = bulk(topic, 5000, np.random.default_rng(1))
    assert batch.nbytes / 1.25 < message_bytes(message(topic, batch)) < batch.nbytes * 1.25
    foreign = pa.record_batch({"a": pa.array(range(1000)), "b": pa.array(["name"] * 1000)})
    assert message_bytes(replace(message(topic, foreign), topic="sdf.x.y.v1")) == 1024 + 1000 * (8 + 16)


def test_what_a_stage_has_joined_gives_the_same_rows_and_is_let_go() -> None:
    topic, g = PROBE, np.random.default_rng(3)
    sent = [message(topic, bulk(topic, 40, g), i) for i in range(12)]
    alone = bulk_rows(topic, sent, "run").table
    with JOINS.retained():
        joined = JOINS.joined(sent[2:9])
        assert any(piece is joined for piece in JOINS.pieces([m.body for m in sent]))
        assert bulk_rows(topic, sent, "run").table.equals(alone)
        assert JOINS.pieces([m.body for m in sent]) == [m.body for m in sent]
