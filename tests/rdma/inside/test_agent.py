"""Two agents with UDP and RoCEv2 sessions side by side; what they publish is a recording each, which the host replays.

One story, told once: all lives, RoCEv2 alone is dropped, a device is taken away and comes back. ``marks.json`` has when
each part began, for whoever reads the recordings.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from sdfstream.probes.config import AgentConfig, SessionConfig
from tests.rdma.inside import fabric
from tests.rdma.inside.agents import Seen, agent, command, tell, udp_session, until

OUT = Path("/out/agents")
LIMIT_S = 240
"""Of processor time: what a host that is short of it takes from the guest counts as the guest's."""


def config(host: str) -> AgentConfig:
    """Two UDP and two RoCEv2 paths to the peer."""
    udp = udp_session(host, (50_000, 50_001), 2.0)
    roce = SessionConfig(
        udp.src, udp.dst, udp.dst_address, source_ports=(49_153, 49_154), dscp=26, size_bytes=160, rate_hz=2.0,
        transport="rocev2",
    )  # fmt: skip
    return agent(host, (udp, roce))


async def story(near: Seen, far: Seen, mark: Callable[[str], None]) -> None:
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


def test_udp_and_rocev2_side_by_side_and_a_device_that_goes_and_comes_back(
    devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the packet engine that the host has compiled: the Python one takes an emulated processor whole
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)
    near, far = asyncio.run(tell([config("h00"), config("h04")], OUT, story))
    assert min(near.answered["rocev2"], near.answered["udp"], far.answered["rocev2"]) > 20
