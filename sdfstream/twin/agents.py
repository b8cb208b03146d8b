"""What the hosts' agents put on the bus: probe rows, liveness, ports (traces: `traces`)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sdfstream.records import arrow, columns
from sdfstream.records.message import Body, Event, Message
from sdfstream.records.topics import LIVENESS, PORT, PROBE, Topic
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Bools, Float64s, Int64s
from sdfstream.twin import rows
from sdfstream.twin.liveness import NAMES, SILENT, StateChanges, Watch
from sdfstream.twin.probing import ExchangeBlock, ProbeMesh
from sdfstream.twin.queues import MTU_BITS, Cell

if TYPE_CHECKING:
    from sdfstream.twin.clocks import Clocks

_COMPLETE_EVERY: Final = 10
"""Heartbeats, one a second, from one complete list of paths to the next."""


class Outbox:
    """Messages on their way to the bus; those of one host and topic stay in order."""

    def __init__(self, start_ns: int, rng: np.random.Generator) -> None:
        self.start_ns, self.rng = start_ns, rng
        self._heap: list[tuple[int, int, Topic, str, Body]] = []
        self._count = 0
        self._seq: dict[str, int] = {}
        self._batch: dict[tuple[str, str], int] = {}
        self._passed: dict[tuple[str, str], int] = {}

    def put(self, at_ns: int, topic: Topic, key: str, body: Body, late_s: float = 0.0, source: str = "") -> None:
        """Send at `at_ns` (true time since the start): on the bus 0.5 to 3 ms later, or `late_s` more."""
        at_ns += int(self.rng.integers(NS_PER_MS // 2, 3 * NS_PER_MS)) + int(late_s * 1e9)
        line = (topic.name, source or key)
        at_ns = self._passed[line] = max(at_ns, self._passed.get(line, 0) + 1)
        heapq.heappush(self._heap, (at_ns, self._count, topic, key, body))
        self._count += 1

    def until(self, at_ns: int) -> Iterator[Message]:
        """Messages that enter the bus before `at_ns`, in order."""
        while self._heap and self._heap[0][0] < at_ns:
            on_ns, _, topic, key, body = heapq.heappop(self._heap)
            seq = self._seq[topic.name] = self._seq.get(topic.name, -1) + 1
            line = (topic.name, key)
            number = self._batch[line] = self._batch.get(line, -1) + 1
            raw = topic.name in (PROBE.name, PORT.name)
            boot, batch = ("twin", number) if raw else ("", -1)
            yield Message(topic.name, key, body, self.start_ns + on_ns, seq, boot, batch)


class Agents:
    """All hosts' agents."""

    def __init__(self, sessions: ProbeMesh, clocks: Clocks, phase_ns: Int64s, outbox: Outbox) -> None:
        self.sessions, self.clocks, self.outbox, self.phase_ns = sessions, clocks, outbox, phase_ns
        fabric = self.fabric = sessions.fabric
        self.start_ns = outbox.start_ns
        self._nics, self._hosts = arrow.text(fabric.nics), arrow.text(fabric.hosts)
        ends = sessions.first_ns
        self._senders, self._reflectors = Watch(ends, sessions.limit_ns), Watch(ends, sessions.limit_ns)
        self._to = np.argsort(sessions.dst_host, kind="stable")
        self._to_starts = np.searchsorted(sessions.dst_host[self._to], np.arange(len(fabric.hosts) + 1))
        n = len(fabric.nics)
        self._held: list[ExchangeBlock] = []
        self._bytes, self._pauses = np.zeros((2, n)), np.zeros((2, n))
        self._errors = np.zeros(n)
        """Packets that came in with bit errors."""
        self._edges, self._states = np.zeros(n, np.int64), ["up"] * n
        none = np.empty(0, np.int64)
        self.fell_silent = StateChanges(none, none.astype(np.int8), none, none)
        """What senders found silent in the last block."""

    def name(self, session: int) -> tuple[str, str, int, int]:
        """(src, dst, path, dscp)."""
        s = self.sessions
        return (
            self.fabric.nics[int(s.src[session])],
            self.fabric.nics[int(s.dst[session])],
            int(s.port[session]),
            s.spec.dscp,
        )

    def is_silent(self, session: int) -> bool:
        """Whether its sender finds a session silent."""
        return bool(self._senders.state[session] == SILENT)

    # -- probe rows -------------------------------------------------------------------------------------------------

    def publish(self, made: ExchangeBlock, until_ns: int, silent: Bools, late_s: Float64s) -> None:
        """Rows that are complete by the end of each host's block; the others wait for their answer or time-out."""
        s = self.sessions
        every = ExchangeBlock.joined([*self._held, made]) if self._held else made
        ready = np.where(every.answered, every.t4, every.t1 + s.timeout_ns[every.session])
        done = ready <= until_ns + self.phase_ns[s.src_host[every.session]]
        self._held = []
        if not done.all():
            self._held, every = [every.take(~done)], every.take(done)
        if not every.session.size:
            return
        if (every.session[1:] < every.session[:-1]).any():
            every = every.take(np.argsort(every.session, kind="stable"))
        body = self._batch(every)
        host = s.src_host[every.session]
        cuts = np.searchsorted(host, np.arange(len(self.fabric.hosts) + 1)).tolist()
        for number, (low, high) in enumerate(itertools.pairwise(cuts)):
            if high > low and not silent[number]:
                at_ns = until_ns + int(self.phase_ns[number])
                key = self.fabric.hosts[number]
                self.outbox.put(at_ns, PROBE, key, body.slice(low, high - low), float(late_s[number]))

    def _batch(self, e: ExchangeBlock) -> Any:
        s, n = self.sessions, e.session.size
        src_host, dst_host = s.src_host[e.session], s.dst_host[e.session]
        # offsets are below 2^53 ns; the epoch is added as an integer
        own_ns = self.start_ns + np.rint(self.clocks.offset(src_host, e.t1)).astype(np.int64)
        far_ns = self.start_ns + np.rint(self.clocks.offset(dst_host, e.t1)).astype(np.int64)
        names = {
            "src": columns.name_column(s.src[e.session], self._nics),
            "dst": columns.name_column(s.dst[e.session], self._nics),
            "clock_src": columns.name_column(src_host, self._hosts),
            "clock_dst": columns.name_column(dst_host, self._hosts),
            "transport": rows.same("udp", n),
        }
        figures = {
            "path": s.port[e.session],
            "seq": e.seq,
            "seq_rev": e.seq_rev,
            "t1_ns": e.t1 + own_ns,
            "t2_ns": e.t2 + far_ns,
            "t3_ns": e.t3 + far_ns,
            "t4_ns": e.t4 + own_ns,
            "dscp_sent": np.full(n, s.spec.dscp, np.uint8),
            "dscp_fwd": np.where(e.rewritten_fwd, 0, s.spec.dscp),
            "dscp_rev": np.where(e.rewritten_rev, 0, s.spec.dscp),
            "size_bytes": s.size_bytes[e.session],
            "ce_fwd": e.ce_fwd,
            "ce_rev": e.ce_rev,
        }
        return rows.probe_batch(names, figures, e.answered, rows.same("backend", n))

    # -- liveness ---------------------------------------------------------------------------------------------------

    def live(
        self, made: ExchangeBlock, begin_ns: int, until_ns: int, dead: Bools, silent: Bools, late_s: Float64s
    ) -> None:
        """StateChanges of all paths at once, a heartbeat every second, the complete list every ten."""
        s = self.sessions
        ends = [until_ns + self.phase_ns[host] for host in (s.src_host, s.dst_host)]
        sent = self._senders.advance(made.session, made.t4, made.answered, ends[0], dead[s.src_host])
        self.fell_silent = StateChanges(*(column[sent.state == SILENT] for column in sent))
        got = self._reflectors.advance(made.session, made.t2, made.arrived, ends[1], dead[s.dst_host])
        found: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for role, changes, hosts in (("sender", sent, s.src_host), ("reflector", got, s.dst_host)):
            for session, state, at_ns, last_ns in zip(*(c.tolist() for c in changes), strict=True):
                host = int(hosts[session])
                found.setdefault(host, []).append((at_ns, self._entry(session, role, state, at_ns, last_ns, host)))
        for host in sorted(found):
            if not silent[host]:
                self._changes(host, sorted(found[host], key=lambda x: x[0]), float(late_s[host]))
        for host in range(len(self.fabric.hosts)):
            due_ns = int(self.phase_ns[host]) + host * 7 * NS_PER_MS % NS_PER_S
            heartbeat = (until_ns + int(self.phase_ns[host]) - due_ns) // NS_PER_S
            if heartbeat == (begin_ns + int(self.phase_ns[host]) - due_ns) // NS_PER_S or silent[host]:
                continue
            complete = heartbeat % _COMPLETE_EVERY == 0
            at_ns = until_ns + int(self.phase_ns[host])
            self._say(host, at_ns, self._all(host, at_ns) if complete else [], complete, float(late_s[host]))

    def _changes(self, host: int, found: list[tuple[int, dict[str, Any]]], late_s: float) -> None:
        """One message for what an agent finds within 5 ms."""
        while found:
            until_ns = found[0][0] + 5 * NS_PER_MS
            now = [entry for at_ns, entry in found if at_ns <= until_ns]
            self._say(host, found[len(now) - 1][0], now, False, late_s)
            found = found[len(now) :]

    def _entry(self, session: int, role: str, state: int, at_ns: int, last_ns: int, host: int) -> dict[str, Any]:
        each = int(self.sessions.interval_ns[session])
        missed = (at_ns - last_ns) // each if NAMES[state] == "silent" else 0
        since = self.clocks.shown(host, last_ns, self.start_ns)
        return rows.path_change(self.name(session), role, NAMES[state], since, each, int(missed))

    def _all(self, host: int, at_ns: int) -> list[dict[str, Any]]:
        s = self.sessions
        mine = range(int(s.starts[host]), int(s.starts[host + 1]))
        theirs = self._to[self._to_starts[host] : self._to_starts[host + 1]].tolist()
        both = (("sender", mine, self._senders), ("reflector", theirs, self._reflectors))
        return [
            self._entry(k, role, int(watch.state[k]), at_ns, int(watch.last_ns[k]), host)
            for role, numbers, watch in both
            for k in numbers
        ]

    def _say(self, host: int, at_ns: int, changes: list[dict[str, Any]], complete: bool, late_s: float) -> None:
        name = self.fabric.hosts[host]
        data = {
            "host": name,
            "boot_id": "twin",
            "seen_at_ns": self.clocks.shown(host, at_ns, self.start_ns),
            "complete": complete,
            "limit_ns": self.sessions.spec.liveness_ms * NS_PER_MS,
            "changes": changes,
            "stopping": False,
        }
        event = Event(LIVENESS.name, name, f"{name}-{at_ns}", self.start_ns + at_ns, data)
        self.outbox.put(at_ns, LIVENESS, name, event, late_s)

    # -- ports ------------------------------------------------------------------------------------------------------

    def count(self, cell: Cell, seconds: float) -> None:
        """Add a cell to the counters of all NICs."""
        n = len(self.fabric.nics)
        out, into = np.arange(0, 2 * n, 2), np.arange(1, 2 * n, 2)
        per = self.fabric.spec.gbps * 1e9 / 8 * seconds
        self._bytes += np.array([cell.busy[into], cell.busy[out]]) * per
        pauses = np.array([cell.paused[out], cell.now.stuck[into]])
        self._pauses += pauses * 3000 * seconds  # pause frames are renewed at this rate
        for link in cell.now.corrupting.intersection(into.tolist()):
            self._errors[link // 2] += cell.now.loss[link] * cell.busy[link] * per / (MTU_BITS / 8)

    def read_ports(self, begin_ns: int, until_ns: int, states: dict[int, str], silent: Bools, late_s: Float64s) -> None:
        """Once a second the rows of every host's NICs."""
        rails = self.fabric.spec.rails
        for nic in range(len(self._states)):
            state = states.get(nic, "up")
            self._edges[nic] += state != self._states[nic]
            self._states[nic] = state
        for host, name in enumerate(self.fabric.hosts):
            due_ns = host * 11 * NS_PER_MS % NS_PER_S
            if (until_ns - due_ns) // NS_PER_S == (begin_ns - due_ns) // NS_PER_S or silent[host]:
                continue
            mine = slice(host * rails, (host + 1) * rails)
            at_ns = until_ns + int(self.phase_ns[host])
            body = columns.build(
                PORT.columns,
                {
                    "at_ns": np.full(rails, self.clocks.shown(host, at_ns, self.start_ns)),
                    "host": [name] * rails,
                    "nic": self.fabric.nics[mine],
                    "port": [f"{nic}:1" for nic in self.fabric.nics[mine]],
                    "state": self._states[mine],
                    "carrier_changes": self._edges[mine].astype(np.uint64),
                    "speed_mbps": np.full(rails, int(self.fabric.spec.gbps * 1000), np.uint32),
                    "rx_bytes": self._bytes[0][mine].astype(np.uint64),
                    "tx_bytes": self._bytes[1][mine].astype(np.uint64),
                    "rx_pause": self._pauses[0][mine].astype(np.uint64),
                    "tx_pause": self._pauses[1][mine].astype(np.uint64),
                    **dict.fromkeys(("rx_errors", "symbol_errors"), self._errors[mine].astype(np.uint64)),
                    **dict.fromkeys(("tx_errors", "rx_discards", "tx_discards"), np.zeros(rails, np.uint64)),
                },
            )
            self.outbox.put(at_ns, PORT, name, body, float(late_s[host]))
