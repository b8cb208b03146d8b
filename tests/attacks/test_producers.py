"""An agent that was taken over speaks of other hosts, writes what no agent writes, or has another one's name.

The link refuses each, since it knows the process at the other end; Kafka's readers refuse rows that are not their
message's own host, and the detector finds two writers of one host.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.bus import codec, producers
from sdfstream.bus.link.client_io import LinkConfig, LinkPublisher
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.detect.stage import DetectStage
from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.fabric import DECLARED_TYPE, PATH_TYPE, SILENT_TYPE
from sdfstream.records.mesh import HOST_TYPE
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import CLOCK, FINDING, FROM_AGENTS, JOB, LIVENESS, MESH, PORT, PROBE, QP, TOPOLOGY
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.bus_samples import clock, finding, probe_batch
from tests.fixtures.archive import bulk

HOLD = LinkConfig(hold=True, retry_s=(0.01, 0.05))
SPEAK = """
import asyncio, sys
from sdfstream.bus.link.client_io import LinkConfig, LinkPublisher
from sdfstream.records.message import Output
from sdfstream.records.topics import PROBE
from tests.bus_samples import probe_batch

async def main():
    async with LinkPublisher(sys.argv[1], boot_id="other", config=LinkConfig(hold=True)) as link:
        await link.publish([Output(PROBE.name, "h01", probe_batch(5, host="h01"))])
        print("spoke", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(lambda: 1_000)
    yield bus
    await bus.close()


@pytest.fixture
async def server(bus: MemoryBus, tmp_path: Path) -> AsyncIterator[LinkServer]:
    server = LinkServer(bus, tmp_path / "link", topics=[topic.name for topic in FROM_AGENTS])
    await server.start()
    yield server
    await server.close()


def probes(host: str, of: str | None = None) -> Output:
    return Output(PROBE.name, host, probe_batch(5, host=of or host))


async def test_rows_of_another_host_are_refused_and_set_aside(
    server: LinkServer, bus: MemoryBus, tmp_path: Path
) -> None:
    reader, dead = await bus.subscribe("g", [PROBE.name]), await bus.subscribe("d", [PROBE.dead_letters])
    async with LinkPublisher(tmp_path / "link", config=HOLD) as link:
        await link.publish([probes("h00", of="victim"), probes("h00")])
    assert [m.key for m in await reader.read(10, 0.01)] == ["h00"]
    (letter,) = await dead.read(10, 0.01)
    assert isinstance(letter.body, Event)
    assert letter.body.data["reason"] == "foreign-host"
    assert server.counters.get("refused", "foreign-host") == 1


@pytest.mark.real
async def test_a_second_process_of_a_host_is_refused_until_the_first_has_ended(
    server: LinkServer, bus: MemoryBus, tmp_path: Path
) -> None:
    reader, said = await bus.subscribe("g", [PROBE.name]), await bus.subscribe("t", [TOPOLOGY.name])
    first = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SPEAK, str(tmp_path / "link"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert first.stdin is not None and first.stdout is not None
    try:
        assert await first.stdout.readline() == b"spoke\n"
        async with LinkPublisher(tmp_path / "link", boot_id="forger", config=HOLD) as link:
            await link.publish([probes("h01"), probes("h00")])
            assert server.counters.get("refused", "foreign-host") == 1
            assert [(m.key, m.boot_id) for m in await reader.read(10, 0.01)] == [("h01", "other"), ("h00", "forger")]
            (report,) = await said.read(10, 0.01)
            assert isinstance(report.body, Event)
            assert report.body.data["host"] == "h01"
            assert f"process {first.pid} " in report.body.data["owner"]
            first.stdin.close()
            await first.wait()
            await link.publish([probes("h01")])
        assert [(m.key, m.boot_id) for m in await reader.read(10, 0.01)] == [("h01", "forger")]
    finally:
        if first.returncode is None:
            first.kill()
            await first.wait()


async def test_an_agent_cannot_write_clocks_findings_or_plans(
    server: LinkServer, bus: MemoryBus, tmp_path: Path
) -> None:
    plan = Output(MESH.name, "h00", Event(MESH.name, "plan", "p", 1, {"host": "h00"}))
    reader = await bus.subscribe("g", [CLOCK.name, FINDING.name, MESH.name])
    async with LinkPublisher(tmp_path / "link", config=HOLD) as link:
        await link.publish([clock(1), finding(2), plan])
    assert await reader.read(10, 0.01) == []
    assert server.counters.get("refused", "topic-not-agents") == 3


VICTIM = {
    "rows of a port": Output(PORT.name, "nobody", bulk(PORT, 3, np.random.default_rng(1))),
    "rows of a queue pair": Output(QP.name, "nobody", bulk(QP, 3, np.random.default_rng(1))),
    "liveness": Output(LIVENESS.name, "h00", Event(LIVENESS.name, "h00", "1", 1, {"host": "victim", "changes": []})),
    "liveness as seen by a NIC": Output(
        LIVENESS.name,
        "h00",
        Event(LIVENESS.name, "h00", "1", 1, {"host": "h00", "changes": [{"observer": "victim/r0"}]}),
    ),
    "a job": Output(JOB.name, "train@h00", Event(JOB.name, "h00", "1", 1, {"host": "victim"})),
    "a trace": Output(
        TOPOLOGY.name, "k", Event(PATH_TYPE, "h00", "1", 1, {"src": "victim/r0", "dst": "h00/r0", "dir": "fwd"})
    ),
    "a trace of the way back": Output(
        TOPOLOGY.name, "k", Event(PATH_TYPE, "h00", "1", 1, {"src": "h00/r0", "dst": "victim/r0", "dir": "rev"})
    ),
    "a trace of a silent path": Output(
        TOPOLOGY.name, "k", Event(SILENT_TYPE, "h00", "1", 1, {"src": "victim/r0", "dst": "h00/r0", "dir": "fwd"})
    ),
    "NICs": Output(TOPOLOGY.name, "host:victim", Event(HOST_TYPE, "h00", "1", 1, {"host": "victim", "nics": []})),
}


@pytest.mark.parametrize("what", VICTIM)
def test_what_a_producer_says_of_another_host_is_refused(what: str) -> None:
    with pytest.raises(FormatError, match="foreign-host"):
        producers.check(VICTIM[what].topic, VICTIM[what].key, VICTIM[what].body)


def test_every_reader_on_kafka_refuses_it() -> None:
    """By this function all of them decode: Kafka shows them the key, and nothing of the principal."""
    headers, value = codec.encode(probes("h00"), "boot", 0)
    assert codec.decode_own(PROBE.name, headers, value, "h00").body.num_rows == 5  # type: ignore[union-attr]
    for key in ("victim", ""):
        with pytest.raises(FormatError, match="foreign-host"):
            codec.decode_own(PROBE.name, headers, value, key)


def test_what_an_agent_says_of_itself_is_taken() -> None:
    declared = Event(DECLARED_TYPE, "lab", "1", 1, {"links": []})
    job = Event(JOB.name, "h00", "1", 1, {"host": "h00"})
    traced = Event(PATH_TYPE, "h00", "1", 1, {"src": "h07/r0", "dst": "h00/r0", "dir": "rev"})
    for topic, key, body, host in (
        (PROBE.name, "h00", probe_batch(9), "h00"),
        (TOPOLOGY.name, "declared", declared, None),
        (TOPOLOGY.name, "k", traced, "h00"),
        (JOB.name, "a@b@h00", job, "h00"),
        (CLOCK.name, "mesh", clock().body, None),
    ):
        producers.check(topic, key, body)
        assert producers.speaker(topic, key, body) == host


def test_two_writers_of_one_host_become_a_finding_on_any_bus() -> None:
    """On Kafka any agent's principal may write under any key; detect names the host and both runs."""
    stage, found = DetectStage(), []
    for tick in range(400):
        at_ns = 1_800_000_000 * NS_PER_S + tick * 50 * NS_PER_MS
        boots = ["agent"] + (["forger"] if tick >= 100 else [])
        messages = [
            Message(LIVENESS.name, "h00", _alive(at_ns), at_ns, 2 * tick + n, boot, tick)
            for n, boot in enumerate(boots)
        ]
        found += [o.body.data for o in stage.step(messages, at_ns) if o.topic == FINDING.name]  # type: ignore[union-attr]
    (finding_data,) = [f for f in found if f["kind"] == "duplicate-host" and f["status"] == "open"]
    assert finding_data["class"] == "configuration"
    assert finding_data["subject"] == {"type": "host", "id": "h00"}
    assert "agent" in finding_data["detail"] and "forger" in finding_data["detail"]


def _alive(at_ns: int) -> Event:
    data = {"host": "h00", "boot_id": "b", "seen_at_ns": at_ns, "complete": False, "changes": []}
    return Event(LIVENESS.name, "h00", f"e{at_ns}", at_ns, data)


def received_rows(src: str, dst: str, clock: str) -> pa.RecordBatch:
    """Rows of a kernel flow from `src` to `dst`, counted by `clock`."""
    batch = bulk(QP, 3, np.random.default_rng(1))
    for name, value in (("src", f"{src}/r0"), ("dst", f"{dst}/r0"), ("clock_src", clock)):
        column = columns.name_column(np.zeros(3, np.int32), [value])
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), column)
    return batch


def test_a_host_speaks_of_flows_that_it_receives_by_its_own_clock_and_of_no_others() -> None:
    producers.check(QP.name, "h04", received_rows("h00", "h04", "h04"))
    for src, dst, dates in (("h00", "h04", "h00"), ("h00", "h05", "h04"), ("h00", "h00", "h00")):
        with pytest.raises(FormatError, match="foreign-host"):
            producers.check(QP.name, "h04", received_rows(src, dst, dates))
