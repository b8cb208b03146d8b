"""Compressed batches are decompressed within a bound, and read as they were."""

from __future__ import annotations

import tracemalloc

import pytest
from aiokafka.record.memory_records import MemoryRecords

from sdfstream.bus.kafka import unpack
from sdfstream.bus.kafka.unreadable_io import Unreadable
from tests.fixtures.kafka_records import batch
from tests.unit.bus.kafka.test_unreadable_io import fetched, seen

CODECS = pytest.mark.parametrize("compression", [1, 2, 3, 4])


@CODECS
def test_what_is_read_is_what_the_client_alone_reads(compression: int) -> None:
    data = batch(5, ["a", "b", "c"], compression, pad=3000)
    assert list(fetched(data, 5)) == list(fetched(data, 5, MemoryRecords))


@CODECS
def test_a_bomb_is_one_refusal_and_costs_no_more_than_the_bound(
    compression: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "MOST_BYTES", 4 << 20)
    bomb = batch(10, ["a", "b"], compression, pad=20 << 20)
    tracemalloc.start()
    found = list(fetched(bomb + batch(12, ["c"]), 10))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen(found) == [(10, None), (12, b"v0")]
    assert isinstance(found[0].value, Unreadable) and "decompressed" in found[0].value.why
    assert found[0].timestamp == 1000
    assert peak < len(bomb) * 3 + (12 << 20)


def test_29_kb_that_unpack_to_gigabytes_are_refused_by_their_growth() -> None:
    bomb = batch(10, ["a"], 4, pad=900 << 20 >> 3)
    assert len(bomb) < 29 << 10
    assert seen(fetched(bomb, 10)) == [(10, None)]


def test_heartbeats_that_are_alike_are_no_bomb() -> None:
    data = batch(1, ["a"] * 2000, 4, pad=400)
    assert len(seen(fetched(data, 1))) == 2000


@pytest.mark.parametrize("old", [0, 1])
def test_a_compressed_batch_of_the_old_formats_is_refused(old: int) -> None:
    data = bytearray(batch(1, ["a"]))
    data[16], data[17] = old, 1
    with pytest.raises(ValueError, match="old format"):
        unpack.plain(memoryview(bytes(data)))


def test_a_codec_that_nobody_knows_and_blocks_that_lie_are_refused() -> None:
    data = bytearray(batch(1, ["a"], 2, pad=500))
    data[unpack._ATTRIBUTES_AT + 1] |= 7
    with pytest.raises(ValueError, match="codec 7"):
        unpack.plain(memoryview(bytes(data)))
    head = bytes(batch(1, ["a"], 2, pad=500))[:61]
    for body in (unpack._XERIAL + bytes(8) + b"\x7f\xff\xff\xff", unpack._XERIAL + bytes(8) + b"\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="a block of"):
            unpack.plain(memoryview(head + body))
