"""Two ends meet over TCP on loopback; who says nonsense is left."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sdfstream.errors import FormatError, UnavailableError
from sdfstream.verbs.probing import meeting_io
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
    assert meetings.counters.total("refused") == 1


@pytest.mark.parametrize("said", [b"nonsense\n", b"[" * 600 + b"\n", b"\xff\n", b"[]\n", b""])
def test_nonsense_is_counted_with_its_reason(said: bytes, meetings: Meetings) -> None:
    with socket.create_connection(("127.0.0.1", meetings.port), 5) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(1) == b""
    meet("127.0.0.1", meetings.port, NEAR)[1].close()
    assert arrived(meetings) == [NEAR]
    assert sum(meetings.counters.as_dict().values()) == meetings.counters.total("refused") == 1


def test_beyond_what_is_asked_for_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting_io, "_MOST_OPEN", 1)
    made = Meetings("127.0.0.1", 0, FAR)
    meet("127.0.0.1", made.port, NEAR)[1].close()
    with pytest.raises(UnavailableError):
        meet("127.0.0.1", made.port, NEAR)
    made.close()
    assert made.counters.as_dict() == {"meetings.refused.full": 1}


def test_one_that_drips_holds_the_others_up_no_longer_than_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting_io, "_TIMEOUT_S", 0.3)
    made = Meetings("127.0.0.1", 0, FAR)
    began_s = time.monotonic()
    with socket.create_connection(("127.0.0.1", made.port), 5) as stranger, contextlib.suppress(OSError):
        while not made.counters.values and time.monotonic() - began_s < 5:
            stranger.sendall(b" ")
            time.sleep(0.02)
    made.close()
    assert made.counters.as_dict() == {"meetings.refused.timeout": 1}


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UnavailableError, match="the other end"):
        meet("127.0.0.1", port, NEAR)
