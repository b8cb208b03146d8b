"""Everything that runs: broker, ClickHouse, relay, stages, agents; each a process that can be killed.

All of it lies in one folder and ends with this process. Small disks are mounted in a mount namespace of our own, so
that they too are gone with us.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from sdfstream.actuate import keys_io
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.probes.config import AgentConfig
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import LIVENESS
from tests.chaos import journal
from tests.chaos.archived import Sql
from tests.chaos.clickhouse import READY
from tests.chaos.plan import AGENTS, CUT
from tests.chaos.process import Child
from tests.fixtures.kafka_broker import Broker, BrokerUnavailableError, free_ports, jars

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
TOKEN = "chaos"
DISK_MB = 2
ARCHIVE_DISK_MB = 8
SMALL_BYTES = 256 << 10
"""What the agent that is cut off keeps in memory: less than it makes while its disk is full, so that it has to shed."""
SHIPPED = {f.name: f.default for f in fields(AgentConfig) if f.name in ("buffer_bytes", "spill_bytes")}
"""What an agent keeps while its bus is away, unless told otherwise."""
STEPPED = ("detect", "actuate")
"""Stages whose clock is stepped."""
_CLONE_NEWNS = 0x00020000


@dataclass(slots=True)
class AgentProcess:
    """An agent's process; every start is a new run with a boot id of its own."""

    child: Child
    hosts: tuple[str, ...]
    journal: Path
    boot_id: str = ""

    async def start(self) -> None:
        """A new run."""
        self.boot_id = f"{self.child.name}.{self.child.starts + 1}"
        await self.child.start("--boot", self.boot_id)

    def feed(self, number: int, output: Output) -> Output | None:
        """Let it measure something; what it will publish, or None when nobody is there to measure."""
        process = self.child.process
        if not self.child.alive or process is None or process.stdin is None or process.stdin.is_closing():
            return None
        if output.topic == LIVENESS.name and isinstance(output.body, Event):
            data = {**output.body.data, "boot_id": self.boot_id}
            output = replace(output, body=replace(output.body, data=data))
        frame = pickle.dumps((number, output), protocol=5)
        process.stdin.write(struct.pack(">I", len(frame)) + frame)
        return output

    async def end(self, timeout_s: float) -> bool:
        """Nothing more is measured: it sends what it has and ends; False when it did not in time."""
        process = self.child.process
        if not self.child.alive or process is None or process.stdin is None:
            return True
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            await self.child.kill()
            return False
        return True


