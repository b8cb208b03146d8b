"""The agent under a service manager: what it says on its socket, and what systemd makes of its unit."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "sdfstream-agent.service"
MOST_EXPOSED = 3.5
"""Of 10, by systemd-analyze; what is left is what an agent is for: raw packets, its own sockets, hardware clocks."""
analyze = shutil.which("systemd-analyze")


def lines_until(sock: socket.socket, wanted: str, within_s: float) -> list[str]:
    found: list[str] = []
    deadline_s = time.monotonic() + within_s
    while wanted not in found and time.monotonic() < deadline_s:
        sock.settimeout(max(0.01, deadline_s - time.monotonic()))
        try:
            found += sock.recv(4096).decode().split("\n")
        except TimeoutError:
            break
    return found


def test_an_agent_says_ready_then_lives_then_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        words = ("agent", "--peer", "b=127.0.73.2", "--name", "a", "--from", "127.0.73.1", "--port", "18630")
        environment = os.environ | {"NOTIFY_SOCKET": sock.getsockname(), "WATCHDOG_USEC": "2000000"}
        agent = subprocess.Popen(
            [sys.executable, "-m", "sdfstream", *words, "--out", str(tmp_path / "out")],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            first = lines_until(sock, "READY=1", 60.0)
            assert first[:1] == ["READY=1"], "nothing before it, lest a manager start what depends on it too early"
            rest = lines_until(sock, "never", 3.0)
            assert rest.count("WATCHDOG=1") >= 3, "within a watchdog's time, and half of another"
            assert any(line.startswith("STATUS=") and "probes sent" in line for line in first + rest)
            os.kill(agent.pid, signal.SIGSTOP)  # a loop that stands still says nothing
            lines_until(sock, "never", 0.2)
            assert "WATCHDOG=1" not in lines_until(sock, "never", 2.0)
            os.kill(agent.pid, signal.SIGCONT)
            agent.send_signal(signal.SIGTERM)
            assert "STOPPING=1" in lines_until(sock, "STOPPING=1", 30.0)
            assert agent.wait(30) == 0
        finally:
            if agent.poll() is None:
                agent.kill()
                agent.wait()


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there, as after an installation."""
    if analyze is None:
        pytest.skip("no systemd-analyze on this machine")
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/sdfstream/bin/sdfstream", sys.executable))
    return path


def test_systemd_finds_nothing_wrong_with_the_unit(unit: Path) -> None:
    done = subprocess.run([str(analyze), "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_the_unit_leaves_the_agent_little(unit: Path) -> None:
    done = subprocess.run(
        [str(analyze), "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSED, done.stdout


def test_the_unit_gives_three_capabilities_and_a_watchdog() -> None:
    said = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"\w+=", line))
    assert set(said["AmbientCapabilities"].split()) == {"CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_SYS_NICE"}
    assert said["AmbientCapabilities"] == said["CapabilityBoundingSet"]
    assert (said["Type"], said["ProtectSystem"], said["User"]) == ("notify", "strict", "sdfstream")
    assert said["WatchdogSec"] and said["MemoryMax"] and said["CPUQuota"]
