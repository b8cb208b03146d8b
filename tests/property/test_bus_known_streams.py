"""What `KnownStreams` reads is what the codec reads without it: the same rows, or the same reason."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.bus import codec
from sdfstream.bus.conform import conforms
from sdfstream.bus.known_streams import MOST_FRONT, KnownStreams
from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.topics import CLOCK, OWD, PROBE
from tests.bus_samples import clock_batch, probe_batch
from tests.property.test_bus_codec_property import damaged

T1_NS = 1_800_000_000_000_000_000


def owd_batch(rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    """Rows of delay, some without a delay, now and then one that is no number."""
    assert OWD.columns is not None
    found = {f.name: rng.integers(0, 99, rows).astype(f.type.to_pandas_dtype()) for f in OWD.columns if _plain(f)}
    found |= {f.name: ["a/r0", "b/r0"] * (rows // 2) + ["a/r0"] * (rows % 2) for f in OWD.columns if not _plain(f)}
    for name in ("owd_min_ns", "err_ns", "excess_p50_ns"):
        found[name] = np.where(rng.random(rows) < 0.05, np.nan, found[name])
        if rng.random() < 0.1:
            found[name][rng.integers(rows)] = float(rng.choice([np.inf, 2.0**63, -(2.0**63)]))
    return columns.build(OWD.columns, found)


def _plain(field: pa.Field) -> bool:
    return not pa.types.is_dictionary(field.type)


def strange(rng: np.random.Generator, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Instants that no clock shows, in a column that may be null and in one that may not."""
    for name in ("t1_ns", "t2_ns"):
        index = batch.schema.get_field_index(name)
        if index >= 0 and rng.random() < 0.5:
            values = batch.column(index).to_pylist()
            values[int(rng.integers(len(values)))] = int(rng.choice([-1, 1 << 62, (1 << 62) + 1, 7]))
            batch = batch.set_column(index, batch.schema.field(index), pa.array(values, pa.int64()))
    return batch


def message(rng: np.random.Generator) -> tuple[str, str, bytes]:
    """Topic, key and bytes of a message of one of three producers, sound more often than not."""
    rows = int(rng.choice([8, 8, 31]))
    topic, key, batch = [
        lambda: (PROBE.name, "h00", probe_batch(rows, int(rng.integers(1 << 30)))),
        lambda: (OWD.name, "h00", owd_batch(rows, rng)),
        lambda: (CLOCK.name, "mesh", clock_batch(int(rng.integers(99)), 8)),
    ][rng.integers(3)]()
    if rng.random() < 0.15:
        batch = strange(rng, batch)
    if topic == PROBE.name and rng.random() < 0.05:
        batch = probe_batch(rows, 1, host="h01")
    compression: codec.Compression = "zstd" if rng.random() < 0.1 else None
    value = codec.encode_body(topic, batch, compression=compression)
    if rng.random() < 0.2:
        value = damaged(rng, value)
    return topic, key, value + b"\0" * int(rng.random() < 0.02)


def outcome(topic: str, key: str, value: bytes, known: KnownStreams | None) -> codec.Decoded | str:
    """What decoding says; a refusal by its reason."""
    try:
        return codec.decode_own(topic, [("schema", topic.encode())], value, key, known)
    except FormatError as error:
        return error.reason


@settings(max_examples=40)
@given(st.integers(0, 1 << 32))
def test_known_streams_change_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = KnownStreams()
    for _ in range(60):
        topic, key, value = message(rng)
        there, bare = outcome(topic, key, value, known), outcome(topic, key, value, None)
        if isinstance(bare, str) or isinstance(there, str):
            assert there == bare
            continue
        assert isinstance(there.body, pa.RecordBatch)
        assert there.body.equals(bare.body)
        assert there.refused_rows == bare.refused_rows
        assert conforms(topic, there.body) == conforms(topic, bare.body)
        there.body.validate(full=True)


def sent(topic: str, key: str, batch: pa.RecordBatch) -> tuple[str, str, bytes]:
    return topic, key, codec.encode_body(topic, batch)


