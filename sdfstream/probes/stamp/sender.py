"""The Session-Sender of one host: all its sessions and source ports, vectorised, without a socket or a clock.

API in short (*now_ns*: a steady clock that is never stepped, CLOCK_MONOTONIC, for pacing, time-outs and liveness;
*system_ns* and all times in `Received` and `TxStamps`: the host's system clock)::

    sender = SessionSender(host, sockets, rng, now_ns, hmac_key=None, liveness_ms=1000)
        # sockets: {(NIC id, source port): index of the socket in the shell's table}
    sender.next_due_ns() -> int                       # steady clock; when to call due next
    sender.due(now_ns, system_ns) -> ToSend           # all probes due, sorted by socket
    sender.take_tx_stamps(stamps)                     # true sending times, by token, in any order and number of calls
    sender.unsent(tokens)                             # never sent (no such device, network unreachable): no row
    sender.take_answers(received, now_ns, due_at_ns)
    sender.rows(now_ns) -> RecordBatch | None         # finished exchanges, topic sdf.raw.probe.v1; once per flush
    sender.change_sessions(begin, end, now_ns, ...)   # watch and planned sessions come and go
    sender.nic_usable(nic, usable, now_ns)            # a NIC vanished or came back: its paths are unknown and pause
    sender.liveness(now_ns, system_ns, complete=False) -> list[dict]   # entries of the liveness event; [] = no change
    sender.counters                                   # stage "sender": sent, answered, shed, refused.<reason>, ...

Order of calls in one pass: `take_tx_stamps` and `take_answers` with all that the sockets hold, then `liveness` and
`rows`, then `due`. So a process that was stopped for a while reads its answers before it calls a path silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.probes.config import HostConfig, SessionConfig
from sdfstream.probes.stamp import exchanges as ex
from sdfstream.probes.stamp import packet, paths, tlv
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps
from sdfstream.probes.stamp.liveness import PathLiveness, PathName
from sdfstream.probes.stamp.packet import BatchVerdict, Mac, fields, macs_equal
from sdfstream.probes.stamp.rows import RowWriter
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import ABSENT_NS, Bools, Float64s, Int64s, StampKind, UInt8s
from sdfstream.stats import Counters

_SLOT_BITS = 31
_SLOT_MASK = (1 << _SLOT_BITS) - 1
NEVER = np.iinfo(np.int64).max
"""When a path is due that is not probed."""


class SessionSender:
    """Sends the probes of one host's sessions when they are due and turns answers into rows.

    The configured paths come first and never change. Behind them lie the paths of watch and planned sessions, which
    come and go (`change_sessions`), each session in a slot (`agent.slots`). Every array grows with them, and no path
    ever moves, so exchanges in transit are not touched.

    Parameters
    ----------
    host : HostConfig
        NICs, sessions and the virtual clock, if any.
    sockets : (NIC id, source port) to the shell's socket index
    rng : numpy Generator
        Phases and jitter of the pacing.
    now_ns : int
        Steady clock; the first probes fall within one interval from here.
    hmac_key : bytes or None
        Authenticated mode when given.
    liveness_ms : int
        See `sdfstream.probes.stamp.liveness`.
    error : int
        Error Estimate word that goes into probes; its Z bit chooses the format of the stamps.

    Raises
    ------
    ConfigError
        A session without socket, more than 65,535 sessions, a bad address or rate.
    """

    def __init__(
        self,
        host: HostConfig,
        sockets: Mapping[tuple[str, int], int],
        rng: np.random.Generator,
        now_ns: int,
        *,
        hmac_key: bytes | None = None,
        liveness_ms: int = 1000,
        error: int | None = None,
    ) -> None:
        self.host = host
        self.counters = Counters("sender")
        self._mac = None if hmac_key is None else Mac(hmac_key)
        self._mode = packet.mode_of(hmac_key)
        self._error = packet.error_estimate(1e6) if error is None else error
        self._clock = Clock(host.virtual_clock)
        self._rng = rng
        self._sockets = sockets
        self._configured = self.paths = paths.build(host.sessions, sockets, self._mode)
        self._changing: list[SessionConfig] = []
        """Sessions that come and go, by slot."""
        self._mixed = False
        """Whether the paths are not sorted by socket."""
        self._away: set[str] = set()
        p = len(self.paths)
        self._in_step: Bools = np.zeros(p, dtype=np.bool_)
        """Which paths are probed at the same instants."""
        self._derive()
        self._exchanges = ex.Exchanges(self.paths.interval_ns, self._mode, self.paths.prompt)
        self._answer_tlvs = ex.AnswerTlvs(self._mode, self._mac, self.counters)
        self._next_seq: Int64s = np.zeros(p, dtype=np.int64)
        self.last_received_at_ns: Int64s = np.full(p, ABSENT_NS, dtype=np.int64)
        """(p,) when each path was last answered, steady clock."""
        self.ttl_fwd: UInt8s = np.zeros(p, dtype=np.uint8)
        """(p,) TTL with which each path's probes arrive, by the last answer; 0: not reported."""
        self._next_due: Int64s = now_ns + (self.paths.interval_ns * rng.random(p)).astype(np.int64)
        self._usable: Bools = np.ones(p, dtype=np.bool_)
        self._ended: Bools = np.zeros(p, dtype=np.bool_)
        self.path_liveness = PathLiveness("sender", liveness_ms, self._clock)
        """State of every path."""
        self.path_liveness.add(self._names(np.arange(p)), self.paths.interval_ns, now_ns)
        self._rows = RowWriter(host, self.paths, self._clock, self.counters)

    def _derive(self) -> None:
        """Compute what depends on the table of paths."""
        self._index = ex.PathIndex(self.paths)
        fields(self.paths.template, self._mode.probe)["error"] = self._error
        self._width = tlv.least_payload_bytes(self._mode) + tlv.HEADER_BYTES
        self._mixed = bool((self.paths.socket[1:] < self.paths.socket[:-1]).any())

    def _names(self, path: Int64s) -> list[PathName]:
        found = zip(self.paths.session[path].tolist(), self.paths.source_port[path].tolist(), strict=True)
        return [
            PathName(s.src, s.src, s.dst, s.transport, port, s.dscp)
            for s, port in ((self.paths.sessions[i], port) for i, port in found)
        ]

    @property
    def configured_paths(self) -> int:
        """How many of the paths, the first ones, never change."""
        return len(self._configured)

    def probed(self) -> dict[tuple[str, str, int, int], int]:
        """(src, dst, source port, DSCP) of the paths that are probed now to their numbers."""
        path = np.flatnonzero(~self._ended)
        return {(n.src, n.dst, n.path, n.dscp): p for p, n in zip(path.tolist(), self._names(path), strict=True)}

    def probed_intervals_ns(self) -> Float64s:
        """(p,) probe intervals; infinite for paths that are not probed any more."""
        return np.where(self._ended, np.inf, self.paths.interval_ns)

    def next_due_ns(self) -> int:
        """Steady clock: when the next probe is due; far in the future when there is none."""
        return int(self._next_due.min(initial=NEVER))

    def due(self, now_ns: int, system_ns: int) -> ToSend:
        """All probes due by `now_ns`, sorted by socket; `system_ns` goes into the packets as T1.

        A late call sends one probe per path, never a burst to catch up.
        """
        path = np.flatnonzero(self._next_due <= now_ns)
        interval = self.paths.interval_ns[path]
        self._next_due[path] = np.maximum(
            self._next_due[path] + self._pause_ns(path, interval), now_ns + (interval >> 1)
        )
        path = path[self._usable[path]]
        if self._mixed:
            path = path[np.argsort(self.paths.socket[path], kind="stable")]
        seq = self._next_seq[path]
        self._next_seq[path] = (seq + 1) & 0xFFFF_FFFF
        slot = self._exchanges.slot(path, seq)
        shown_ns = system_ns if self._clock.true else self._clock.at(system_ns)
        t1_word = int(packet.stamp_of(np.array([shown_ns], dtype=np.int64), self._error)[0])
        self.counters.add("shed", "ring", self._exchanges.open(slot, seq, now_ns, system_ns, t1_word))
        self.counters.add("sent", n=len(path))
        self.path_liveness.sent(path, now_ns)
        data = self.paths.packets(path)
        if len(path):
            head = fields(data, self._mode.probe)
            head["seq"] = seq
            head["t1"] = t1_word
            if self._mac is not None:
                self._seal(data, self._mac)
        return ToSend(
            data=data,
            length=self.paths.length[path],
            socket=self.paths.socket[path],
            address=self.paths.address[path],
            port=self.paths.port[path],
            tos=self.paths.tos[path],
            token=seq << _SLOT_BITS | slot,
        )

    def _pause_ns(self, path: Int64s, interval: Int64s) -> Int64s:
        """Until the next probe of each path: its interval, jittered so that nothing falls in step with it.

        Paths in step share one jitter: their packets leave, are answered and are read in one go, a third of the
        passes that phases of their own would take, and passes are what fast probing costs.
        """
        pause: Int64s = (interval * self._rng.uniform(1 - ex.JITTER, 1 + ex.JITTER, len(path))).astype(np.int64)
        in_step = np.flatnonzero(self._in_step[path])
        if len(in_step):
            pause[in_step] = pause[in_step[0]]
        return pause

    def _seal(self, data: UInt8s, mac: Mac) -> None:
        """Write both HMACs of authenticated probes."""
        base = self._mode.base_bytes
        mac_tlv_at = tlv.least_payload_bytes(self._mode) - tlv.trailer_bytes(self._mode)
        data[:, base - packet.MAC_BYTES : base] = mac.of_base(data, self._mode)
        first = mac_tlv_at + tlv.HEADER_BYTES
        at = np.full(len(data), mac_tlv_at, dtype=np.int32)
        data[:, first : first + packet.MAC_BYTES] = mac.of_tlvs(data, self._mode, at)

    def _sent_slots(self, token: Int64s) -> tuple[Int64s, Bools]:
        """Slots of tokens, and which of them still name the exchange that lies there."""
        ring = self._exchanges
        slot = token & _SLOT_MASK
        known = (token >= 0) & (slot < len(ring))
        slot = np.where(known, slot, 0)
        if len(ring):
            known &= ring.seq[slot] == (token >> _SLOT_BITS)
            known &= (ring.state[slot] == ex.SENT) | (ring.state[slot] == ex.ANSWERED)
        return slot, known

    def take_tx_stamps(self, stamps: TxStamps) -> None:
        """Take the true sending times of probes; of several stamps for one probe the best kind stays."""
        slot, known = self._sent_slots(stamps.token)
        kind = np.where(stamps.at_ns == ABSENT_NS, np.uint8(StampKind.NONE), stamps.kind)
        handed = known & (stamps.user_at_ns != ABSENT_NS)
        self._exchanges.t1_user[slot[handed]] = stamps.user_at_ns[handed]
        for value in (StampKind.KERNEL, StampKind.HARDWARE):
            mine = np.flatnonzero(known & (kind == value))
            if len(mine):
                self._exchanges.stamp(slot[mine], stamps.at_ns[mine], value)
        self.counters.add("refused", "late-stamp", int(np.count_nonzero(~known)))

    def unsent(self, token: Int64s) -> None:
        """Forget probes that were not sent after all: no row, and no miss for liveness."""
        slot, known = self._sent_slots(token)
        slot = slot[known]
        self._exchanges.state[slot] = ex.FREE
        self.path_liveness.unsent(self._exchanges.path[slot])
        self.counters.add("unsent", n=len(slot))

    def take_answers(self, received: Received, now_ns: int, due_at_ns: int = 0) -> None:
        """Take answers. Any other datagram is refused and counted; `now_ns` is the steady clock.

        `due_at_ns` (system clock): when the shell had planned to read them. An answer that came before waited on
        purpose, which is no delay inside this host.
        """
        n = len(received.length)
        if not n or not len(self._exchanges):
            self.counters.add("refused", BatchVerdict.UNKNOWN_SESSION, n)
            return
        data, base = received.data, self._mode.base_bytes
        verdict = BatchVerdict(n, self.counters)
        verdict.refuse(received.length < base, BatchVerdict.SHORT)
        verdict.refuse(received.length > data.shape[1], BatchVerdict.CUT)
        if data.shape[1] < base:
            return
        # one copy out of the wide rows of the shell's buffer: everything below reads each octet several times
        data = np.ascontiguousarray(data[:, : max(self._width, int(received.length.max()))])
        head = fields(data, self._mode.answer)
        path = self._index.find(received, head["ssid"].astype(np.int64), verdict)
        if self._mac is not None:
            self._verify(data, verdict, self._mac)
        slot, late = self._exchanges.match(received, path, head, verdict, now_ns)
        self.path_liveness.received(path[late], now_ns)  # too late for a row, but the path lives
        if verdict.good.all():
            self._store(data, received, slice(None), slot, now_ns, due_at_ns)
        elif verdict.good.any():
            rows = np.flatnonzero(verdict.good)
            self._store(data[rows], received, rows, slot[rows], now_ns, due_at_ns)

    def _verify(self, data: UInt8s, verdict: BatchVerdict, mac: Mac) -> None:
        rows = np.flatnonzero(verdict.good)
        wrong = np.zeros(len(data), dtype=np.bool_)
        heads = data[rows, : self._mode.base_bytes]
        wrong[rows] = ~macs_equal(heads[:, -packet.MAC_BYTES :], mac.of_base(heads, self._mode))
        verdict.refuse(wrong, BatchVerdict.HMAC)

    def _store(self, data: UInt8s, received: Received, rows: Any, slot: Int64s, now_ns: int, due_at_ns: int) -> None:
        extension = self._answer_tlvs.octets(data, received.length[rows])
        at_ns, kind = received.at_ns[rows], received.kind[rows]
        absent = (at_ns == ABSENT_NS) | (kind == StampKind.NONE)
        arrival = np.empty(len(slot), dtype=ex.ARRIVAL)
        arrival["answered_at"] = now_ns
        on_purpose = np.where(kind == StampKind.KERNEL, np.maximum(due_at_ns - at_ns, 0), 0)
        arrival["t4_user"] = received.user_at_ns - on_purpose
        arrival["t4_at"] = np.where(absent, received.user_at_ns, at_ns)
        arrival["t4_kind"] = np.where(absent, np.uint8(StampKind.USER), kind)
        arrival["tos"] = received.tos[rows]
        arrival["ttl"] = received.ttl[rows]
        self._exchanges.take(slot, data[:, : self._mode.base_bytes], extension, arrival)
        path = self._exchanges.path[slot]
        self.path_liveness.received(path, now_ns)
        self.last_received_at_ns[path] = now_ns
        self.ttl_fwd[path] = fields(data, self._mode.answer)["ttl"]
        self.counters.add("answered", n=len(slot))

    def rows(self, now_ns: int) -> pa.RecordBatch | None:
        """Finished exchanges, in order of sending; None when there are none.

        An answered one is finished with its true t3 and t1, else 1.5 intervals after the answer, on a prompt path at
        once; an unanswered one after its time-out. All limits must have passed at the call before: what a stalled
        process finds in its sockets is read first.
        """
        return self._rows.finished(self._exchanges, now_ns)

    def nic_usable(self, nic: str, usable: bool, now_ns: int) -> None:
        """A NIC can or cannot send. While it cannot, its paths send nothing and their state is unknown."""
        (self._away.discard if usable else self._away.add)(nic)
        mine = np.array([self.paths.sessions[i].src == nic for i in self.paths.session], dtype=np.bool_) & ~self._ended
        changed = np.flatnonzero(mine & (self._usable != usable))
        self._usable[changed] = usable
        self.path_liveness.set_usable(changed, usable, now_ns)

    def liveness(self, now_ns: int, system_ns: int, *, complete: bool = False) -> list[dict[str, Any]]:
        """Assess all paths; entries of those that changed state since the last call, or of all (`complete`)."""
        return self.path_liveness.assess(now_ns, system_ns, complete=complete)

    def change_sessions(
        self,
        begin: Mapping[int, SessionConfig],
        end: Sequence[int],
        now_ns: int,
        *,
        liveness_ms: int,
        in_step: bool = True,
    ) -> None:
        """Begin sessions, each in its slot (0, 1, …; a new one at the end), and end those in the slots `end`.

        Paths of other sessions are not touched and keep their numbers. A slot may be given to another session of as
        many ports and the same rate, `prompt`, `liveness_ms` and `in_step`, once no exchange of the former one is in
        transit. Sessions `in_step` are probed at the same instants and have one rate.
        """
        for slot in end:
            path = self._paths_in(slot)
            self._ended[path] = True
            self._next_due[path] = NEVER
            self.path_liveness.end(path, now_ns)
        if not begin:
            return
        fresh = sorted(slot for slot in begin if slot >= len(self._changing))
        again = sorted(slot for slot in begin if slot < len(self._changing))
        moved = [slot for slot in again if begin[slot] != self._changing[slot]]
        for slot in again:
            self._changing[slot] = begin[slot]
        self._changing += [begin[slot] for slot in fresh]
        more = paths.build(
            self._changing, self._sockets, self._mode, first=len(self._configured.sessions), by_socket=False
        )
        self.paths = paths.joined(self._configured, more)
        self._derive()
        self._rows.adopt(self.paths)
        self._grow(now_ns, liveness_ms, in_step)
        for slot in moved:
            self._exchanges.free(self._paths_in(slot))
        for slot in sorted(begin):
            self._begin(self._paths_in(slot), begin[slot].src not in self._away, now_ns)

    def _paths_in(self, slot: int) -> Int64s:
        """Paths of the session in `slot`."""
        result: Int64s = np.flatnonzero(self.paths.session == len(self._configured.sessions) + slot)
        return result

    def _grow(self, now_ns: int, liveness_ms: int, in_step: bool) -> None:
        have, want = len(self._next_seq), len(self.paths)
        if have == want:
            return
        interval = self.paths.interval_ns[have:]

        def grown(array: Any, value: int) -> Any:
            return np.concatenate([array, np.full(want - have, value, dtype=array.dtype)])

        self._exchanges.grow(interval, self.paths.prompt[have:])
        self._next_seq = grown(self._next_seq, 0)
        self.last_received_at_ns = grown(self.last_received_at_ns, ABSENT_NS)
        self.ttl_fwd = grown(self.ttl_fwd, 0)
        self._next_due = grown(self._next_due, NEVER)
        self._usable = grown(self._usable, True)
        self._ended = grown(self._ended, True)
        self._in_step = grown(self._in_step, in_step)
        self.path_liveness.add(self._names(np.arange(have, want)), interval, now_ns, liveness_ms=liveness_ms)

    def _begin(self, path: Int64s, usable: bool, now_ns: int) -> None:
        self._ended[path] = False
        self._usable[path] = usable
        self.last_received_at_ns[path] = ABSENT_NS
        self.ttl_fwd[path] = 0
        interval_ns = int(self.paths.interval_ns[path].max(initial=1))
        if self._in_step[path].any():
            step = int(self._next_due[self._in_step].min(initial=NEVER))
            self._next_due[path] = step if step < NEVER else now_ns + int(interval_ns * self._rng.random())
        else:
            self._next_due[path] = now_ns + (interval_ns * self._rng.random(len(path))).astype(np.int64)
        self.path_liveness.begin(path, self._names(path), usable, now_ns)
