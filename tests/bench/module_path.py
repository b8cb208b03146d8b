"""How far a reader follows one unit of work: the modules it passes, and how often it changes from one to another.

``python -m tests.bench.module_path [PATH]…`` prints for each path, per unit of work: modules passed, changes of module,
median, mean and worst. A change is a Python call or return from one file of the path's package to another; what lies
in other packages does not count. Nothing is timed.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import sdfstream
from sdfstream.actuate.config import ActuateConfig
from sdfstream.agent.commands.control_io import AgentControl
from sdfstream.agent.commands.qp_socket_io import QpSocketActuator
from sdfstream.agent.host_io import HostAgent
from sdfstream.agent.loop_io import _Agent
from sdfstream.agent.publish_io import PublishBuffer
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.records.message import Message, Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import COMMAND, PROBE
from sdfstream.records.units import TICK_NS
from sdfstream.stats import Counters
from sdfstream.sync import SyncStage
from tests.fixtures.plant import CONTROLLER, Plant, PlantLiveness

PACKAGE: Final = Path(sdfstream.__file__).parent


ROUNDS: Final = 40
"""Exchanges of `exchange_path`, after as many again that are not counted: the kernel begins to stamp late."""


class Trail:
    """The modules below `package` in which Python code runs while entered, and the changes between them."""

    def __init__(self, package: Path) -> None:
        self._root = f"{package}/"
        self._current: str | None = None
        self.modules: set[str] = set()
        self.changes = 0

    def __enter__(self) -> Trail:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        """A call enters the frame's own file; a return from a file of the package enters the caller's."""
        entered = frame.f_code.co_filename
        if event == "return" and entered.startswith(self._root) and frame.f_back is not None:
            entered = frame.f_back.f_code.co_filename
        elif event != "call":
            return
        if not entered.startswith(self._root) or entered == self._current:
            return
        self.changes += self._current is not None
        self._current = entered
        self.modules.add(entered)


def sync_path() -> Iterator[Trail]:
    """One probe message of the shipped recording through `SyncStage`, with the tick that is due before it, if any."""
    stage = SyncStage()
    for message in open_recording(PACKAGE / "demo" / "shipped_recording").messages({PROBE.name}):
        with Trail(PACKAGE / "sync") as trail:
            stage.step([message], message.bus_at_ns)
        yield trail


def command_path() -> Iterator[Trail]:
    """A finding about a full link to the steer that answers it, through `ActuateStage`, and from the message with that
    command to the request on the control socket of the queue pair's process, through `AgentControl`.

    One unit per drawing of measurement noise. The small fabric of the tests; all packages count.
    """
    for seed in range(1, 4):
        plant = Plant(config=ActuateConfig(mode="enforce", steer_collisions=False), seed=seed)
        first, second = (
            plant.qp(src, dst, number, next(iter(plant.ports_via(src, dst, "s1"))), tuple(range(52_001, 52_009)))
            for number, (src, dst) in enumerate((("h00", "h02"), ("h01", "h03")))
        )
        plant.run(4)
        plant.job("one", [first])
        plant.job("two", [second])
        plant.run(8)
        findings: list[Message] = []
        with patch.object(plant, "deliver", findings.append):
            plant.finding("congestion", plant.route(first.flow())[1])
        trail, now_ns = Trail(PACKAGE), plant.now
        with trail:
            outputs = plant.stage.step(findings, now_ns)
        while not (steers := [o for o in outputs if o.topic == COMMAND.name]):
            now_ns += TICK_NS
            with trail:
                outputs = plant.stage.step([], now_ns)
        _obey(plant, Message(COMMAND.name, steers[0].key, steers[0].body, now_ns, 0), trail)
        yield trail


def _obey(plant: Plant, command: Message, trail: Trail) -> None:
    """An agent of the host obeys `command`, observed by `trail`; the process behind the socket never answers."""
    host = command.key
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as process:
        process.bind(f"{folder}/job")
        process.listen()
        actuator = QpSocketActuator()
        control = AgentControl([host], KeyRing([CONTROLLER.public]), {"socket": actuator}, None, "bench")
        control.attach(host, PlantLiveness(plant, host))
        shards = [replace(s, control=f"{folder}/job") for s in plant.shards.values() if s.host == host]
        control.take_jobs({host: shards})
        control.on_liveness(host, time.monotonic_ns())
        with trail:
            control.take_commands([command])
        connection, _ = process.accept()
        with connection:
            assert connection.recv(1 << 20), "the request is with the process when the call returns"
        actuator.close()


class _Nowhere:
    """A publisher that takes nothing: rows end in the agent's buffer."""

    async def publish(self, outputs: Sequence[Output]) -> None:
        raise AssertionError("the buffer's loop is not run")


def exchange_path() -> Iterator[Trail]:
    """One exchange from socket to row, sender's side, over loopback: a probe is sent, its answer and TX stamp are read,
    a row (of the exchange before) is made and handed to the publisher.
    """
    near, far = NicConfig("ha/r0", "lo", "127.0.83.1"), NicConfig("hb/r0", "lo", "127.0.83.2")
    session = SessionConfig("ha/r0", "hb/r0", far.address, 21_862, (21_001,), rate_hz=100.0)
    hosts = HostConfig("ha", (near,), (session,)), HostConfig("hb", (far,))
    config = AgentConfig(hosts[:1], reflector_port=21_862, trace_interval_s=0.0, packet_engine="numpy")
    buffer = PublishBuffer(_Nowhere(), Counters("agent"))
    agent = _Agent(config, buffer, Counters("agent"), "boot", None)
    sender, reflector = agent.hosts[0], HostAgent(config, hosts[1], "boot", 1)
    sender.start()
    reflector.start()
    try:
        for n in range(2 * ROUNDS):
            trail = Trail(PACKAGE)
            time.sleep(max(0, sender.packets.sender.next_due_ns() - time.monotonic_ns()) / 1e9)
            with trail:
                sender.packets.send_due(time.monotonic_ns())
            for _ in itertools.takewhile(lambda _: not reflector.packets.reflect(), range(1000)):
                time.sleep(1e-4)
            time.sleep(1e-3)
            with trail:
                sender.packets.read_answers(time.time_ns())
                agent.flush(time.monotonic_ns())
            if n >= ROUNDS:
                yield trail
    finally:
        sender.close()
        reflector.close()


PATHS: Final[dict[str, Callable[[], Iterator[Trail]]]] = {
    "sync": sync_path,
    "command": command_path,
    "exchange": exchange_path,
}
"""Name of a path, and what walks it: one `Trail` per unit of work."""


def figures(trails: list[Trail]) -> dict[str, dict[str, float]]:
    """Of modules and of changes: median, mean and worst over all units of work."""
    columns = {"modules": [len(t.modules) for t in trails], "changes": [t.changes for t in trails]}
    return {
        name: {"median": statistics.median(found), "mean": statistics.fmean(found), "worst": max(found)}
        for name, found in columns.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.module_path", description=__doc__)
    parser.add_argument("paths", nargs="*", choices=[*PATHS, []], metavar="PATH", help=f"of {', '.join(PATHS)}")
    for path in parser.parse_args().paths or PATHS:
        trails = list(PATHS[path]())
        print(f"{path}: {len(trails)} units of work")
        for name, found in figures(trails).items():
            print(f"  {name}: median {found['median']:.0f}, mean {found['mean']:.1f}, worst {found['worst']:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
