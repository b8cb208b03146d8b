"""Orders of the packet engine: its thread finds a path dead and asks a queue pair's process for the move by itself.

Python hands over what may be ordered (`agent.commands.orders`): the watches by which the engine judges, and for each
alternate the line that goes to the process, by a connection that only the engine writes to. What was ordered comes
back as an event, before the silences that brought it about; the answer is read here.

Where an order cannot be handed over (no room, no connection), nothing is ordered, and the executor asks as it does
where no packet engine serves.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from sdfstream.agent.commands.actuator import ActuatorAnswer
from sdfstream.agent.commands.orders import GivenOrder, Order
from sdfstream.agent.commands.path_watch import WatchKey, WatchLayout
from sdfstream.agent.commands.qp_socket_io import TIMEOUT_NS, lines_for, read_answer, receive, request_line
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.engine_io import PacketEngine
from sdfstream.probes.engine.native_io import PacketShell
from sdfstream.stats import Counters

_MOST_ALTERNATES: Final = 8

Submit = Callable[..., None]
"""Makes a change of engine or shell, and waits where their command ring is full."""


@dataclass(slots=True)
class _OrderConnection:
    """One to a process; the engine writes to it, Python reads."""

    number: int
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    waiting: deque[tuple[int | None, int]] = field(default_factory=deque)
    """Number of the request (None: nobody waits for it), and steady time by which it must be answered."""
    used_ns: int = 0
    """Steady clock: when an order that uses it was last in force."""
    is_open: bool = True


class _HostLayout(NamedTuple):
    layout: WatchLayout
    first_path: int


class HostEngineOrders:
    """Those of one host (`commands.orders.HostOrders`)."""

    def __init__(self, orders: EngineOrders, host: str, first_path: int) -> None:
        self._orders, self._host, self._first_path = orders, host, first_path

    def offer(self, layout: WatchLayout, orders: Sequence[Order] | None) -> Collection[str]:
        """See `commands.orders.HostOrders`."""
        self._orders.offer(self._host, self._first_path, layout, orders)
        return self._orders.in_force(self._host)

    def given(self, note: Callable[[GivenOrder], int | None], now_ns: int) -> None:
        """See `commands.orders.HostOrders`."""
        self._orders.given(self._host, note, now_ns)

    def answers(self, now_ns: int) -> list[ActuatorAnswer]:
        """See `commands.orders.HostOrders`."""
        return self._orders.answers(now_ns)


class EngineOrders:
    """The orders of all hosts of a packet engine.

    Parameters
    ----------
    engine : PacketEngine
    shell : PacketShell
    submit : callable
    """

    def __init__(self, engine: PacketEngine, shell: PacketShell, submit: Submit) -> None:
        self._engine, self._shell, self._submit = engine, shell, submit
        self.counters = Counters("control")
        """``shed.orders``: there was no room; ``orders.given``, ``orders.failed``."""
        self._layouts: dict[str, _HostLayout] = {}
        self._routes: dict[tuple[str, WatchKey], int] = {}
        self._in_force: dict[tuple[str, str], tuple[int, Order]] = {}
        """Host and command to the number of its order."""
        self._commands: dict[str, set[str]] = {}
        """The commands of these, by host."""
        self._ended: dict[int, tuple[str, Order]] = {}
        """Orders that were taken back, while their numbers are not given anew: the engine may have been quicker."""
        self._last = -1
        self._most_orders = min(engine.room.orders, shell.room.orders)
        self._given: dict[str, list[tuple[GivenOrder, _OrderConnection]]] = {}
        self._connections: dict[str, _OrderConnection] = {}
        self._given_up: list[socket.socket] = []
        """Connections that the engine may use until its next turn."""
        self._lost: list[ActuatorAnswer] = []

    # --- what may be ordered ---

    def offer(self, host: str, first_path: int, layout: WatchLayout, orders: Sequence[Order] | None) -> None:
        """Let these orders be given from now on, those of the last call where None; `layout` says what is dead."""
        known = self._layouts.get(host)
        if known is None or known.layout is not layout:
            self._layouts[host] = _HostLayout(layout, first_path)
            self._lay_out()
        if orders is None:
            return
        wanted = {(host, order.command): order for order in orders}
        before = {key: order for key, (_, order) in self._in_force.items() if key[0] == host}
        self._disarm([key for key, order in before.items() if wanted.get(key) != order])
        for key, order in wanted.items():
            if key not in self._in_force:
                self._arm(host, order)

    def in_force(self, host: str) -> Collection[str]:
        """Commands whose orders are given on a host."""
        return self._commands.get(host, ())

    def _lay_out(self) -> None:
        """Tell the engine what crosses what on all hosts; the numbers of routes are others then."""
        before = [(host, order) for (host, _), (_, order) in self._in_force.items()]
        self._disarm(list(self._in_force))
        segments: list[list[int]] = []
        routes: list[tuple[int, list[int]]] = []
        self._routes = {}
        for host, (layout, first_path) in self._layouts.items():
            first = len(segments)
            segments += [[first_path + slot for slot in slots] for slots in layout.segments]
            for key, crossed in layout.routes.items():
                self._routes[host, key] = len(routes)
                routes.append((len(routes), [first + segment for segment in crossed]))
        links = sum(map(len, segments)) + sum(len(crossed) for _, crossed in routes)
        room = self._engine.room
        if len(segments) > room.segments or len(routes) > room.routes or links > room.links:
            self.counters.add("shed", "orders")
            segments, routes, self._routes = [], [], {}
        self._submit(self._engine.watch, segments, routes)
        for host, order in before:
            self._arm(host, order)

    def _arm(self, host: str, order: Order) -> None:
        watch = self._routes.get((host, order.watch))
        alternates = [(self._routes.get((host, key)), request) for key, request in order.alternates[:_MOST_ALTERNATES]]
        routes = [route for route, _ in alternates if route is not None]
        connection = self._connection(order.control)
        if watch is None or connection is None or not routes or len(routes) < len(alternates):
            return
        number = self._free_number()
        if number is None:
            self.counters.add("shed", "orders")
            return
        for at, (_, request) in enumerate(alternates):
            self._submit(self._shell.prepare, number, at, [(connection.number, request_line(request))])
        self._submit(self._engine.arm, number, watch, routes)
        self._in_force[host, order.command] = number, order
        self._commands.setdefault(host, set()).add(order.command)

    def _free_number(self) -> int | None:
        """The next one that is free: an event may be under way of an order that was just taken back."""
        taken = {number for number, _ in self._in_force.values()}
        for _ in range(self._most_orders):
            self._last = (self._last + 1) % self._most_orders
            if self._last not in taken:
                self._ended.pop(self._last, None)
                return self._last
        return None

    def _disarm(self, keys: Sequence[tuple[str, str]]) -> None:
        for key in keys:
            number, order = self._in_force.pop(key)
            self._commands[key[0]].discard(key[1])
            self._submit(self._engine.disarm, number)
            self._ended[number] = key[0], order

    # --- what was ordered ---

    def take_event(self, event: np.void) -> None:
        """An order was given."""
        number, alternate, error = int(event["path"]), int(event["missed"]), int(event["state"])
        key = next((key for key, (n, _) in self._in_force.items() if n == number), None)
        if key is not None:
            self._disarm([key])
        host, order = self._ended[number]
        connection = self._connections.get(order.control)
        if error or connection is None or alternate == layouts.NONE:
            self.counters.add("orders", "failed")
            if connection is not None:
                self._give_up(order.control, "the process went away")
            return
        self.counters.add("orders", "given")
        path = order.alternates[alternate][1].path
        assert path is not None
        self._given.setdefault(host, []).append((GivenOrder(order.command, path), connection))

    def given(self, host: str, note: Callable[[GivenOrder], int | None], now_ns: int) -> None:
        """Have each new order of a host noted; `note` says which number its answer is to have."""
        for order, connection in self._given.pop(host, ()):
            number = note(order)
            if connection.is_open:
                connection.waiting.append((number, now_ns + TIMEOUT_NS))
            elif number is not None:
                self._lost.append(ActuatorAnswer(number, False, "the process went away", sure=False))

    def answers(self, now_ns: int) -> list[ActuatorAnswer]:
        """Answers since the last call; an order whose time is out is answered as not done, perhaps."""
        self._sweep()
        found: list[ActuatorAnswer] = []
        for control, connection in list(self._connections.items()):
            if not connection.waiting:
                continue
            try:
                found += _received(connection)
            except (OSError, ValueError) as error:
                self._give_up(control, f"the process went away: {error}")
                continue
            if connection.waiting and now_ns >= connection.waiting[0][1]:
                self._give_up(control, "the process did not answer in time")
        found += self._lost
        self._lost = []
        self._close_idle(now_ns)
        return found

    # --- connections ---

    def _connection(self, control: str) -> _OrderConnection | None:
        known = self._connections.get(control)
        if known is not None and not self._shell.link_error(known.number):
            return known
        if known is not None:
            self._give_up(control, "the process went away")
        taken = {connection.number for connection in self._connections.values()}
        number = next(n for n in range(len(taken) + 1) if n not in taken)
        if number >= self._shell.room.links:
            self.counters.add("shed", "orders")
            return None
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            made.connect(control)
        except OSError:
            made.close()
            return None
        self._submit(self._shell.link, number, made)
        self._connections[control] = found = _OrderConnection(number, made, used_ns=time.monotonic_ns())
        return found

    def _close_idle(self, now_ns: int) -> None:
        """Close connections that no order has used for a while, and nobody waits on."""
        used = {order.control for _, order in self._in_force.values()}
        for control, connection in list(self._connections.items()):
            if control in used or connection.waiting:
                connection.used_ns = now_ns
            elif now_ns - connection.used_ns >= TIMEOUT_NS:
                self._give_up(control, "")

    def _give_up(self, control: str, why: str) -> None:
        self._disarm([key for key, (_, order) in self._in_force.items() if order.control == control])
        connection = self._connections.pop(control)
        connection.is_open = False
        self._lost += [ActuatorAnswer(n, False, why, sure=False) for n, _ in connection.waiting if n is not None]
        self._submit(self._shell.link, connection.number, None)
        self._given_up.append(connection.socket)

    def _sweep(self) -> None:
        """Close connections that the engine uses no more."""
        while self._given_up and self._shell.has_settled:
            self._given_up.pop().close()

    def close(self) -> None:
        """Close all connections; the engine's thread has ended."""
        for made in [*self._given_up, *(connection.socket for connection in self._connections.values())]:
            made.close()
        self._given_up, self._connections = [], {}


def _received(connection: _OrderConnection) -> list[ActuatorAnswer]:
    receive(connection.socket, connection.received)
    lines = ((connection.waiting.popleft()[0], line) for line in lines_for(connection.received, connection.waiting))
    return [read_answer(number, line) for number, line in lines if number is not None]
