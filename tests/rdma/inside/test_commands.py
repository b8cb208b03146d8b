"""Signed commands reach a real queue pair through the agent's own actuator; whatever is wrong is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sdfstream.agent.jobmap.drop_file import read_file
from sdfstream.records.signature import Signer
from sdfstream.verbs.endpoint_io import ConnectionSettings
from sdfstream.verbs.library_io import Verbs
from tests.rdma.inside import fabric
from tests.rdma.inside.offered import Offered, offer
from tests.rdma.inside.pairs import Pair, capture, figure

STRANGER = Signer(bytes(range(1, 33)))
TRIALS = 20


@pytest.fixture
def offered(devices: tuple[str, ...], tmp_path: Path) -> Iterator[Offered]:
    pair = Pair(Verbs(), "rxa0", "rxb0", ConnectionSettings(0xC010, dscp=26))
    with offer(pair, "h00/rxa0", "h01/rxb0", tmp_path) as one:
        yield one
    pair.close()


def test_the_agent_can_read_what_it_is_offered(offered: Offered) -> None:
    file = offered.jobs / "train@h00.json"
    assert read_file(file.name, file.read_bytes())[0].control == offered.control
    about = offered.about
    assert (about.src, about.dst, about.rank, about.peer_rank) == ("h00/rxa0", "h01/rxb0", 3, 4)
    assert (about.transport, about.dst_port, about.dscp, about.path) == ("rocev2", 4791, 26, 0xC010)
    assert (about.src_address, about.dst_address) == ("10.0.0.1", "10.0.9.1")
    assert about.steering == "socket"
    assert about.alternates == tuple(range(0xC011, 0xC019))


def test_a_signed_command_moves_the_packets_and_its_undo_moves_them_back(offered: Offered) -> None:
    took_ms = []
    for trial in range(TRIALS):
        to = offered.about.alternates[trial % 8]
        command = offered.command("steer", set={"path": to})
        offered.pair.post(8)
        began_s = time.monotonic()
        answer = offered.do(command, path=to)
        took_ms.append((time.monotonic() - began_s) * 1e3)
        assert answer.ok, answer.why
        assert (answer.before["path"], answer.after["path"]) == (0xC010, to)
        assert [c.status for c in offered.pair.wait(8)] == [0] * 8
        with capture("a0") as packets:
            offered.pair.post(2)
            offered.pair.wait(2)
        assert {port for port, _ in packets} == {to}
        back = offered.do(command, do="undo", path=0xC010)
        assert back.ok, back.why
        assert offered.live.path == 0xC010
    figure("signed command to answer, 8 outstanding", took_ms)


def test_wrong_commands_change_nothing(offered: Offered) -> None:
    to = offered.about.alternates[0]
    wrong = {
        "unknown-key": offered.command("steer", set={"path": to}, signer=STRANGER),
        "forged": offered.command("steer", set={"path": to}) | {"id": "other"},
        "expired": offered.command("steer", set={"path": to}, lease_s=-1),
        "unexpected-state": offered.command("steer", set={"path": to}, expected={"path": 0xC099}),
        "malformed": offered.command("steer", set={"path": 0xD000}),
    }
    for reason, command in wrong.items():
        answer = offered.do(command, path=to)
        assert not answer.ok
        assert answer.why.startswith(reason), answer.why
    assert offered.live.path == 0xC010


def test_a_limit_holds_and_ends_by_itself(offered: Offered) -> None:
    command = offered.command("throttle", set={"rate_bps": 2_000_000}, undo={"rate_bps": None})
    assert offered.do(command, rate_bps=2_000_000, ttl_ms=3_000).ok
    assert offered.live.rate_bps == 2_000_000
    began_s = time.monotonic()
    for _ in range(50):
        offered.live.pace(4096)
    assert 50 * 4096 * 8 / (time.monotonic() - began_s) < 1.1 * 2_000_000
    ends_s = time.monotonic() + 30
    while offered.live.rate_bps is not None and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert offered.live.rate_bps is None  # nobody renewed it


def test_an_armed_choice_leaves_a_black_hole_without_an_error(offered: Offered) -> None:
    own = fabric.predicted(offered.live.path)
    to = next(port for port in offered.about.alternates if fabric.predicted(port) != own)
    flowing_ms, errors = [], 0
    for _ in range(TRIALS):
        command = offered.command("failover", set={"watch": [], "alternates": [{"path": to, "watch": []}]})
        fabric.black_hole(own, on=True)
        offered.pair.post(8)
        began_s = time.monotonic()
        answer = offered.do(command, path=to, choice=True)
        assert answer.ok, answer.why
        statuses = [c.status for c in offered.pair.wait(8, limit_s=5)]
        flowing_ms.append((time.monotonic() - began_s) * 1e3)
        assert len(statuses) == 8
        errors += sum(status != 0 for status in statuses)
        fabric.black_hole(own, on=False)
        back = offered.do(command, do="undo", path=offered.about.path)
        assert back.ok, back.why
    figure("armed failover off a black hole: choice to all acknowledged, 8 outstanding", flowing_ms)
    print(f"figure errors that the program saw: {errors} of {8 * TRIALS}")
    assert errors == 0
