"""The packet engine of an agent: one thread in C for all its hosts, which Python asks now and then.

Each host has a range of the engine's path numbers and of the shell's socket slots; what the engine reports of a number
is given to the host whose it is.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from sdfstream.agent.engine.inbound_mirror import InboundMirror
from sdfstream.agent.engine.orders_io import EngineOrders
from sdfstream.agent.engine.room import EngineRange, engine_room
from sdfstream.agent.lateness import DECILE
from sdfstream.bus import conform
from sdfstream.bus.fronts import SharedFront, share
from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.engine_io import BusyEngineError, PacketEngine
from sdfstream.probes.engine.native_io import PacketShell
from sdfstream.probes.engine.reflector_io import PacketReflector
from sdfstream.probes.engine.row_batches_io import NativeRowBatches
from sdfstream.probes.engine.rows import EngineRows
from sdfstream.probes.engine.shell_records import ShellRoom
from sdfstream.probes.net.icmp import IcmpError
from sdfstream.probes.stamp import packet
from sdfstream.records.topics import PROBE
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_log = logging.getLogger("sdfstream.agent")

_TRIES: Final = 100
_TRY_S: Final = 0.002
_SETTLE_S: Final = 0.02
_LOOK_S: Final = 0.0002
"""How long to wait for a turn, and how often to look; as a rule it comes within a tenth of a millisecond."""
_OF_SOCKETS: Final = ("refused", "unsent", "receive-failed", "socket-error", "stamps-unmatched")
"""What `SocketTable` counts, too, as stage "io"."""
_SOCKETS_NS: Final = 10 * NS_PER_MS
"""Every table and trace of every host asks for what sockets have met; so often it is looked for."""
_CLOCK_NS: Final = 5 * NS_PER_S
"""How often the wander of a virtual clock is handed over; it reaches six times as far."""


class ServedHost(Protocol):
    """A host whose packets the engine carries (`EnginePackets`)."""

    @property
    def name(self) -> str:
        """The host's name."""

    @property
    def range(self) -> EngineRange:
        """Its numbers."""

    @property
    def reflector(self) -> PacketReflector:
        """What answers the probes that reach it."""

    @property
    def mirror(self) -> InboundMirror:
        """Takes what is reported of its inbound paths."""

    @property
    def row_names(self) -> EngineRows:
        """Names of its paths."""

    @property
    def finished(self) -> list[pa.RecordBatch]:
        """Takes its rows."""

    def take_event(self, event: np.void) -> None:
        """A path changed its state."""

    def take_error(self, error: IcmpError) -> None:
        """An ICMP error, of any host's slot."""

    def suspect(self, number: int) -> None:
        """The slot of this number, of any host, failed as if its NIC had gone."""

    def keep_clock(self, system_ns: int) -> None:
        """Hand the virtual clock over, with its wander around `system_ns`."""


