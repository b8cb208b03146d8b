from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sdfstream.runtime.service_manager_io import ServiceManager


@pytest.fixture
def manager_socket(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def said(sock: socket.socket) -> list[list[str]]:
    found = []
    while True:
        try:
            found.append(sock.recv(4096).decode().split("\n"))
        except BlockingIOError:
            return found


def environment(sock: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": sock.getsockname(), **more}


def test_the_first_life_sign_says_ready_and_later_ones_feed_the_watchdog(
    manager_socket: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    manager = ServiceManager.of(environment(manager_socket, WATCHDOG_USEC="2000000"))
    manager.status = lambda: "8 probes sent\nREADY=0\x1b[2J"
    assert said(manager_socket) == [], "nothing before the loop runs"
    manager.alive()
    assert said(manager_socket) == [["READY=1", "WATCHDOG=1", "STATUS=8 probes sent\\nREADY=0\\x1b[2J"]]
    for _ in range(32):
        now[0] += 0.0625
        manager.alive()
    assert said(manager_socket) == [["WATCHDOG=1"]] * 4, "four within the watchdog's two seconds"
    now[0] += 60.0  # a loop that hung: it has nobody who speaks for it
    assert said(manager_socket) == []
    manager.stopping()
    assert said(manager_socket) == [["STOPPING=1"]]


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
def test_without_a_watchdog_of_its_own_it_feeds_none(manager_socket: socket.socket, more: dict[str, str]) -> None:
    manager = ServiceManager.of(environment(manager_socket, **more), pid=42)
    manager.alive()
    manager.alive()
    assert said(manager_socket) == [["READY=1", "STATUS="]]


def test_without_a_manager_nothing_is_sent_and_nothing_fails() -> None:
    manager = ServiceManager.of({})
    manager.alive()
    manager.stopping()


def test_an_abstract_name_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0sdfstream-test-{time.monotonic_ns()}")
        sock.setblocking(False)
        ServiceManager.of({"NOTIFY_SOCKET": "@" + sock.getsockname()[1:].decode()}).alive()
        assert said(sock) == [["READY=1", "STATUS="]]


def test_a_manager_that_is_gone_or_behind_costs_the_service_nothing(tmp_path: Path) -> None:
    gone = ServiceManager(str(tmp_path / "nobody"), watchdog_s=0.004)
    for _ in range(3):
        gone.alive()
        time.sleep(0.002)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "full"))
        behind = ServiceManager(str(tmp_path / "full"))
        for _ in range(2000):  # a datagram socket's queue holds about ten
            behind.stopping()
        assert sock.recv(100) == b"STOPPING=1"
        behind.stopping()
