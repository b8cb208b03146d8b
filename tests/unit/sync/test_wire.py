"""What parts of sync say to each other: exact there and back, refused with a reason, late and repeated messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.bus import codec
from sdfstream.errors import FormatError
from sdfstream.records.message import Output
from sdfstream.records.topics import EDGE, ESTIMATE
from sdfstream.records.units import TICK_NS
from sdfstream.sync import wire
from sdfstream.sync.clocks import MeshClocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_stage import EstimateInbox
from sdfstream.sync.estimates import COLUMNS, ClockEstimates
from sdfstream.sync.gather import KEEP_NS, Gather
from sdfstream.sync.reduce import ReducedEdges
from sdfstream.sync.reference import ReferenceState

NAMES = ["b", "a", "c"]
AT = 1_800_000_000_000_000_000
DRIFTED = np.array([[7.5, -8.25, 1e4], [0.5, 600.0, -1.0]])
"""Offset and skew, by clock."""
ADDED = ("drift_ppb_per_s", "drifted_", "breach")
"""Columns that messages of earlier versions lack."""


def edges(rows: int = 2, seed: int = 1) -> ReducedEdges:
    g = np.random.default_rng(seed)
    made = {name: g.random(rows) * 10.0 ** g.integers(-30, 9, rows) for name in ReducedEdges._fields}
    made["offset_ns"], made["skew_ppb"] = -made["offset_ns"], -made["skew_ppb"]
    made["info_cross"] = -0.9 * np.sqrt(made["info_offset"] * made["info_skew"])
    for name in ("sessions", "disagreeing", "blocks", "jumped", "breached"):
        made[name] = g.integers(0, 1 << 32, rows).astype(np.float64)
    return ReducedEdges(
        **{**made, "src": np.array([0, 2])[:rows], "dst": np.array([1, 1])[:rows], "recent": made["disagreeing"] > 2e9}
    )


def batch(e: ReducedEdges, at: int = AT, lag: float = 5.5, origin: int | None = 7) -> pa.RecordBatch:
    base, based = np.array([3, -4, 5]), np.array([True, True, False])
    (made,) = wire.edge_batches(at, origin, lag, NAMES, e, base, based, DRIFTED)
    return made


def test_edges_come_back_as_they_were() -> None:
    e = edges()
    body = batch(e)
    assert body.schema.equals(EDGE.columns)
    rows = wire.read_edges(codec.decode(EDGE.name, *_coded(EDGE.name, body)).body)
    assert (rows.origin_ns, rows.lag_ns, rows.tick_at_ns.tolist()) == (7, 5.5, [AT, AT])
    assert [rows.names[k] for k in rows.edges.src] == ["b", "c"]
    assert [rows.names[k] for k in rows.edges.dst] == ["a", "a"]
    for name in ReducedEdges._fields[2:]:
        assert np.array_equal(getattr(rows.edges, name), getattr(e, name)), name
    base = {n: b for n, b, h in zip(rows.names, rows.base_ns.tolist(), rows.based.tolist(), strict=True) if h}
    assert base == {"b": 3, "a": -4}
    assert np.array_equal(rows.drifted[:, [rows.names.index(name) for name in NAMES]], DRIFTED)
    silent = wire.read_edges(batch(e, lag=np.inf, origin=None))
    assert silent.origin_ns is None and silent.lag_ns == np.inf


def test_estimates_come_back_as_they_were() -> None:
    b = estimates(3)
    (body,) = wire.estimate_batches(AT, NAMES, b, 2.5)
    assert body.schema.equals(ESTIMATE.columns)
    rows = wire.read_estimates(codec.decode(ESTIMATE.name, *_coded(ESTIMATE.name, body)).body)
    assert rows is not None
    assert (rows.tick_at_ns, rows.clocks, rows.usual_ns2, rows.names) == (AT, 3, 2.5, NAMES)
    read = rows.estimates
    assert (read.origin_ns, read.at_ns, read.lag_ns, read.reference_state) == (
        b.origin_ns,
        b.at_ns,
        b.lag_ns,
        b.reference_state,
    )
    for name in COLUMNS:
        assert np.array_equal(read.table[name], b.table[name]), name


@pytest.mark.parametrize("name", ["offset_ns", "alarm_ns2", "info_xg_per_ns_ppb"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_none_is_refused(name: str, value: float) -> None:
    body = batch(edges())
    spoilt = body.set_column(body.schema.get_field_index(name), body.schema.field(name), pa.array([1.0, value]))
    with pytest.raises(FormatError, match="not-finite"):
        wire.read_edges(spoilt)


@pytest.mark.parametrize(
    ("name", "value"),
    [("weight_per_ns2", -1.0), ("info_xx_per_ns2", 1e16), ("skew_ppb", 1e10), ("square_ns2", -1e-9),
     ("info_xg_per_ns_ppb", 1e8)],
)  # fmt: skip
def test_a_number_of_nobody_who_measured_is_refused(name: str, value: float) -> None:
    """A weight below zero or an inverse covariance that is none made every clock's estimate NaN."""
    body = batch(edges())
    spoilt = body.set_column(body.schema.get_field_index(name), body.schema.field(name), pa.array([1e-9, value]))
    with pytest.raises(FormatError, match=f"out-of-range: {name}"):
        wire.read_edges(spoilt)


