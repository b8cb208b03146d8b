"""The part of a program that agents speak to, with doubles of its queue pairs: file, socket, commands, end."""

from __future__ import annotations

import json
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sdfstream.errors import UnavailableError
from sdfstream.records.command import Command
from sdfstream.records.job import job_shard
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.verbs.description import Registration, alternates
from sdfstream.verbs.live_qp_io import LiveQp
from sdfstream.verbs.owner_io import QpOwner
from tests.unit.verbs.doubles import Library, Qp, context

SIGNER, STRANGER = Signer(bytes(range(32))), Signer(bytes(range(1, 33)))
ABOUT = Registration("h00/r0", "h01/r0", 3, 4, 0xC009, alternates(0xC009, 4))
ID = "h00/r0#17"


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[QpOwner]:
    made = QpOwner("train", "h00", KeyRing([SIGNER.public]), tmp_path / "jobs")
    yield made
    made.close()


def live(qp: Qp, *, paced: bool = True) -> LiveQp:
    return LiveQp(Library(), qp, context(), paced=paced)  # type: ignore[arg-type]


def ask(owner: QpOwner, **request: Any) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(owner.socket))
        client.sendall(json.dumps(request).encode() + b"\n")
        return dict(json.loads(client.makefile().readline()))


def command(action: str, change: dict[str, Any], *, signer: Signer = SIGNER, id_: str = "c1") -> dict[str, Any]:
    now_ns = time.time_ns()
    target = {"type": "qp", "id": ID, "host": "h00", "job": "train"}
    undo = {"path": 0xC009} if "path" in change else {"rate_bps": None}
    made = Command(
        id=id_, epoch=1, issued_at_ns=now_ns, expires_at_ns=now_ns + 300 * 10**9, mode="enforce", action=action,
        target=target, expected={"path": 0xC009}, reason=("f",), set=change, undo=undo,
    )  # fmt: skip
    return signer.sign(made.as_data())


def test_what_is_offered_is_listed_and_named_to_the_agent(owner: QpOwner, tmp_path: Path) -> None:
    assert owner.add(ABOUT, live(Qp())) == ID
    shown = ask(owner, do="list")
    shard = job_shard(shown)
    assert [(q.qp, q.path, q.steering) for q in shard.qps] == [(ID, 0xC009, "socket")]
    assert shown["qps"][0]["capabilities"]["steer"] == "sqd"
    file = tmp_path / "jobs" / "train@h00.json"
    assert json.loads(file.read_text())["control"] == str(owner.socket)
    assert stat.S_IMODE(owner.socket.stat().st_mode) == 0o600
    owner.remove(ID)
    assert owner.is_empty
    assert ask(owner, do="list")["qps"] == []


def test_files_go_with_the_owner(tmp_path: Path) -> None:
    made = QpOwner("train", "h00", KeyRing([SIGNER.public]), tmp_path)
    made.add(ABOUT, live(Qp()))
    place = made.socket
    made.close()
    assert not place.exists()
    assert not list(tmp_path.iterdir())


def test_a_signed_command_is_obeyed_and_undone(owner: QpOwner) -> None:
    qp = Qp()
    owner.add(ABOUT, live(qp))
    order = command("steer", {"path": 0xC00B})
    answer = ask(owner, do="set", command=order)
    assert (answer["before"]["path"], answer["after"]["path"]) == (0xC009, 0xC00B)
    assert qp.route.flow_label == 0xB
    assert ask(owner, do="undo", command=order)["after"]["path"] == 0xC009
    assert owner.counters.get("control", "ok") == 2


@pytest.mark.parametrize(
    ("order", "why"),  # orders are made in the test: they lapse five minutes later
    [
        (lambda: command("steer", {"path": 0xC00B}, signer=STRANGER), "unknown-key"),
        (lambda: command("steer", {"path": 0xD00B}), "malformed"),
        (dict, "malformed"),
    ],
)
def test_others_are_not(owner: QpOwner, order: Callable[[], dict[str, Any]], why: str) -> None:
    qp = Qp()
    owner.add(ABOUT, live(qp))
    assert ask(owner, do="set", command=order())["error"].startswith(why)
    assert qp.route.flow_label == 9


def test_what_the_device_refuses_is_the_answer(owner: QpOwner) -> None:
    qp = Qp()
    owner.add(ABOUT, live(qp))
    qp.address = 22
    assert ask(owner, do="set", command=command("steer", {"path": 0xC00B}))["error"].startswith("failed")
    assert ask(owner, do="list")["qps"][0]["path"] == 0xC009


def test_a_limit_for_a_program_that_does_not_pace_is_refused(owner: QpOwner) -> None:
    owner.add(ABOUT, live(Qp(), paced=False))
    answer = ask(owner, do="set", command=command("throttle", {"rate_bps": 1_000_000}), ttl_ms=1_000)
    assert answer["error"].startswith("not-possible")


def test_a_limit_ends_by_itself(owner: QpOwner) -> None:
    made = live(Qp())
    owner.add(ABOUT, made)
    assert ask(owner, do="set", command=command("throttle", {"rate_bps": 1_000_000}), ttl_ms=300)["ok"]
    ends_s = time.monotonic() + 120
    while made.rate_bps is not None and time.monotonic() < ends_s:
        time.sleep(0.02)
    assert made.rate_bps is None


def test_a_move_that_waits_is_ended_by_the_thread(owner: QpOwner) -> None:
    qp = Qp()
    made = live(qp)
    owner.add(ABOUT, made)
    qp.draining = 10**9
    assert ask(owner, do="set", command=command("steer", {"path": 0xC00B}))["ok"]
    assert made.is_moving
    qp.draining = 0
    ends_s = time.monotonic() + 120
    while made.is_moving and time.monotonic() < ends_s:
        time.sleep(0.02)
    assert not made.is_moving


def test_a_drop_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = QpOwner("train", "h00", KeyRing([SIGNER.public]), tmp_path / "file")
    with pytest.raises(UnavailableError, match=r"train@h00\.json"):
        made.add(ABOUT, live(Qp()))
    made.close()