class EngineThread:
    """The packet engine of a process.

    Parameters
    ----------
    config : AgentConfig
    seed : int
        Of the pacing.

    Raises
    ------
    UnavailableError
        There is no library.
    """

    def __init__(self, config: AgentConfig, seed: int) -> None:
        room, self._ranges = engine_room(config)
        self.engine = PacketEngine(
            room, error=packet.error_estimate(1e6), hmac_key=config.hmac_key, seed=seed & 0xFFFF_FFFF_FFFF_FFFF
        )
        sockets = sum(r.senders + r.reflectors for r in self._ranges.values())
        shell_room = ShellRoom(sockets=sockets, hosts=room.hosts, width_bytes=room.width_bytes)
        self.shell = PacketShell(self.engine, shell_room, realtime=config.realtime)
        self.generation = np.zeros(room.paths, dtype=np.uint16)
        """Of each path, that of the session that has it."""
        self.orders = EngineOrders(self.engine, self.shell, self.submit)
        self._hosts: list[ServedHost] = []
        self._rows: NativeRowBatches | None = None
        self._takers: dict[str, tuple[ServedHost, SharedFront]] = {}
        """Who takes the rows of a host, and what stands before them in every message."""
        self._collected_at_ns = self._drained_at_ns = self._clocks_at_ns = self._sockets_at_ns = -1
        self._closed = False
        self._is_notified = False
        self._found = True
        """Whether there may be something to collect; always, unless `on_found` is told of it."""
        self._forget_loop: Callable[[], object] = bool

    def range_of(self, host: str) -> EngineRange:
        """The numbers that are this host's."""
        return self._ranges[host]

    def serve(self, host: ServedHost) -> None:
        """Give `host` what is found of its numbers; all hosts, in their order, before `start`."""
        self._hosts.append(host)

    def start(self) -> None:
        """Begin to send and to answer; one line in the log says with which priority."""
        self._keep_clocks(time.monotonic_ns())
        self.shell.start()
        _log.info("%s", self._sentence())

    def _sentence(self) -> str:
        """What serves, and with which priority."""
        end = time.monotonic() + 0.2
        while not self.shell.report().running and time.monotonic() < end:
            time.sleep(_TRY_S)
        report = self.shell.report()
        why = f" ({report.refused})" if report.refused else ""
        return f"packet engine: in C, priority {report.priority}{why}"

    def close(self) -> None:
        """Stop, and close all sockets."""
        if not self._closed:
            self._closed = True
            self._forget_loop()
            self.shell.close()
            self.orders.close()
            for host in self._hosts:
                host.reflector.close()
            self.engine.close()

    def on_found(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        """Let `loop` make `call` whenever there is something to `collect`, until this is closed."""
        shell = self.shell

        def found() -> None:
            shell.acknowledge()
            self._found = True
            call()

        self._is_notified = True
        loop.add_reader(shell.found_fd, found)
        self._forget_loop = partial(loop.remove_reader, shell.found_fd)

    def submit(self, change: Callable[..., None], *arguments: Any) -> None:
        """Make a change; where the engine has not taken those before, wait for its next turn."""
        for left in reversed(range(_TRIES)):
            try:
                change(*arguments)
                break
            except BusyEngineError:
                if not left:
                    raise
                if self.shell.report().running:
                    time.sleep(_TRY_S)
                else:
                    self.shell.turn()
        self.shell.wake()

    def settle_sockets(self) -> None:
        """Wait for the turn that takes sockets up or gives them back: paths begin on open ones, ports are free then."""
        end = time.monotonic() + _SETTLE_S
        while not self.shell.has_settled and self.shell.report().running and time.monotonic() < end:
            time.sleep(_LOOK_S)
        self.shell.tidy()

    def paths_changed(self) -> None:
        """Some host's table of paths is another one."""
        self._rows = None

    def collect(self, now_ns: int) -> None:
        """Give every host the events since the last call; once for all hosts of a pass (of one `now_ns`)."""
        if now_ns == self._collected_at_ns:
            return
        self._collected_at_ns = now_ns
        if not self._found:
            return
        self._found = not self._is_notified
        for event in self.engine.take_events():
            if event["kind"] == layouts.EVENT_LIVENESS:
                self._host_at(int(event["path"])).take_event(event)
            elif event["kind"] == layouts.EVENT_ORDER:
                self.orders.take_event(event)
        for event in self.shell.take_inbound():
            self._hosts[int(event["host"])].mirror.take(event)

    def collect_sockets(self) -> None:
        """Give every host the suspicions and ICMP errors of its sockets, unless that was done a moment ago."""
        now_ns = time.monotonic_ns()
        if now_ns < self._sockets_at_ns:
            return
        self._sockets_at_ns = now_ns + _SOCKETS_NS
        for slot in self.shell.suspects():
            for host in self._hosts:
                host.suspect(slot)
        for error in self.shell.take_icmp():
            for host in self._hosts:
                host.take_error(error)

    def drain(self, now_ns: int) -> None:
        """Give every host its rows since the last call; once for all hosts of a flush."""
        if now_ns == self._drained_at_ns:
            return
        self._drained_at_ns = now_ns
        self._keep_clocks(now_ns)
        if self._rows is None:
            self._rows = NativeRowBatches([host.row_names for host in self._hosts])
            self._takers = {host.name: (host, SharedFront()) for host in self._hosts}
        (oldest, newest), upto = self.engine.rows()
        if not len(oldest):
            return
        rows = np.concatenate([oldest, newest]) if len(newest) else oldest
        for name, batch in self._rows.batches(rows, self.generation):
            conform.remember(PROBE.name, batch)
            host, front = self._takers[name]
            share(batch, front)
            host.finished.append(batch)
        self.engine.release_rows(upto)

    def lateness(self, before: Mapping[int, int]) -> tuple[int, dict[int, int]]:
        """The ninth decile of how late its turns were since the reading `before`, ns, and a reading of now."""
        now = self.shell.bins("late")
        return self.shell.quantile_ns("late", DECILE, before), now

    def _host_at(self, path: int) -> ServedHost:
        return next(h for h in reversed(self._hosts) if path >= h.range.first_path)

    def _keep_clocks(self, now_ns: int) -> None:
        if now_ns >= self._clocks_at_ns:
            self._clocks_at_ns = now_ns + _CLOCK_NS
            for host in self._hosts:
                host.keep_clock(time.time_ns())

    def counters(self, host: ServedHost) -> dict[str, int]:
        """Counters of a host; those of the engine and its shell are counted once, with the first host's."""
        found = dict(host.reflector.counters.as_dict())
        if host is self._hosts[0] and not self._closed:
            found |= self.orders.counters.as_dict()
            found |= {f"sender.{name}": n for name, n in self.engine.counters().items()}
            found |= {
                f"{'io' if name.startswith(_OF_SOCKETS) else 'engine'}.{name}": n
                for name, n in self.shell.counters().items()
            }
        return found


def engine_of(config: AgentConfig) -> EngineThread | None:
    """The packet engine, unless the Python engines are to serve or there is none, which is logged.

    Raises
    ------
    UnavailableError, ConfigError
        There is none, or it does not fit, and ``packet_engine: c`` asks for it.
    """
    if config.packet_engine == "numpy":
        return None
    try:
        return EngineThread(config, secrets.randbits(64))
    except (UnavailableError, ConfigError) as error:
        if config.packet_engine == "c":
            raise
        _log.info("%s: the Python shell serves", error)
        return None