@dataclass(slots=True)
class House:
    """What runs; `up`, then use, then `down`."""

    folder: Path
    say: Callable[[str], None]
    members: Sequence[tuple[str, str]]
    """(stage, member) of every stage's process."""
    agents: dict[str, AgentProcess] = field(default_factory=dict)
    stages: dict[str, Child] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """What this machine cannot do, each a sentence."""
    broker: Any = None
    clickhouse: Any = None
    relay: Any = None
    sql: Any = None
    disks: dict[str, Path] = field(default_factory=dict)
    """Small disks of their own, by whose they are."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the stages, as in their YAML file."""
    small_disks: bool = True
    """The archive's spill and the agent that is cut off have disks that fill up; else all have what is shipped."""

    async def up(self) -> None:
        """Start everything and wait until it works."""
        self.folder.mkdir(parents=True)
        (self.folder / "logs").mkdir()
        with suppress(OSError, AttributeError):
            _own_mounts()
        cache = Path(os.environ.get("SDFSTREAM_KAFKA_JARS") or ROOT / ".cache" / "kafka")
        self.broker = Broker(jars(cache), self.folder / "kafka", group_min_session_timeout_ms="1000")
        relay_port, inside_port, sql_port = free_ports(3)
        _second_listener(self.folder / "kafka" / "server.properties", relay_port, inside_port)
        await asyncio.to_thread(self.start_broker)
        bus = KafkaBus(KafkaConfig(servers=self.broker.address, partitions=PARTITIONS), time.time_ns, boot_id="chaos")
        await bus.start()
        await bus.close()
        self.sql = Sql(sql_port, TOKEN)
        database = str(self.folder / "clickhouse")
        self.clickhouse = self._child("clickhouse", "tests.chaos.clickhouse", database, str(sql_port), TOKEN)
        self.relay = self._child("relay", "tests.chaos.relay", str(relay_port), str(inside_port))
        await self.clickhouse.start()
        await self.relay.start()
        await until(lambda: self.clickhouse.said(READY), 30.0, "ClickHouse")
        config = self.folder / "settings.json"
        config.write_text(json.dumps({"archive": f"http://default:{TOKEN}@127.0.0.1:{sql_port}/sdf", **self.options}))
        for stage, member in self.members:
            await self.add(stage, member)
        await until(self._ready, 90.0, "the stages")
        await asyncio.sleep(6.0)  # groups settle: a stage begins where the topics end when it joins
        key = keys_io.load(self.folder / "data" / "actuate").public
        for name, hosts in AGENTS.items():
            await self._agent(name, hosts, key, f"127.0.0.1:{relay_port}" if name == CUT else self.broker.address)
        self.say(f"{len(self.stages)} stage processes, {len(self.agents)} agents, broker {self.broker.address}")

    async def add(self, stage: str, member: str) -> Child:
        """Start one more process of a stage."""
        name = f"{stage}-{member}"
        data = self.folder / "data" / (stage if stage == "actuate" else name)
        data.mkdir(parents=True, exist_ok=True)
        if stage == "archive" and self.small_disks and name not in self.disks:
            self._disk(name, data, ARCHIVE_DISK_MB)
        words = [
            "run",
            stage,
            "--bus",
            f"kafka://{self.broker.address}",
            "--config",
            str(self.folder / "settings.json"),
        ]
        words += ["--data", str(data), "--member", member]
        child = self._child(name, "sdfstream", *words, env=self._clock(stage) if stage in STEPPED else {})
        self.stages[name] = child
        await child.start()
        child.keep()
        return child

    async def down(self) -> None:
        """End everything that still runs."""
        everyone = [*(a.child for a in self.agents.values()), *self.stages.values(), self.relay, self.clickhouse]
        for child in everyone:
            if child is not None:
                child.send(19)  # nobody may start anything while the others end
        for child in everyone:
            if child is not None:
                await child.stop(0.0)
        if self.broker is not None:
            await asyncio.to_thread(self.broker.kill)
        for place in self.disks.values():
            await asyncio.to_thread(subprocess.run, ["umount", "-l", str(place)], check=False, capture_output=True)

    def start_broker(self) -> None:
        """Start it, from a thread; returns when it takes connections."""
        try:
            self.broker.start()
        except BrokerUnavailableError as why:  # a busy machine may need longer than the fixture waits
            self.say(f"the broker needs another try: {why}")
            self.broker.start()

    def step_clock(self, stage: str, seconds: int) -> None:
        """Move the clock that the stage's processes see so far from the true one."""
        (self.folder / f"clock-{stage}").write_text(f"{seconds:+d}\n")

    def _ready(self) -> bool:
        return all(child.said("Ctrl-C stops") for child in self.stages.values())

    def _child(
        self, name: str, module: str, *words: str, env: Mapping[str, str] | None = None, pipe: bool = False
    ) -> Child:
        base = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        log = self.folder / "logs" / f"{name}.log"
        return Child(
            name,
            [sys.executable, "-m", module, *words],
            log,
            {**base, **(env or {})},
            pipe,
            urgent=module != "sdfstream",
        )

    async def _agent(self, name: str, hosts: tuple[str, ...], key: Path, bus: str) -> None:
        place = self.folder / "agents" / name
        place.mkdir(parents=True)
        small = name == CUT and self.small_disks
        if small:
            self._disk(name, place / "spill", DISK_MB)
        written = place / "journal"
        words = ["--bus", f"kafka://{bus}", "--hosts", ",".join(hosts), "--journal", str(written), "--key", str(key)]
        words += ["--spill", str(place / "spill")]
        if small:
            words += ["--memory", str(SMALL_BYTES), "--disk", str(DISK_MB << 19)]
        elif not self.small_disks:
            words += ["--memory", str(SHIPPED["buffer_bytes"]), "--disk", str(SHIPPED["spill_bytes"])]
        agent = AgentProcess(self._child(name, "tests.chaos.agent", *words, pipe=True), hosts, written)
        self.agents[name] = agent
        await agent.start()

    def _clock(self, stage: str) -> dict[str, str]:
        """The environment in which a process sees a clock that can be stepped."""
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not found:
            told = "no faketime on this machine (Debian: apt-get install faketime): no clock is stepped"
            if told not in self.missing:
                self.missing.append(told)
            return {}
        self.step_clock(stage, 0)
        return {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.folder / f"clock-{stage}"),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def _disk(self, whose: str, place: Path, size_mb: int) -> None:
        """Mount a small disk at `place`."""
        place.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "chaos", str(place)]
        mounted = subprocess.run(command, capture_output=True, text=True)
        if not mounted.returncode:
            self.disks[whose] = place
        elif not any("small disk" in told for told in self.missing):
            self.missing.append(f"no small disk can be mounted ({mounted.stderr.strip()[:100]}): none is filled up")

    def runs(self) -> dict[str, list[journal.Told]]:
        """What every agent's journal says."""
        return {name: journal.read(agent.journal) for name, agent in self.agents.items()}


async def until(true: Callable[[], Any], seconds: float, what: str) -> None:
    """Wait for it; RuntimeError says what did not come."""
    try:
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110 - what is waited for is another process
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise RuntimeError(f"{what} did not come up within {seconds:.0f} s") from None


def _own_mounts() -> None:
    """Move this process to a mount namespace of its own, whose mounts end with it; OSError without the right to."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=False, capture_output=True)


def _second_listener(properties: Path, relay_port: int, inside_port: int) -> None:
    """Have the broker tell whoever comes by the relay to stay with it."""
    text = properties.read_text()
    plain, controller = re.search(r"^listeners=([^,\n]+),(\S+)$", text, re.MULTILINE).groups()  # type: ignore[union-attr]
    more = {
        "listeners": f"{plain},RELAY://127.0.0.1:{inside_port},{controller}",
        "advertised.listeners": f"{plain},RELAY://127.0.0.1:{relay_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,RELAY:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    properties.write_text(text + "".join(f"{name}={value}\n" for name, value in more.items()))
