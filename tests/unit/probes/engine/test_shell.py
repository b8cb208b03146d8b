"""The shell without packets: what it refuses, what it holds, and how it counts."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from sdfstream.errors import ConfigError
from sdfstream.probes.config import HostConfig, NicConfig
from sdfstream.probes.engine import shell_layouts as layouts
from sdfstream.probes.engine.engine_io import BusyEngineError, PacketEngine, Room
from sdfstream.probes.engine.native_io import PacketShell
from sdfstream.probes.engine.reflector_io import PacketReflector
from sdfstream.probes.engine.shell_library_io import shell_library
from sdfstream.probes.engine.shell_records import ShellRoom
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.records.units import StampKind

SMALL = Room(paths=4, exchanges=256, rows=64, events=64, hosts=1, nics=1, command_words=4_096)
ROOM = ShellRoom(sockets=2, hosts=1, orders=2, links=2, command_words=4_096)
NIC = NicConfig("h/n", "lo", "127.0.0.2")


@pytest.fixture
def shell() -> Iterator[PacketShell]:
    engine = PacketEngine(SMALL, error=1)
    made = PacketShell(engine, ROOM)
    yield made
    made.close()
    engine.close()


def test_a_room_that_is_not_consistent_is_refused() -> None:
    engine = PacketEngine(SMALL, error=1)
    for wrong in (ShellRoom(sockets=0), ShellRoom(inbound=3), ShellRoom(command_words=100), ShellRoom(finish_ns=0)):
        with pytest.raises(ConfigError, match="does not fit"):
            PacketShell(engine, wrong)
    engine.close()


def test_changes_of_what_there_is_not_are_refused(shell: PacketShell) -> None:
    with pytest.raises(ConfigError, match="socket"):
        shell.close_socket(2)
    with pytest.raises(ConfigError, match="datagram"):
        shell.send_limited(0, bytes(16), 1, bytes(ROOM.width_bytes + 1), 0, 1)
    with pytest.raises(ConfigError, match="connection"):
        shell.link(2, None)
    for order, alternate, moves in ((2, None, [(0, b"x")]), (0, 8, [(0, b"x")]), (0, None, [(2, b"x")])):
        with pytest.raises(ConfigError, match="order"):
            shell.prepare(order, alternate, moves)
    with pytest.raises(ConfigError, match="order"):
        shell.prepare(0, None, [(0, b"x")] * (layouts.MOST_MOVES + 1))
    with pytest.raises(ConfigError, match="reflector"):
        shell.reflect(1, None)


def test_more_changes_than_fit_are_tried_again_after_a_turn(shell: PacketShell) -> None:
    with pytest.raises(BusyEngineError):
        for _ in range(5_000):
            shell.report_inbound()
    shell.turn()
    shell.settle()


def test_what_an_order_sends_is_held_until_it_is_replaced(shell: PacketShell) -> None:
    shell.prepare(0, 1, [(0, b"first\n")])
    first = weakref.ref(shell._held["order", 0, 1][0])
    shell.settle()
    gc.collect()
    assert first() is not None
    shell.prepare(0, 1, [(0, b"second\n")])
    gc.collect()
    assert first() is not None  # until the engine's thread has taken the second
    shell.settle()
    gc.collect()
    assert first() is None


def test_a_link_to_nothing_has_no_error_and_orders_are_not_given(shell: PacketShell) -> None:
    near, far = socket.socketpair()
    shell.link(0, near)
    shell.settle()
    assert shell.link_error(0) == 0
    shell.link(0, None)
    shell.settle()
    near.close()
    far.close()
    assert "orders" not in shell.counters()


def test_changes_of_a_reflector_are_commands_only_while_the_shell_has_it(shell: PacketShell) -> None:
    reflector = PacketReflector(HostConfig("h", (NIC,), ()), {0: "h/n"}, {})
    shell.reflect(0, reflector)
    assert reflector.changes is not None
    reflector.know("plan", {"127.0.0.3": KnownSender("g/n")})
    reflector.nic_usable("h/n", False, 0)
    shell.settle()
    shell.reflect(0, None)
    assert reflector.changes is None
    shell.settle()
    reflector.close()


def test_bins_grow_by_a_quarter_of_an_octave() -> None:
    least = [shell_library().pe_shell_bin_least_ns(i) for i in range(layouts.BINS)]
    assert least[:9] == list(range(9))
    steps = np.array(least[5:], float) / np.array(least[4:-1], float)
    assert (steps > 1).all()
    assert (steps <= 1.25).all()


def test_a_shell_that_never_ran_says_so(shell: PacketShell) -> None:
    report = shell.report()
    assert not report.running
    assert (report.cpu_ns, report.priority, report.refused) == (0, "normal", "")
    assert shell.counters() == {}
    assert shell.suspects() == []
    assert shell.take_icmp() == []
    assert len(shell.take_inbound()) == 0
    assert shell.quantile_ns("late", 0.5) == 0
    assert StampKind.KERNEL == 1  # as the shell has it
