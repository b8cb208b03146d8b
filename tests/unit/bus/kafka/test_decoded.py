"""Records decoded once for all readers of a process: by equal bytes, and within a bound."""

from __future__ import annotations

import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.bus import codec
from sdfstream.bus.kafka.decoded import MOST_BYTES, DecodedRecords
from sdfstream.bus.kafka.unreadable_io import Unreadable
from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import CLOCK, FINDING
from tests.bus_samples import clock


class Record(NamedTuple):
    """As aiokafka's, the fields that count."""

    offset: int
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    key: bytes | None = b"k"
    partition: int = 0


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Values that were decoded."""
    decoded: list[bytes] = []
    decode = codec.decode_own

    def counted(topic: str, headers: Any, value: bytes, key: str, known: Any) -> codec.Decoded:
        decoded.append(value)
        return decode(topic, headers, value, key, known)

    monkeypatch.setattr(codec, "decode_own", counted)
    return decoded


def sound(offset: int, text: str = "x") -> Record:
    output = Output(FINDING.name, "k", Event("later", "detect", text, 1, {}))
    headers, value = codec.encode(output, "boot", 7, bus_at_ns=5)
    return Record(offset, value, tuple(headers))


def read_by_two(most_bytes: int = MOST_BYTES) -> DecodedRecords:
    records = DecodedRecords(most_bytes)
    for name in ("detect", "archive"):
        records.begin(name, [FINDING.name, CLOCK.name])
    return records


def test_what_no_other_reads_is_not_retained(calls: list[bytes]) -> None:
    records = read_by_two()
    records.begin("detect", [FINDING.name])  # another unit: it reads partitions of its own
    records.end("archive", [FINDING.name])
    for _ in range(2):
        records.of(FINDING.name, 0, sound(3))
    assert len(calls) == 2 and not records._retained
    records.end("detect", [FINDING.name])
    records.begin("archive", [FINDING.name])
    for _ in range(2):
        records.of(FINDING.name, 0, sound(3))
    assert len(calls) == 3


def test_a_refusal_is_retained_for_its_only_reader(calls: list[bytes]) -> None:
    records = DecodedRecords()
    records.begin("detect", [FINDING.name])
    refused = Record(1, b"{", (("schema", FINDING.name.encode()),))
    assert records.of(FINDING.name, 0, refused) is records.of(FINDING.name, 0, refused), "it knows of its dead letter"


def test_equal_records_are_decoded_once_and_others_anew(calls: list[bytes]) -> None:
    records = read_by_two()
    first = records.of(FINDING.name, 0, sound(3))
    assert isinstance(first.outcome, codec.Decoded)
    assert (first.outcome.boot_id, first.outcome.batch_seq, first.key) == ("boot", 7, "k")
    assert records.of(FINDING.name, 0, sound(3)) is first
    others = [
        (0, sound(4)),
        (1, sound(3)),
        (0, sound(3, "y")),  # the topic was made again
        (0, sound(3)._replace(key=b"other")),
        (0, sound(3)._replace(headers=sound(3).headers[:-1])),
    ]
    for number, record in others:
        assert records.of(FINDING.name, number, record) is not first
    assert len(calls) == 1 + len(others)


def test_a_refusal_is_kept_with_what_its_dead_letter_needs(calls: list[bytes]) -> None:
    records = read_by_two()
    for _ in range(2):
        read = records.of(FINDING.name, 0, Record(1, b"{", (("schema", FINDING.name.encode()),)))
        assert isinstance(read.outcome, FormatError)
        assert (read.outcome.reason, read.value, read.key) == ("json", b"{", "k")
        assert read.outcome.__traceback__ is None
        assert read.outcome.__cause__ is None and read.outcome.__context__ is None, "their frames hold the text"
    assert len(calls) == 1


def test_one_that_the_client_cannot_read_is_not_taken_for_its_bytes(calls: list[bytes]) -> None:
    records, good = read_by_two(), sound(3)
    value = Unreadable(good.value or b"")
    value.why = "a header"
    assert isinstance(records.of(FINDING.name, 0, good).outcome, codec.Decoded)
    read = records.of(FINDING.name, 0, good._replace(value=value))
    assert isinstance(read.outcome, FormatError) and read.outcome.reason == "record"
    assert len(calls) == 1


def test_what_is_kept_has_a_bound(calls: list[bytes]) -> None:
    records = read_by_two(40_000)
    many = [sound(offset, "x" * 200) for offset in range(100)]
    for record in many:
        records.of(FINDING.name, 0, record)
    for record in reversed(many):
        records.of(FINDING.name, 0, record)
    retained = 200 - len(calls)
    assert 5 < retained < 20
    records.of(FINDING.name, 0, Record(500, bytes(100_000)))
    records.of(FINDING.name, 0, Record(500, bytes(100_000)))
    assert calls[-2:] == [bytes(100_000)] * 2, "one larger than the bound is not retained"
    assert records._bytes <= 40_000 and len(records._retained) == retained, "nor does it cost the others their room"


def test_the_bound_counts_what_a_value_became() -> None:
    rows = clock(0).body.take(pa.array(np.zeros(7_000, np.int32)))
    headers, bomb = codec.encode(Output(CLOCK.name, "mesh", rows), "boot", 7, bus_at_ns=5, compression="zstd")
    records = read_by_two(4 << 20)
    before = pa.total_allocated_bytes()
    for offset in range(50):
        read = records.of(CLOCK.name, 0, Record(offset, bomb, tuple(headers), b"mesh"))
        assert isinstance(read.outcome, codec.Decoded) and read.outcome.body.nbytes > 8 * len(bomb)
    del read
    assert records._retained
    assert pa.total_allocated_bytes() - before < 4 << 20


def test_the_bound_counts_an_event_as_objects() -> None:
    records = read_by_two(1 << 20)
    tracemalloc.start()
    try:
        for offset in range(500):
            records.of(FINDING.name, 0, sound(offset, ", ".join(map(str, range(300)))))
        assert len(records._retained) < 100
        assert tracemalloc.get_traced_memory()[0] < 2 << 20
    finally:
        tracemalloc.stop()
