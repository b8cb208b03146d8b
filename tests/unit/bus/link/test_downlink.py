"""What the pipeline's bus says reaches an agent's process: at once, in order, bounded, and on after a break."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sdfstream.bus.link import frames
from sdfstream.bus.link.client_io import LinkConfig, LinkPublisher
from sdfstream.bus.link.downlink import ClientQueue, LinkInbox, ReplayRing, packed
from sdfstream.bus.link.frames import SubscribeRequest, Welcome
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.tail_io import Tail
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.shapes_jobs import COMMAND_SHAPE
from sdfstream.records.topics import CLOCK, COMMAND, FINDING
from sdfstream.stats import Counters
from tests.bus_samples import clock, mark_of
from tests.contract.bus import marks, take
from tests.fixtures.shapes import sample

QUICK = LinkConfig(retry_s=(0.01, 0.05))


def command(mark: int, host: str = "h0", size: int = 0) -> Output:
    data = sample(COMMAND_SHAPE) | {"mark": mark, "pad": "x" * size}
    return Output(COMMAND.name, host, Event(COMMAND.name, "actuate", f"c{mark}", mark, data))


def message(mark: int, seq: int, host: str = "h0", size: int = 0) -> Message:
    output = command(mark, host, size)
    return Message(output.topic, output.key, output.body, 1_000 + mark, seq, "boot", mark)


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(time.time_ns)
    yield bus
    await bus.close()


@pytest.fixture
async def server(bus: MemoryBus, tmp_path: Path) -> AsyncIterator[LinkServer]:
    server = LinkServer(bus, tmp_path / "link", max_message_bytes=1 << 20)
    await server.start()
    yield server
    await server.close()


async def receive(link: LinkPublisher, n: int, within_s: float = 10.0) -> list[Message]:
    found: list[Message] = []
    async with asyncio.timeout(within_s):
        while len(found) < n:
            found += await link.read(1.0)
    assert len(found) == n
    return found


async def test_messages_come_down_as_they_are_on_the_bus(server: LinkServer, bus: MemoryBus, tmp_path: Path) -> None:
    on_bus = await bus.subscribe("g", [COMMAND.name, CLOCK.name])
    await bus.publish([command(0)])  # before anybody asked
    async with LinkPublisher(tmp_path / "link") as link:
        link.subscribe([COMMAND.name, CLOCK.name])
        assert await link.subscribed(5)
        await bus.publish([command(1), command(2, "h1"), clock(3)])
        theirs, ours = await take(on_bus, 4), await receive(link, 3)
    assert marks(ours) == [1, 2, 3]
    for mine, original in zip(ours, [m for m in theirs if mark_of(m.body)], strict=True):
        assert (mine.topic, mine.key, mine.bus_at_ns, mine.bus_seq) == (
            original.topic, original.key, original.bus_at_ns, original.bus_seq,
        )  # fmt: skip
        assert (mine.boot_id, mine.batch_seq) == (original.boot_id, original.batch_seq)
        assert mine.body == original.body


@pytest.mark.parametrize("early", [True, False])
async def test_only_wished_keys_come_and_it_may_be_asked_before_or_after_the_start(
    server: LinkServer, bus: MemoryBus, tmp_path: Path, early: bool
) -> None:
    reader = await bus.subscribe("g", [CLOCK.name])
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    if not early:
        link.start()
        await link.publish([clock(7)])
        await take(reader, 1)
    link.subscribe([COMMAND.name], keys=["h1", "h2"])
    assert await link.subscribed(5)
    await bus.publish([command(i, f"h{i % 4}") for i in range(8)])
    assert marks(await receive(link, 4)) == [1, 2, 5, 6]
    await link.publish([clock(8)])
    seen: list[int] = []
    async with asyncio.timeout(5):
        while 8 not in seen:  # outputs go up on the same socket, those not acknowledged before the break again
            seen += marks(await reader.read())
    await link.close()
    with pytest.raises(BusError):
        await link.read(0)


async def test_a_command_comes_at_once(server: LinkServer, bus: MemoryBus, tmp_path: Path) -> None:
    delays_ns = []
    async with LinkPublisher(tmp_path / "link") as link:
        link.subscribe([COMMAND.name])
        assert await link.subscribed(5)
        for i in range(50):
            began_ns = time.monotonic_ns()
            await bus.publish([command(i)])
            await receive(link, 1)
            delays_ns.append(time.monotonic_ns() - began_ns)
    assert sorted(delays_ns)[25] < 50e6  # a polling reader would need its interval; idle it is about 1 ms


async def test_after_a_break_it_goes_on_behind_what_was_seen(
    server: LinkServer, bus: MemoryBus, tmp_path: Path
) -> None:
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    link.subscribe([COMMAND.name], ["h0"])
    assert await link.subscribed(5)
    await bus.publish([command(0), command(1)])
    assert marks(await receive(link, 2)) == [0, 1]
    for _ in range(3):
        assert link._writer is not None
        link._writer.transport.abort()
        await bus.publish([command(2), command(9, "h9"), command(3)])
        assert marks(await receive(link, 2)) == [2, 3]
    assert link.counters.total("down-lost") == 0
    assert link.counters.get("connected") == 4
    await link.close()


async def test_a_break_before_the_first_message_loses_none(server: LinkServer, bus: MemoryBus, tmp_path: Path) -> None:
    other = LinkPublisher(tmp_path / "link")
    other.subscribe([COMMAND.name])
    assert await other.subscribed(5)
    await bus.publish([command(0)])
    await receive(other, 1)
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    link.subscribe([COMMAND.name])
    assert await link.subscribed(5)
    assert link._writer is not None
    link._writer.transport.abort()
    await bus.publish([command(1)])
    assert marks(await receive(link, 1)) == [1]
    await link.close()
    await other.close()


async def test_another_run_of_the_server_begins_at_its_end_and_the_loss_is_counted(tmp_path: Path) -> None:
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    link.subscribe([COMMAND.name])
    for run in range(2):
        bus = MemoryBus(time.time_ns)
        server = LinkServer(bus, tmp_path / "link")
        await bus.publish([command(99)] * (1 + run))
        await server.start()
        assert await link.subscribed(5)
        await bus.publish([command(run)])
        assert marks(await receive(link, 1)) == [run]
        await server.close()
        await bus.close()
        async with asyncio.timeout(5):
            while await link.subscribed(0):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    assert link.counters.get("down-lost", COMMAND.name) == 1
    await link.close()


async def test_a_client_that_does_not_read_holds_nobody_up(bus: MemoryBus, tmp_path: Path) -> None:
    server = LinkServer(bus, tmp_path / "link", queue_bytes=50_000)
    await server.start()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "link", limit=1 << 10)
    writer.write(frames.opening(SubscribeRequest((COMMAND.name,))))
    (length,) = frames.LENGTH.unpack(await reader.readexactly(4))
    assert frames.parse_welcome(await reader.readexactly(length)).bus
    link = LinkPublisher(tmp_path / "link")
    link.subscribe([COMMAND.name])
    assert await link.subscribed(5)
    for i in range(100):
        await bus.publish([command(i, size=20_000)])
        assert marks(await receive(link, 1)) == [i]
    assert server.counters.get("down-shed", COMMAND.name) > 50
    writer.close()
    await link.close()
    await server.close()


async def test_a_reader_that_is_away_loses_the_oldest_and_counts_them(
    server: LinkServer, bus: MemoryBus, tmp_path: Path
) -> None:
    link = LinkPublisher(tmp_path / "link", config=LinkConfig(inbox_bytes=20_000))
    link.subscribe([COMMAND.name])
    assert await link.subscribed(5)
    await bus.publish([command(i, size=1000) for i in range(50)])
    async with asyncio.timeout(5):
        while link.counters.get("down", COMMAND.name) < 50:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    found = await link.read(0)
    assert marks(found) == list(range(50 - len(found), 50))
    assert link.counters.get("down-shed") == 50 - len(found) > 30
    await link.close()


def _opening(raw: bytes) -> bytes:
    return frames.MAGIC_V2 + struct.pack(">I", len(raw)) + raw


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (frames.MAGIC_V2, "link-truncated"),
        (frames.MAGIC_V2 + b"\0\0", "link-truncated"),
        (frames.MAGIC_V2 + struct.pack(">I", 1 << 30), "link-oversize"),
        (_opening(b"nonsense"), "link-wish"),
        (_opening(b'{"topics":"all","keys":null,"bus":"","after":{}}'), "link-wish"),
        (_opening(b'{"topics":[],"keys":[7],"bus":"","after":{}}'), "link-wish"),
        (_opening(b'{"topics":[],"keys":[],"bus":"","after":{"a":[1.5]}}'), "link-wish"),
        (_opening(b'{"topics":["nope"],"keys":[],"bus":"","after":{}}'), "topic-unknown"),
        (frames.opening(SubscribeRequest((COMMAND.name,) * 65)), "link-wish"),
        (frames.opening(SubscribeRequest((COMMAND.name,))) + frames.LENGTHS.pack(4, 0) + b"nope", "link-head"),
    ],
)
async def test_a_request_that_cannot_be_read_ends_its_connection_only(
    server: LinkServer, bus: MemoryBus, tmp_path: Path, sent: bytes, reason: str
) -> None:
    reader, writer = await asyncio.open_unix_connection(tmp_path / "link")
    writer.write(sent)
    writer.write_eof()
    await asyncio.wait_for(reader.read(), 5)
    assert server.counters.get("refused", reason) == 1
    writer.close()
    await writer.wait_closed()
    async with LinkPublisher(tmp_path / "link") as link:
        link.subscribe([COMMAND.name])
        assert await link.subscribed(5)
        await bus.publish([command(1)])
        assert marks(await receive(link, 1)) == [1]


WELCOME = frames.welcome(Welcome("b"))
WORD = frames.ACK.pack(frames.DOWN)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff\xff\xff\xff",
        frames.welcome(Welcome("", refused="topic-unknown")),
        struct.pack(">I", 2) + b"[]",
        WELCOME + frames.ACK.pack(5),
        WELCOME + WORD + frames.LENGTHS.pack(2, 0) + b"[]",
        WELCOME + WORD + b"\xff" * 8,
    ],
)
async def test_a_server_that_answers_rubbish_is_tried_again(tmp_path: Path, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.write_eof()
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "link")
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    link.subscribe([COMMAND.name])
    async with asyncio.timeout(5):
        while link.counters.get("disconnected") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert await link.read(0) == []
    await link.close(0)
    server.close()
    await server.wait_closed()


async def test_a_message_that_cannot_be_read_is_counted_and_the_next_comes(tmp_path: Path) -> None:
    good = packed(message(1, 6)).raw
    bad = frames.down(COMMAND.name, "k", [("schema", b"no")], b"x", 1, 5)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.welcome(Welcome("b")) + bad + good + good)
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "link")
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    link.subscribe([COMMAND.name])
    assert marks(await receive(link, 1)) == [1]
    assert link.counters.get("down-refused", "schema-version") == 1
    await link.close(0)
    assert link.counters.get("down-repeat", COMMAND.name) == 1
    server.close()
    await server.wait_closed()


def test_an_unknown_topic_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="topic-unknown"):
        LinkInbox(Counters("link"), 1000).subscribe(["nope"], None)


def test_the_ring_says_what_is_gone() -> None:
    ring = ReplayRing(most_bytes=3_500)
    for i in range(10):
        ring.add(packed(message(i, i)))
    held, lost = ring.behind([0])
    assert [m.seq for m in held] == [10 - len(held) + i for i in range(len(held))]
    assert lost == 9 - len(held)
    assert ring.behind([9]) == ([], 0)
    assert ring.behind([8])[1] == 0
    assert ring.at() == (9,)
    everything, gone = ring.behind([])
    assert len(everything) + gone == 10


def test_partitions_are_kept_apart() -> None:
    ring, second = ReplayRing(1 << 20), 1 << 48
    for seq in (0, second + 5, 1, second + 6):
        ring.add(packed(message(seq % 1000, seq)))
    assert [m.seq for m in ring.behind([0, second + 5])[0]] == [1, second + 6]
    assert [m.seq for m in ring.behind([1])[0]] == [second + 5, second + 6]
    assert ring.at() == (1, second + 6)


def test_a_queue_takes_what_is_wished_and_sheds_its_oldest() -> None:
    counters = Counters("s")
    queue = ClientQueue(SubscribeRequest((COMMAND.name,), frozenset({"h1"})), counters, most_bytes=4_000)
    assert not queue.offer(packed(message(0, 0, "h0")))
    assert not queue.offer(packed(Message(FINDING.name, "h1", command(1).body, 1, 1)))
    for i in range(10):
        assert queue.offer(packed(message(i, i, "h1", 300)))
    left = []
    while (raw := queue.take()) is not None:
        left.append(raw)
    assert left == [packed(message(i, i, "h1", 300)).raw for i in range(10 - len(left), 10)]
    assert counters.get("down-shed", COMMAND.name) == 10 - len(left)


async def test_the_ear_on_a_bus_hears_its_keys_from_now_on(bus: MemoryBus) -> None:
    await bus.publish([command(0)])
    tail = await Tail.open(bus, "agent-1", [COMMAND.name], ["h1"])
    await bus.publish([command(i, f"h{i % 2}") for i in range(1, 5)])
    assert marks(await tail.read(1.0)) == [1, 3]
    assert (tail.counters.get("heard"), tail.counters.get("for-others")) == (2, 2)
