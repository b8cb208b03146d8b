"""Connections: the longest idle gives way, the busy stay, the late are hung up."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from sdfstream.archive.http.connections_io import Connections


@pytest.fixture
def links() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    pairs = [socket.socketpair() for _ in range(4)]
    yield pairs
    for pair in pairs:
        for end in pair:
            end.close()


def is_hung_up(far: socket.socket) -> bool:
    far.setblocking(False)
    try:
        return far.recv(1) == b""
    except BlockingIOError:
        return False


def test_the_longest_idle_gives_way_and_the_busy_stay(links) -> None:
    connections = Connections(2)
    (a, far_a), (b, far_b), (c, far_c), (d, _) = links
    assert connections.admit(a)
    assert connections.admit(b)
    connections.work(a)
    assert connections.admit(c), "b, the only idle one, gives way"
    assert (is_hung_up(far_a), is_hung_up(far_b)) == (False, True)
    connections.work(c)
    assert not connections.admit(d), "both are busy"
    connections.rest(a, known=True)
    assert connections.admit(d)
    assert (is_hung_up(far_a), is_hung_up(far_c)) == (True, False)
    connections.remove(c)
    connections.remove(a)
    connections.close()


def test_who_takes_too_long_is_hung_up(links) -> None:
    connections = Connections(4, head_s=-1.0)
    (a, far_a), (b, far_b), (c, far_c), _ = links
    for link in (a, b, c):
        assert connections.admit(link)
    connections.work(b)
    connections.work(c, -1.0)
    connections.sweep()
    assert (is_hung_up(far_a), is_hung_up(far_b), is_hung_up(far_c)) == (True, False, True)
    connections.rest(b, known=False)
    connections.sweep()
    assert is_hung_up(far_b)
