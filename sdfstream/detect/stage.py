"""The detect stage: messages in, findings and NIC states out. The order of the engines, top to bottom.

Inside a call the stage walks the stream itself: every 100 ms boundary of bus time up to a message, then the message.
What it says therefore depends on the stream alone, not on how the driver cut it into calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.bustime import BusTime, Ints
from sdfstream.detect.cabling import FWD, REV, Cabling
from sdfstream.detect.claims import Claim
from sdfstream.detect.clocks import Clocks
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.congestion import Congestion
from sdfstream.detect.delays import Delays
from sdfstream.detect.flap import Flaps
from sdfstream.detect.flows import Flows
from sdfstream.detect.gaps import Gaps
from sdfstream.detect.health import Health
from sdfstream.detect.inband import InBand
from sdfstream.detect.inband_claims import InBandClaims
from sdfstream.detect.intake import conform
from sdfstream.detect.jobs import APART, Jobs
from sdfstream.detect.ledger import Ledger
from sdfstream.detect.liveness import Liveness
from sdfstream.detect.loss import Loss
from sdfstream.detect.marks import Marks
from sdfstream.detect.miscabled import Miscabled
from sdfstream.detect.ports import Ports
from sdfstream.detect.presence import Presence
from sdfstream.detect.recent import Recent
from sdfstream.detect.runs import LossRuns
from sdfstream.detect.sessions import Sessions
from sdfstream.detect.silence import Silence, SilenceJudge
from sdfstream.detect.wiring import Wiring
from sdfstream.errors import FormatError
from sdfstream.numeric import frozen
from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.flow import FLOW_TYPE, flow_from
from sdfstream.records.hostclock import paths_only
from sdfstream.records.mesh import HOST_TYPE
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import CLOCK, JOB, LIVENESS, OWD, PORT, PROBE, QP_WINDOW, TOPICS, TOPOLOGY
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, TICK_NS
from sdfstream.stats import Counters

_JUDGE_EVERY_NS = 20 * NS_PER_MS
"""Between two boundaries, news of silence is judged at most this often: a big fault brings a message per host."""
_NEWS_NS = 400 * NS_PER_MS
"""Silence younger than this (only fast probes tell of it) is judged at every message, not at boundaries alone."""
_LASTING_NS = 5 * NS_PER_S
"""A flapping link that stays down for this long is down."""
_FORGET_EVERY = 600
"""Ticks between two searches for sessions to forget."""


class DetectStage:
    """All detectors behind one `Stage`.

    Reads probe rows, liveness statements, port readings, corrected delays, clock states, topology and jobs; says
    findings (``sdf.event.finding.v1``) and NIC health (``sdf.state.nic.v1``).
    """

    name = "detect"
    reads: tuple[str, ...] = (
        PROBE.name,
        LIVENESS.name,
        PORT.name,
        OWD.name,
        CLOCK.name,
        TOPOLOGY.name,
        JOB.name,
        QP_WINDOW.name,
    )

    def __init__(self, config: DetectConfig | None = None) -> None:
        self.config = config or DetectConfig()
        self.counters = Counters(self.name)
        self._sessions = Sessions(self.config.max_paths)
        self._presence = Presence(self._sessions)
        self._cabling = Cabling(self._sessions)
        self._flows = Flows(self._cabling, self.counters)
        self._jobs = Jobs(self._cabling, self._flows, self.counters)
        self._inband = InBand(self.counters)
        self._slow_pairs = InBandClaims(self._inband, self._jobs, self._flows, self._cabling)
        self._liveness = Liveness(self.config, self._sessions, self._presence, self.counters)
        self._bustime = BusTime()
        self._recent = Recent(self._cabling)
        self._judge = SilenceJudge(
            self.config, self._sessions, self._presence, self._liveness, self._cabling, self._recent
        )
        self._health = Health(self.config, self._sessions, self._presence, self._cabling)
        self._delays = Delays(self.config, self._sessions, self.counters)
        self._congestion = Congestion(self.config, self._delays, self._cabling)
        self._runs = LossRuns(self._sessions)
        self._loss = Loss(self.config, self._runs, self._cabling)
        self._marks = Marks(self.config, self._sessions, self._cabling)
        self._miscabled = Miscabled()
        self._gaps = Gaps(self._runs, self._cabling)
        self._flaps = Flaps(self.config)
        self._ports = Ports(self.config)
        self._clocks = Clocks(self.config)
        self._ledger = Ledger(self.config, self.counters)
        self._tick = -1
        """Number of the last 100 ms boundary that was stepped; −1: none yet."""
        self._judged_ns = 0
        self._pending = False
        """Something fell silent lately: it is judged more often than at the boundaries."""

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` in order, then go on to `now_ns`."""
        out: list[Output] = []
        for message in messages:
            out += self._until(message.bus_at_ns)
            if self._pending and message.bus_at_ns - self._judged_ns >= _JUDGE_EVERY_NS:
                out += self._silence(message.bus_at_ns)[1]
            try:
                out += self._take(message)
            except FormatError as error:
                self.counters.add("refused", error.reason)
            self._admit()
        out += self._until(now_ns)
        return out

    def finish(self, now_ns: int) -> list[Output]:
        """End of the input: what is open stays open, since nothing more was seen of it."""
        return self._until(now_ns)

    def _until(self, now_ns: int) -> list[Output]:
        last = now_ns // TICK_NS
        if self._tick < 0:
            self._tick = last - 1
        out: list[Output] = []
        while self._tick < last:
            self._tick += 1
            out += self._evaluate(self._tick * TICK_NS)
        return out

    def _take(self, message: Message) -> list[Output]:
        self.counters.add("received", message.topic)
        body, at_ns = message.body, message.bus_at_ns
        if isinstance(body, Event):
            return self._take_event(message, body, at_ns)
        schema = TOPICS[message.topic].columns if message.topic in self.reads else None
        if schema is None:
            raise FormatError("form", f"{message.topic} carries no batches")
        self._take_bulk(message, conform(body, schema, self.counters), at_ns)
        return []

    def _take_bulk(self, message: Message, batch: pa.RecordBatch, at_ns: int) -> None:
        if message.topic == PROBE.name:
            self._hear(message, message.key)
            self._take_probes(paths_only(batch), at_ns)
        elif message.topic == PORT.name:
            self._hear(message, message.key)
            self._presence.take_ports(batch, at_ns)
            for nic in self._flaps.take_ports(batch, at_ns):
                self._recent.note(nic, at_ns)
            self._ports.take(batch, at_ns)
        elif message.topic == OWD.name:
            self._delays.take(batch, at_ns)
        elif message.topic == CLOCK.name:
            self._clocks.take(batch, at_ns)
        elif message.topic == QP_WINDOW.name:
            self._inband.take(batch, at_ns)

    def _take_probes(self, batch: pa.RecordBatch, at_ns: int) -> None:
        slots = self._sessions.of_batch(batch, "dscp_sent", at_ns)
        self._sessions.note_planes(batch, slots)
        self._admit()
        seq = columns.values(batch, "seq").astype(np.int64)
        t1_ns = columns.values(batch, "t1_ns")
        answered = columns.instants(batch, "t4_ns") != ABSENT_NS
        known = slots >= 0
        self.counters.add("refused", "probe-row", int((~known).sum()))
        self._marks.take_rows(batch, slots, at_ns)
        slots, seq, answered = slots[known], seq[known], answered[known]
        seen_ns = self._seen(batch, at_ns)[known]
        self._liveness.take_rows(slots, seq, t1_ns[known], answered, seen_ns, at_ns)
        self._runs.take_rows(slots, seq, answered, at_ns)

    def _seen(self, batch: pa.RecordBatch, at_ns: int) -> Ints:
        """When each exchange ended, bus time: its answer, or for want of one the probe's sending."""
        t4_ns = columns.instants(batch, "t4_ns")
        ended_ns = np.where(t4_ns == ABSENT_NS, columns.values(batch, "t1_ns"), t4_ns)
        src, nics = columns.coded(batch, "src")
        clock, clocks = columns.coded(batch, "clock_src")
        seen_ns = np.full(batch.num_rows, at_ns, np.int64)
        for number, mine in _by_code(clock):
            name, nic = clocks[number].as_py(), nics[int(src[mine][0])].as_py()
            if name is None or nic is None:
                continue
            self._bustime.note(name, int(ended_ns[mine].max()), at_ns)
            seen_ns[mine] = self._bustime.of(name, ended_ns[mine], at_ns)
            self._presence.told(host_of(nic), int(seen_ns[mine].max()), at_ns)
        return seen_ns

    def _said(self, host: str, seen_at: object, at_ns: int) -> int:
        """When an agent said something that its own clock dates `seen_at`, bus time."""
        if not isinstance(seen_at, int):
            return at_ns
        self._bustime.note(host, seen_at, at_ns)
        said_ns = int(self._bustime.of(host, np.array([seen_at]), at_ns)[0])
        self._presence.told(host, said_ns, at_ns)
        return said_ns

    def _take_event(self, message: Message, event: Event, at_ns: int) -> list[Output]:
        if message.topic == LIVENESS.name:
            host = str(event.data.get("host") or message.key)
            self._hear(message, host, liveness=True)
            said_ns = self._said(host, event.data.get("seen_at_ns"), at_ns)
            self._liveness.take_statement(event.data, said_ns, at_ns)
            self._admit()
            if event.data.get("complete") or at_ns - self._judged_ns < _JUDGE_EVERY_NS:
                return []
            return self._silence(at_ns)[1]
        if message.topic == TOPOLOGY.name:
            self._take_topology(event, at_ns)
        elif message.topic == JOB.name:
            self._jobs.take(event.data, at_ns)
        return []

    def _take_topology(self, event: Event, at_ns: int) -> None:
        data = event.data
        if event.type == HOST_TYPE:
            return
        if "links" in data:
            self._declare(data)
            return
        try:
            hops = [None if h is None else str(h) for h in data["hops"]]
            if event.type == FLOW_TYPE:
                flow = flow_from(dict(data))
                traced_ns = self._traced_ns(data, flow.src, at_ns)
                self._flows.take(flow, hops, traced_ns)
                self._miscabled.take(self._cabling.wiring, flow.src, flow.dst, hops, traced_ns)
                return
            key = (
                str(data["src"]),
                str(data["dst"]),
                str(data["transport"]),
                int(data["path"]),
                int(data["dscp"]),
            )
            way = {"fwd": FWD, "rev": REV}[data.get("dir", "fwd")]
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError("topology-path", str(error)) from error
        slot = int(self._sessions.of_names([key], at_ns)[0])
        self._admit()
        sender, receiver = key[:2] if way == FWD else (key[1], key[0])
        traced_ns = self._traced_ns(data, sender, at_ns)
        self._miscabled.take(self._cabling.wiring, sender, receiver, hops, traced_ns)
        if slot >= 0 and self._cabling.trace(slot, way, hops, traced_ns):
            self._runs.wipe(np.array([slot]))  # what was lost so far was lost on the former way

    def _traced_ns(self, data: Mapping[str, Any], by: str, at_ns: int) -> int:
        """When a NIC's host made a trace, bus time."""
        traced = data.get("traced_at_ns")
        if not isinstance(traced, int) or not 0 <= traced < 1 << 62:
            return at_ns
        return int(self._bustime.of(host_of(by), np.array([traced]), at_ns)[0])

    def _declare(self, data: Mapping[str, Any]) -> None:
        try:
            wiring = Wiring.of(data)
            nics = [str(nic["id"]) for nic in data.get("nics", ()) if "id" in nic]
        except (AttributeError, KeyError, TypeError) as error:
            raise FormatError("topology", str(error)) from error
        self._cabling.declare(wiring)
        for nic in nics:
            self._sessions.nic(nic)

    def _hear(self, message: Message, host: str, *, liveness: bool = False) -> None:
        if self._presence.heard(host, message.bus_at_ns, message.boot_id, liveness=liveness):
            for engine in (self._liveness, self._flaps, self._ports):
                engine.restarted(host)

    def _admit(self) -> None:
        """Give every engine room for what was seen for the first time."""
        self._presence.ensure()
        if self._sessions.fresh:
            self._liveness.table.ensure(self._sessions.count)
            for engine in (self._delays, self._runs, self._marks):
                engine.ensure()
            self._cabling.note_new(self._sessions.fresh)
            self._sessions.fresh.clear()

    def _tell(self, engine: str, claims: list[Claim], now_ns: int) -> list[Output]:
        """What an engine claims now, with the jobs that it hurts and the queue pairs that it slows, into the ledger."""
        claims = self._jobs.annotate(claims)
        slow = self._inband.slow(now_ns) if claims else []
        if slow:
            claims = [self._slow_pairs.annotated(claim, slow) for claim in claims]
        return self._ledger.take(engine, claims, now_ns)

    def _in_band(self, now_ns: int) -> list[Output]:
        """Slow queue pairs and jobs that nothing else explains."""
        slow = self._inband.slow(now_ns)
        explained: set[int] = set()
        roots = [c for c in self._ledger.standing("inband") if c.kind not in APART] if slow else []
        for claim in roots:
            explained.update(self._slow_pairs.explained_by(claim, slow))
        claims = self._slow_pairs.claims(explained, self._ledger.told("qp-slow"), now_ns)
        return self._ledger.take("inband", claims, now_ns)

    def _silence(self, now_ns: int) -> tuple[Silence, list[Output]]:
        self._judged_ns = now_ns
        verdict = self._judge.judge(now_ns)
        seen = verdict.sightings
        self._pending = bool((seen.silent & (now_ns - seen.since_ns < _NEWS_NS)).any())
        out = self._tell("silence", self._without_flaps(verdict.claims, now_ns), now_ns)
        return verdict, out + self._health.update(verdict, now_ns)

    def _without_flaps(self, claims: list[Claim], now_ns: int) -> list[Claim]:
        """Leave out the short outages of what is told as flapping already."""

        def new(claim: Claim) -> bool:
            flapping = self._ledger.is_open("link-flap", claim.subject)
            lasting = now_ns - claim.since_ns >= _LASTING_NS or self._ledger.is_open(claim.kind, claim.subject)
            return not flapping or lasting

        return [claim for claim in claims if new(claim)]

    def _evaluate(self, now_ns: int) -> list[Output]:
        """Everything that is judged at a 100 ms boundary."""
        self._presence.mark(self._tick)
        self._cabling.refresh()
        verdict, out = self._silence(now_ns)
        self._inband.tick()
        self._jobs.refresh()
        troubled = self._troubled(now_ns)
        self._runs.wipe(np.flatnonzero(troubled))
        left_out = verdict.sightings.silent | troubled
        self._delays.tick()
        told = self._ledger.told("congestion")
        slow = self._congestion.claims(left_out, self._marks.share(now_ns), told, now_ns)
        out += self._tell("congestion", slow, now_ns)
        congested = self._ledger.open_ids(("congestion",)) | {s for c in slow for s, _ in c.suspects}
        marks = self._marks.claims(left_out, self._delays.slow(now_ns), congested, now_ns)
        out += self._tell("marks", marks, now_ns)
        if self._tick % 2 == 0:
            everyone = np.arange(self._sessions.count)
            aftermath = np.flatnonzero(self._recent.touched(everyone, now_ns, surely=True))
            self._runs.wipe(aftermath)
            out += self._tell("loss", self._loss.claims(left_out, now_ns), now_ns)
        out += self._tell("flap", self._flapping(verdict, now_ns), now_ns)
        if self._tick % 5 == 0:
            out += self._tell("ports", self._ports.claims(now_ns), now_ns)
            out += self._tell("cabling", self._miscabled.claims(self._cabling.wiring), now_ns)
            out += self._tell("clocks", self._clocks.claims(self._excused(verdict), now_ns), now_ns)
        out += self._in_band(now_ns)
        if self._tick % _FORGET_EVERY == 0:
            self._forget(now_ns)
        return out

    def _troubled(self, now_ns: int) -> npt.NDArray[np.bool_]:
        """(sessions,) one of whose agents is late or mute: they are not judged by what they lose, mark or delay."""
        host = np.append(self._sessions.nic_host, -1)
        late = np.append(self._presence.troubled(now_ns), False)
        table = self._sessions.table
        result: npt.NDArray[np.bool_] = late[host[table["src"]]] | late[host[table["dst"]]]
        return result

    def _flapping(self, verdict: Silence, now_ns: int) -> list[Claim]:
        """Feed the flap record with what is down now and with gaps that closed; its claims."""
        live = self._liveness.table
        for gap in self._gaps.look(verdict.sightings.silent, live["ok_ns"], live["interval_ns"], now_ns):
            self._flaps.pulse(gap.subject, gap.down_ns, gap.up_ns)
        down = {c.subject: c.since_ns for c in verdict.claims if self._ledger.is_open(c.kind, c.subject)}
        down = {s: since for s, since in down.items() if s.type in ("nic", "host", "link", "switch")}
        self._flaps.update(down, now_ns)
        return self._flaps.claims(now_ns)

    def _excused(self, verdict: Silence) -> set[str]:
        """Hosts whose clocks cannot be bounded for a reason already told: agent stale, or a NIC down."""
        hosts = {self._sessions.hosts.list[h] for h in np.flatnonzero(verdict.stale).tolist()}
        return hosts | {host_of(c.subject.id) for c in verdict.claims if c.subject.type in ("nic", "host")}

    def _forget(self, now_ns: int) -> None:
        self._jobs.expire(now_ns)
        self._inband.spring_clean()
        self._flows.drop_unused(now_ns - int(self.config.forget_s * NS_PER_S))
        idle = self._sessions.idle(now_ns - int(self.config.forget_s * NS_PER_S))
        if idle.size:
            self._sessions.forget(idle)
            self._liveness.table.reset(idle)
            self._cabling.forget(idle)
            for engine in (self._delays, self._runs, self._marks):
                engine.forget(idle)
            self.counters.add("forgotten", "sessions", idle.size)

    def _engines(self) -> dict[str, Any]:
        return {
            "sessions": self._sessions,
            "presence": self._presence,
            "cabling": self._cabling,
            "flows": self._flows,
            "jobs": self._jobs,
            "inband": self._inband,
            "health": self._health,
            "bustime": self._bustime,
            "recent": self._recent,
            "silence": self._judge,
            "delays": self._delays,
            "congestion": self._congestion,
            "runs": self._runs,
            "loss": self._loss,
            "marks": self._marks,
            "miscabled": self._miscabled,
            "flaps": self._flaps,
            "ports": self._ports,
            "clocks": self._clocks,
            "ledger": self._ledger,
        }

    def snapshot(self) -> bytes:
        """The whole state, deterministic bytes."""
        engines: dict[str, Any] = {name: engine.freeze() for name, engine in self._engines().items()}
        counters = [[*key, n] for key, n in sorted(self.counters.values.items())]
        rest = {
            "tick": self._tick,
            "judged": self._judged_ns,
            "pending": self._pending,
            "liveness": self._liveness.table.freeze(),
            "counters": counters,
        }
        return frozen.dump({"engines": engines, "rest": rest})

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot`.

        Raises
        ------
        FormatError
            When the bytes are no snapshot of this version.
        """
        saved: Mapping[str, Any] = frozen.load(state)
        for name, engine in self._engines().items():
            engine.thaw(saved["engines"][name])
        rest = saved["rest"]
        self._tick, self._judged_ns, self._pending = int(rest["tick"]), int(rest["judged"]), bool(rest["pending"])
        self._liveness.table.thaw(rest["liveness"])
        self.counters.values = {(what, reason): int(n) for what, reason, n in rest["counters"]}


def _by_code(codes: npt.NDArray[np.int32]) -> list[tuple[int, Any]]:
    """Each code that is no null, and which rows have it; an agent's rows are mostly of one clock."""
    if codes.size and codes[0] >= 0 and bool((codes == codes[0]).all()):
        return [(int(codes[0]), slice(None))]
    return [(number, codes == number) for number in np.unique(codes[codes >= 0]).tolist()]
