"""Packets of a host by the packet engine: changes go to its thread, and what it has found comes from there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.agent.engine.inbound_mirror import InboundMirror
from sdfstream.agent.engine.orders_io import HostEngineOrders
from sdfstream.agent.engine.sockets_io import EngineSockets
from sdfstream.agent.engine.thread_io import EngineThread
from sdfstream.agent.packets import MakePackets
from sdfstream.agent.senders import configured_senders, limits_of
from sdfstream.probes.config import AgentConfig, HostConfig, SessionConfig
from sdfstream.probes.engine import shell_layouts
from sdfstream.probes.engine.reflector_io import PacketReflector
from sdfstream.probes.engine.rows import EngineRows
from sdfstream.probes.engine.table import path_records
from sdfstream.probes.net.icmp import IcmpError
from sdfstream.probes.stamp import packet, paths
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.probes.stamp.liveness import STATES, PathName
from sdfstream.probes.stamp.paths import Paths
from sdfstream.probes.trace.trace_io import InboundPaths
from sdfstream.probes.virtual_clock import KNOT_NS, Clock
from sdfstream.records.units import Float64s, Int64s, UInt8s
from sdfstream.stats import Counters

_KNOTS: Final = (100, 400)
"""Knots of a virtual clock's wander before now, and in all."""


