"""What the bus costs per row: codec, in-process hop, link, Kafka, recording. ``--benchmark-enable`` measures.

``extra_info`` holds rows per round; ns per row = median · 1e9 / rows. No limit is asserted on time.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sdfstream.bus import Bus, codec
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.link.client_io import LinkPublisher
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import FINDING, PROBE
from tests.bus_samples import finding, probe_batch
from tests.fixtures.kafka_broker import Broker

HOP_ROWS, HOP_MESSAGES = 5_000, 20


def outputs(rows: int = HOP_ROWS, n: int = HOP_MESSAGES) -> list[Output]:
    return [Output(PROBE.name, f"h{i:02}", probe_batch(rows, i, f"h{i:02}")) for i in range(n)]


def repeat(benchmark: Any, rows: int, work: Callable[[], object], rounds: int = 20) -> None:
    benchmark.extra_info["rows"] = rows
    benchmark.pedantic(work, rounds=rounds, warmup_rounds=1)


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("rows", [100, 1_000, 10_000])
def test_encode(benchmark: Any, rows: int, compression: codec.Compression) -> None:
    (output,) = outputs(rows, 1)
    _, value = codec.encode(output, "b", 0, compression=compression)
    benchmark.extra_info["bytes_per_row"] = round(len(value) / rows, 1)
    repeat(benchmark, rows, lambda: codec.encode(output, "b", 0, compression=compression))


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("rows", [100, 1_000, 10_000])
def test_decode(benchmark: Any, rows: int, compression: codec.Compression) -> None:
    (output,) = outputs(rows, 1)
    headers, value = codec.encode(output, "b", 0, compression=compression)
    repeat(benchmark, rows, lambda: codec.decode(PROBE.name, headers, value))


def test_event_both_ways(benchmark: Any) -> None:
    headers, value = codec.encode(finding(1), "b", 0)
    repeat(benchmark, 1, lambda: (codec.encode(finding(1), "b", 0), codec.decode(FINDING.name, headers, value)))


async def drain(bus: Bus, reader: Any, sending: list[Output], n: int) -> None:
    """Publish and read `n` messages side by side."""
    got = 0
    publishing = asyncio.create_task(bus.publish(sending))
    while got < n:
        got += len(await reader.read(timeout_s=1.0))
    await publishing
    await reader.commit()


def test_hop_in_process(benchmark: Any) -> None:
    sending = outputs()
    with asyncio.Runner() as runner:
        bus = MemoryBus(time.time_ns, boot_id="b")
        reader = runner.run(bus.subscribe("g", [PROBE.name]))
        repeat(benchmark, HOP_ROWS * HOP_MESSAGES, lambda: runner.run(drain(bus, reader, sending, HOP_MESSAGES)))
        runner.run(bus.close())


def test_hop_over_the_link(benchmark: Any, tmp_path: Path) -> None:
    sending = outputs()
    with asyncio.Runner() as runner:
        bus = MemoryBus(time.time_ns, boot_id="b")

        async def start() -> tuple[Any, LinkServer, LinkPublisher]:
            server = LinkServer(bus, tmp_path / "s")
            await server.start()
            return await bus.subscribe("g", [PROBE.name]), server, LinkPublisher(tmp_path / "s")

        reader, server, link = runner.run(start())
        work = lambda: runner.run(drain(link, reader, sending, HOP_MESSAGES))  # type: ignore[arg-type] # noqa: E731
        repeat(benchmark, HOP_ROWS * HOP_MESSAGES, work)
        runner.run(link.close())
        runner.run(server.close())
        assert link.counters.total("shed") == 0


@pytest.mark.kafka
def test_hop_over_kafka(benchmark: Any, kafka: Broker) -> None:
    sending = outputs()
    with asyncio.Runner() as runner:

        async def start() -> tuple[KafkaBus, Any]:
            config = KafkaConfig(servers=kafka.address, prefix=f"bench{time.time_ns()}.")
            bus = KafkaBus(config, time.time_ns, boot_id="b")
            await bus.start()
            return bus, await bus.subscribe("g", [PROBE.name])

        bus, reader = runner.run(start())
        work = lambda: runner.run(drain(bus, reader, sending, HOP_MESSAGES))  # noqa: E731
        repeat(benchmark, HOP_ROWS * HOP_MESSAGES, work)
        runner.run(bus.close())


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_record(benchmark: Any, tmp_path: Path, compression: codec.Compression) -> None:
    """As a recorder does: 100 messages of 1,000 rows, ten a second of bus time."""
    messages, folders = recorded(), count()

    def write() -> None:
        writer = RecordingWriter(tmp_path / str(next(folders)), compression=compression)
        writer.write(messages)
        writer.finish()

    repeat(benchmark, 100_000, write, rounds=8)
    benchmark.extra_info["bytes_per_row"] = round((tmp_path / "0" / f"{PROBE.name}.arrows").stat().st_size / 1e5, 1)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_read_a_recording(benchmark: Any, tmp_path: Path, compression: codec.Compression) -> None:
    writer = RecordingWriter(tmp_path / "r", compression=compression)
    writer.write(recorded())
    writer.finish()
    found = open_recording(tmp_path / "r")
    repeat(benchmark, 100_000, lambda: sum(m.rows for m in found.messages()))
    assert sum(m.rows for m in found.messages()) == 100_000


def recorded() -> list[Message]:
    at_ns = 1_800_000_000_000_000_000
    return [
        Message(PROBE.name, f"h{i % 8:02}", probe_batch(1_000, i, f"h{i % 8:02}"), at_ns + i * 100_000_000, i)
        for i in range(100)
    ]
