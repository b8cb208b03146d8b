"""The packet engine's reflector under the calls of `stamp.reflector.SessionReflector`, which is its reference.

What is rare stays in Python: which groups of known senders there are, and what names NICs and paths have.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from ctypes import c_bool, c_char_p, c_int64, c_size_t, c_uint8, c_uint32, c_void_p
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from sdfstream.errors import UnavailableError
from sdfstream.probes.config import HostConfig
from sdfstream.probes.engine import reflector_layouts as layouts
from sdfstream.probes.engine.engine_io import datagram_records
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.engine.library_io import library
from sdfstream.probes.stamp import inbound, packet, tlv
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps, address_octets
from sdfstream.probes.stamp.known_senders import MOST, KnownSender, KnownSenders, ReflectorLimits
from sdfstream.probes.stamp.liveness import ALIVE, STATES, PathName
from sdfstream.probes.virtual_clock import KNOT_NS, Clock
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, Bools, Int64s
from sdfstream.stats import Counters

_P: Final = c_void_p
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "pe_reflector_octets_of": (c_size_t, (c_char_p,)),
    "pe_reason_name": (c_char_p, (c_uint32,)),
    "pe_reflector_new": (_P, (_P,)),
    "pe_reflector_free": (None, (_P,)),
    "pe_reflector_socket": (c_bool, (_P, c_uint32, c_uint32)),
    "pe_reflector_know": (c_bool, (_P, _P, c_uint32, _P, c_uint32)),
    "pe_reflector_clock": (None, (_P, _P)),
    "pe_reflector_usable": (None, (_P, c_uint32, c_bool, c_int64)),
    "pe_reflect": (c_uint32, (_P, _P, c_uint32, c_int64, _P)),
    "pe_seal": (None, (_P, _P, c_int64)),
    "pe_answer_left": (None, (_P, c_int64, c_int64, c_uint8)),
    "pe_reflector_assess": (c_uint32, (_P, c_int64, c_bool, _P)),
    "pe_follow_up_due_ns": (c_int64, (_P, c_int64)),
    "pe_reflector_path": (_P, (_P, c_uint32)),
    "pe_reflector_counted": (_P, (_P,)),
}
REFLECT_MOST: Final = 1024
"""Datagrams a call."""
_MOST_NETWORKS: Final = 4_096
_KNOTS_BEFORE: Final = 100
_KNOTS_BEHIND: Final = 300
"""Of the clock's wander, handed over at a time."""
_COLUMNS: Final = ("socket", "port", "tos", "ttl", "kind", "address", "at_ns", "user_at_ns")


