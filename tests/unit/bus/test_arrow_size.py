"""What a stream's metadata say of its size is what pyarrow makes of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.bus import arrow_size
from sdfstream.errors import FormatError
from tests.bus_samples import probe_batch


def stream(batch: pa.RecordBatch, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def buffer_bytes(array: pa.Array) -> int:
    """Bytes of an array's buffers without padding, its dictionary's included."""
    own = sum(b.size for b in array.buffers() if b is not None)
    return own + (buffer_bytes(array.dictionary) if pa.types.is_dictionary(array.type) else 0)


@pytest.mark.parametrize("rows", [0, 1, 70, 5000])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_bytes_are_counted_as_they_will_be(rows: int, compression: str) -> None:
    raw = stream(probe_batch(rows), compression)
    found = arrow_size.decoded_size(raw)
    (whole,) = pa.ipc.open_stream(raw)
    assert found.rows == max(rows, *(len(c.dictionary) for c in whole.columns if pa.types.is_dictionary(c.type)))
    assert found.grown_bytes == pytest.approx(sum(map(buffer_bytes, whole.columns)), rel=0.05, abs=700)
    arrow_size.check_size(raw)


def test_what_is_not_compressed_does_not_grow() -> None:
    assert arrow_size.decoded_size(stream(probe_batch(70), None)) == (70, 0)


def test_a_stream_without_an_end_mark_is_read() -> None:
    raw = stream(probe_batch(70), "zstd")
    assert arrow_size.decoded_size(raw[:-8]) == arrow_size.decoded_size(raw)


def test_a_forged_length_is_taken_at_its_word() -> None:
    """Arrow would allocate what the first eight bytes of a buffer say."""
    batch = pa.record_batch({"x": pa.array(np.arange(10_000))})
    raw = stream(batch, "zstd")
    forged = raw.replace((80_000).to_bytes(8, "little"), (1 << 40).to_bytes(8, "little"))
    assert forged != raw
    with pytest.raises(FormatError, match="arrow-size"):
        arrow_size.check_size(forged)


def test_damaged_metadata_are_refused_and_nothing_else() -> None:
    whole = stream(probe_batch(70), "zstd")
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(3000):
        raw = bytearray(whole)
        for at in rng.integers(len(raw), size=rng.integers(1, 4)):
            raw[at] = rng.integers(256)
        try:
            arrow_size.check_size(bytes(raw[: rng.integers(len(raw))] if rng.random() < 0.3 else raw))
        except FormatError as error:
            assert error.reason in ("arrow-corrupt", "arrow-size", "arrow-batches")
            refused += 1
    assert refused > 300
