"""Streams whose front was written before: the same octets as written whole, and never another batch's names."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

from sdfstream.bus import codec, fronts
from sdfstream.records.topics import PROBE, TOPICS

COLUMNS = TOPICS[PROBE.name].columns
assert COLUMNS is not None


def _batch(names: pa.Array, rows: range) -> pa.RecordBatch:
    def column(field: pa.Field) -> pa.Array:
        if pa.types.is_dictionary(field.type):
            return pa.DictionaryArray.from_arrays(pa.array([r % len(names) for r in rows], pa.int32()), names)
        return pa.array([None if field.nullable and r % 3 == 0 else r % 100 for r in rows], field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in COLUMNS], schema=COLUMNS)


@pytest.mark.parametrize("rows", [range(1), range(5, 30), range(0)])
def test_a_stream_with_a_known_front_is_the_stream_written_whole(rows: range) -> None:
    names, front = pa.array(["h00/r0", "h01/r0", "h02/r1"]), fronts.SharedFront()
    whole = codec.encode_body(PROBE.name, _batch(names, rows))
    first, second, cut = _batch(names, range(3)), _batch(names, rows), _batch(names, range(40)).slice(7, 9)
    for batch in (first, second, cut):
        fronts.share(batch, front)
    assert fronts.encoded(second) is None
    codec.encode_body(PROBE.name, first)
    assert fronts.encoded(second) == codec.encode_body(PROBE.name, second) == whole
    assert codec.read_one_batch(codec.encode_body(PROBE.name, cut)).equals(_batch(names, range(7, 16)))


def test_compressed_streams_are_written_whole() -> None:
    names, front = pa.array(["h00/r0"]), fronts.SharedFront()
    batches = [_batch(names, range(20)) for _ in range(2)]
    for batch in batches:
        fronts.share(batch, front)
    packed = [codec.encode_body(PROBE.name, batch, compression="zstd") for batch in batches]
    assert fronts.encoded(batches[0]) is None and packed[0] == packed[1]
    codec.encode_body(PROBE.name, batches[0])
    assert codec.encode_body(PROBE.name, batches[1], compression="zstd") == packed[1]


def test_a_batch_that_is_gone_leaves_no_front_for_the_next_at_its_address() -> None:
    names, front, before = pa.array(["h00/r0"]), fronts.SharedFront(), len(fronts._SHARING)
    kept = _batch(names, range(2))
    fronts.share(kept, front)
    codec.encode_body(PROBE.name, kept)
    for _ in range(200):  # addresses are used again
        fronts.share(_batch(names, range(2)), front)
        gc.collect(0)
        assert fronts.encoded(_batch(pa.array(["h09/r1"]), range(2))) is None
    assert len(fronts._SHARING) <= before + 1
