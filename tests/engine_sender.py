"""The packet engine behind the methods of `SessionSender`, so that the same calls drive both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.probes.config import HostConfig, SessionConfig
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.engine_io import PacketEngine, Room, datagram_records, exchanges_of
from sdfstream.probes.engine.rows import EngineRows
from sdfstream.probes.engine.table import path_records
from sdfstream.probes.stamp import packet, paths
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps
from sdfstream.probes.stamp.liveness import STATES, PathName
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import Int64s

_GAMMA, _MASK = 0x9E37_79B9_7F4A_7C15, (1 << 64) - 1
ROOM = Room(paths=256, exchanges=1 << 15, rows=1 << 13, events=1 << 11, hosts=1, nics=16, command_words=1 << 14)


class SplitMix:
    """The engine's numbers (`jitter.h`) as a numpy Generator gives them, for the reference to draw the same."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def _next(self) -> float:
        self._state = (self._state + _GAMMA) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53

    def random(self, n: int | None = None) -> Any:
        return self._next() if n is None else np.array([self._next() for _ in range(n)], dtype=np.float64)

    def uniform(self, low: float, high: float, n: int) -> Any:
        return low + (high - low) * self.random(n)


class EngineSender:
    """As `SessionSender`; `room` is the engine's."""

    def __init__(
        self,
        host: HostConfig,
        sockets: Mapping[tuple[str, int], int],
        seed: int,
        now_ns: int,
        *,
        hmac_key: bytes | None = None,
        liveness_ms: int = 1000,
        error: int | None = None,
        room: Room = ROOM,
    ) -> None:
        self.host = host
        self._sockets = sockets
        self._mode = packet.mode_of(hmac_key)
        self._clock = Clock(host.virtual_clock)
        self._error = packet.error_estimate(1e6) if error is None else error
        self.engine = PacketEngine(room, error=self._error, hmac_key=hmac_key, seed=seed)
        self._configured = self.paths = paths.build(host.sessions, sockets, self._mode)
        self._nics = {nic.nic: i for i, nic in enumerate(host.nics)}
        self._nics |= {s.src: self._nics.get(s.src, 10) for s in host.sessions}
        self._changing: list[SessionConfig] = []
        self._generation: dict[int, int] = {}
        self._interval_ns = dict(enumerate(self.paths.interval_ns.tolist()))
        self._set_clock(now_ns)
        for path, record in enumerate(path_records(self.paths, self._nics, liveness_ms=liveness_ms)):
            self.engine.begin(path, record)
        self.engine.apply(now_ns)

    def _set_clock(self, system_ns: int) -> None:
        wrong = self.host.virtual_clock
        if wrong is not None:
            assert not wrong.wander_ns_per_sqrt_s
            self.engine.set_clock(0, round(wrong.offset_ns), round(wrong.skew_ppb * 1_000_000), wrong.epoch_at_ns)

    @property
    def counters(self) -> dict[str, int]:
        return self.engine.counters()

    def next_due_ns(self) -> int:
        return self.engine.next_due_ns()

    def due(self, now_ns: int, system_ns: int) -> ToSend:
        out, data = self.engine.due(now_ns, system_ns)
        return ToSend(
            data=data[:, : int(self.paths.length.max(initial=self._mode.base_bytes))].copy(),
            length=out["length_octets"].astype(np.int32),
            socket=out["socket"].astype(np.int32),
            address=out["address"].copy(),
            port=out["port"].copy(),
            tos=out["tos"].copy(),
            token=out["token"].view(np.int64).copy(),
        )

    def take_tx_stamps(self, stamps: TxStamps) -> None:
        self.engine.take_stamps(stamps.token, stamps.at_ns, stamps.kind, stamps.user_at_ns)

    def unsent(self, token: Int64s) -> None:
        self.engine.unsent(token)

    def take_answers(self, received: Received, now_ns: int, due_at_ns: int = 0) -> list[int]:
        data = np.ascontiguousarray(received.data)
        datagrams = datagram_records(
            data,
            received.length,
            socket=received.socket,
            port=received.port,
            tos=received.tos,
            ttl=received.ttl,
            kind=received.kind,
            address=received.address,
            at_ns=received.at_ns,
            user_at_ns=received.user_at_ns,
        )
        return self.engine.take_answers(datagrams, now_ns, due_at_ns)

    def rows(self, now_ns: int) -> pa.RecordBatch | None:
        self.engine.finish(now_ns)
        views, upto = self.engine.rows()
        rows = np.concatenate(views)
        self.engine.release_rows(upto)
        return EngineRows(self.host, self.paths, self._clock).batch(rows) if len(rows) else None

    def nic_usable(self, nic: str, usable: bool, now_ns: int) -> None:
        self.engine.nic_usable(self._nics[nic], usable)
        self.engine.apply(now_ns)

    def liveness(self, now_ns: int, system_ns: int, *, complete: bool = False) -> list[dict[str, Any]]:
        if complete:
            self.engine.report_all()
            self.engine.apply(now_ns)
        self.engine.assess(now_ns, system_ns)
        return [self._entry(event) for event in self.engine.take_events() if event["kind"] == layouts.EVENT_LIVENESS]

    def _entry(self, event: np.void) -> dict[str, Any]:
        path = int(event["path"])
        session = self.paths.sessions[self.paths.session[path]]
        port = int(self.paths.source_port[path])
        name = PathName(session.src, session.src, session.dst, "udp", port, session.dscp)
        return {
            **name._asdict(),
            "role": "sender",
            "state": STATES[event["state"]],
            "since_at_ns": self._clock.at(int(event["since_ns"])),
            "interval_ns": self._interval_ns[path],
            "missed": int(event["missed"]),
        }

    def change_sessions(
        self,
        begin: Mapping[int, SessionConfig],
        end: Sequence[int],
        now_ns: int,
        *,
        liveness_ms: int,
        in_step: bool = True,
    ) -> None:
        for slot in end:
            for path in self._paths_in(slot):
                self.engine.end(path)
        for slot in sorted(begin):
            if slot < len(self._changing):
                moved = begin[slot] != self._changing[slot]
                self._generation[slot] = self._generation.get(slot, 0) + moved
                self._changing[slot] = begin[slot]
            else:
                self._changing.append(begin[slot])
        if begin:
            self._nics |= {s.src: self._nics.get(s.src, 10) for s in begin.values()}
            more = paths.build(
                self._changing, self._sockets, self._mode, first=len(self._configured.sessions), by_socket=False
            )
            self.paths = paths.joined(self._configured, more)
        for slot in sorted(begin):
            manner = {"liveness_ms": liveness_ms, "step": int(in_step), "generation": self._generation.get(slot, 0)}
            records = path_records(self.paths, self._nics, **manner)
            for path in self._paths_in(slot):
                self.engine.begin(path, records[path])
                self._interval_ns[path] = int(records[path]["interval_ns"])
        self.engine.apply(now_ns)

    def _paths_in(self, slot: int) -> list[int]:
        return np.flatnonzero(self.paths.session == len(self._configured.sessions) + slot).tolist()


def room_for(intervals_ns: Sequence[int], **more: int) -> Room:
    """Just enough for these paths."""
    return Room(**{"exchanges": sum(exchanges_of(i) for i in intervals_ns), "paths": len(intervals_ns), **more})
