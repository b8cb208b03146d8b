"""The shipped agent in a process of its own, whose bus is the pipeline that runs outside the guest.

It is forked, since an interpreter that emulation runs takes half a minute to load what this one has loaded.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sdfstream.agent import process_io
from sdfstream.probes.config import AgentConfig

_PORTS = Path("/sys/class/virtio-ports")
_START_S, _STOP_S = 30.0, 60.0
_NICE = 10


@contextmanager
def agents(config: AgentConfig, link: Path) -> Iterator[None]:
    """Run the agent of all hosts of `config` on the bus at `link` while the block lasts."""
    with _forked(lambda: _run(config, link), stopped_by_signal=False) as process:
        _let_others_before(process)
        yield


@contextmanager
def leads_out(name: str, link: Path) -> Iterator[None]:
    """Have the unix socket at `link`, for one connection, lead to the machine outside by its channel `name`."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(link))
    server.listen(1)
    with server, _forked(lambda: _carry(server, name), stopped_by_signal=True):
        yield


@contextmanager
def _forked(work: Callable[[], None], *, stopped_by_signal: bool) -> Iterator[int]:
    one = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    one.start()
    assert one.pid is not None
    try:
        yield one.pid
    finally:
        one.terminate()
        one.join(_STOP_S)
    assert stopped_by_signal or one.exitcode == 0, one.exitcode


def _let_others_before(process: int) -> None:
    """Take priority from the agent's Python part, not from its packet engine: elsewhere it has a core beside theirs.

    Here job, kernel threads (one of which finds a queue pair's new address) and agent share an emulated one.
    """
    ends_s = time.monotonic() + _START_S
    while os.sched_getscheduler(process) != os.SCHED_FIFO and time.monotonic() < ends_s:
        time.sleep(0.1)
    os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, process, _NICE)


def _run(config: AgentConfig, link: Path) -> None:
    figures = asyncio.run(process_io.run(config, f"link:{link}", None, None, report=False))
    print(f"figure agents: {figures['counters']}", flush=True)


def _carry(server: socket.socket, name: str) -> None:
    os.nice(_NICE)
    port = os.open(_device(name), os.O_RDWR)
    client, _ = server.accept()

    def inward() -> None:
        while octets := os.read(port, 1 << 16):
            client.sendall(octets)

    threading.Thread(target=inward, daemon=True).start()
    while octets := client.recv(1 << 16):
        rest = memoryview(octets)
        while rest:
            rest = rest[os.write(port, rest) :]


def _device(name: str) -> Path:
    for port in _PORTS.iterdir():
        if (port / "name").read_text().strip() == name:
            return Path("/dev") / port.name
    raise AssertionError(f"no channel {name} leads out of this guest")
