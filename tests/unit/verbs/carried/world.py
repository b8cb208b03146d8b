"""Two agents' queue pairs in one process: devices on a wire in memory, meetings by TCP on loopback."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.rdma.choice import DeviceChoice
from sdfstream.verbs.carried.thread_io import RoceThread
from tests.unit.verbs.probing.wire import WireEnd

NEAR, FAR, STRANGER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
ADDRESSES = {"h00": NEAR, "h04": FAR, "h07": STRANGER}
DEVICE_PORTS = (57236, 63494, 50011, 50012)


class WireDevices:
    """Stands for `MachineDevices`: one device a NIC, named after its net device; `ends` is the wire."""

    numbers = itertools.count(17)

    def __init__(self, ends: dict[int, WireEnd], *, own_ports: bool = False) -> None:
        self.ends, self.own_ports = ends, own_ports
        self.gone: set[str] = set()
        self.missing = ""
        """Why nothing can be opened."""
        self.made: list[WireEnd] = []

    def refresh(self) -> frozenset[str]:
        return frozenset({"rxa0", "rxb0"} - self.gone)

    def choose(self, nic: NicConfig) -> DeviceChoice | str:
        if self.missing:
            return self.missing
        device = f"rx{nic.device}"
        return f"there is no RDMA device {device}" if device in self.gone else DeviceChoice(device, 1, 1)

    def open(self, choice: DeviceChoice, ports: Sequence[int]) -> WireEnd:
        if choice.device in self.gone:
            raise UnavailableError(f"RDMA device {choice.device}: gone")
        number = next(self.numbers)
        end = WireEnd(self.address, number, number + 1000, self.ends)
        end.device = choice.device
        end.source_ports, end.chooses_ports = tuple(ports), True
        if self.own_ports:
            end.source_ports, end.chooses_ports = DEVICE_PORTS[: len(ports)], False
        self.made.append(end)
        return end

    address = NEAR


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def config(
    host: str, port: int, *, to: str | None = None, ports: tuple[int, ...] = (49153, 49160), **more: Any
) -> AgentConfig:
    """An agent with one NIC; `to`: the host that it probes by RoCEv2."""
    device = {"h00": "a0", "h04": "b0", "h07": "a0"}[host]
    nic = NicConfig(f"{host}/r0", device, ADDRESSES[host])
    sessions: tuple[SessionConfig, ...] = ()
    if to is not None:
        more_of_it = {"source_ports": ports, "rate_hz": 50.0, "dscp": 26, "size_bytes": 160, "transport": "rocev2"}
        sessions = (SessionConfig(nic.nic, f"{to}/r0", ADDRESSES[to], **more_of_it),)  # type: ignore[arg-type]
    hosts = (HostConfig(host, (nic,), sessions, read_ports=False),)
    return AgentConfig(hosts, rdma_meeting_port=port, liveness_ms=300, **more)


def devices(host: str, ends: dict[int, WireEnd], *, own_ports: bool = False) -> WireDevices:
    made = WireDevices(ends, own_ports=own_ports)
    made.address = ADDRESSES[host]
    return made


@contextmanager
def running(made: AgentConfig, on: WireDevices) -> Iterator[RoceThread]:
    """Its thread, until the block ends."""
    thread = RoceThread(made, on, survey_s=0.05)  # type: ignore[arg-type]
    thread.start(bool, bool)
    try:
        yield thread
    finally:
        thread.close()
        assert all(end.closed for end in on.made)


def until(holds: Callable[[], bool], limit_s: float = 10.0) -> bool:
    """Whether it holds, in time."""
    ends_s = time.monotonic() + limit_s
    while time.monotonic() < ends_s:
        if holds():
            return True
        time.sleep(0.01)
    return holds()
