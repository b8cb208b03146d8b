"""Two ends meet over TCP on loopback; who says nonsense is left."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sdfstream.errors import FormatError, UnavailableError
from sdfstream.verbs.probing.meeting_io import End, Meetings, end_of, meet
from sdfstream.verbs.probing.ud_endpoint_io import UdAddress

NEAR = End("h00/rxa0", UdAddress("::ffff:10.0.0.1", 17, 5))
FAR = End("h04/rxb0", UdAddress("::ffff:10.0.9.1", 18, 6))


@pytest.fixture
def meetings() -> Iterator[Meetings]:
    made = Meetings("127.0.0.1", 0, FAR)
    yield made
    made.close()


def arrived(meetings: Meetings) -> list[End]:
    found: list[End] = []
    ends_s = time.monotonic() + 5
    while not found and time.monotonic() < ends_s:
        found = meetings.arrived()
    return found


def test_both_learn_of_each_other(meetings: Meetings) -> None:
    found, connection = meet("127.0.0.1", meetings.port, NEAR)
    connection.close()
    assert found == FAR
    assert arrived(meetings) == [NEAR]


@pytest.mark.parametrize(
    "change",
    [{"gid": "no gid"}, {"gid": 5}, {"qpn": 1 << 24}, {"qpn": True}, {"qkey": 1 << 31}, {"qkey": -1}, {"nic": ""}],
)
def test_what_is_no_end_is_refused(change: dict[str, Any], meetings: Meetings) -> None:
    said = NEAR.as_data() | change
    with pytest.raises(FormatError):
        end_of(said)
    with socket.create_connection(("127.0.0.1", meetings.port), 5) as stranger:
        stranger.sendall(json.dumps(said).encode() + b"\n")
        assert stranger.recv(1) == b""
    found, connection = meet("127.0.0.1", meetings.port, NEAR)
    connection.close()
    assert found == FAR
    assert arrived(meetings) == [NEAR]


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UnavailableError, match="the other end"):
        meet("127.0.0.1", port, NEAR)