def _library(path: Path | None) -> ctypes.CDLL:
    """The packet engine's library, with the types of the reflector's functions set."""
    found = library(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    for name, layout in layouts.STRUCTURES.items():
        if found.pe_reflector_octets_of(name.encode()) != layout.itemsize:
            raise UnavailableError(f"no packet engine: the library has another {name}")
    return found


class Changes(Protocol):
    """Takes the changes of a reflector that another thread uses; arrays must live until they are replaced."""

    def known(self, known: Records, inside: Records) -> None:
        """These senders and networks, and no others, are known."""

    def clock(self, clock: Records, knots: Int64s) -> None:
        """The clock that the host shows; `knots` are named in it."""

    def usable(self, nic: int, usable: bool) -> None:
        """A NIC can or cannot receive."""


class PacketReflector:
    """Answers the probes that reach one host.

    Parameters as `SessionReflector`'s; `path`: another library than the one compiled from these sources.

    Raises
    ------
    UnavailableError
        There is no library, or it is not this code's.
    """

    def __init__(
        self,
        host: HostConfig,
        sockets: Mapping[int, str],
        senders: Mapping[str, KnownSender],
        *,
        limits: ReflectorLimits | None = None,
        hmac_key: bytes | None = None,
        salt: int = 0,
        liveness_ms: int = 1000,
        error: int | None = None,
        sync: int = tlv.SyncSource.FREE_RUNNING,
        stateful: bool = True,
        classes: Bools | None = None,
        path: Path | None = None,
    ) -> None:
        self.host = host
        self._library = _library(path)
        self.changes: Changes | None = None
        """Where changes go while the shell answers with it; None: nobody does, they are made at once."""
        self._counters = Counters("reflector")
        self._counted = np.zeros(1, dtype=layouts.COUNTS)
        self._base_bytes = packet.mode_of(hmac_key).base_bytes
        self._clock = Clock(host.virtual_clock)
        self._knots = np.zeros(0, dtype=np.int64)
        self._first_knot = 0
        self._nics: dict[str, int] = {}
        self._known = KnownSenders(host, limits or ReflectorLimits(), salt)
        config = np.zeros(1, dtype=layouts.CONFIG)
        key = np.frombuffer(hmac_key or b"", dtype=np.uint8)
        own = b"".join(address_octets(nic.address) for nic in host.nics)
        _fill_limits(config["limits"], limits or ReflectorLimits(), salt, len(host.nics), self._known.on_loopback)
        _fill_sessions(config["sessions"])
        classes = np.ones(64, dtype=np.bool_) if classes is None else classes
        config["answering"]["classes"] = sum(1 << i for i in np.flatnonzero(classes).tolist())
        config["answering"]["sync"] = sync
        config["most_sockets"] = max(sockets, default=-1) + 1
        config["error"] = packet.error_estimate(1e6) if error is None else error
        config["stateful"] = stateful
        config["liveness_ns"] = liveness_ms * NS_PER_MS
        config["key"] = key.ctypes.data if hmac_key is not None else 0
        config["key_octets"] = len(key)
        config["own"] = np.frombuffer(own, dtype=np.uint8).ctypes.data if own else 0
        self._reflector = self._new(config)
        self._counts = self._memory_of_counts()
        for socket, nic in sockets.items():
            self._library.pe_reflector_socket(self._reflector, socket, self._number(nic))
        self._known.know("configuration", senders)
        self._hand_over()

    def _new(self, config: Records) -> Any:
        reflector = self._library.pe_reflector_new(config.ctypes.data)
        if not reflector:
            raise UnavailableError("no packet engine: the reflector's table finds no memory")
        return reflector

    def _memory_of_counts(self) -> Records:
        """Its counts where the library keeps them, not a copy."""
        memory = (c_uint8 * layouts.COUNTS.itemsize).from_address(self._library.pe_reflector_counted(self._reflector))
        return np.frombuffer(memoryview(memory), dtype=layouts.COUNTS)

    def close(self) -> None:
        """Free the reflector; nothing else may be called then."""
        if self._reflector:
            self._counts = self._counts.copy()
            self._library.pe_reflector_free(self._reflector)
            self._reflector = None

    @property
    def counters(self) -> Counters:
        """Stage "reflector", as the reference counts."""
        now = self._counts.copy()
        fresh = {name: int((now[name] - self._counted[name])[0]) for name in ("answered", "shed_sessions")}
        self._counters.add("answered", n=fresh["answered"])
        self._counters.add("shed", "session", fresh["shed_sessions"])
        for reason, n in enumerate((now["refused"] - self._counted["refused"])[0].tolist()):
            if n:
                self._counters.add("refused", self._library.pe_reason_name(reason).decode(), n)
        self._counted = now
        return self._counters

    @property
    def address(self) -> Any:
        """The reflector in memory, for the shell."""
        return self._reflector

    def nic_number(self, nic: str) -> int:
        """The number by which it knows a NIC."""
        return self._number(nic)

    def nic_name(self, number: int) -> str:
        """The NIC of a number."""
        return list(self._nics)[number]

    def keep_clock(self, system_ns: int) -> None:
        """Hand over the clock's wander around `system_ns`, every few seconds, while the shell answers with it."""
        self._set_clock(system_ns)

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str] = ()) -> None:
        """As the reference."""
        if self._known.know(group, senders, networks):
            self._hand_over()

    def _hand_over(self) -> None:
        """Hand the known senders over."""
        known = np.zeros(len(self._known.senders), dtype=layouts.KNOWN_SENDER)
        for record, (address, sender) in zip(known, self._known.senders.items(), strict=True):
            record["address"] = np.frombuffer(address, dtype=np.uint8)
            record["nic"], record["port"] = self._number(sender.nic), sender.port
        found = self._known.networks[:_MOST_NETWORKS]
        inside = np.zeros(len(found), dtype=layouts.NETWORK)
        for record, (network, mask) in zip(inside, found, strict=True):
            record["network"], record["mask"] = network.view(np.uint8), mask.view(np.uint8)
        if self.changes is not None:
            self.changes.known(known, inside)
            return
        self._library.pe_reflector_know(self._reflector, known.ctypes.data, len(known), inside.ctypes.data, len(inside))

    def answer(self, received: Received, now_ns: int) -> ToSend:
        """As the reference. At most `REFLECT_MOST` datagrams are taken together."""
        self._set_clock(received.user_at_ns)
        n = len(received.length)
        data = np.array(received.data)
        datagrams = datagram_records(data, received.length, **{name: getattr(received, name) for name in _COLUMNS})
        replies = np.zeros(n, dtype=layouts.REPLY)
        for first in range(0, max(n, 1), REFLECT_MOST):  # an empty call fills the buckets, too
            some = slice(first, first + REFLECT_MOST)
            self._library.pe_reflect(
                self._reflector, datagrams[some].ctypes.data, len(datagrams[some]), now_ns, replies[some].ctypes.data
            )
        rows = np.flatnonzero(replies["reason"] == 0)
        rows = rows[np.argsort(received.socket[rows], kind="stable")]
        return ToSend(
            data=data[rows],
            length=received.length[rows],
            socket=received.socket[rows],
            address=received.address[rows],
            port=received.port[rows],
            tos=replies["tos"][rows],
            token=replies["token"][rows],
        )

    def seal(self, answers: ToSend, system_ns: int) -> None:
        """As the reference."""
        self._set_clock(system_ns)
        data = answers.data
        for row in range(len(data)):
            self._library.pe_seal(self._reflector, data[row].ctypes.data, system_ns)

    def take_tx_stamps(self, stamps: TxStamps) -> None:
        """As the reference."""
        left = self._library.pe_answer_left
        made = stamps.at_ns[stamps.at_ns != ABSENT_NS]
        if len(made):
            self._set_clock(int(made.max()))
        for stamp in zip(stamps.token.tolist(), stamps.at_ns.tolist(), stamps.kind.tolist(), strict=True):
            left(self._reflector, *stamp)

    def follow_up_due_ns(self, now_ns: int) -> int:
        """As the reference."""
        return int(self._library.pe_follow_up_due_ns(self._reflector, now_ns))

    def nic_usable(self, nic: str, usable: bool, now_ns: int) -> None:
        """As the reference."""
        if self.changes is not None:
            self.changes.usable(self._number(nic), usable)
            return
        self._library.pe_reflector_usable(self._reflector, self._number(nic), usable, now_ns)

    def liveness(self, now_ns: int, system_ns: int, *, complete: bool = False) -> list[dict[str, Any]]:
        """As the reference."""
        at = ctypes.c_void_p()
        n = self._library.pe_reflector_assess(self._reflector, now_ns, complete, ctypes.byref(at))
        if not n:
            return []
        changes = _copied(at.value or 0, layouts.CHANGE, n)
        since_at_ns = self._clock.reading(changes["since_ns"] + (system_ns - now_ns))
        return [self._entry(change, since) for change, since in zip(changes, since_at_ns.tolist(), strict=True)]

    def inbound_paths(self) -> Records:
        """All inbound paths by number (`reflector_layouts.INBOUND_PATH`), a copy; those not listed have ended."""
        find = self._library.pe_reflector_path
        paths: list[bytes] = []
        while at := find(self._reflector, len(paths)):
            paths.append(ctypes.string_at(at, layouts.INBOUND_PATH.itemsize))
        return np.frombuffer(b"".join(paths), dtype=layouts.INBOUND_PATH)

    @property
    def senders(self) -> list[bytes]:
        """16-octet address of the sender of each inbound path."""
        return [address.tobytes() for address in self.inbound_paths()["address"]]

    def arriving_pps(self, ports: range) -> float:
        """As the reference."""
        paths = self.inbound_paths()
        mine = paths[(paths["state"] == ALIVE) & (paths["interval_ns"] > 0) & np.isin(paths["port"], np.array(ports))]
        return float((NS_PER_S / mine["interval_ns"]).sum())

    def _entry(self, change: np.void, since_at_ns: int) -> dict[str, Any]:
        at = self._library.pe_reflector_path(self._reflector, int(change["path"]))
        path = _copied(at, layouts.INBOUND_PATH, 1)[0]
        names = list(self._nics)
        nic, sender = names[path["nic"]], names[path["sender"]]
        name = PathName(nic, sender, nic, "udp", int(path["port"]), int(path["dscp"]))
        return {
            **name._asdict(),
            "role": "reflector",
            "state": STATES[change["state"]],
            "since_at_ns": since_at_ns,
            "interval_ns": int(change["interval_ns"]),
            "missed": 0,
        }

    def _number(self, nic: str) -> int:
        return self._nics.setdefault(nic, len(self._nics))

    def _set_clock(self, system_ns: int) -> None:
        """Hand over the clock, and the knots of its wander around `system_ns`."""
        settings = self._clock.settings
        if settings is None:
            return
        knot = (system_ns - settings.epoch_at_ns) // KNOT_NS
        if settings.wander_ns_per_sqrt_s:
            beyond = knot - self._first_knot
            if not _KNOTS_BEFORE // 2 < beyond < len(self._knots) - _KNOTS_BEFORE // 2:
                self._first_knot = knot - _KNOTS_BEFORE
                self._knots = self._clock.knots_ns(self._first_knot, _KNOTS_BEFORE + _KNOTS_BEHIND)
        clock = np.zeros(1, dtype=layouts.CLOCK)
        clock["offset_ns"], clock["skew_micro_ppb"] = self._clock.offset_ns, self._clock.skew_micro_ppb
        clock["epoch_at_ns"], clock["first_knot"] = settings.epoch_at_ns, self._first_knot
        clock["knots_ns"], clock["knots"], clock["wrong"] = self._knots.ctypes.data, len(self._knots), True
        if self.changes is not None:
            self.changes.clock(clock, self._knots)
            return
        self._library.pe_reflector_clock(self._reflector, clock.ctypes.data)


def _fill_limits(record: Records, limits: ReflectorLimits, salt: int, own: int, on_loopback: bool) -> None:
    record["max_pps"], record["source_pps"] = limits.max_pps, limits.source_pps
    record["stranger_pps"], record["strangers"] = limits.stranger_pps, limits.strangers
    record["salt"], record["port"] = salt & 0xFFFF_FFFF_FFFF_FFFF, limits.port
    record["on_loopback"] = on_loopback
    record["most_senders"], record["most_networks"], record["most_own"] = MOST, _MOST_NETWORKS, own


def _fill_sessions(record: Records) -> None:
    record["capacity"], record["stranger_rows"] = inbound.CAPACITY, inbound.STRANGER_ROWS
    record["source_rows"], record["new_per_call"] = inbound.SOURCE_ROWS, inbound.NEW_PER_CALL


def _copied(address: int, layout: np.dtype[Any], n: int) -> Records:
    return np.frombuffer(ctypes.string_at(address, n * layout.itemsize), dtype=layout)
