"""A record that the Kafka client cannot read is refused by itself; every other of its batch is read, once."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from sdfstream.bus import codec, dead_letters
from sdfstream.bus.kafka import fitting, unreadable_io
from sdfstream.bus.kafka.config import SLACK_BYTES, KafkaConfig
from sdfstream.bus.kafka.decoded import DecodedRecords
from sdfstream.bus.kafka.partitions_io import MergedPartitions
from sdfstream.bus.kafka.reader_io import KafkaSubscription
from sdfstream.bus.kafka.task_io import KafkaTask
from sdfstream.bus.kafka.unreadable_io import MOST_STORED, ReadableRecords, Unreadable
from sdfstream.bus.sequences import SequenceWatch
from sdfstream.bus.task import Work
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import CLOCK
from sdfstream.stats import Counters
from tests.fixtures.kafka_records import BAD, BATCH_HEADER, batch

PARTITION = TopicPartition(CLOCK.name, 3)
OTHER = TopicPartition(CLOCK.name, 4)


def fetched(data: bytes, at: int = 0, kind: Any = ReadableRecords, crc: bool = True) -> Any:
    """What the client's own reader of an answer gives from offset `at` on."""
    return fetcher.PartitionRecords(PARTITION, kind(data), [], at, None, None, crc, fetcher.READ_COMMITTED)


def seen(records: Any) -> list[tuple[int, bytes | None]]:
    return [(r.offset, None if isinstance(r.value, Unreadable) else r.value.rstrip(b"\0")) for r in records]


def why(record: Any) -> str:
    with pytest.raises(FormatError) as refused:
        unreadable_io.check(record)
    assert refused.value.reason == "record"
    return refused.value.detail


def test_the_client_alone_meets_such_a_record_again_and_again() -> None:
    """Why this module is there; when it fails, the client has been mended and the module may go."""
    data = batch(10, ["a", BAD, "c"])
    for at in (10, 11, 12):  # also behind the record: a broker answers with the whole batch
        with pytest.raises(UnicodeDecodeError):
            list(fetched(data, at, MemoryRecords))


def test_the_client_reads_by_the_name_that_is_replaced() -> None:
    unreadable_io.install()
    assert fetcher.MemoryRecords is ReadableRecords
    assert "MemoryRecords" in fetcher.Fetcher._proc_fetch_request.__code__.co_names


@pytest.mark.parametrize("compression", range(5))
def test_one_record_is_set_aside_and_the_others_of_its_batch_are_read(compression: int) -> None:
    data = batch(10, ["a", BAD, "c", BAD], compression, pad=500) + batch(14, ["a"], compression)
    reader = fetched(data, 10)
    found = list(reader)
    assert seen(found) == [(10, b"v0"), (11, None), (12, b"v2"), (13, None), (14, b"v0")]
    assert reader.next_fetch_offset == 15
    assert [r.timestamp for r in found if not isinstance(r.value, Unreadable)] == [1000, 1002, 1000]
    assert found[2].headers == (("c", b"x"),)
    assert "partition 3, offset 11: UnicodeDecodeError" in why(found[1])
    assert found[1].value.endswith(b"\x02\x04\xff\xfe\x02x"), "the record as it stands in the batch"


def test_one_that_was_passed_is_not_met_again() -> None:
    assert seen(fetched(batch(10, ["a", BAD, "c"]), 12)) == [(12, b"v2")]


def test_readable_batches_pass_as_they_are() -> None:
    data = batch(5, ["a", "b"]) + batch(7, ["c"])
    assert list(fetched(data, 5)) == list(fetched(data, 5, MemoryRecords))


def test_a_batch_that_does_not_decompress_is_one_refusal() -> None:
    data = bytearray(batch(10, ["a", "b", "c"], 4, pad=500))
    data[BATCH_HEADER + 2 :] = bytes(len(data) - BATCH_HEADER - 2)
    found = list(fetched(bytes(data) + batch(13, ["d"]), 10, crc=False))
    assert seen(found) == [(10, None), (13, b"v0")]
    assert "nothing from here to offset 12 can be read" in why(found[0])


def test_a_length_that_leaves_the_batch_refuses_what_follows() -> None:
    data = bytearray(batch(10, ["a", "b", "c"]))
    size = (len(data) - BATCH_HEADER) // 3
    data[BATCH_HEADER + size] = 0x7F  # the second record's: odd, thus negative
    found = list(fetched(bytes(data) + batch(13, ["d"]), 10, crc=False))
    assert seen(found) == [(10, b"v0"), (11, None), (13, b"v0")]
    assert "offset 12" in why(found[1])


def test_inner_lengths_that_are_wrong_cost_their_record_only() -> None:
    data = bytearray(batch(10, ["a", "b", "c"]))
    size = (len(data) - BATCH_HEADER) // 3
    data[BATCH_HEADER + size + 4] = 0x7E  # the second record's key: 63 bytes
    assert seen(fetched(bytes(data), 10, crc=False)) == [(10, b"v0"), (11, None), (12, b"v2")]


