"""Probes find a black hole, and a real queue pair leaves it by what the controller has armed (`tests.rdma.loop`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, QP, QP_WINDOW
from tests.rdma import loop
from tests.rdma.guest.packages import GuestUnavailableError

pytestmark = pytest.mark.rdma

TRIALS, RATE_HZ = 2, 25.0
"""At 10 ms, for which the figures are, an emulated processor that is short of time answers probes too late."""


@pytest.mark.timeout(600)
def test_a_queue_pair_leaves_a_black_hole_by_an_armed_failover(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        done = asyncio.run(loop.run(tmp_path, TRIALS, RATE_HZ))
    except GuestUnavailableError as error:
        pytest.skip(f"no RDMA guest on this machine: {error}")
    with capsys.disabled():
        print("", *loop.figures(done.result.log), loop.moves(tmp_path / "recording", TRIALS), sep="\n  ")
    assert done.result.status == 0, done.result.log[-6000:]
    assert "control.orders.given" in done.result.log, "the packet engine ordered none of it"
    messages = list(open_recording(tmp_path / "recording").messages())
    moved = {said["command"] for said in loop.failovers(tmp_path / "recording") if said["state"] == "applied"}
    assert moved and moved <= _armed(messages), "what moved it was the controller's"
    assert {QP.name, QP_WINDOW.name} <= {m.topic for m in messages}, "the job's chunks are rows"


def _armed(messages: list[Message]) -> set[str]:
    """Failovers that the controller has armed, to be carried out."""
    given = [m.body.data for m in messages if m.topic == COMMAND.name and isinstance(m.body, Event)]
    return {str(data["id"]) for data in given if data["action"] == "failover" and data["mode"] == "enforce"}
