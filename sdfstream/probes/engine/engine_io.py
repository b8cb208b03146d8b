"""The packet engine as Python sees it: one object around the library, with its memory.

`PacketEngine.begin` … `disarm` change what the engine does and may be called from one other thread than the engine's;
`due`, `take_answer` and the like are its turn, which the IO shell does in C and tests do here.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.engine.library_io import ACT, library
from sdfstream.records.units import Int64s, UInt8s, UInt32s

_CACHE_LINE: Final = 64


class BusyEngineError(UnavailableError):
    """The engine has not yet taken the changes before; try again after its next turn."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much an engine holds. Memory is reserved once and taken where it is used: 120 octets an exchange."""

    paths: int = 4_096
    exchanges: int = 1 << 18
    rows: int = 1 << 16
    events: int = 1 << 14
    hosts: int = 64
    nics: int = 256
    segments: int = 4_096
    routes: int = 4_096
    links: int = 1 << 16
    orders: int = 4_096
    command_words: int = 1 << 16
    width_bytes: int = 1_472
    """Longest probe, UDP payload."""


class PacketEngine:
    """One engine.

    Parameters
    ----------
    room : Room
    error : int
        Error Estimate word of probes; its Z bit chooses the format of stamps.
    hmac_key : bytes or None
        Authenticated mode when given.
    seed : int
        Of phases and jitter.
    path : Path, optional
        Another library than the one compiled from these sources.

    Raises
    ------
    UnavailableError
        There is no library.
    ConfigError
        The room is not consistent.
    """

    def __init__(
        self, room: Room, *, error: int, hmac_key: bytes | None = None, seed: int = 0, path: Path | None = None
    ) -> None:
        self._library = library(path)
        self.room = room
        config = _config(room, error, hmac_key, seed)
        octets = self._library.pe_shared_octets(config.ctypes.data)
        self._shared = _aligned(octets)
        self._pe = self._library.pe_new(config.ctypes.data, self._shared.ctypes.data, octets)
        if not self._pe:
            raise ConfigError(f"the packet engine does not fit: {room}")
        events_at = layouts.RING_HEADER_BYTES + room.rows * layouts.ROW.itemsize
        self._rows = _ring(self._shared, 0, room.rows, layouts.ROW)
        self._events = _ring(self._shared, events_at, room.events, layouts.EVENT)
        self.reports: Records = self._view(self._library.pe_reports, room.paths, layouts.REPORT)
        """(paths,) what is known of each path now; the engine writes here."""
        self.route_reports: Records = self._view(self._library.pe_route_reports, room.routes, layouts.ROUTE_REPORT)
        """(routes,) the same of each route."""
        self._act = ACT()
        self._outs = np.zeros(0, dtype=layouts.OUT)
        self._sent = np.zeros((0, 0), dtype=np.uint8)
        self._names = self._counter_names()

    @property
    def address(self) -> Any:
        """The engine in memory, for its shell."""
        return self._pe

    def close(self) -> None:
        """Free the engine; nothing else may be called then, and the reports are gone."""
        if self._pe:
            self.reports = np.zeros(0, dtype=layouts.REPORT)
            self.route_reports = np.zeros(0, dtype=layouts.ROUTE_REPORT)
            self._library.pe_free(self._pe)
            self._pe = None

    def _view(self, find: Callable[[Any], int], n: int, layout: np.dtype[Any]) -> Records:
        found = (ctypes.c_uint8 * (n * layout.itemsize)).from_address(find(self._pe))
        view: Records = np.frombuffer(memoryview(found), dtype=layout)
        return view

    # --- changes, from any one thread ---

    def begin(self, path: int, record: np.void) -> None:
        """Probe `path` as `record` (`layouts.PATH`) says, from the next turn on."""
        held = np.array(record, dtype=layouts.PATH)
        self._done(self._library.pe_path_begin(self._pe, path, held.ctypes.data), "path")

    def end(self, path: int) -> None:
        """Probe it no longer; its exchanges in transit are finished."""
        self._done(self._library.pe_path_end(self._pe, path), "path")

    def nic_usable(self, nic: int, usable: bool) -> None:
        """A NIC can or cannot send and receive."""
        self._done(self._library.pe_nic_usable(self._pe, nic, usable), "NIC")

    def set_clock(
        self, host: int, offset_ns: int, skew_micro_ppb: int, epoch_at_ns: int, first_knot: int = 0,
        knots_ns: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """What the host's clock shows (`virtual_clock`)."""
        knots = np.array(knots_ns, dtype=np.int64)
        values = (offset_ns, skew_micro_ppb, epoch_at_ns, first_knot)
        self._done(self._library.pe_clock_set(self._pe, host, *values, knots.ctypes.data, len(knots)), "clock")

    def report_all(self) -> None:
        """Report every listed path with the next assessment."""
        self._done(self._library.pe_report_all(self._pe), "report")

    def watch(self, segments: Iterable[Sequence[int]], routes: Iterable[tuple[int, Sequence[int]]]) -> None:
        """What crosses what, anew: probe paths of each segment (`layouts.NONE`: one that is not probed), and the
        segments of each route.
        """
        self._done(self._library.pe_watch_begin(self._pe), "watch")
        for paths in segments:
            held = _numbers(paths)
            self._done(self._library.pe_segment(self._pe, held.ctypes.data, len(held)), "segment")
        for route, crossed in routes:
            held = _numbers(crossed)
            self._done(self._library.pe_route(self._pe, route, held.ctypes.data, len(held)), "route")
        self._done(self._library.pe_watch_commit(self._pe), "watch")

    def arm(self, order: int, route: int, alternates: Sequence[int] = ()) -> None:
        """Give `order` once `route` is dead and the first of `alternates` that is clean is known."""
        held = _numbers(alternates)
        self._done(self._library.pe_order_arm(self._pe, order, route, held.ctypes.data, len(held)), "order")

    def disarm(self, order: int) -> None:
        """Do not give it."""
        self._done(self._library.pe_order_disarm(self._pe, order), "order")

    @staticmethod
    def _done(result: int, what: str) -> None:
        if result == -errno.EAGAIN:
            raise BusyEngineError("the packet engine's command ring is full")
        if result:
            raise ConfigError(f"the packet engine refuses this {what}")

    # --- what it has found ---

    def rows(self) -> tuple[list[Records], int]:
        """Views of the rows that wait, oldest first, and what `release_rows` is to be given once they are read."""
        return self._waiting(self._library.pe_take, self._rows)

    def release_rows(self, upto: int) -> None:
        """The rows below `upto` are read: their room is the engine's again."""
        self._library.pe_done(self._pe, upto)

    def take_events(self) -> Records:
        """The events that wait, a copy."""
        views, upto = self._waiting(self._library.pe_take_events, self._events)
        taken = layouts.joined(views)
        self._library.pe_done_events(self._pe, upto)
        return taken

    def _waiting(self, take: Callable[..., int], ring: Records) -> tuple[list[Records], int]:
        first = ctypes.c_uint64()
        n = take(self._pe, ctypes.byref(first))
        at = first.value % len(ring)
        views = [ring[at : at + n], ring[: max(0, at + n - len(ring))]]
        return views, first.value + n

    def counters(self) -> dict[str, int]:
        """Counters by name, as the numpy sender counts them; those that are 0 are left out."""
        values = np.zeros(len(self._names), dtype=np.uint64)
        self._library.pe_stats(self._pe, values.ctypes.data, len(values))
        return {name: int(n) for name, n in zip(self._names, values.tolist(), strict=True) if n}

    def _counter_names(self) -> list[str]:
        n = self._library.pe_stats(self._pe, None, 0)
        own = [name for i in range(n) if (name := self._library.pe_counter_name(i)) is not None]
        refused = [self._library.pe_reason_name(i) for i in range(n - len(own))]
        return [name.decode() for name in own] + [f"refused.{(name or b'').decode()}" for name in refused]

    # --- its turn ---

    def on_order(self, act: Callable[[int, int, int], int]) -> None:
        """Call `act` (order, index of the alternate or `layouts.NONE`, steady clock) for each order: 0 or an errno."""
        self._act = ACT(lambda _, order, alternate, now_ns: act(order, alternate, now_ns))
        self._library.pe_on_order(self._pe, self._act, None)

    def apply(self, now_ns: int) -> int:
        """Apply the changes that have come; how many."""
        return int(self._library.pe_apply(self._pe, now_ns))

    def next_due_ns(self) -> int:
        """Steady clock: when the next probe is due."""
        return int(self._library.pe_next_due_ns(self._pe))

    def next_assess_ns(self) -> int:
        """Steady clock: when liveness is to be assessed next."""
        return int(self._library.pe_next_assess_ns(self._pe))

    def shortest_interval_ns(self) -> int:
        """Of the paths that are probed."""
        return int(self._library.pe_shortest_interval_ns(self._pe))

    def due(self, now_ns: int, system_ns: int, *, ahead_ns: int = 0) -> tuple[Records, UInt8s]:
        """The probes due (`layouts.OUT`) and their octets, (n, width): views, valid until the next call.

        Parameters
        ----------
        now_ns, system_ns : int
            The steady and the system clock.
        ahead_ns : int
            So much before its instant a probe may leave.
        """
        if not len(self._outs):
            self._make_outs()
        n = self._library.pe_due(
            self._pe, now_ns, now_ns + ahead_ns, system_ns, self._outs.ctypes.data, len(self._outs)
        )
        return self._outs[:n], self._sent[:n]

    def _make_outs(self) -> None:
        """Room for what `due` returns; where the shell sends the probes nobody asks for it."""
        self._outs = np.zeros(self.room.paths, dtype=layouts.OUT)
        self._sent = np.zeros((self.room.paths, max(self.room.width_bytes, 1)), dtype=np.uint8)
        self._outs["data"] = self._sent.ctypes.data + np.arange(len(self._outs), dtype=np.uint64) * self._sent.shape[1]
        self._outs["room_octets"] = self._sent.shape[1]

    def take_stamps(self, tokens: Int64s, at_ns: Int64s, kinds: UInt8s, user_at_ns: Int64s) -> None:
        """True sending times."""
        columns = (tokens.view(np.uint64), at_ns, kinds, user_at_ns)
        for stamp in zip(*(column.tolist() for column in columns), strict=True):
            self._library.pe_take_stamp(self._pe, *stamp)

    def unsent(self, tokens: Int64s) -> None:
        """Probes that were not sent after all."""
        for token in tokens.view(np.uint64).tolist():
            self._library.pe_unsent(self._pe, token)

    def take_answers(self, datagrams: Records, now_ns: int, due_at_ns: int = 0) -> list[int]:
        """Take datagrams (`layouts.DATAGRAM`, contiguous); the reason of each refusal, 0: taken."""
        first, step = datagrams.ctypes.data, layouts.DATAGRAM.itemsize
        take = self._library.pe_take_answer
        return [take(self._pe, first + i * step, now_ns, due_at_ns) for i in range(len(datagrams))]

    def assess(self, now_ns: int, system_ns: int) -> int:
        """Assess liveness and give the orders that follow; how many events were written."""
        return int(self._library.pe_assess(self._pe, now_ns, system_ns))

    def finish(self, now_ns: int) -> int:
        """Write the rows of finished exchanges; how many."""
        return int(self._library.pe_finish(self._pe, now_ns))


def exchanges_of(interval_ns: int) -> int:
    """Exchange slots that a path of this interval takes (`Room.exchanges`)."""
    return int(library().pe_depth(interval_ns))


def datagram_records(data: UInt8s, length: npt.NDArray[Any], **columns: npt.NDArray[Any] | int) -> Records:
    """Datagrams as the engine reads them: `data` (n, width) must outlive the result."""
    if not data.flags.c_contiguous:
        raise ValueError("the rows of data must lie one behind the other")
    records = np.zeros(len(data), dtype=layouts.DATAGRAM)
    records["data"] = data.ctypes.data + np.arange(len(data), dtype=np.uint64) * data.shape[1]
    records["room_octets"] = data.shape[1]
    records["length_octets"] = length
    for name, values in columns.items():
        records[name] = values
    return records


def _config(room: Room, error: int, key: bytes | None, seed: int) -> Records:
    if key == b"":
        raise ConfigError("an HMAC key must not be empty")
    held = key or b""
    if len(held) > layouts.LONGEST_KEY_BYTES:  # RFC 2104 section 3
        held = hashlib.sha256(held).digest()
    config = np.zeros(1, dtype=layouts.CONFIG)
    values = {
        "octets": layouts.CONFIG.itemsize,
        "most_paths": room.paths,
        "most_exchanges": room.exchanges,
        "row_capacity": room.rows,
        "event_capacity": room.events,
        "most_hosts": room.hosts,
        "most_nics": room.nics,
        "most_segments": room.segments,
        "most_routes": room.routes,
        "most_links": room.links,
        "most_orders": room.orders,
        "command_words": room.command_words,
        "width_octets": room.width_bytes,
        "error": error,
        "key_octets": len(held),
        "seed": seed,
    }
    for name, value in values.items():
        config[name] = value
    config["key"][0, : len(held)] = np.frombuffer(held, dtype=np.uint8)
    return config


def _numbers(numbers: Sequence[int]) -> UInt32s:
    return np.array(numbers, dtype=np.uint32)


def _aligned(octets: int) -> UInt8s:
    """Zeroed memory that begins at a cache line."""
    memory = np.zeros(octets + _CACHE_LINE, dtype=np.uint8)
    first = -memory.ctypes.data % _CACHE_LINE
    return memory[first : first + octets]


def _ring(memory: UInt8s, at: int, capacity: int, layout: np.dtype[Any]) -> Records:
    first = at + layouts.RING_HEADER_BYTES
    return memory[first : first + capacity * layout.itemsize].view(layout)
