"""The in-process bus against a model: any order of publishing, reading, committing, leaving and coming back."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.bus.memory.bus_io import MemoryBus, MemoryBusConfig
from sdfstream.bus.memory.topic_log import OVERHEAD_BYTES, TopicLog
from sdfstream.bus.sequences import SequenceWatch
from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK
from sdfstream.stats import Counters
from tests.bus_samples import clock, clock_batch, finding, mark_of

STEPS = st.lists(
    st.sampled_from(["publish", "publish", "read", "read one", "commit", "leave"]), min_size=1, max_size=40
)


@given(STEPS)
@settings(deadline=None)
def test_a_group_sees_every_message_from_its_last_commit_on(steps: list[str]) -> None:
    async def play() -> None:
        bus = MemoryBus(lambda: 0, config=MemoryBusConfig(replay_bytes=1 << 20))
        member = await bus.subscribe("g", [CLOCK.name])
        sent = at = committed = 0
        for step in steps:
            if step == "publish":
                await bus.publish([clock(sent)])
                sent += 1
            elif step.startswith("read"):
                limit = 1 if step == "read one" else 1000
                found = [mark_of(m.body) for m in await member.read(limit, timeout_s=0)]
                assert found == list(range(at, min(sent, at + limit)))
                at += len(found)
            elif step == "commit":
                await member.commit()
                committed = at
            else:
                await member.close()
                member = await bus.subscribe("g", [CLOCK.name])
                at = committed
            assert member.lag() == sent - at

    asyncio.run(play())


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3000)), min_size=1, max_size=60), st.integers(0, 8000))
def test_a_log_holds_the_backlog_and_the_ring_and_no_more(moves: list[tuple[int, int]], replay_bytes: int) -> None:
    """Reader 0 and 1 read; 2 publishes that many bytes."""
    log = TopicLog(replay_bytes)
    readers = [log.attach(0), log.attach(0)]
    sizes: list[int] = []
    body: Any = finding(1).body
    for who, size in moves:
        if who == 2:
            log.append(Message(CLOCK.name, "k", body, 0, log.next_seq), size)
            sizes.append(size + OVERHEAD_BYTES)
        elif (message := log.peek(readers[who])) is not None:
            assert message.bus_seq == readers[who].seq
            log.advance(readers[who])
            log.trim()
        slowest = min(r.seq for r in readers)
        assert log.backlog_bytes() == sum(sizes[slowest:])
        assert log.held_bytes() == sum(sizes[log.first_seq :])
        assert log.first_seq <= slowest
        assert log.held_bytes() <= log.backlog_bytes() + replay_bytes + max(sizes, default=0)


@given(st.lists(st.integers(0, 20), max_size=40))
def test_gaps_and_repeats_add_up(numbers: list[int]) -> None:
    """Against the definition: a gap is a number never seen below the highest, a repeat one not above it."""
    counters = Counters("bus")
    watch = SequenceWatch(counters, "g")
    for number in numbers:
        watch.see("t", "k", "b", number)
    rising = [n for i, n in enumerate(numbers) if n > max(numbers[:i], default=-1)]
    assert counters.total("repeat") == len(numbers) - len(rising)
    assert counters.total("gap") == (rising[-1] - rising[0] + 1 - len(rising) if rising else 0)


@given(st.lists(st.integers(1, 7), max_size=12), st.lists(st.integers(1, 7), max_size=12))
@settings(deadline=None)
def test_cutting_publishes_and_reads_anywhere_changes_nothing(publishes: list[int], reads: list[int]) -> None:
    async def play() -> list[Message]:
        bus = MemoryBus(lambda: 9, boot_id="b")
        member = await bus.subscribe("g", [CLOCK.name])
        sent, found = 0, []
        for n in publishes:
            await bus.publish([clock(sent + i) for i in range(n)])
            sent += n
        for n in [*reads, 1000]:
            found += await member.read(n, timeout_s=0)
        return found

    found = asyncio.run(play())
    assert [(m.bus_seq, m.batch_seq, mark_of(m.body)) for m in found] == [(i, i, i) for i in range(sum(publishes))]
    assert all(m.body.equals(clock_batch(i)) for i, m in enumerate(found))  # type: ignore[union-attr]
