"""Orders of the packet engine: handed over, given without Python, answered, taken back."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sdfstream.agent.commands.actuator import ActuatorRequest
from sdfstream.agent.commands.orders import GivenOrder, Order
from sdfstream.agent.commands.path_watch import WatchKey, WatchLayout
from sdfstream.agent.commands.qp_socket_io import TIMEOUT_NS
from sdfstream.agent.engine.orders_io import EngineOrders
from sdfstream.probes.engine.engine_io import PacketEngine
from sdfstream.probes.engine.layouts import EVENT_ORDER
from sdfstream.probes.engine.native_io import PacketShell
from sdfstream.probes.engine.shell_records import ShellRoom
from tests.fixtures import control as c
from tests.fixtures.engine_sender import ROOM
from tests.fixtures.engine_wire import echo
from tests.property.test_engine_watches import PATHS, PERIOD_NS, record

HOST, OTHER = "h0", "h1"
FORMER, FIRST, SECOND = WatchKey("c1", 50_001), WatchKey("c1", 50_002), WatchKey("c1", 50_003)
LAYOUT = WatchLayout(((0,), (1,), (2,)), {FORMER: (0,), FIRST: (1,), SECOND: (2,)})


class World:
    """An engine whose paths are answered or not, with a process that takes requests."""

    def __init__(self, folder: Path) -> None:
        self.engine = PacketEngine(ROOM, error=1)
        self.shell = PacketShell(self.engine, ShellRoom(sockets=2, hosts=1, orders=4, links=2))
        self.orders = EngineOrders(self.engine, self.shell, lambda change, *what: change(*what))
        self.control = str(folder / "control")
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.control)
        self.server.listen()
        for path in range(PATHS):
            self.engine.begin(path, record(path))
        self.now_ns = time.monotonic_ns()
        self.process: socket.socket | None = None
        self.noted: list[GivenOrder] = []

    def close(self) -> None:
        self.shell.close()
        self.orders.close()
        self.engine.close()
        self.server.close()
        if self.process is not None:
            self.process.close()

    def order(self, *alternates: WatchKey, command: str = "c1", watch: WatchKey = FORMER) -> Order:
        def request(path: int) -> ActuatorRequest:
            return ActuatorRequest(0, "set", c.queue_pair(), self.control, {"id": command}, path, choice=True)

        return Order(command, self.control, watch, tuple((key, request(key.path)) for key in alternates))

    def offer(self, *orders: Order, layout: WatchLayout = LAYOUT, host: str = HOST) -> None:
        self.orders.offer(host, 0, layout, orders)
        self.shell.turn()
        self.now_ns = max(self.now_ns, time.monotonic_ns())

    def live(self, *answered: int) -> None:
        """A while in which only these paths are answered; what the engine says is taken."""
        for _ in range(12):
            self.now_ns += PERIOD_NS // 2
            self.engine.apply(self.now_ns)
            echo(self.engine, *self.engine.due(self.now_ns, self.now_ns), set(answered), self.now_ns)
            self.engine.assess(self.now_ns, self.now_ns)

    def take(self, host: str = HOST) -> list[GivenOrder]:
        """What was ordered since the last call."""
        for event in self.engine.take_events():
            if event["kind"] == EVENT_ORDER:
                self.orders.take_event(event)
        self.noted.clear()
        self.orders.given(host, self._note, self.now_ns)
        return list(self.noted)

    def _note(self, given: GivenOrder) -> int | None:
        self.noted.append(given)
        return 7

    def asked(self) -> list[Any]:
        """Requests that the process has got."""
        if self.process is None:
            self.process, _ = self.server.accept()
            self.process.setblocking(False)
        try:
            return [json.loads(line) for line in self.process.recv(1 << 16).splitlines()]
        except BlockingIOError:
            return []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_dead_path_is_left_for_the_first_clean_alternate_and_the_answer_comes_back(world: World) -> None:
    world.offer(world.order(FIRST, SECOND))
    world.live(0, 1, 2)
    assert (world.asked(), world.take()) == ([], [])
    world.live(2)
    assert world.asked() == [{"do": "set", "command": {"id": "c1"}, "choice": {"path": 50_003}, "ttl_ms": 0}]
    assert world.take() == [GivenOrder("c1", 50_003)]
    assert world.orders.answers(world.now_ns) == []
    assert world.process is not None
    world.process.send(b'{"ok":true,"before":{"path":50001},"after":{"path":50003}}\n')
    (answer,) = world.orders.answers(world.now_ns)
    assert (answer.request, answer.ok, answer.after) == (7, True, {"path": 50_003})
    assert world.orders.counters.as_dict() == {"control.orders.given": 1}


def test_what_is_taken_back_is_not_given_and_nothing_is_given_twice(world: World) -> None:
    world.offer(world.order(FIRST))
    world.live(0, 1, 2)
    world.offer()
    world.live(1, 2)
    assert world.take() == []
    world.offer(world.order(FIRST))
    world.live(1, 2)
    assert world.take() == [GivenOrder("c1", 50_002)], "its path was dead already"
    world.live(1, 2)
    assert world.take() == []


def test_an_order_that_was_given_in_the_instant_in_which_it_was_taken_back_is_known(world: World) -> None:
    world.offer(world.order(FIRST))
    world.live(0, 1, 2)
    world.live(1, 2)
    world.orders.offer(HOST, 0, LAYOUT, [])
    assert world.take() == [GivenOrder("c1", 50_002)]


def test_another_layout_changes_what_is_dead_for_the_orders_of_all_hosts(world: World) -> None:
    theirs = WatchKey("c2", 50_001)
    other = WatchLayout(((3,), (4,)), {theirs: (0,), WatchKey("c2", 50_002): (1,)})
    world.offer(world.order(FIRST))
    alternate = WatchKey("c2", 50_002)
    world.offer(world.order(alternate, command="c2", watch=theirs), layout=other, host=OTHER)
    world.live(0, 1, 2, 3, 4)
    world.offer(layout=WatchLayout(((2,), (1,)), {FORMER: (0,), FIRST: (1,)}), host=HOST)
    world.offer(world.order(FIRST), layout=WatchLayout(((2,), (1,)), {FORMER: (0,), FIRST: (1,)}))
    world.live(0, 1, 2, 4)
    assert (world.take(HOST), world.take(OTHER)) == ([], [GivenOrder("c2", 50_002)])
    world.live(0, 1, 4)
    assert world.take(HOST) == [GivenOrder("c1", 50_002)]


def test_an_order_whose_process_went_away_is_left_to_the_executor(world: World) -> None:
    world.offer(world.order(FIRST))
    world.live(0, 1, 2)
    world.asked()
    assert world.process is not None
    world.process.close()
    world.live(1, 2)
    assert world.take() == []
    assert world.orders.counters.as_dict() == {"control.orders.failed": 1}
    world.process = None
    world.offer(world.order(SECOND))
    world.live(1, 2)
    assert [asked["choice"] for asked in world.asked()] == [{"path": 50_003}], "by a new connection"


def test_a_process_that_goes_away_before_its_order_is_noted_has_not_answered(world: World) -> None:
    world.offer(world.order(FIRST))
    world.live(0, 1, 2)
    world.live(1, 2)
    for event in world.engine.take_events():
        if event["kind"] == EVENT_ORDER:
            world.orders.take_event(event)
    world.orders._give_up(world.control, "the process went away")
    assert world.take() == [GivenOrder("c1", 50_002)]
    (answer,) = world.orders.answers(world.now_ns)
    assert (answer.request, answer.ok, answer.sure) == (7, False, False)


def test_an_answer_that_does_not_come_is_no_answer(world: World) -> None:
    world.offer(world.order(FIRST))
    world.live(0, 1, 2)
    world.live(1, 2)
    world.take()
    assert world.orders.answers(world.now_ns + TIMEOUT_NS - 1) == []
    (answer,) = world.orders.answers(world.now_ns + TIMEOUT_NS)
    assert (answer.request, answer.ok, answer.sure) == (7, False, False)


def test_without_room_or_process_nothing_is_handed_over(world: World) -> None:
    many = [world.order(FIRST, command=f"c{n}")._replace(watch=FORMER) for n in range(6)]
    world.offer(*many)
    assert len(world.orders._in_force) == 4
    assert world.orders.counters.as_dict() == {"control.shed.orders": 2}
    world.offer()
    world.control += "-of-nobody"
    world.offer(world.order(FIRST))
    assert not world.orders._in_force
    wide = WatchLayout(tuple((0,) for _ in range(ROOM.segments + 1)), {FORMER: (0,)})
    world.offer(layout=wide)
    assert world.orders.counters.as_dict()["control.shed.orders"] == 3


def test_a_connection_that_no_order_uses_is_closed_after_a_while(world: World) -> None:
    world.offer(world.order(FIRST))
    world.asked()
    world.offer()
    for at_ns, is_open in ((0, True), (TIMEOUT_NS // 2, True), (TIMEOUT_NS, False)):
        world.orders.answers(world.now_ns + at_ns)
        world.shell.turn()
        assert bool(world.orders._connections) is is_open
    world.orders.answers(world.now_ns)
    assert world.process is not None
    assert world.process.recv(1) == b""