@pytest.mark.parametrize("name", [name for name in EDGE.columns.names if not name.startswith(ADDED)])
def test_a_column_that_is_missing_is_refused(name: str) -> None:
    with pytest.raises(FormatError):
        wire.read_edges(batch(edges()).drop_columns([name]))


def test_messages_of_earlier_versions_know_of_no_drift() -> None:
    rows = wire.read_edges(batch(edges()).drop_columns([n for n in EDGE.columns.names if n.startswith(ADDED)]))
    assert not rows.drifted.any()
    (body,) = wire.estimate_batches(AT, NAMES, estimates(3), 2.5)
    read = wire.read_estimates(body.drop_columns([n for n in ESTIMATE.columns.names if n.startswith(ADDED)]))
    assert read is not None
    assert not any(read.estimates.table[name].any() for name in ("drift_ppb_s", "drifted_ns", "drifted_ppb"))


@pytest.mark.parametrize("name", [name for name in ESTIMATE.columns.names if not name.startswith(ADDED)])
def test_a_column_of_estimates_that_is_missing_is_refused(name: str) -> None:
    (body,) = wire.estimate_batches(AT, NAMES, estimates(3), 2.5)
    with pytest.raises(FormatError):
        wire.read_estimates(body.drop_columns([name]))


def test_estimates_in_pieces_count_once_they_are_complete() -> None:
    inbox = EstimateInbox()
    (first,) = wire.estimate_batches(AT, NAMES, estimates(3, seed=1), 1.0)
    (second,) = wire.estimate_batches(AT + TICK_NS, NAMES, estimates(3, seed=2), 2.0)
    inbox.put(wire.read_estimates(first.slice(0, 2)))
    inbox.put(wire.read_estimates(first.slice(0, 2)))
    assert inbox.newest() is None, "a repeat does not stand for what is missing"
    inbox.put(wire.read_estimates(second.slice(1)))
    inbox.put(wire.read_estimates(first.slice(2)))
    read, usual_ns2 = inbox.newest()
    assert read.names == NAMES and usual_ns2 == 1.0
    assert np.array_equal(read.estimates.table["offset_ns"], estimates(3, seed=1).table["offset_ns"])
    fresh = EstimateInbox()
    fresh.restore(inbox.snapshot())
    for box in (inbox, fresh):
        box.put(wire.read_estimates(second.slice(0, 1)))
        read, usual_ns2 = box.newest()
        assert sorted(read.names) == sorted(NAMES) and usual_ns2 == 2.0
        box.put(wire.read_estimates(first))
        assert box.newest() is None, "a tick that is past is not believed again"


def test_a_row_that_does_not_come_goes_on_for_a_while_with_less_weight() -> None:
    gather, clocks = Gather(), MeshClocks(SyncConfig())
    clocks.enter(["a", "b", "c"])
    clocks.estimates.table["skew_ppb"] = np.array([1000.0, 0.0, 0.0])
    e = edges()._replace(weight=np.array([4.0, 2.0]), offset_ns=np.array([10.0, 20.0]), recent=np.array([True, True]))
    gather.take(wire.read_edges(batch(e)))
    now = gather.report(AT, clocks)
    assert now.lag_ns == 5.5 and now.new_bases_ns == {"b": 3, "a": -4}
    assert now.edges.weight.tolist() == [4.0, 2.0]
    # only c's row is renewed
    gather.take(wire.read_edges(batch(e._replace(weight=np.array([9.0, 1.0])), AT + TICK_NS).slice(1)))
    later = gather.report(AT + TICK_NS, clocks)
    assert later.edges.weight[1] == 1.0 and later.edges.blocks[1] == e.blocks[1]
    assert 2.0 < later.edges.weight[0] < 4.0 and later.edges.blocks[0] == 0.0
    assert later.edges.offset_ns[0] == pytest.approx(10.0 + 100.0)
    gone = gather.report(AT + KEEP_NS, clocks)
    assert gone.edges.src.size == 1
    assert gather.report(AT + KEEP_NS + TICK_NS, clocks).edges.src.size == 0


def test_of_two_shares_that_report_one_pair_the_one_with_recent_exchanges_counts() -> None:
    e = edges(1)
    for order in (1, -1):
        gather = Gather()
        rows = [e._replace(recent=np.array([False]), weight=np.array([9.0])), e._replace(recent=np.array([True]))]
        for read in rows[::order]:
            gather.take(wire.read_edges(batch(read)))
        got = gather.report(AT, MeshClocks(SyncConfig())).edges
        assert got.recent.tolist() == [True] and got.weight == e.weight


def estimates(clocks: int, seed: int = 1) -> ClockEstimates:
    g = np.random.default_rng(seed)
    b = ClockEstimates()
    b.table.grow(clocks)
    for name, default in COLUMNS.items():
        if default.dtype == np.float64:
            b.table[name] = g.random(clocks) * 10.0 ** g.integers(-30, 9, clocks)
    b.table["based"] = np.arange(clocks) != 1
    b.table["base_ns"] = np.where(b.table["based"], g.integers(-(1 << 60), 1 << 60, clocks), 0)
    b.origin_ns, b.at_ns, b.lag_ns, b.reference_state = AT, 1.5e12 + 0.25, 3.25, ReferenceState(2.5, -9, 1e-3, 7.0)
    return b


def _coded(topic: str, body: pa.RecordBatch) -> tuple[list[tuple[str, bytes]], bytes]:
    return codec.encode(Output(topic, "key", body), "boot", 1)