class EnginePackets:
    """Packets of one host (`HostPackets`); arrays are copies of what the engine knows now."""

    self_driven: Final = True

    def __init__(
        self,
        thread: EngineThread,
        config: AgentConfig,
        host: HostConfig,
        socket_of: Mapping[tuple[str, int], int],
        seed: int,
        counters: Counters,
    ) -> None:
        self.name = host.host
        self._counters = counters
        self.range = thread.range_of(host.host)
        self._thread = thread
        self._host = host
        self._config = config
        self._socket_of = socket_of
        self._mode = packet.mode_of(config.hmac_key)
        self._clock = Clock(host.virtual_clock)
        self._nic = {n.nic: self.range.first_nic + i for i, n in enumerate(host.nics)}
        self._configured = self._paths = paths.build(host.sessions, socket_of, self._mode)
        self._changing: list[SessionConfig] = []
        self._ended = np.zeros(len(self._paths), dtype=np.bool_)
        self._events: list[dict[str, Any]] = []
        self.finished: list[pa.RecordBatch] = []
        """Rows that were read and not taken yet."""
        self.reflector = PacketReflector(
            host,
            {slot: nic.nic for slot, nic in enumerate(host.nics)},
            configured_senders(config, host),
            limits=limits_of(config),
            hmac_key=config.hmac_key,
            salt=seed,
            liveness_ms=config.liveness_ms,
        )
        self.mirror = InboundMirror(self._clock, self.reflector.nic_name)
        self.orders = HostEngineOrders(thread.orders, host.host, self.range.first_path)
        """What the engine orders by itself."""
        self.senders, self.reflectors = self._sockets(config, host)
        thread.submit(thread.shell.reflect, self.range.number, self.reflector)
        self._begin(np.arange(len(self._paths)), config.liveness_ms, in_step=False)
        self._renamed()
        thread.serve(self)

    def _sockets(self, config: AgentConfig, host: HostConfig) -> tuple[EngineSockets, EngineSockets]:
        nics = {n.nic: n for n in host.nics}
        number, first = self.range.number, self.range.first_slot
        sending = [(nics[src], port) for src, port in self._socket_of]
        reflecting = [(nic, config.reflector_port) for nic in host.nics]

        def reflector_of(slot: int) -> dict[str, int]:
            nic = self.reflector.nic_number(host.nics[slot].nic)
            return {"role": shell_layouts.REFLECTOR, "host": number, "number": slot, "nic": nic}

        def sender_of(slot: int) -> dict[str, int]:
            return {"role": shell_layouts.SENDER, "host": number}

        more = {"hardware": config.hardware_stamps}
        return (
            EngineSockets(self._thread, sending, first, sender_of, **more),
            EngineSockets(self._thread, reflecting, first + len(sending), reflector_of, **more),
        )

    def take_error(self, error: IcmpError) -> None:
        """An ICMP error; it may be another host's."""
        self.senders.take_error(error)

    def suspect(self, number: int) -> None:
        """The shell's slot `number` failed as if its NIC had gone; it may be another host's."""
        self.senders.suspect(number)
        self.reflectors.suspect(number)

    # --- paths ---

    @property
    def paths(self) -> Paths:
        """The table of paths."""
        return self._paths

    @property
    def configured_paths(self) -> int:
        """How many of the paths never change."""
        return len(self._configured)

    def _name(self, path: int) -> PathName:
        session = self._paths.sessions[int(self._paths.session[path])]
        return PathName(session.src, session.src, session.dst, "udp", int(self._paths.source_port[path]), session.dscp)

    def probed(self) -> dict[tuple[str, str, int, int], int]:
        """The paths that are probed now."""
        names = ((self._name(path), path) for path in np.flatnonzero(~self._ended).tolist())
        return {(n.src, n.dst, n.path, n.dscp): path for n, path in names}

    def probed_intervals_ns(self) -> Float64s:
        """(paths,) probe intervals."""
        return np.where(self._ended, np.inf, self._paths.interval_ns)

    def change_sessions(
        self, begin: Mapping[int, SessionConfig], end: Sequence[int], now_ns: int, *, liveness_ms: int, in_step: bool
    ) -> None:
        """Begin and end sessions, by slot."""
        for slot in end:
            path = self._paths_in(slot)
            self._ended[path] = True
            for i in path.tolist():
                self._thread.submit(self._thread.engine.end, self.range.first_path + i)
        if not begin:
            return
        moved = [s for s in begin if s < len(self._changing) and begin[s] != self._changing[s]]
        for slot in sorted(begin):
            if slot < len(self._changing):
                self._changing[slot] = begin[slot]
            else:
                self._changing.append(begin[slot])
        first = len(self._configured.sessions)
        more = paths.build(self._changing, self._socket_of, self._mode, first=first, by_socket=False)
        self._paths = paths.joined(self._configured, more)
        fresh = np.ones(len(self._paths) - len(self._ended), dtype=np.bool_)
        self._ended = np.concatenate([self._ended, fresh])
        for slot in moved:
            path = self._paths_in(slot)
            self._thread.generation[self.range.first_path + path[path < self.range.paths]] += 1
        self._renamed()
        begun = [self._paths_in(slot) for slot in sorted(begin)]
        self._begin(np.concatenate(begun), liveness_ms, in_step=in_step)

    def _paths_in(self, slot: int) -> Int64s:
        result: Int64s = np.flatnonzero(self._paths.session == len(self._configured.sessions) + slot)
        return result

    def _renamed(self) -> None:
        """What depends on the table of paths, here and in the rows of all hosts."""
        self.row_names = EngineRows(self._host, self._paths, self._clock, self.range.first_path)
        self._thread.paths_changed()

    def _begin(self, path: Int64s, liveness_ms: int, *, in_step: bool) -> None:
        host = self.range.number
        step = host + 1 if in_step else 0
        records = path_records(self._paths, self._nic, liveness_ms=liveness_ms, host=host, step=step)
        records["socket"] += self.range.first_slot
        beyond = path >= self.range.paths
        self._thread.settle_sockets()
        self._counters.add("shed", "engine-paths", int(np.count_nonzero(beyond)))
        for i in path[~beyond].tolist():
            number = self.range.first_path + i
            records[i]["generation"] = self._thread.generation[number]
            self._thread.submit(self._thread.engine.begin, number, records[i])
        self._ended[path] = beyond  # no room for them: they stay unknown

    @property
    def has_changes(self) -> bool:
        """Whether a path has changed its state since `liveness` was called."""
        return bool(self._events) or self.mirror.has_changes

    # --- NICs, known senders, clock ---

    def nic_usable(self, nic: str, usable: bool, now_ns: int) -> None:
        """A NIC can or cannot send and receive."""
        self._thread.submit(self._thread.engine.nic_usable, self._nic[nic], usable)
        self._thread.submit(self.reflector.nic_usable, nic, usable, now_ns)

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str] = ()) -> None:
        """Answer these senders and networks from now on."""
        self._thread.submit(self.reflector.know, group, senders, tuple(networks))

    def keep_clock(self, system_ns: int) -> None:
        """Hand the virtual clock over, with its wander around `system_ns`."""
        settings = self._clock.settings
        if settings is None:
            return
        first = (system_ns - settings.epoch_at_ns) // KNOT_NS - _KNOTS[0]
        knots = self._clock.knots_ns(first, _KNOTS[1]).tolist() if settings.wander_ns_per_sqrt_s else []
        values = (self._clock.offset_ns, self._clock.skew_micro_ppb, settings.epoch_at_ns, first, knots)
        self._thread.submit(self._thread.engine.set_clock, self.range.number, *values)
        self._thread.submit(self.reflector.keep_clock, system_ns)

    # --- what the engine has found ---

    def _report(self, name: str) -> Any:
        first = self.range.first_path
        known = self._thread.engine.reports[name][first : first + min(len(self._paths), self.range.paths)]
        return np.concatenate([known, np.zeros(len(self._paths) - len(known), dtype=known.dtype)])

    def states(self) -> UInt8s:
        """(paths,) state of every path."""
        found: UInt8s = self._report("state")
        return found

    def steady_since_ns(self) -> Int64s:
        """(paths,) steady clock of the last change of state; silent: of the last answer."""
        found: Int64s = self._report("since_ns")
        return found

    def last_received_ns(self) -> Int64s:
        """(paths,) steady clock of the last answer."""
        found: Int64s = self._report("last_received_ns")
        return found

    def ttl_fwd(self) -> UInt8s:
        """(paths,) TTL with which probes arrive."""
        found: UInt8s = self._report("ttl_fwd")
        return found

    def inbound(self) -> InboundPaths:
        """The sessions that this host reflects."""
        return self.mirror.paths()

    def arriving_pps(self, ports: range) -> float:
        """Probes that arrive per second over these source ports, as of the last complete list."""
        return self.mirror.arriving_pps(ports)

    def take_event(self, event: np.void) -> None:
        """A path changed its state."""
        number = int(event["path"])
        path = number - self.range.first_path
        if path < len(self._paths) and event["generation"] == self._thread.generation[number]:
            self._events.append(self._entry(path, int(event["state"]), int(event["since_ns"]), int(event["missed"])))

    def _entry(self, path: int, state: int, since_ns: int, missed: int) -> dict[str, Any]:
        return {
            **self._name(path)._asdict(),
            "role": "sender",
            "state": STATES[state],
            "since_at_ns": self._clock.at(since_ns),
            "interval_ns": int(self._paths.interval_ns[path]),
            "missed": missed,
        }

    def liveness(self, now_ns: int, system_ns: int, *, complete: bool) -> list[dict[str, Any]]:
        """What changed since the last call, or all."""
        self._thread.collect(now_ns)
        changes, self._events = self._events + self.mirror.changes(), []
        if not complete:
            return changes
        self._thread.submit(self._thread.shell.report_inbound)
        every = [*changes, *self._all(system_ns - now_ns), *self.mirror.complete(system_ns)]
        return list({(e["role"], *(e[n] for n in PathName._fields)): e for e in every}.values())

    def _all(self, ahead_ns: int) -> list[dict[str, Any]]:
        """Entries of all paths that are probed; `ahead_ns`: system clock − steady clock."""
        columns = zip(
            self.states().tolist(), self.steady_since_ns().tolist(), self._report("missed").tolist(), strict=True
        )
        return [
            self._entry(path, state, since + ahead_ns, missed)
            for path, (state, since, missed) in enumerate(columns)
            if not self._ended[path] and since > 0
        ]

    def rows(self, now_ns: int) -> list[pa.RecordBatch]:
        """Rows of the exchanges that finished since the last call."""
        self._thread.drain(now_ns)
        taken, self.finished = self.finished, []
        return taken

    def counters(self) -> dict[str, int]:
        """Counters of the reflector; with the first host's those of the engine."""
        return self._thread.counters(self)

    def close(self) -> None:
        """Close all sockets: of all hosts, for they have one thread."""
        self._thread.close()

    # --- not called: the engine's thread does it ---

    def send_due(self, now_ns: int) -> None:
        """Nothing."""

    def read_answers(self, due_at_ns: int) -> bool:
        """Nothing."""
        return False

    def reflect(self) -> bool:
        """Nothing."""
        return False

    def arrivals_fd(self) -> int:
        """None."""
        return -1

    def longest_rest_ns(self) -> int:
        """No limit."""
        return 0


def packets_by(thread: EngineThread) -> MakePackets:
    """Makes hosts' packets (`host_io.HostAgent`), which `thread` carries."""

    def packets_of(
        config: AgentConfig,
        host: HostConfig,
        socket_of: Mapping[tuple[str, int], int],
        seed: int,
        counters: Counters,
    ) -> EnginePackets:
        return EnginePackets(thread, config, host, socket_of, seed, counters)

    return packets_of
