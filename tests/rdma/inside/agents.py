"""Two agents side by side in the guest, what they publish as a recording each, and a story told to them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from sdfstream.agent.bus_io import open_publisher
from sdfstream.agent.loop_io import run_agent
from sdfstream.agent.publish_io import OutputPublisher
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.ports.reader_io import PortReader
from sdfstream.records.message import Event, Output
from sdfstream.verbs.carried.thread_io import carrier_of
from tests.rdma.inside import fabric

ENDS = {"h00": "a0", "h04": "b0"}
UDP_PORT = 18_620
_WAIT_S = 90.0


class Seen:
    """Passes on what an agent publishes, and notes what the story waits for."""

    def __init__(self, publisher: OutputPublisher) -> None:
        self._publisher = publisher
        self.answered: dict[str, int] = {}
        self.lost: dict[str, int] = {}
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
            count = self.lost if t4 is None else self.answered
            count[transport] = count.get(transport, 0) + 1

    def _event(self, output: Output) -> None:
        data: Any = output.body.data if isinstance(output.body, Event) else {}
        if output.topic == "sdf.raw.liveness.v1":
            self.troubles = [f"{t['what']}: {t['why']}" for t in data.get("troubles", ())]
            for entry in data["changes"]:
                self.states[entry["role"], entry["transport"], entry["path"]] = entry["state"]

    def of(self, transport: str, role: str = "sender") -> list[str]:
        return [s for (r, t, _), s in self.states.items() if (r, t) == (role, transport)]


def udp_session(host: str, ports: Sequence[int], rate_hz: float) -> SessionConfig:
    """The UDP session of `host` to the other one."""
    peer = next(other for other in ENDS if other != host)
    return SessionConfig(
        f"{host}/r0", f"{peer}/r0", fabric.ADDRESSES[ENDS[peer]], UDP_PORT, tuple(ports), dscp=26, rate_hz=rate_hz
    )


def agent(host: str, sessions: Sequence[SessionConfig], **settings: Any) -> AgentConfig:
    """An agent with these sessions, at a pace that an emulated processor can keep."""
    nic = NicConfig(f"{host}/r0", ENDS[host], fabric.ADDRESSES[ENDS[host]])
    slow = {"flush_ms": 500, "port_interval_ms": 5000, "turnaround_ms": 20.0, "trace_interval_s": 0.0}
    plain = {"realtime": False, "clock_pages": "off", "spill_bytes": 0}
    given: dict[str, Any] = {**slow, **plain, **settings}
    return AgentConfig((HostConfig(host, (nic,), tuple(sessions)),), reflector_port=UDP_PORT, **given)


async def until(holds: Callable[[], bool], what: str) -> None:
    ends_s = time.monotonic() + _WAIT_S
    while not holds():
        assert time.monotonic() < ends_s, what
        await asyncio.sleep(0.05)


async def command(*words: str) -> None:
    """Beside the agents: a device is taken away only once they have closed it."""
    process = await asyncio.create_subprocess_exec(*words)
    assert await asyncio.wait_for(process.wait(), _WAIT_S) == 0


Story = Callable[[Seen, Seen, Callable[[str], None]], Awaitable[None]]
"""Of the two agents, and a function that marks when a part begins."""


async def tell(configs: Sequence[AgentConfig], out: Path, story: Story) -> tuple[Seen, Seen]:
    """Run both agents, recorded in folders of `out` by host, while the story lasts; ``marks.json`` has its parts."""
    stop, marks = asyncio.Event(), dict[str, int]()
    async with AsyncExitStack() as stack:

        def ports_of(host: str, nics: Sequence[NicConfig], root: str) -> PortReader:
            reader = PortReader(host, nics, root)
            stack.callback(reader.close)
            return reader

        def mark(name: str) -> None:
            marks[name] = time.time_ns()

        seen, tasks = [], []
        for config in configs:
            host = config.hosts[0].host
            publisher = await stack.enter_async_context(open_publisher(str(out / host), host * 4))
            seen.append(Seen(publisher))
            running = run_agent(config, seen[-1], ports_of, stop, boot_id=host * 4, roce=carrier_of(config))
            tasks.append(asyncio.create_task(running))
        telling = asyncio.ensure_future(story(seen[0], seen[1], mark))
        try:
            await asyncio.wait([*tasks, telling], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.set()
            counters = await asyncio.gather(*tasks)
        await telling
    (out / "marks.json").write_text(json.dumps(marks))
    print(f"\nfigure agents: {counters[0]}\n{counters[1]}")
    return seen[0], seen[1]
