"""A queue pair that is offered to the controller, with the agent's side of it and a key that it trusts."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sdfstream
from sdfstream.agent.commands.actuator import ActuatorAnswer, ActuatorRequest
from sdfstream.agent.commands.qp_socket_io import QpSocketActuator
from sdfstream.records.command import Command
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import queue_pair
from sdfstream.records.signature import Signer
from tests.rdma.inside.pairs import Pair

SIGNER = Signer(bytes(range(32)))


@dataclass
class Offered:
    """A queue pair that is offered, and the agent's side of it."""

    pair: Pair
    live: Any
    jobs: Path
    actuator: QpSocketActuator
    control: str
    about: QueuePair
    number: int = 0

    def command(self, action: str, *, signer: Signer = SIGNER, lease_s: float = 30, **fields: Any) -> dict[str, Any]:
        self.number += 1
        now_ns = time.time_ns()
        target = {"type": "qp", "id": self.about.qp, "host": "h00", "job": "train"}
        what = {"expected": {"path": self.live.path}, "undo": {"path": self.live.path}} | fields
        command = Command(
            id=f"c{self.number}", epoch=1, issued_at_ns=now_ns, expires_at_ns=now_ns + int(lease_s * 1e9),
            mode="enforce", action=action, target=target, reason=("f1",), **what,
        )  # fmt: skip
        return signer.sign(command.as_data())

    def ask(self, command: dict[str, Any], do: str = "set", **fields: Any) -> ActuatorAnswer | None:
        """Begin with a command; None: the answer follows (`answer`)."""
        request = ActuatorRequest(
            id=self.number, do=do, qp=self.about, control=self.control, command=command, **({"ttl_ms": 60_000} | fields)
        )
        return self.actuator.apply(request, time.monotonic_ns())

    def answer(self) -> ActuatorAnswer | None:
        """The next answer, if it is there."""
        return next(iter(self.actuator.answers(time.monotonic_ns())), None)

    def do(self, command: dict[str, Any], do: str = "set", **fields: Any) -> ActuatorAnswer:
        """Carry a command out and wait for the answer."""
        answer = self.ask(command, do, **fields)
        ends_s = time.monotonic() + 10
        while answer is None and time.monotonic() < ends_s:
            time.sleep(0.0005)
            answer = self.answer()
        assert answer is not None
        return answer


@contextmanager
def offer(pair: Pair, src: str, dst: str, folder: Path, key: Path | None = None) -> Iterator[Offered]:
    """Register `pair` as job ``train`` in ``jobs`` of `folder`, where an agent finds it; `key`: whom it obeys."""
    jobs = folder / "jobs"
    if key is None:
        key = folder / "key"
        key.write_bytes(SIGNER.public)
    settings = {"job": "train", "src": src, "dst": dst, "keys": [str(key)], "jobs_dir": jobs}
    with sdfstream.steerable(pair.a.qp, pair.a.context, rank=3, peer_rank=4, paced=True, **settings) as live:
        control = json.loads((jobs / f"train@{src.partition('/')[0]}.json").read_text())["control"]
        about = queue_pair(listed(control)["qps"][0])
        actuator = QpSocketActuator(timeout_ns=10_000_000_000)
        yield Offered(pair, live, jobs, actuator, control, about)
        actuator.close()
    assert not list(jobs.glob(f"*@{src.partition('/')[0]}.json"))
    assert not Path(control).exists()


def listed(control: str) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(control)
        client.sendall(b'{"do":"list"}\n')
        return dict(json.loads(client.makefile().readline()))
