"""Faults of a fabric under two agents, one by one: a queue, a black hole, gray loss, a pulled cable, a flapping port.

Four UDP paths each way, two of them by each of the two equal-cost paths, traced; a queue pair of a job beside them,
which a signed command moves off the black hole. Recorded, and replayed on the host like ``test_agent``'s story.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from sdfstream.probes.config import AgentConfig
from sdfstream.records.fabric import DECLARED_TYPE
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import TOPOLOGY
from sdfstream.verbs.endpoint_io import ConnectionSettings
from sdfstream.verbs.library_io import Verbs
from tests.rdma.inside import fabric
from tests.rdma.inside.agents import UDP_PORT, Seen, Story, agent, tell, udp_session, until
from tests.rdma.inside.offered import Offered, offer
from tests.rdma.inside.pairs import Pair

OUT = Path("/out/faults")
LIMIT_S = 300
"""Of processor time, as in ``test_agent``."""
BAD = "p0"
"""The path that is hurt."""
FLAPS = 9
LOST = 20
"""Probes, before the loss ends."""
MESSAGES = 4
"""Of 4 KiB, at once."""


def config(host: str, ports: list[int], jobs: Path) -> AgentConfig:
    """Five probes a second on each path, which are traced again every eight seconds."""
    quick = {"port_interval_ms": 500, "trace_interval_s": 8.0, "liveness_ms": 1000}
    watch = {"watch_ports": 2, "watch_spare_ports": 0, "watch_rate_hz": 5.0, "watch_liveness_ms": 1000}
    return agent(host, [udp_session(host, ports, 5.0)], jobs_dir=str(jobs), **quick, **watch)


def ports_by_path(to: int, first: int) -> dict[str, list[int]]:
    """Two source ports each that r1 sends by either path."""
    found: dict[str, list[int]] = {path: [] for path in fabric.PATHS}
    for port in range(first, first + 64):
        mine = found[fabric.predicted(port, to)]
        if len(mine) < 2:
            mine.append(port)
        if all(len(ports) == 2 for ports in found.values()):
            return found
    raise AssertionError(f"64 source ports and no two by each path: {found}")


class Flood:
    """Cross traffic of 2.6 Mbit/s in packets of 1,200 octets by one path, while it is wanted."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((fabric.ADDRESSES["a0"], ports_by_path(9, 40_000)[path][0]))
        self.wanted = False

    async def run(self) -> None:
        with self._socket:
            while True:
                if self.wanted:
                    for _ in range(14):
                        self._socket.sendto(bytes(1_172), (fabric.ADDRESSES["b0"], 9))
                await asyncio.sleep(0.05)


class Work:
    """What the job does all the while: some messages ten times a second, each waited for."""

    def __init__(self, offered: Offered) -> None:
        self.offered = offered
        self.done = self.failed = 0
        self.wanted = True

    async def run(self) -> None:
        pair = self.offered.pair
        while self.wanted:
            pair.post(MESSAGES)
            left = MESSAGES
            while left:
                await asyncio.sleep(0.02)
                pair.b.completions()
                for completion in pair.a.completions():
                    left -= 1
                    self.done += completion.status == 0
                    self.failed += completion.status != 0
            await asyncio.sleep(0.1)

    async def leave(self, path: str) -> float:
        """Move the queue pair off `path` by a signed command; seconds until its messages are acknowledged again."""
        offered, before, began_s = self.offered, self.done, time.monotonic()
        assert fabric.predicted(offered.live.path) == path
        to = next(port for port in offered.about.alternates if fabric.predicted(port) != path)
        answer = offered.ask(offered.command("steer", set={"path": to}), path=to)
        while answer is None:
            await asyncio.sleep(0.005)
            answer = offered.answer()
        assert answer.ok, answer.why
        await until(lambda: self.done > before, "messages are acknowledged again")
        return time.monotonic() - began_s


def story_of(flood: Flood, work: Work, ports: list[int], moved_s: list[float]) -> Story:
    """`ports`: of the paths whose life is watched; `moved_s`: gets how long the queue pair's move took."""

    async def story(near: Seen, far: Seen, mark: Callable[[str], None]) -> None:
        def states(one: Seen) -> list[str | None]:
            return [one.states.get(("sender", "udp", port)) for port in ports]

        def all_live() -> bool:
            return set(states(near) + states(far)) == {"alive"}

        event = Event(DECLARED_TYPE, "guest", f"declared-{uuid.uuid4().hex[:8]}", time.time_ns(), fabric.declared())
        await near.publish([Output(TOPOLOGY.name, "declared", event)])
        flooding, working = asyncio.create_task(flood.run()), asyncio.create_task(work.run())
        await until(all_live, "all live")
        mark("alive")
        await asyncio.sleep(12)
        mark("queue")
        fabric.narrow(BAD, on=True)
        flood.wanted = True
        await asyncio.sleep(6)
        flood.wanted = False
        await asyncio.sleep(1)
        fabric.narrow(BAD, on=False)
        mark("no-queue")
        await asyncio.sleep(4)
        mark("black-hole")
        fabric.black_hole(BAD, on=True)
        await until(lambda: states(near).count("silent") >= 2, "two paths are silent")
        moved_s.append(await work.leave(BAD))
        await asyncio.sleep(3)
        fabric.black_hole(BAD, on=False)
        mark("no-black-hole")
        await until(all_live, "all live again")
        await asyncio.sleep(4)
        mark("loss")
        fabric.lose(BAD, 25)
        lost = near.lost["udp"]
        await asyncio.sleep(14)
        await until(lambda: near.lost["udp"] - lost >= LOST, "so many are lost, also at a starved agent's pace")
        fabric.black_hole(BAD, on=False)
        mark("no-loss")
        work.wanted = False  # a queue pair does not outlive its port
        await asyncio.wait_for(working, 60)
        await asyncio.sleep(4)
        mark("unplugged")
        fabric.unplug(on=True)
        await until(lambda: "down" in near.port_states, "the port is down")
        await asyncio.sleep(3)
        fabric.unplug(on=False)
        mark("plugged")
        await until(all_live, "all live again")
        await asyncio.sleep(4)
        mark("flapping")
        for _ in range(FLAPS - 1):
            fabric.unplug(on=True)
            await asyncio.sleep(0.6)
            fabric.unplug(on=False)
            await asyncio.sleep(0.6)
        mark("no-flapping")
        await until(all_live, "all live in the end")
        await asyncio.sleep(3)
        mark("end")
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)

    return story


def test_faults_one_by_one(devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # the packet engine that the host has compiled: the Python one takes an emulated processor whole
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)
    found = ports_by_path(UDP_PORT, 50_000)
    ports = sorted(port for of in found.values() for port in of)
    port = ports_by_path(4791, 0xC010)[BAD][0]
    pair, moved_s = Pair(Verbs(), "rxa0", "rxb0", ConnectionSettings(port, dscp=26, timeout=17)), list[float]()
    with offer(pair, "h00/r0", "h04/r0", tmp_path) as offered:
        work = Work(offered)
        configs = [config(host, ports, tmp_path / "jobs") for host in ("h00", "h04")]
        near, far = asyncio.run(tell(configs, OUT, story_of(Flood(BAD), work, ports, moved_s)))
    pair.close()
    print(
        f"figure faults: by {BAD} go {found[BAD]} of {ports}; answered {near.answered}, {far.answered}; the queue pair "
        f"off the black hole {moved_s[0]:.2f} s after the command, {work.done} messages, {work.failed} failed"
    )
    assert min(near.answered["udp"], far.answered["udp"]) > 500
    assert work.done > 100 and not work.failed
