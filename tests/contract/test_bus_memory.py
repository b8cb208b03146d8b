"""The in-process bus keeps the bus's contract, and its own bounds."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from sdfstream.bus.conform import size_bytes
from sdfstream.bus.memory.bus_io import MemoryBus, MemoryBusConfig
from sdfstream.bus.memory.topic_log import OVERHEAD_BYTES
from sdfstream.errors import BusError
from sdfstream.records.topics import CLOCK, FINDING, OWD
from tests.bus_samples import clock, clock_batch, finding
from tests.contract.bus import BusContract, MakeBus, marks, take
from tests.contract.tasks import TaskContract

SMALL = MemoryBusConfig(max_topic_bytes=20_000, replay_bytes=5_000, max_message_bytes=1 << 20)


@pytest.fixture
def make_bus() -> MakeBus:
    ticks = count(1_800_000_000_000_000_000, 1_000)

    made: list[MemoryBus] = []

    async def make(*, again: bool = False) -> MemoryBus:
        if not again:
            config = MemoryBusConfig(max_message_bytes=4 << 20)
            made.append(MemoryBus(lambda: next(ticks), boot_id="here", config=config))
        return made[-1]

    return make


class TestMemoryBus(BusContract):
    """See `BusContract`."""


class TestMemoryTasks(TaskContract):
    """See `TaskContract`."""


async def test_batches_pass_by_reference() -> None:
    bus = MemoryBus(lambda: 5)
    reader = await bus.subscribe("g", [CLOCK.name])
    output = clock(1)
    await bus.publish([output])
    (message,) = await reader.read()
    assert message.body is output.body


async def test_time_never_goes_back_and_topics_share_it() -> None:
    times = iter([10, 20, 15, 30])
    bus = MemoryBus(lambda: next(times))
    reader = await bus.subscribe("g", [CLOCK.name, FINDING.name])
    await bus.publish([finding(1), clock(2), finding(3), clock(4)])
    assert [m.bus_at_ns for m in await reader.read()] == [10, 20, 20, 30]


async def test_reading_follows_the_order_of_a_replay() -> None:
    bus = MemoryBus(lambda: 7)
    reader = await bus.subscribe("g", [FINDING.name, CLOCK.name])
    await bus.publish([clock(1), finding(2), clock(3)])
    assert marks(await reader.read()) == [2, 1, 3], "(bus_at_ns, topic, bus_seq): sdf.event before sdf.state"


async def test_a_read_of_a_few_goes_on_where_the_last_one_ended() -> None:
    times = iter([10, 20, 20, 20, 30, 40])
    bus = MemoryBus(lambda: next(times))
    reader = await bus.subscribe("g", [FINDING.name, CLOCK.name])
    await bus.publish([clock(1), clock(2), finding(3), clock(4), finding(5), clock(6)])
    assert [marks(await reader.read(2)) for _ in range(3)] == [[1, 3], [2, 4], [5, 6]]
    assert reader.lag() == 0


async def test_publishing_waits_for_the_slowest_reader_within_the_written_bound() -> None:
    bus = MemoryBus(lambda: 1, config=SMALL)
    size = size_bytes(CLOCK.name, clock_batch(rows=20)) + OVERHEAD_BYTES
    fast, slow = await bus.subscribe("fast", [CLOCK.name]), await bus.subscribe("slow", [CLOCK.name])
    writing = asyncio.create_task(bus.publish([clock(i, rows=20) for i in range(60)]))
    seen: list[int] = []
    for _ in range(200):
        await asyncio.sleep(0)
        seen += marks(await fast.read(timeout_s=0))
        assert bus.held_bytes() <= SMALL.max_topic_bytes + SMALL.replay_bytes + 2 * size
    assert not writing.done()
    assert len(seen) <= SMALL.max_topic_bytes // size + 1
    assert bus.counters.get("publish-waits") == 1
    rest, every = await asyncio.gather(take(fast, 60 - len(seen)), take(slow, 60))
    assert seen + marks(rest) == marks(every) == list(range(60))
    await asyncio.wait_for(writing, 1)
    assert bus.held_bytes() <= SMALL.replay_bytes + size


async def test_a_full_topic_does_not_hold_back_another() -> None:
    bus = MemoryBus(lambda: 1, config=SMALL)
    await bus.subscribe("slow", [CLOCK.name])
    other = await bus.subscribe("other", [FINDING.name])
    writing = asyncio.create_task(bus.publish([clock(i, rows=50) for i in range(60)]))
    await asyncio.sleep(0.01)
    assert not writing.done()
    await asyncio.wait_for(bus.publish([finding(1)]), 1)
    assert len(await other.read()) == 1
    await bus.close()
    with pytest.raises(BusError):
        await writing


async def test_a_message_larger_than_the_bound_passes_alone() -> None:
    bus = MemoryBus(lambda: 1, config=SMALL)
    reader = await bus.subscribe("g", [CLOCK.name])
    await asyncio.wait_for(bus.publish([clock(1, rows=2000)]), 1)
    assert len(await reader.read()) == 1


async def test_what_the_ring_dropped_before_a_group_came_back_is_counted() -> None:
    bus = MemoryBus(lambda: 1, config=SMALL)
    first = await bus.subscribe("g", [CLOCK.name])
    await first.close()
    await bus.publish([clock(i, rows=20) for i in range(60)])
    second = await bus.subscribe("g", [CLOCK.name])
    found = await second.read()
    lost = bus.counters.get("lost", f"g:{CLOCK.name}")
    assert lost > 0
    assert marks(found) == list(range(lost, 60))


async def test_leaving_frees_a_waiting_publisher() -> None:
    bus = MemoryBus(lambda: 1, config=SMALL)
    slow = await bus.subscribe("slow", [CLOCK.name])
    writing = asyncio.create_task(bus.publish([clock(i, rows=50) for i in range(60)]))
    await asyncio.sleep(0.01)
    assert not writing.done()
    await slow.close()
    await asyncio.wait_for(writing, 1)


async def test_a_waiting_reader_ends_when_the_bus_closes() -> None:
    bus = MemoryBus(lambda: 1)
    reader = await bus.subscribe("g", [OWD.name])
    reading = asyncio.create_task(reader.read(timeout_s=30))
    await asyncio.sleep(0.01)
    await bus.close()
    with pytest.raises(BusError):
        await asyncio.wait_for(reading, 1)


async def test_a_read_waits_and_wakes() -> None:
    bus = MemoryBus(lambda: 1)
    reader = await bus.subscribe("g", [CLOCK.name])
    reading = asyncio.create_task(reader.read(timeout_s=30))
    await asyncio.sleep(0.01)
    await bus.publish([clock(4)])
    assert marks(await asyncio.wait_for(reading, 1)) == [4]
