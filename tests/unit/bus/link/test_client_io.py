"""An agent's outputs reach a bus in another process: in order, bounded, and again after a break."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sdfstream.bus.link import frames
from sdfstream.bus.link.client_io import LinkConfig, LinkPublisher
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus, MemoryBusConfig
from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.records.message import Event
from sdfstream.records.topics import CLOCK, FINDING
from sdfstream.stats import Counters
from tests.bus_samples import clock, finding
from tests.contract.bus import marks, take

QUICK = LinkConfig(retry_s=(0.01, 0.05))


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(lambda: 1_000)
    yield bus
    await bus.close()


@pytest.fixture
async def server(bus: MemoryBus, tmp_path: Path) -> AsyncIterator[LinkServer]:
    server = LinkServer(bus, tmp_path / "link", max_message_bytes=1 << 20)
    await server.start()
    yield server
    await server.close()


async def until(counters: Counters, what: str, n: int) -> None:
    async with asyncio.timeout(5):
        while counters.total(what) < n:  # noqa: ASYNC110 - a counter has no event to wait for
            await asyncio.sleep(0.005)


async def test_outputs_arrive_in_order_with_boot_and_number(server: LinkServer, bus: MemoryBus, tmp_path: Path) -> None:
    reader = await bus.subscribe("g", [CLOCK.name, FINDING.name])
    async with LinkPublisher(tmp_path / "link", boot_id="agent") as link:
        await link.publish([clock(1, "h0"), finding(9)])
        await link.publish([clock(2, "h0")])
    found = await take(reader, 3)
    clocks = [m for m in found if m.topic == CLOCK.name]
    assert [(m.boot_id, m.batch_seq, m.key) for m in clocks] == [("agent", 0, "h0"), ("agent", 1, "h0")]
    assert marks(clocks) == [1, 2]
    assert link.counters.get("acknowledged") == 3
    assert link.counters.total("unsent-at-close") == 0
    assert server.counters.get("received") == 3


async def test_only_the_owner_may_open_the_socket(server: LinkServer, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "link").stat().st_mode) == 0o600
    with os.scandir(tmp_path) as entries:
        assert [e.name for e in entries] == ["link"], "the private folder is gone"


async def test_a_publisher_that_starts_first_delivers_once_the_server_is_there(bus: MemoryBus, tmp_path: Path) -> None:
    reader = await bus.subscribe("g", [CLOCK.name])
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    await link.publish([clock(i) for i in range(5)])
    await until(link.counters, "connect-failed", 2)
    server = LinkServer(bus, tmp_path / "link")
    await server.start()
    assert marks(await take(reader, 5)) == list(range(5))
    await link.close()
    await server.close()
    assert not (tmp_path / "link").exists()


async def test_after_a_restart_of_the_server_nothing_is_lost_and_repeats_are_counted(tmp_path: Path) -> None:
    """The first server takes frames but its bus is full, so it never acknowledges the last of them."""
    full = MemoryBus(lambda: 1, config=MemoryBusConfig(max_topic_bytes=4_000))
    await full.subscribe("never reads", [CLOCK.name])
    first = LinkServer(full, tmp_path / "link")
    await first.start()
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    await link.publish([clock(i) for i in range(20)])
    await until(full.counters, "publish-waits", 1)
    taken = full.counters.get("published", CLOCK.name)
    assert 0 < taken < 20
    await first.close()
    bus = MemoryBus(lambda: 1)
    reader = await bus.subscribe("g", [CLOCK.name])
    second = LinkServer(bus, tmp_path / "link")
    await second.start()
    await link.close()
    assert marks(await take(reader, 20 - taken)) == list(range(taken, 20))
    assert link.counters.get("acknowledged") == 20
    assert link.counters.get("resent") > 0
    await second.close()


async def test_a_full_buffer_sheds_its_oldest_and_counts_them(tmp_path: Path, bus: MemoryBus) -> None:
    link = LinkPublisher(tmp_path / "link", config=LinkConfig(buffer_bytes=30_000, retry_s=(0.01, 0.05)))
    await link.publish([clock(i) for i in range(100)])
    shed = link.counters.get("shed")
    assert 80 < shed < 95
    server = LinkServer(bus, tmp_path / "link")
    reader = await bus.subscribe("g", [CLOCK.name])
    await server.start()
    assert marks(await take(reader, 100 - shed)) == list(range(shed, 100))
    await link.publish([clock(100)])
    await take(reader, 1)
    await link.close()
    await server.close()


async def test_a_close_without_a_server_ends_in_time_and_counts_what_stays(tmp_path: Path) -> None:
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    await link.publish([clock(1), clock(2)])
    await asyncio.wait_for(link.close(timeout_s=0.05), 1)
    assert link.counters.get("unsent-at-close") == 2


@pytest.mark.parametrize("pauses", range(12))
async def test_a_close_while_the_server_goes_away_ends(tmp_path: Path, bus: MemoryBus, pauses: int) -> None:
    """At whatever moment of the break the publisher is closed."""
    server = LinkServer(bus, tmp_path / "link")
    await server.start()
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    await link.publish([clock(1)])
    await until(link.counters, "acknowledged", 1)
    closing = asyncio.create_task(server.close())
    for _ in range(pauses):
        await asyncio.sleep(0)
    ending = asyncio.create_task(link.close(timeout_s=0))
    _, late = await asyncio.wait({ending}, timeout=2)
    ending.cancel()
    await closing
    assert not late


async def test_an_oversize_message_is_refused_by_the_server_and_the_others_pass(
    server: LinkServer, bus: MemoryBus, tmp_path: Path
) -> None:
    reader = await bus.subscribe("g", [CLOCK.name])
    link = LinkPublisher(tmp_path / "link", config=QUICK)
    await link.publish([clock(1), clock(0, rows=40_000), clock(2)])
    assert marks(await take(reader, 2)) == [1, 2]
    await link.close()
    assert server.counters.get("refused", "link-oversize") == 1
    assert link.counters.get("refused", "by-server") == 1
    small = LinkPublisher(tmp_path / "link", config=LinkConfig(max_message_bytes=1000))
    await small.publish([clock(0)])
    await small.close()
    assert small.counters.get("refused", "oversize") == 1


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"HTTP/1.1", "link-magic"),
        (frames.MAGIC + frames.LENGTHS.pack(10, 2 << 20), "link-oversize"),
        (frames.MAGIC + frames.LENGTHS.pack(1 << 20, 2), "link-oversize"),
        (frames.MAGIC + frames.LENGTHS.pack(4, 0) + b"nope", "link-head"),
        (frames.MAGIC + frames.LENGTHS.pack(9, 0) + b'["a","b"]', "link-head"),
        (frames.MAGIC + frames.LENGTHS.pack(9, 100) + b'["a"', "link-truncated"),
        (frames.MAGIC + frames.LENGTHS.pack(9, 100), "link-truncated"),
        (frames.MAGIC[:3], "link-truncated"),
    ],
)
async def test_a_frame_that_cannot_be_read_ends_its_connection_only(
    server: LinkServer, bus: MemoryBus, tmp_path: Path, sent: bytes, reason: str
) -> None:
    reader, writer = await asyncio.open_unix_connection(tmp_path / "link")
    writer.write(sent)
    writer.write_eof()
    await asyncio.wait_for(reader.read(), 5)
    assert server.counters.get("refused", reason) == 1
    writer.close()
    await writer.wait_closed()
    subscription = await bus.subscribe("g", [CLOCK.name])
    async with LinkPublisher(tmp_path / "link") as link:
        await link.publish([clock(1)])
    assert marks(await take(subscription, 1)) == [1]


async def test_an_unreadable_message_in_a_whole_frame_becomes_a_dead_letter(
    server: LinkServer, bus: MemoryBus, tmp_path: Path
) -> None:
    dead = await bus.subscribe("dead", [CLOCK.dead_letters])
    reader, writer = await asyncio.open_unix_connection(tmp_path / "link")
    writer.write(frames.MAGIC + frames.frame(CLOCK.name, "k", [("schema", CLOCK.name.encode())], b"rubbish"))
    writer.write(frames.frame("nonsense", "k", [], b""))
    acknowledged = 0
    while acknowledged < 2:  # one for each, or one for both
        (word,) = frames.ACK.unpack(await reader.readexactly(8))
        assert acknowledged < word <= 2
        acknowledged = word
    (dead,) = await take(dead, 1)
    assert isinstance(dead.body, Event)
    assert dead.body.data["reason"] == "arrow-corrupt"
    assert bus.counters.get("refused", "topic-unknown") == 1
    writer.close()
    await writer.wait_closed()


async def test_a_stale_socket_is_replaced_and_a_live_one_is_not(
    server: LinkServer, bus: MemoryBus, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match="another process"):
        await LinkServer(bus, tmp_path / "link").start()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "stale"))
    second = LinkServer(bus, tmp_path / "stale")
    await second.start()
    await second.close()


async def test_a_path_that_cannot_be_is_a_sentence(bus: MemoryBus, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="longer"):
        await LinkServer(bus, tmp_path / ("x" * 100)).start()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="no socket"):
        await LinkServer(bus, tmp_path / "file").start()


def test_an_agent_that_imports_the_link_stays_light() -> None:
    heavy = "{'polars', 'pydantic', 'chdb', 'aiokafka', 'clickhouse_connect', 'rich', 'pandas'}"
    code = "import sys, sdfstream.bus.link.client_io, sdfstream.bus.recording.reader_io; "
    code += f"print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


async def test_on_an_idle_link_a_frame_leaves_within_publish(tmp_path: Path) -> None:
    """No turn of the event loop lies between; what is published next follows in order, all of it with one magic."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "link"))
    listener.listen()
    link = LinkPublisher(tmp_path / "link", boot_id="agent", config=QUICK)
    link.start()
    await until(link.counters, "connected", 1)
    peer, _ = listener.accept()
    peer.setblocking(False)
    await link.publish([clock(1, "h0")])
    await link.publish([clock(2, "h0")])
    raw = peer.recv(1 << 16)
    at = len(frames.MAGIC)
    assert raw[:at] == frames.MAGIC
    for number in (b"0", b"1"):
        head, payload = frames.parse_lengths(raw[at : at + frames.LENGTHS.size], 1 << 20)
        at += frames.LENGTHS.size
        assert dict(frames.parse_head(raw[at : at + head]).headers)["batch_seq"] == number
        at += head + payload
    assert at == len(raw)
    await link.close(timeout_s=0)
    peer.close()
    listener.close()


async def test_a_frame_for_a_link_that_breaks_is_sent_again(server: LinkServer, bus: MemoryBus, tmp_path: Path) -> None:
    reader = await bus.subscribe("g", [CLOCK.name])
    async with LinkPublisher(tmp_path / "link", boot_id="agent", config=QUICK) as link:
        await until(link.counters, "connected", 1)
        assert link._writer is not None
        link._writer.transport.abort()
        await link.publish([clock(1, "h0")])  # before anyone has seen the break
        await until(link.counters, "acknowledged", 1)
    assert marks(await take(reader, 1)) == [1]
