"""The packet engine's IO shell as Python sees it: one thread in C that carries the packets of all hosts of a process.

Python opens sockets (`probes.net.socket_io`) and hands them over; what is rare stays here. Nothing waits for the
thread, and the thread waits for nobody: changes are commands, done between its turns, and what they name is held here
until they are done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.probes.engine import shell_layouts as layouts
from sdfstream.probes.engine.engine_io import BusyEngineError, PacketEngine
from sdfstream.probes.engine.layouts import NONE, Records, joined
from sdfstream.probes.engine.reflector_io import PacketReflector
from sdfstream.probes.engine.shell_library_io import shell_library
from sdfstream.probes.engine.shell_records import ShellReport, ShellRoom, config_record, icmp_error_of
from sdfstream.probes.net.icmp import IcmpError
from sdfstream.probes.net.socket_io import ProbeSocket
from sdfstream.records.units import UInt8s

_TAKE: Final = 256
_SETTLE_S: Final = 0.002


class PacketShell:
    """The shell of one engine.

    All methods are for one thread at a time, and the same that changes the engine: `engine_io`'s commands and these go
    through rings with one producer.

    Parameters
    ----------
    engine : PacketEngine
        Must outlive the shell.
    room : ShellRoom
    realtime : bool
        Ask for a real-time priority, then for a high one.
    old_wait : bool
        Behave as on a kernel without epoll_pwait2 (before 5.11).
    path : Path, optional
        Another library; the engine's.

    Raises
    ------
    ConfigError
        The room is not consistent, or memory or descriptors are used up.
    """

    def __init__(
        self,
        engine: PacketEngine,
        room: ShellRoom,
        *,
        realtime: bool = False,
        old_wait: bool = False,
        path: Path | None = None,
    ) -> None:
        self._library = shell_library(path)
        self.engine = engine
        self.room = room
        flags = layouts.REALTIME * realtime | layouts.OLD_WAIT * old_wait
        self._shell = self._library.pe_shell_new(config_record(room, flags).ctypes.data, engine.address)
        if not self._shell:
            raise ConfigError(f"the packet engine's shell does not fit: {room}")
        self._thread: threading.Thread | None = None
        self._commanded = 0
        self._held: dict[tuple[str, int, int], Any] = {}
        """What the shell uses now, by what it is."""
        self._replaced: deque[tuple[int, Any]] = deque()
        """What it may use until a command is done."""

    # --- its thread ---

    def start(self) -> None:
        """Run in a thread of its own, until `stop`."""
        if self._thread is None:
            run, shell = self._library.pe_shell_run, self._shell
            self._thread = threading.Thread(target=run, args=(shell,), name="packets", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop and wait for that."""
        if self._thread is not None:
            self._library.pe_shell_stop(self._shell)
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Stop, and close all sockets; nothing else may be called then."""
        if not self._shell:
            return
        self.stop()
        self._library.pe_shell_free(self._shell)
        self._shell = None
        for held in [*self._held.values(), *(held for _, held in self._replaced)]:
            _let_go(held)
        self._held.clear()
        self._replaced.clear()

    def turn(self) -> None:
        """One turn, here and now; only while no thread runs."""
        if self._thread is not None:
            raise ValueError("the engine's thread runs")
        self._library.pe_shell_turn(self._shell)

    def wake(self) -> None:
        """Let what the engine was told take effect now, not with the next packet or instant."""
        self._library.pe_shell_wake(self._shell)

    def settle(self, seconds: float = 2.0) -> None:
        """Wait until all commands are done, for tests and for the end.

        Raises
        ------
        UnavailableError
            They are not, in time.
        """
        last = self._command(self._library.pe_shell_inbound_all(self._shell), "wait")
        until_s = time.monotonic() + seconds
        while self._library.pe_shell_done(self._shell) < last:
            if time.monotonic() > until_s:
                raise UnavailableError("the packet engine does not turn")
            if self._thread is None:
                self.turn()
            else:
                time.sleep(_SETTLE_S)
        self.tidy()

    @property
    def has_settled(self) -> bool:
        """Whether all commands are done."""
        return bool(self._library.pe_shell_done(self._shell) >= self._commanded)

    def tidy(self) -> None:
        """Let go of what the shell uses no longer; every command does that, too."""
        done = self._library.pe_shell_done(self._shell)
        while self._replaced and self._replaced[0][0] <= done:
            _let_go(self._replaced.popleft()[1])

    # --- changes ---

    def adopt(self, slot: int, opened: ProbeSocket, *, role: int, host: int, number: int = 0, nic: int = 0) -> None:
        """Send and receive by `opened` in `slot` from now on; it is the shell's to close.

        Parameters
        ----------
        role : int
            `shell_layouts.SENDER` (`slot` is the `socket` of its paths) or `REFLECTOR`.
        host, number, nic : int
            Whose it is; of a reflecting one its number, and its NIC's, in that host's reflector.
        """
        record = np.zeros(1, dtype=layouts.ADOPTION)
        record["fd"], record["interface"], record["stamp_room"] = opened.fd, opened.interface, opened.stamp_room
        record["host"], record["number"], record["nic"] = host, number, nic
        record["role"], record["kind"], record["v6"] = role, int(opened.kind), opened.v6
        record["address"] = np.frombuffer(opened.address, dtype=np.uint8)
        record["control"], record["control_octets"] = opened.control, opened.control_bytes
        number_ = self._command(self._library.pe_shell_adopt(self._shell, slot, record.ctypes.data), "socket")
        self._hold(("socket", slot, 0), opened, number_)

    def close_socket(self, slot: int) -> None:
        """Close the socket of `slot`, soon."""
        self._hold(("socket", slot, 0), None, self._command(self._library.pe_shell_close(self._shell, slot), "socket"))

    def send_limited(self, slot: int, address: bytes, port: int, payload: bytes, tos: int, ttl: int) -> None:
        """Send one datagram with its own TTL (path tracing); counted where it does not go. `address`: 16 octets."""
        record = np.zeros(1, dtype=layouts.LIMITED)
        record["slot"], record["port"], record["tos"], record["ttl"] = slot, port, tos, ttl
        record["address"], record["octets"] = np.frombuffer(address, dtype=np.uint8), len(payload)
        self._command(self._library.pe_shell_limited(self._shell, record.ctypes.data, payload), "datagram")

    def reflect(self, host: int, reflector: PacketReflector | None) -> None:
        """Let `reflector` answer the probes that reach the host's reflecting sockets; its changes are commands then."""
        before = self._held.get(("reflector", host, 0))
        if before is not None:
            before.changes = None
        pointer = reflector.address if reflector is not None else None
        number = self._command(self._library.pe_shell_reflector(self._shell, host, pointer), "reflector")
        self._hold(("reflector", host, 0), reflector, number)
        if reflector is not None:
            reflector.changes = _Changes(self, host)

    def link(self, link: int, connection: socket.socket | None) -> None:
        """Give orders by `connection` (the engine's alone to write to, yours to read) from now on; None: no more."""
        fd = connection.fileno() if connection is not None else -1
        number = self._command(self._library.pe_shell_link(self._shell, link, fd), "connection")
        self._hold(("link", link, 0), connection, number)

    def prepare(self, order: int, alternate: int | None, moves: Sequence[tuple[int, bytes]]) -> None:
        """What `order` sends when it takes this alternate (its index; None: it has none): octets to connections."""
        records = np.zeros(max(len(moves), 1), dtype=layouts.MOVE)
        held = [np.frombuffer(data, dtype=np.uint8) for _, data in moves]
        for record, (link, _), data in zip(records, moves, held, strict=False):
            record["link"], record["octets"], record["data"] = link, len(data), data.ctypes.data
        choice = NONE if alternate is None else alternate
        asked = self._library.pe_shell_prepare(self._shell, order, choice, records.ctypes.data, len(moves))
        self._hold(("order", order, choice), held or None, self._command(asked, "order"))

    def report_inbound(self) -> None:
        """Report all inbound paths with the next assessment."""
        self._command(self._library.pe_shell_inbound_all(self._shell), "report")

    def _command(self, result: int, what: str) -> int:
        """The number of a command; raises where there is none."""
        self.tidy()
        if result == -errno.EAGAIN:
            raise BusyEngineError("the command ring of the packet engine's shell is full")
        if result < 0:
            raise ConfigError(f"the packet engine's shell refuses this {what}")
        self._commanded = result
        return result

    def _hold(self, key: tuple[str, int, int], what: Any, number: int) -> None:
        before = self._held.pop(key, None)
        if before is not None:
            self._replaced.append((number, before))
        if what is not None:
            self._held[key] = what

    # --- what it has found ---

    @property
    def found_fd(self) -> int:
        """Readable once there are events or changes of inbound paths since the last `acknowledge`."""
        return int(self._library.pe_shell_found_fd(self._shell))

    def acknowledge(self) -> None:
        """What is found from now on makes `found_fd` readable again."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.found_fd)

    def report(self) -> ShellReport:
        """How the thread does."""
        record = np.zeros(1, dtype=layouts.REPORT)
        self._library.pe_shell_reported(self._shell, record.ctypes.data)
        found = {name: int(record[name][0]) for name in layouts.REPORT.names or ()}
        return ShellReport(
            found["cpu_ns"],
            found["began_ns"],
            found["turned_ns"],
            layouts.PRIORITIES[found["priority"]],
            errno.errorcode.get(found["priority_error"], "").lower(),
            bool(found["running"]),
            bool(found["resting"]),
        )

    def counters(self) -> dict[str, int]:
        """Counters by name, as `SocketTable` counts them, and turns and orders; those that are 0 are left out."""
        fixed, errnos = len(layouts.COUNTERS), layouts.ERRNOS
        values = np.zeros(fixed + len(layouts.BY_ERRNO) * errnos, dtype=np.uint64)
        self._library.pe_shell_stats(self._shell, values.ctypes.data, len(values))
        found = dict(zip(layouts.COUNTERS, values[:fixed].tolist(), strict=True))
        for kind, counts in zip(layouts.BY_ERRNO, values[fixed:].reshape(-1, errnos), strict=True):
            for number in np.flatnonzero(counts).tolist():
                found[f"{kind}.{errno.errorcode.get(number, 'other').lower()}"] = int(counts[number])
        return {name: n for name, n in found.items() if n}

    def bins(self, histogram: str) -> dict[int, int]:
        """How many durations of a histogram (`shell_layouts.HISTOGRAMS`) were in each bin, ever; by its least, ns."""
        values = np.zeros(layouts.BINS, dtype=np.uint64)
        number = layouts.HISTOGRAMS.index(histogram)
        self._library.pe_shell_bins(self._shell, number, values.ctypes.data, len(values))
        least = self._library.pe_shell_bin_least_ns
        return {int(least(i)): int(values[i]) for i in np.flatnonzero(values).tolist()}

    def quantile_ns(self, histogram: str, q: float, since: Mapping[int, int] | None = None) -> int:
        """A quantile of a histogram, up to a fifth too low; of what came after `since`, a reading of `bins`."""
        counts = {ns: n - (since or {}).get(ns, 0) for ns, n in self.bins(histogram).items()}
        left = q * sum(counts.values())
        for ns, n in counts.items():
            left -= n
            if left <= 0:
                return ns
        return 0

    def suspects(self) -> list[int]:
        """Slots that failed since the last call as if their NIC had gone."""
        slots = np.empty(self.room.sockets, dtype=np.uint32)
        n = self._library.pe_shell_suspects(self._shell, slots.ctypes.data, len(slots))
        return slots[:n].tolist() if n else []

    def link_error(self, link: int) -> int:
        """The errno that ended a connection; 0: it works."""
        return int(self._library.pe_shell_link_error(self._shell, link))

    def take_icmp(self) -> list[IcmpError]:
        """ICMP errors since the last call."""
        return [icmp_error_of(record) for record in self._taken(self._library.pe_shell_take_icmp, layouts.ICMP)]

    def take_inbound(self) -> Records:
        """Changes of inbound paths (`shell_layouts.INBOUND`) since the last call."""
        return self._taken(self._library.pe_shell_take_inbound, layouts.INBOUND)

    def _taken(self, take: Callable[..., int], layout: np.dtype[Any]) -> Records:
        taken: list[Records] = []
        while not taken or len(taken[-1]) == _TAKE:
            records = np.empty(_TAKE, dtype=layout)
            taken.append(records[: take(self._shell, records.ctypes.data, _TAKE)])
        return joined(taken)

    def change_reflector(self, host: int, what: str, *arguments: Any) -> None:
        """A change of a host's reflector, as a command: ``known`` and ``clock`` give arrays, kept alive here."""
        if what == "known":
            known, inside = arguments
            pointers = (known.ctypes.data, len(known), inside.ctypes.data, len(inside))
            result = self._library.pe_shell_know(self._shell, host, *pointers)
        elif what == "clock":
            result = self._library.pe_shell_clock(self._shell, host, arguments[0].ctypes.data)
        else:
            result = self._library.pe_shell_usable(self._shell, host, *arguments)
        number = self._command(result, "reflector")
        if what != "usable":
            self._hold((what, host, 0), arguments, number)


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of one reflector that the shell uses (`reflector_io.Changes`)."""

    shell: PacketShell
    host: int

    def known(self, known: Records, inside: Records) -> None:
        self.shell.change_reflector(self.host, "known", known, inside)

    def clock(self, clock: Records, knots: Any) -> None:
        self.shell.change_reflector(self.host, "clock", clock, knots)

    def usable(self, nic: int, usable: bool) -> None:
        self.shell.change_reflector(self.host, "usable", nic, usable)


def read_control(control: UInt8s) -> Records:
    """What control messages say (`shell_layouts.CONTROL`), as the shell reads them; for tests."""
    out = np.zeros(1, dtype=layouts.CONTROL)
    held = np.zeros((len(control) + 7) // 8 * 8 or 8, dtype=np.uint8)
    held[: len(control)] = control
    shell_library().pe_control_read(held.ctypes.data, len(control), out.ctypes.data)
    return out


def _let_go(held: Any) -> None:
    """Close a socket; anything else is only forgotten. Connections are not ours to close."""
    if isinstance(held, ProbeSocket):
        held.sock.close()
