"""What every bus must keep: the same tests run against the in-process bus and against Kafka.

A test module makes a class of `BusContract` and gives the fixture `make_bus`: ``await make_bus(**sizes)`` returns a
fresh bus on an empty set of topics, or with ``again=True`` another client of the bus made before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from sdfstream.bus import Bus, Subscription, codec
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import CLOCK, FINDING, NIC
from tests.bus_samples import clock, clock_batch, finding, mark_of

MakeBus = Callable[..., Awaitable[Bus]]


async def take(subscription: Subscription, n: int, within_s: float = 20.0) -> list[Message]:
    """Read until `n` messages have come; fails when they do not."""
    found: list[Message] = []
    async with asyncio.timeout(within_s):
        while len(found) < n:
            found += await subscription.read()
    assert len(found) == n
    return found


def marks(messages: Sequence[Message]) -> list[int]:
    return [mark_of(m.body) for m in messages]


class BusContract:
    """The promises of `sdfstream.bus.Bus` and `sdfstream.bus.Subscription`."""

    async def test_messages_come_in_order_with_everything_they_were_sent_with(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("g", [CLOCK.name, FINDING.name])
        await bus.publish([clock(1), finding(7), clock(2)])
        await bus.publish([clock(3)])
        found = await take(reader, 4)
        clocks = [m for m in found if m.topic == CLOCK.name]
        assert marks(clocks) == [1, 2, 3]
        assert [m.bus_seq for m in clocks] == [0, 1, 2]
        assert [m.batch_seq for m in clocks] == [0, 1, 2]
        assert len({m.boot_id for m in found}) == 1
        assert found[0].boot_id
        assert [m.bus_at_ns for m in clocks] == sorted(m.bus_at_ns for m in clocks)
        assert clocks[0].key == "mesh"
        assert clocks[0].body.schema.equals(CLOCK.columns)
        assert clocks[0].body.equals(clock_batch(1))
        (event,) = [m for m in found if m.topic == FINDING.name]
        assert event.body == finding(7).body
        assert event.key == "f7"
        assert bus.counters.get("published", CLOCK.name) == 3
        assert bus.counters.get("delivered", CLOCK.name) == 3
        await bus.close()

    async def test_order_holds_per_key_among_many_publishers(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("g", [CLOCK.name])

        async def one(key: str) -> None:
            for i in range(20):
                await bus.publish([clock(i, key)])

        async with asyncio.TaskGroup() as group:
            for k in range(4):
                group.create_task(one(f"k{k}"))
        found = await take(reader, 80)
        for k in range(4):
            assert marks([m for m in found if m.key == f"k{k}"]) == list(range(20))
        assert bus.counters.total("gap") == bus.counters.total("repeat") == 0
        await bus.close()

    async def test_every_group_gets_everything(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        a, b = await bus.subscribe("a", [CLOCK.name]), await bus.subscribe("b", [CLOCK.name])
        await bus.publish([clock(i) for i in range(10)])
        assert marks(await take(a, 10)) == marks(await take(b, 10)) == list(range(10))
        await bus.close()

    async def test_two_members_share_a_group_and_one_takes_over(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        a = await bus.subscribe("g", [CLOCK.name, NIC.name])
        b = await bus.subscribe("g", [CLOCK.name, NIC.name])
        await bus.publish([clock(i) for i in range(6)])
        found: list[Message] = []
        async with asyncio.timeout(20):
            while len(found) < 6:
                found += await a.read(timeout_s=0.05) + await b.read(timeout_s=0.05)
        assert sorted(marks(found)) == list(range(6))
        await a.commit()
        await b.commit()
        await a.close()
        await bus.publish([clock(6)])
        assert marks(await take(b, 1)) == [6]
        await bus.close()

    async def test_a_group_starts_at_the_end_or_at_the_beginning(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        await bus.publish([clock(1), clock(2)])
        late = await bus.subscribe("late", [CLOCK.name])
        early = await bus.subscribe("early", [CLOCK.name], from_start=True)
        await bus.publish([clock(3)])
        assert marks(await take(early, 3)) == [1, 2, 3]
        assert marks(await take(late, 1)) == [3]
        assert await late.read(timeout_s=0.05) == []
        await bus.close()

    async def test_a_restarted_member_goes_on_behind_its_commit(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        first = await bus.subscribe("g", [CLOCK.name])
        await bus.publish([clock(i) for i in range(5)])
        await take(first, 5)
        await first.commit()
        await bus.publish([clock(5), clock(6)])
        await take(first, 2)  # read, not committed: must come again
        await first.close()
        await bus.publish([clock(7)])
        second = await bus.subscribe("g", [CLOCK.name])
        assert marks(await take(second, 3)) == [5, 6, 7]
        await bus.close()

    async def test_a_member_that_dies_before_its_first_commit_loses_nothing(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        first = await bus.subscribe("g", [CLOCK.name])
        await bus.publish([clock(1)])
        await first.close()
        second = await bus.subscribe("g", [CLOCK.name])
        assert marks(await take(second, 1)) == [1]
        await bus.close()

    async def test_lag_counts_what_was_not_read(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("g", [CLOCK.name])
        await bus.publish([clock(i) for i in range(10)])
        found: list[Message] = []
        async with asyncio.timeout(20):
            while len(found) < 4:
                found += await reader.read(max_messages=4 - len(found))
        assert reader.lag() == 6
        await take(reader, 6)
        assert reader.lag() == 0
        await bus.close()

    async def test_a_slow_reader_loses_nothing(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("g", [CLOCK.name])
        rows = 2000
        writing = asyncio.create_task(bus.publish([clock(i, rows=rows) for i in range(200)]))
        await asyncio.sleep(0.3)
        found = await take(reader, 200)
        await writing
        assert marks(found) == list(range(200))
        await bus.close()

    async def test_gaps_and_repeats_of_a_producer_are_counted_per_key_and_boot(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("g", [CLOCK.name])
        sent = [("h0", "boot1", n) for n in (0, 1, 4, 4)] + [("h1", "boot1", 9), ("h0", "boot2", 0), ("h0", "boot2", 1)]
        await bus.publish([Output(CLOCK.name, key, clock_batch(n), boot, n) for key, boot, n in sent])
        found = await take(reader, len(sent))
        assert sorted((m.key, m.boot_id, m.batch_seq) for m in found) == sorted(sent)
        assert bus.counters.get("gap", f"g:{CLOCK.name}") == 2
        assert bus.counters.get("repeat", f"g:{CLOCK.name}") == 1
        await bus.close()

    @pytest.mark.parametrize(
        ("topic", "schema", "value", "reason"),
        [
            (CLOCK.name, CLOCK.name, b"no arrow at all", "arrow-corrupt"),
            (CLOCK.name, "sdf.state.clock.v9", b"whatever", "schema-version"),
            (CLOCK.name, None, b"whatever", "schema-missing"),
            (FINDING.name, FINDING.name, b'{"specversion":"1.0"}', "cloudevent"),
            (FINDING.name, FINDING.name, b"\xff\xfe", "json"),
        ],
    )
    async def test_what_cannot_be_read_becomes_a_dead_letter_and_the_rest_goes_on(
        self, make_bus: MakeBus, topic: str, schema: str | None, value: bytes, reason: str
    ) -> None:
        bus = await make_bus()
        dead = await bus.subscribe("dead", [f"{topic}.dlq"])
        reader = await bus.subscribe("g", [topic])
        headers = [("schema", schema.encode())] if schema else []
        good = (lambda n: clock(n, "k")) if topic == CLOCK.name else (lambda n: finding(n, "k"))
        await bus.publish([good(1)])
        await bus.publish_bytes(topic, "k", [*headers, ("boot_id", b"b")], value)
        await bus.publish([good(2)])
        assert marks(await take(reader, 2)) == [1, 2]
        (dead,) = await take(dead, 1)
        assert isinstance(dead.body, Event)
        assert dead.body.data["reason"] == reason
        assert dead.key == "k"
        _, original = codec.dead_letters.pack(dead.body)
        assert original == value
        assert bus.counters.get("refused", reason) == 1
        await bus.close()

    async def test_bytes_of_another_process_arrive_as_if_published_here(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("g", [CLOCK.name])
        headers, value = codec.encode(clock(5, "h3"), "agent-boot", 17)
        await bus.publish_bytes(CLOCK.name, "h3", headers, value)
        (message,) = await take(reader, 1)
        assert (message.key, message.boot_id, message.batch_seq) == ("h3", "agent-boot", 17)
        assert message.body.equals(clock_batch(5))
        await bus.close()

    async def test_what_does_not_fit_its_topic_is_refused_to_the_publisher(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        with pytest.raises(FormatError, match="column-missing"):
            await bus.publish([Output(CLOCK.name, "k", clock_batch().drop_columns(["offset_ns"]))])
        with pytest.raises(FormatError, match="form"):
            await bus.publish([Output(FINDING.name, "k", clock_batch())])
        with pytest.raises(FormatError, match="topic-unknown"):
            await bus.publish([Output("sdf.state.clock.v9", "k", clock_batch())])
        with pytest.raises(FormatError, match="topic-unknown"):
            await bus.subscribe("g", ["nonsense"])
        await bus.close()

    async def test_too_large_a_message_is_refused_before_it_is_sent(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("g", [CLOCK.name])
        with pytest.raises(FormatError, match="oversize"):
            await bus.publish([clock(0, rows=150_000)])
        await bus.publish([clock(1)])
        assert marks(await take(reader, 1)) == [1]
        assert bus.counters.get("refused", "oversize") == 1
        await bus.close()

    async def test_a_closed_bus_says_so(self, make_bus: MakeBus) -> None:
        bus = await make_bus()
        reader = await bus.subscribe("g", [CLOCK.name])
        await bus.publish([clock(1)])
        await take(reader, 1)
        await reader.commit()
        await reader.close()
        await reader.close()  # twice is once
        with pytest.raises(BusError):
            await reader.read()
        await bus.close()
        await bus.close()
        with pytest.raises(BusError):
            await bus.publish([clock(2)])
        with pytest.raises(BusError):
            await bus.subscribe("g", [CLOCK.name])
