"""The agent process over loopback: from start to SIGTERM, alone and in pairs; no root needed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from sdfstream.agent.loop_io import run_agent
from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.net.socket_io import ProbeSocket, open_probe_sockets
from sdfstream.records.topics import PORT
from sdfstream.records.units import StampKind
from tests.fixtures.agents import RecordedAgent, running

PORT_NUMBER = 18_620


def config(host: str, address: str, peer: str, far: str, rate_hz: float = 50.0, **more: object) -> AgentConfig:
    sessions = (SessionConfig(f"{host}/0", f"{peer}/0", far, PORT_NUMBER, (50_000, 50_001), rate_hz=rate_hz),)
    hosts = (HostConfig(host, (NicConfig(f"{host}/0", "lo", address),), sessions),)
    return AgentConfig(hosts, reflector_port=PORT_NUMBER, realtime=False, **more)  # type: ignore[arg-type]


def pair(**more: object) -> tuple[AgentConfig, AgentConfig]:
    return config("a", "127.0.71.1", "b", "127.0.71.2", **more), config("b", "127.0.71.2", "a", "127.0.71.1", **more)


async def test_a_bus_that_is_away_for_a_while_costs_nothing() -> None:
    near, far = pair()
    async with running(near) as a, running(far):
        await a.until(lambda: len(a.rows()) > 50)
        a.away = True
        await asyncio.sleep(0.5)
        a.away = False
        await a.until(lambda: len(a.rows()) > 150)
    assert a.final["agent.publish-failed.ConnectionError"] > 0
    assert not [k for k in a.final if ".shed" in k]
    for path in (50_000, 50_001):
        rows = a.rows()
        seq = sorted(s for s, p in zip(rows["seq"].to_pylist(), rows["path"].to_pylist(), strict=True) if p == path)
        assert seq == list(range(seq[0], seq[0] + len(seq))), "every probe has its row, once"


class Ports:
    """Counts its readings; slow, or broken, on request."""

    readings = 0
    threads: set[int] = set()  # noqa: RUF012
    broken = False

    def __init__(self, host: str, nics: Sequence[NicConfig], root: str) -> None:
        self.host, self.nic = host, nics[0].nic

    def read(self, now_ns: int) -> pa.RecordBatch | None:
        Ports.readings += 1
        Ports.threads.add(threading.get_ident())
        if Ports.broken:
            raise RuntimeError("odd hardware")
        time.sleep(0.3)
        from sdfstream.records.columns import build

        port = {"nic": [self.nic], "port": [f"{self.nic}:1"], "state": ["up"]}
        return build(PORT.columns, {"at_ns": [now_ns], "host": [self.host], **port})


@pytest.mark.parametrize("broken", [False, True])
async def test_port_reading_neither_stalls_nor_ends_probing(broken: bool) -> None:
    Ports.readings, Ports.broken = 0, broken
    near, far = pair(port_interval_ms=50, rate_hz=25.0)  # an answer may take 200 ms, a reading takes 300
    async with running(near, Ports) as a, running(far):
        await a.until(lambda: Ports.readings >= 3 and len(a.rows()) > 100)
    assert threading.get_ident() not in Ports.threads
    lost = [v is None for v in a.rows()["t4_ns"].to_pylist()[20:]]
    assert sum(lost) < len(lost) / 5
    if broken:
        assert a.final["agent.failed.ports"] >= 3
    else:
        assert set(a.rows(PORT.name)["state"].to_pylist()) == {"up"}


async def test_a_path_falls_silent_and_comes_back() -> None:
    near, far = pair(liveness_ms=50)
    async with running(near) as a:
        async with running(far):
            await a.until(lambda: a.states(role="sender", path=50_000)[-1:] == ["alive"])
            # an answer may come before the first judgement, and then nothing was ever unknown; b may start late
            assert a.states(role="sender", path=50_000)[0] in ("unknown", "alive", "silent")
            # b answers from its first moment on, but is stopped before its own first probe unless we wait for that
            await a.until(lambda: a.states(role="reflector", path=50_000)[-1:] == ["alive"])
        await a.until(lambda: a.states(role="sender", path=50_000)[-1:] == ["silent"])
        await a.until(lambda: a.states(role="reflector", path=50_000)[-1:] == ["silent"])
        async with running(far):
            await a.until(lambda: a.states(role="sender", path=50_000)[-1] == "alive")
    heartbeats = [e for e in a.events("sdf.raw.liveness.v1") if e["complete"]]
    assert len(heartbeats) >= 1
    assert all(len(e["changes"]) >= 2 for e in heartbeats)


async def test_an_agent_that_is_stopped_says_so_last() -> None:
    near, far = pair()
    async with running(near) as a, running(far):
        await a.until(lambda: len(a.events("sdf.raw.liveness.v1")) >= 2)
    *before, last = a.events("sdf.raw.liveness.v1")
    assert [e["stopping"] for e in before] == [False] * len(before)
    assert last["stopping"] and last["changes"] == [] and not last["complete"]


async def test_a_taken_port_is_an_error_at_the_start() -> None:
    near, _ = pair()
    async with running(near) as a:
        await a.until(lambda: a.outputs)
        with pytest.raises(ConfigError, match="a/0: UDP port 18620 is taken on lo"):
            await run_agent(near, RecordedAgent(), None, asyncio.Event())


async def test_a_taken_source_port_costs_only_its_own_paths_and_only_for_now() -> None:
    near, far = pair()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.71.1", 50_001))
        async with running(far), running(near) as a:
            await a.until(lambda: a.states(role="sender", path=50_000)[-1:] == ["alive"])
            assert a.states(role="sender", path=50_001) == ["unknown"]
            other.close()
            await a.until(lambda: a.states(role="sender", path=50_001)[-1:] == ["alive"])
    assert a.final["io.port-taken"] == 1
    assert sum(v is None for v in a.rows()["t4_ns"].to_pylist()) <= 2, "what was not sent is not lost"


def test_hardware_stamps_fall_back_to_the_kernels_and_say_so() -> None:
    opened = open_probe_sockets(NicConfig("a/0", "lo", "127.0.0.1"), [0], own_address=True, hardware=True)[0]
    assert isinstance(opened, ProbeSocket)
    assert opened.kind is StampKind.KERNEL
    opened.sock.close()


def agent(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sdfstream", "agent", "--json", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> dict[str, object]:
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found


def test_two_hosts_that_know_nothing_but_each_others_address(tmp_path: Path) -> None:
    a = agent("--from", "127.0.72.1", "--peer", "127.0.72.2", "--out", str(tmp_path / "a"), "--port", "18621")
    b = agent("--from", "127.0.72.2", "--peer", "127.0.72.1", "--out", str(tmp_path / "b"), "--port", "18621")
    try:
        deadline = time.monotonic() + 25
        while not (tmp_path / "a" / "sdf.raw.probe.v1.arrows").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2.0)
        a.send_signal(signal.SIGTERM)
        b.send_signal(signal.SIGINT)
        of_a, of_b = result(a), result(b)
    finally:
        for process in (a, b):
            process.kill()
            process.communicate()
    assert of_a["host"] == "127.0.72.1"
    paths = of_a["paths"]
    assert isinstance(paths, list)
    assert {p["path"] for p in paths} == {49152, 49153, 49154, 49155}
    assert {(p["src"], p["dst"]) for p in paths} == {("127.0.72.1/127.0.72.1", "127.0.72.2/127.0.72.2")}
    assert all(p["rtt_min_ns"] > 0 and p["kernel_stamped"] > 0 for p in paths)
    assert isinstance(of_b["paths"], list)
    assert {(p["src"], p["dst"]) for p in of_b["paths"]} == {("127.0.72.2/127.0.72.2", "127.0.72.1/127.0.72.1")}
    for name in "ab":
        recording = json.loads((tmp_path / name / "recording.json").read_text())
        assert recording["end_at_ns"] > recording["start_at_ns"]
        with pa.ipc.open_stream(tmp_path / name / "sdf.raw.probe.v1.arrows") as rows:
            assert rows.read_all().num_rows > 20


def test_the_agent_loads_no_heavy_module(tmp_path: Path) -> None:
    code = (
        "import sys; from sdfstream.agent import config_file, process_io, trial; from sdfstream.cli import agent;"
        "import sdfstream.bus.link.client_io, sdfstream.probes.ports.reader_io, sdfstream.probes.net.route_io, yaml;"
        "from sdfstream.probes.ports.reading import PortRow, rows;"
        "rows('h', 1, [PortRow('h/r0', 1, 'up', {'tx_bytes': 5})]);"
        "print([m for m in ('polars', 'pydantic', 'chdb', 'rich', 'pandas', 'clickhouse_connect', 'aiokafka',"
        " 'cryptography', 'pyarrow._compute') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give either --config FILE, or --peer"),
        (["--peer", "a/b=1.2.3.4"], "must be HOST"),
        (["--peer", "127.0.0.2", "--from", "203.0.113.9"], "203.0.113.9 is not an address of this machine"),
        (["--config", "/nonexistent.yaml"], "No such file"),
        (["--peer", "127.0.0.2", "--rate", "0"], "rate_hz must lie within"),
    ],
)
def test_what_cannot_run_is_a_sentence_and_code_2(arguments: list[str], sentence: str) -> None:
    process = agent(*arguments)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert sentence in err
    assert "Traceback" not in err


def test_a_wrong_key_is_named_with_file_and_path(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("hosts: []\nturnround_ms: 5\n")
    process = agent("--config", str(path))
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert f"{path}: unknown key 'turnround_ms'" in err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_no_root_is_needed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    code = (
        "import os, asyncio\n"
        "from sdfstream.agent.priority_io import ask_for_priority\n"
        "from sdfstream.probes.net.socket_io import open_probe_sockets\n"
        "from sdfstream.probes.config import NicConfig\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "nic = NicConfig('a/0', 'lo', '127.0.73.1')\n"
        "s = open_probe_sockets(nic, [18622], own_address=True, hardware=True)[0]\n"
        "print(s.kind.name, s.stamp_room > 30)\n"
        "ask_for_priority()\n"
        "e = open_probe_sockets(nic, [862], own_address=True, hardware=False)[0]\n"
        "print(type(e).__name__, e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    first, second = done.stdout.splitlines()
    assert first == "KERNEL True"
    assert second == "ConfigError a/0: UDP port 862 is reserved for root; choose a port above 1023"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_without_the_right_to_raw_sockets_only_flows_and_answers_are_not_traced(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    code = (
        "import os, asyncio, json, logging\n"
        "from dataclasses import replace\n"
        "from tests.integration.test_agent_run import config\n"
        "from tests.fixtures.agents import running\n"
        "from sdfstream.probes.trace.flows import FlowRequest\n"
        "from sdfstream.records.fabric import Flow\n"
        "logging.basicConfig(level=logging.WARNING)\n"
        "class Tracer:\n"
        "    def attach(self, hosts):\n"
        "        hosts[0].trace([FlowRequest(Flow('a/0', 'a/0', 'udp', 50000, 4791, 0), '127.0.73.2')])\n"
        "    def on_liveness(self, host, now_ns): return []\n"
        "async def main():\n"
        "    near = config('a', '127.0.73.2', 'a', '127.0.73.2')\n"
        "    async with running(near, observer=Tracer()) as a:\n"
        "        await a.until(lambda: len(a.rows()) > 100)\n"
        "        await asyncio.sleep(1.5)\n"
        "    print(json.dumps([a.final, len(a.events('sdf.state.topology.v1'))]))\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    counters, traces = json.loads(done.stdout.splitlines()[-1])
    assert counters["io.trace-denied"] == 1
    assert done.stderr.count("CAP_NET_RAW") == 1
    assert traces >= 1, "probe paths are traced without it"
    assert not [k for k in counters if "failed" in k or "unsent" in k]