def test_a_batch_of_the_old_format_is_refused_from_there_on() -> None:
    class Old:
        base_offset, next_offset = 10, 12

        def __iter__(self) -> Any:
            raise CorruptRecordException("no")

    (found,) = unreadable_io._Batch(Old(), memoryview(bytes(40)))
    assert found.offset == 10
    assert found.value.why.startswith("nothing from here to offset 11")


def test_a_large_one_is_kept_in_part() -> None:
    (found,) = fetched(batch(0, [BAD], 4, pad=1 << 22))
    assert len(found.value) == MOST_STORED
    assert f"the first {MOST_STORED} of 41943" in why(found)


class Consumer:
    """Gives out `answers`, one a call; raises those that are errors."""

    committed: ClassVar[int] = 7

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.at: dict[Any, int] = {}

    async def getmany(self, **_: Any) -> Any:
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        self.at |= {partition: records[-1].offset + 1 for partition, records in answer.items()}
        return answer

    async def position(self, partition: Any) -> int:
        return self.at[partition]

    def last_stable_offset(self, partition: Any) -> int:
        return self.at[partition]

    async def seek_to_committed(self, partition: Any) -> None:
        self.seek(partition, self.committed)

    def seek(self, partition: Any, offset: int) -> None:
        self.at[partition] = offset

    def assignment(self) -> set[Any]:
        return {PARTITION, OTHER}


class Client:
    """A `KafkaClient` that keeps what is published."""

    def __init__(self) -> None:
        self.config = KafkaConfig()
        self.counters = Counters("bus")
        self.decoded = DecodedRecords()
        self.published: list[Output] = []
        self.calls = 0

    def clock(self) -> int:
        return 1

    async def publish(self, outputs: list[Output]) -> None:
        self.calls += 1
        self.published += outputs


def one_refused() -> list[Any]:
    return list(fetched(batch(10, [BAD]), 10))


def reasons(letters: list[Output]) -> list[Any]:
    assert all(letter.topic == CLOCK.name + dead_letters.SUFFIX for letter in letters)
    return [letter.body.data["reason"] for letter in letters if isinstance(letter.body, Event)]


async def test_a_subscription_goes_past_it_with_a_dead_letter() -> None:
    client = Client()
    reader = KafkaSubscription(client, "g", (CLOCK.name,))
    reader._consumer = Consumer({PARTITION: one_refused()})
    assert await reader.read() == []
    assert reader._next == {PARTITION: 11}
    assert reasons(client.published) == ["record"]
    assert client.counters.get("refused", "record") == 1


async def test_all_that_one_read_sets_aside_is_published_at_once() -> None:
    """One by one, each waits for the brokers: a stranger's hundred messages a second held the board up for minutes."""
    client = Client()
    reader = KafkaSubscription(client, "g", (CLOCK.name,))
    many = list(fetched(batch(10, [BAD] * 30), 10))
    reader._consumer = Consumer({PARTITION: many}, {PARTITION: one_refused()})
    assert await reader.read() == []
    assert (client.calls, reasons(client.published)) == (1, ["record"] * 30)
    assert await reader.read() == []
    assert (client.calls, len(client.published)) == (2, 31), "none is published again"


async def test_a_read_whose_dead_letters_cannot_be_published_is_read_again() -> None:
    class Away(Client):
        async def publish(self, outputs: list[Output]) -> None:
            await super().publish(outputs)
            if self.calls == 1:
                raise BusError("away")

    client = Away()
    reader = KafkaSubscription(client, "g", (CLOCK.name,))
    reader._consumer = consumer = Consumer({PARTITION: one_refused()}, {PARTITION: one_refused()})
    with pytest.raises(BusError):
        await reader.read()
    assert consumer.at == {PARTITION: 10}
    assert await reader.read() == []
    assert reasons(client.published) == ["record"] * 2


def test_a_dead_letter_is_never_too_large_for_its_topic() -> None:
    """Compressed by its producer, a record may be larger than any that is written here."""
    config = KafkaConfig(max_message_bytes=64 << 10)
    why_not = FormatError("arrow-corrupt", "x")
    for key, headers, value in (
        ("k", [("schema", b"s")], bytes(1 << 22)),
        ("k", [("h", bytes(1 << 22))], b"v"),
        ("k", [("", b"")] * 100_000, b"v"),
        ("\u20ac" * (1 << 20), [("schema", b"s")], b"v"),
        ("k" * 1024, [("h", bytes(60_000))], bytes(config.max_message_bytes)),
    ):
        letter = fitting.dead_letter(config.max_message_bytes, CLOCK.name, key, headers, value, why_not, 1)
        given, raw = codec.encode(letter, "b", 1, bus_at_ns=1)
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(letter.key.encode(), raw, given)
        assert size <= config.max_message_bytes + 2 * SLACK_BYTES
        assert len(raw) <= config.max_message_bytes, "what `producer_io.send` takes"
        whole = (key, len(headers), value) == (letter.key, len(given) - 4, raw)
        assert ("left out" in dict(given)["dlq_detail"].decode()) != whole


