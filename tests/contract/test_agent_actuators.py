"""The actuator contract on the in-memory twin and on control sockets; kernel flows: tests/lab."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sdfstream.agent.commands.actuator import ActuatorRequest, MemoryActuator
from sdfstream.agent.commands.qp_socket_io import QpSocketActuator
from tests.contract import actuators
from tests.contract.actuators import Bench, asked
from tests.fixtures.control import queue_pair
from tests.fixtures.qp_process import QpProcess, qp_process


class MemoryBench:
    limits = True
    control = ""

    def __init__(self) -> None:
        self.actuator = MemoryActuator()
        self.qp = queue_pair()

    def path(self) -> int:
        return self.actuator.paths.get(self.qp.qp, self.qp.path)

    def rate(self) -> int | None:
        self.actuator.expire(time.monotonic_ns())
        return self.actuator.rates.get(self.qp.qp)

    def refuse(self) -> None:
        self.actuator.deaf.add(self.qp.qp)


class SocketBench:
    limits = True

    def __init__(self, process: QpProcess) -> None:
        self.actuator = QpSocketActuator(timeout_ns=300_000_000)
        self.process = process
        self.qp = process.qps[0]
        self.control = str(process.path)

    def path(self) -> int:
        return self.process.path_of(self.qp.qp)

    def rate(self) -> int | None:
        return self.process.rate_of(self.qp.qp)

    def refuse(self) -> None:
        self.process.refuses = "wrong-epoch: told to"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[QpProcess]:
    with qp_process(tmp_path, [queue_pair()]) as running:
        yield running


@pytest.fixture
def sockets(process: QpProcess) -> Iterator[SocketBench]:
    made = SocketBench(process)
    yield made
    made.actuator.close()


@pytest.fixture(params=["memory", "socket"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "memory":
        yield MemoryBench()
        return
    yield request.getfixturevalue("sockets")


@pytest.mark.parametrize("law", actuators.SUITE, ids=lambda law: law.__name__)
def test_every_actuator(law: Callable[[Bench], None], bench: Bench) -> None:
    law(bench)


def test_a_process_that_is_not_there(tmp_path: Path, sockets: SocketBench) -> None:
    bench = sockets
    bench.control = str(tmp_path / "nobody.sock")
    answer = asked(bench, path=50_002)
    assert (answer.ok, answer.sure) == (False, True)
    assert "no process answers" in answer.why


def test_a_process_that_does_not_answer_leaves_it_open_what_was_done(process: QpProcess, sockets: SocketBench) -> None:
    bench = sockets
    process.mute = True
    answer = asked(bench, path=50_002)
    assert (answer.ok, answer.sure) == (False, False)
    assert "in time" in answer.why
    process.mute = False
    assert asked(bench, path=50_003).ok  # by a new connection: the late answer belongs to nobody


def test_a_process_that_came_back_is_reached_by_a_new_connection_in_the_same_call(
    process: QpProcess, sockets: SocketBench
) -> None:
    bench = sockets
    assert asked(bench, path=50_002).ok
    process.stop()
    process.start()
    assert asked(bench, path=50_003).ok
    assert bench.actuator.counters.get("socket", "connected") == 2


def test_a_process_that_dies_with_a_request(process: QpProcess, sockets: SocketBench) -> None:
    bench = sockets
    process.mute = True
    request = ActuatorRequest(
        7, "set", bench.qp, bench.control, {"target": {"id": bench.qp.qp}, "set": {"path": 50_002}}, 50_002
    )
    assert bench.actuator.apply(request, time.monotonic_ns()) is None
    time.sleep(0.05)
    process.stop()
    [answer] = bench.actuator.answers(time.monotonic_ns())
    assert (answer.request, answer.ok, answer.sure) == (7, False, False)


def test_the_request_is_with_the_process_when_apply_returns(process: QpProcess, sockets: SocketBench) -> None:
    """Nothing else runs between: no loop, no thread of ours."""
    bench = sockets
    assert asked(bench, path=50_002).ok
    before = len(process.requests)
    request = ActuatorRequest(
        99, "set", bench.qp, bench.control, {"target": {"id": bench.qp.qp}, "set": {"path": 50_003}}, 50_003
    )
    bench.actuator.apply(request, time.monotonic_ns())
    deadline = time.monotonic() + 2
    while len(process.requests) == before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert process.path_of(bench.qp.qp) == 50_003
