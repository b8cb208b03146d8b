"""Two agents with UDP and RoCEv2 sessions side by side; what they publish is a recording each, which the host replays.

One story, told once: all lives, RoCEv2 alone is dropped, one of two paths is a black hole, a device is taken away and
comes back. ``marks.json`` has when each part began, for whoever reads the recordings.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sdfstream.agent.bus_io import open_publisher
from sdfstream.agent.loop_io import run_agent
from sdfstream.agent.publish_io import OutputPublisher
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.ports.reader_io import PortReader
from sdfstream.records.message import Event, Output
from sdfstream.verbs.carried.thread_io import carrier_of
from tests.rdma.inside import fabric

OUT = Path("/out/agents")
ENDS = {"h00": "a0", "h04": "b0"}
_UDP_PORT = 18_620
LIMIT_S = 240
"""Of processor time: what a host that is short of it takes from the guest counts as the guest's."""
_WAIT_S = 90.0


class Seen:
    """Passes on what an agent publishes, and notes what the story waits for."""

    def __init__(self, publisher: OutputPublisher) -> None:
        self._publisher = publisher
        self.answered: dict[str, int] = {}
        self.states: dict[tuple[str, str, int], str] = {}
        """(role, transport, path)."""
        self.troubles: list[str] = []
        self.port_states: set[str] = set()

    async def publish(self, outputs: Sequence[Output]) -> None:
        await self._publisher.publish(outputs)
        for output in outputs:
            if isinstance(output.body, Event):
                self._event(output)
            elif output.topic == "sdf.raw.probe.v1":
                self._rows(output.body)
            elif output.topic == "sdf.raw.port.v1":
                self.port_states |= set(output.body.column("state").to_pylist())

    def _rows(self, batch: pa.RecordBatch) -> None:
        for transport, t4 in zip(batch["transport"].to_pylist(), batch["t4_ns"].to_pylist(), strict=True):
            self.answered[transport] = self.answered.get(transport, 0) + (t4 is not None)

    def _event(self, output: Output) -> None:
        data: Any = output.body.data if isinstance(output.body, Event) else {}
        if output.topic == "sdf.raw.liveness.v1":
            self.troubles = [f"{t['what']}: {t['why']}" for t in data.get("troubles", ())]
            for entry in data["changes"]:
                self.states[entry["role"], entry["transport"], entry["path"]] = entry["state"]

    def of(self, transport: str, role: str = "sender") -> list[str]:
        return [s for (r, t, _), s in self.states.items() if (r, t) == (role, transport)]


def agent(host: str, peer: str) -> AgentConfig:
    """Two UDP and two RoCEv2 paths to the peer, at a rate that an emulated processor can serve."""
    near, far = fabric.ADDRESSES[ENDS[host]], fabric.ADDRESSES[ENDS[peer]]
    roce = SessionConfig(
        f"{host}/r0", f"{peer}/r0", far, source_ports=(49153, 49154), dscp=26, size_bytes=160, rate_hz=2.0,
        transport="rocev2",
    )  # fmt: skip
    udp = SessionConfig(roce.src, roce.dst, far, _UDP_PORT, (50_000, 50_001), dscp=26, rate_hz=2.0)
    host_config = HostConfig(host, (NicConfig(roce.src, ENDS[host], near),), (udp, roce))
    slow = {"flush_ms": 500, "port_interval_ms": 5000, "turnaround_ms": 20.0, "trace_interval_s": 0.0}
    plain = {"realtime": False, "clock_pages": "off", "spill_bytes": 0}
    return AgentConfig((host_config,), reflector_port=_UDP_PORT, **slow, **plain)  # type: ignore[arg-type]


async def until(holds: Callable[[], bool], what: str) -> None:
    ends_s = time.monotonic() + _WAIT_S
    while not holds():
        assert time.monotonic() < ends_s, what
        await asyncio.sleep(0.05)


async def command(*words: str) -> None:
    """Beside the agents: a device is taken away only once they have closed it."""
    process = await asyncio.create_subprocess_exec(*words)
    assert await asyncio.wait_for(process.wait(), _WAIT_S) == 0


async def story(near: Seen, far: Seen, marks: dict[str, int]) -> None:
    def mark(name: str) -> None:
        marks[name] = time.time_ns()

    await until(lambda: all(s.answered.get(t, 0) > 4 for s in (near, far) for t in ("udp", "rocev2")), "both answer")
    await until(lambda: near.of("rocev2").count("alive") == 2 and near.of("udp").count("alive") == 2, "all live")
    await until(lambda: far.of("rocev2", "reflector").count("alive") == 2, "seen by the far end, too")
    mark("alive")
    await asyncio.sleep(3)
    mark("drop-roce")
    await asyncio.to_thread(fabric.drop_roce, on=True)
    await until(lambda: near.of("rocev2").count("silent") == 2, "RoCEv2 is silent")
    await asyncio.sleep(4)
    assert near.of("udp").count("alive") == 2
    mark("pass-roce")
    await asyncio.to_thread(fabric.drop_roce, on=False)
    await until(lambda: near.of("rocev2").count("alive") == 2, "RoCEv2 is back")
    await asyncio.sleep(1)
    mark("device-away")
    await command("rdma", "link", "delete", "rxb0")
    await until(lambda: far.of("rocev2").count("unknown") >= 2, "its own paths are unknown")
    await until(lambda: any("rxb0" in t or "b0" in t for t in far.troubles), "it says so")
    mark("device-back")
    await command("rdma", "link", "add", "rxb0", "type", "rxe", "netdev", "b0")
    await until(lambda: far.of("rocev2").count("alive") >= 2, "its paths live again")
    await until(lambda: near.of("rocev2").count("alive") >= 2, "it is met again")
    await until(lambda: not any("rdma" in t for t in far.troubles), "the trouble is over")
    await asyncio.sleep(1)
    mark("end")


async def agents() -> tuple[Seen, Seen, dict[str, int]]:
    stop, marks = asyncio.Event(), dict[str, int]()
    async with AsyncExitStack() as stack:

        def ports_of(host: str, nics: Sequence[NicConfig], root: str) -> PortReader:
            reader = PortReader(host, nics, root)
            stack.callback(reader.close)
            return reader

        seen, tasks = [], []
        for host, peer in (("h00", "h04"), ("h04", "h00")):
            publisher = await stack.enter_async_context(open_publisher(str(OUT / host), host * 4))
            config = agent(host, peer)
            seen.append(Seen(publisher))
            roce = carrier_of(config)
            running = run_agent(config, seen[-1], ports_of, stop, boot_id=host * 4, roce=roce)
            tasks.append(asyncio.create_task(running))
        telling = asyncio.create_task(story(*seen, marks))
        try:
            await asyncio.wait([*tasks, telling], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.set()
            counters = await asyncio.gather(*tasks)
        await telling
    print(f"\nfigure agents: {counters[0]}\n{counters[1]}")
    return seen[0], seen[1], marks


def test_udp_and_rocev2_side_by_side_and_a_device_that_goes_and_comes_back(
    devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the packet engine that the host has compiled: the Python one takes an emulated processor whole
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)
    near, far, marks = asyncio.run(agents())
    (OUT / "marks.json").write_text(json.dumps(marks))
    assert min(near.answered["rocev2"], near.answered["udp"], far.answered["rocev2"]) > 20