def test_one_that_fits_is_as_it_was() -> None:
    given = (CLOCK.name, "k", [("schema", b"s")], b"v", FormatError("json", "x"), 1)
    assert fitting.dead_letter(1 << 20, *given) == dead_letters.dead_letter(*given)


class Writer:
    """A `CommitWriter` that keeps what is committed; the first commit fails if `fails`."""

    def __init__(self, *, fails: bool = False) -> None:
        self.committed: list[Output] = []
        self.fails = fails

    def encode(self, outputs: list[Output]) -> list[Output]:
        return outputs

    async def write(self, outputs: list[Output], *_: Any) -> int:
        await asyncio.sleep(0)
        if self.fails:
            raise BusError("away")
        self.committed += outputs
        return 1


def task_on(client: Client, writer: Writer) -> Any:
    """A task that has met one record that cannot be read."""
    task: Any = object.__new__(KafkaTask)
    task._bus, task.work, task._committed, task._dead_letters = client, Work("w", (CLOCK.name,)), {}, []
    task._watch = SequenceWatch(task._bus.counters, "w")
    task._partitions = MergedPartitions(Consumer(), KafkaConfig(), lambda *_: None)
    task._writer, task._notes, task._own_mark, task.over, task.name = writer, {}, None, "", "w"
    task._marked_s = task._group_committed_s = float("inf")
    return task


def refused() -> Any:
    """A record that the codec refuses."""
    return next(iter(fetched(batch(10, ["a"]), 10)))


async def test_a_task_keeps_the_dead_letter_for_its_commit() -> None:
    writer = Writer()
    task = task_on(Client(), writer)
    (record,) = one_refused()
    assert task._decode((CLOCK.name, 3), record, 5) is None
    assert task._bus.counters.get("refused", "record") == 1
    await task.commit(positions={(CLOCK.name, 3): 10})
    assert writer.committed == [], "what it stands behind is not dealt with"
    await task.commit(positions={(CLOCK.name, 3): 11})
    await task.commit(positions={(CLOCK.name, 3): 11})
    assert reasons(writer.committed) == ["record"]


async def test_what_several_readers_refuse_has_one_dead_letter() -> None:
    client, writers = Client(), [Writer(), Writer()]
    tasks = [task_on(client, writer) for writer in writers]
    for task in tasks:
        assert task._decode((CLOCK.name, 3), refused(), 5) is None
    for task in tasks:
        await task.commit(positions={(CLOCK.name, 3): 11})
    assert [len(writer.committed) for writer in writers] == [1, 0]
    reader = KafkaSubscription(client, "g", (CLOCK.name,))
    reader._consumer = Consumer({PARTITION: [refused()]})
    assert await reader.read() == []
    assert client.published == []
    assert client.counters.total("refused") == 3, "each reader counts it"


async def test_nor_do_several_that_commit_at_once() -> None:
    client, writers = Client(), [Writer(), Writer()]
    tasks = [task_on(client, writer) for writer in writers]
    for task in tasks:
        assert task._decode((CLOCK.name, 3), refused(), 5) is None
    await asyncio.gather(*(task.commit(positions={(CLOCK.name, 3): 11}) for task in tasks))
    assert [len(writer.committed) for writer in writers] == [1, 0]


async def test_one_whose_commit_failed_leaves_the_dead_letter_to_the_others() -> None:
    client, writers = Client(), [Writer(fails=True), Writer()]
    first, second = (task_on(client, writer) for writer in writers)
    for task in (first, second):
        task._decode((CLOCK.name, 3), refused(), 5)
    with pytest.raises(BusError):
        await first.commit(positions={(CLOCK.name, 3): 11})
    await second.commit(positions={(CLOCK.name, 3): 11})
    assert len(writers[1].committed) == 1


async def test_a_wrong_checksum_costs_no_record_of_other_partitions() -> None:
    """The client has moved their positions and dropped their records when it raises."""
    reader = KafkaSubscription(Client(), "g", (CLOCK.name,))
    reader._consumer = consumer = Consumer(CorruptRecordException("Invalid CRC"))
    consumer.at = {PARTITION: 50, OTHER: 60}
    reader._next = {PARTITION: 40}
    with pytest.raises(BusError):
        await reader.read()
    assert consumer.at == {PARTITION: 40, OTHER: Consumer.committed}


async def test_nor_of_a_tasks_other_partitions() -> None:
    consumer = Consumer({PARTITION: one_refused()}, CorruptRecordException("Invalid CRC"))
    partitions = MergedPartitions(consumer, KafkaConfig(), lambda *_: None)
    await partitions.open({(CLOCK.name, 3): 10, (CLOCK.name, 4): 20}, {})
    await partitions.fetch(0)
    consumer.at = {PARTITION: 50, OTHER: 60}
    with pytest.raises(CorruptRecordException):
        await partitions.fetch(0)
    assert consumer.at == {PARTITION: 11, OTHER: 20}