def test_the_third_message_of_a_producer_is_read_by_its_front() -> None:
    """The front is remembered at the first and opened at the second; losses are another shape, learnt once."""
    known = KnownStreams()
    for seed in (1, 2):
        outcome(*sent(PROBE.name, "h00", probe_batch(40, seed)), known)
    third = sent(PROBE.name, "h00", probe_batch(40, 2))
    batch = known.read(*third)
    assert batch is not None
    assert batch.equals(probe_batch(40, 2))
    assert known.read(third[0], "h01", third[2]) is None, "another's front"
    assert known.read(CLOCK.name, *third[1:]) is None, "another topic's"
    assert known.read(*third[:2], third[2][:-1]) is None
    assert known.read(*third[:2], third[2] + b"\0") is None


def test_a_front_that_names_another_host_is_not_opened() -> None:
    """Rows of the key's host alone, but a dictionary with another host: whose rows are these is looked at in each."""
    batch = probe_batch(20, 1)
    index = batch.schema.get_field_index("src")
    two = pa.DictionaryArray.from_arrays(pa.array([0] * 20, pa.int32()), ["h00/r0", "h01/r0"])
    mixed = batch.set_column(index, batch.schema.field(index), two)
    known = KnownStreams()
    for _ in range(4):
        assert not isinstance(outcome(*sent(PROBE.name, "h00", mixed), known), str)
    assert known.read(*sent(PROBE.name, "h00", mixed)) is None
    two = pa.DictionaryArray.from_arrays(pa.array([0] * 19 + [1], pa.int32()), ["h00/r0", "h01/r0"])
    mixed = batch.set_column(index, batch.schema.field(index), two)
    assert outcome(*sent(PROBE.name, "h00", mixed), known) == "foreign-host"


def test_fronts_and_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdfstream.bus.known_streams.MOST_BYTES", 30_000)
    monkeypatch.setattr("sdfstream.bus.known_streams.MOST_SHAPES", 4)
    known = KnownStreams()
    for rows in range(7, 19):
        for _ in range(3):
            for host in ("h00", "h01"):
                outcome(*sent(PROBE.name, host, probe_batch(rows, 1, host)), known)
    assert len(known._shapes) <= 4
    for host in range(30):
        outcome(*sent(PROBE.name, f"g{host:02}", probe_batch(9, 1, f"g{host:02}")), known)
    assert 0 < known._bytes <= 30_000
    assert known._bytes == sum(len(front.octets) for front in known._fronts.values())
    long = clock_batch(0, MOST_FRONT // 3)
    for _ in range(3):
        outcome(*sent(CLOCK.name, "mesh", long), known)
    assert (CLOCK.name, "mesh") not in known._fronts


def test_bounds_are_those_of_the_columns() -> None:
    """A number in the place of a null may be anything; one that counts may not: it becomes null, as ever."""
    known = KnownStreams()
    lost = probe_batch(40, 1)
    assert lost.column("t2_ns").null_count
    for _ in range(2):
        outcome(*sent(PROBE.name, "h00", lost), known)
    index = lost.schema.get_field_index("t2_ns")
    null = np.array(lost.column(index).is_null().to_pylist())
    for at, read in ((int(np.flatnonzero(null)[0]), True), (int(np.flatnonzero(~null)[0]), False)):
        values = np.full(40, T1_NS)
        values[at] = -1
        validity = lost.column(index).buffers()[0]
        column = pa.Array.from_buffers(pa.int64(), 40, [validity, pa.py_buffer(values)])
        changed = sent(PROBE.name, "h00", lost.set_column(index, lost.schema.field(index), column))
        assert (known.read(*changed) is not None) == read
        body = outcome(*changed, known)
        assert isinstance(body, codec.Decoded)
        assert body.body.column(index).null_count == int(null.sum()) + (not read)  # type: ignore[union-attr]


def test_stages_outputs_are_known_as_well() -> None:
    for topic, key, batch in (
        (OWD.name, "h00", owd_batch(8, np.random.default_rng(3))),
        (CLOCK.name, "mesh", clock_batch(0, 8)),
    ):
        known = KnownStreams()
        for _ in range(2):
            outcome(*sent(topic, key, batch), known)
        assert known.read(*sent(topic, key, batch)) is not None
