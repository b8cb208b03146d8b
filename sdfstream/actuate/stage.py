"""The controller as a stage: messages about routes, jobs and findings in; signed commands and refusals out.

Inside a call the stage walks the stream itself: every 100 ms boundary of bus time up to a message, then the message.
Messages only change what is known (`Intake`); commands are decided at the boundaries. Output therefore depends on the
stream alone, not on how the driver cut it into calls.

An agent counts as present only by its own messages; what other stages derive from its rows comes on for a while after
it has died.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.actuate.arming import Arming
from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.contention import Contention
from sdfstream.actuate.context import Parts
from sdfstream.actuate.effect import Trials
from sdfstream.actuate.incast import Throttles
from sdfstream.actuate.ledger import HOST, Lease
from sdfstream.actuate.overrides import Overrides
from sdfstream.actuate.routes import Directed, Hops, Learned, ProbeKey, hops_of
from sdfstream.actuate.selectable import Verdict
from sdfstream.errors import FormatError
from sdfstream.numeric import codec
from sdfstream.records.command import Outcome
from sdfstream.records.command import outcome as read_outcome
from sdfstream.records.flow import FLOW_TYPE, flow_from
from sdfstream.records.job import job_shard
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.records.topics import CLOCK, COMMAND, FINDING, JOB, LIVENESS, OUTCOME, OVERRIDE, OWD, QP_WINDOW, TOPOLOGY
from sdfstream.records.topology import DECLARED_TYPE, PATH_TYPE, Topology
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.stats import Counters

REPLAY_EPOCH: Final = 1
REPLAY_KEY: Final = bytes(range(32))
"""Known to everybody and trusted by nobody: what a replay signs with."""
_FORGET_EVERY: Final = 600
_KEEP_NS: Final = 60 * NS_PER_S
_JOB_SILENT_NS: Final = 300 * NS_PER_S
"""A job part (repeated every 10 s) that did not come for this long is gone; its agent is."""


@dataclass(frozen=True, slots=True)
class Authority:
    """What a live controller acts by; without it nothing is ever enforced."""

    signer: Signer
    operators: KeyRing
    epoch: int
    """This run's number: its start, ns since the Unix epoch. Agents refuse any lower than the highest seen."""


class ActuateStage:
    """The controller: policies, guards, leases.

    Reads findings, jobs, topology, throughput windows, corrected delays, liveness, clock states, outcomes and
    overrides; says commands (``sdf.control.command.v1``) and, as host ``controller``, outcomes
    (``sdf.control.outcome.v1``): refusals and measured effects.

    Parameters
    ----------
    config : ActuateConfig
    authority : Authority, optional
        Without one (a replay, a look at a configuration) commands are signed by a key that nobody trusts, and modes
        ``approve`` and ``enforce`` become ``dry-run``.
    """

    name = "actuate"
    reads: tuple[str, ...] = (
        FINDING.name,
        JOB.name,
        TOPOLOGY.name,
        QP_WINDOW.name,
        OWD.name,
        LIVENESS.name,
        CLOCK.name,
        OUTCOME.name,
        OVERRIDE.name,
    )
    writes: tuple[str, ...] = (COMMAND.name, OUTCOME.name)

    def __init__(self, config: ActuateConfig | None = None, authority: Authority | None = None) -> None:
        self.config = config or ActuateConfig()
        self.counters = Counters(self.name)
        signer = authority.signer if authority is not None else Signer(REPLAY_KEY)
        epoch = authority.epoch if authority is not None else REPLAY_EPOCH
        self._parts = Parts.make(self.config, self.counters, signer, epoch)
        self._parts.trusted = authority is not None
        if authority is None and self.config.mode in ("approve", "enforce"):
            self._parts.facts.mode = "dry-run"
        self._arming = Arming(self._parts)
        self._trials = Trials(self._parts)
        self._contention = Contention(self._parts, self._arming, self._trials)
        self._throttles = Throttles(self._parts)
        self._overrides = Overrides(self._parts, authority.operators if authority is not None else KeyRing(()))
        self._intake = Intake(self._parts, self._arming)
        self._tick = -1
        """Number of the last 100 ms boundary that was stepped; −1: none yet."""

    @property
    def mode(self) -> str:
        """The mode in force."""
        return self._parts.facts.mode

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` in order, then go on to `now_ns`."""
        out: list[Output] = []
        for message in messages:
            out += self._until(message.bus_at_ns)
            out += self._take(message)
        out += self._until(now_ns)
        return out

    def finish(self, now_ns: int) -> list[Output]:
        """End of the input: leases are left to lapse, for whoever comes next knows nothing of them."""
        return self._until(now_ns)

    def selectable(self) -> list[Verdict]:
        """``path_selectable`` of every pair of NICs that was traced, with the counts it rests on."""
        return self._parts.selectable.all(max(0, self._tick) * TICK_NS)

    def leases(self) -> list[Lease]:
        """Commands that are not forgotten yet."""
        return list(self._parts.ledger)

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
        try:
            if message.topic == OVERRIDE.name and isinstance(message.body, Event):
                return self._overrides.take(message.body.data, message.bus_at_ns)
            return self._intake.take(message)
        except FormatError as error:
            self.counters.add("refused", error.reason)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            self.counters.add("refused", f"{message.topic.split('.')[2]}-{type(error).__name__}")
        return []

    def _evaluate(self, now_ns: int) -> list[Output]:
        """Everything that is decided at a 100 ms boundary."""
        parts = self._parts
        parts.facts.expire(now_ns)
        parts.selectable.settle(now_ns)
        out = self._arming.tick(now_ns)
        out += self._trials.tick(now_ns)
        out += self._contention.tick(self._tick, now_ns)
        out += self._throttles.tick(self._tick, now_ns)
        if self._tick % _FORGET_EVERY == 0:
            self._forget(now_ns)
        return out

    def _forget(self, now_ns: int) -> None:
        parts = self._parts
        parts.routes.forget(now_ns)
        parts.selectable.forget(now_ns)
        parts.ledger.forget(now_ns - _KEEP_NS)
        parts.refusals.forget(now_ns - 10 * _KEEP_NS)
        parts.probing.forget(now_ns - 2 * _JOB_SILENT_NS)
        parts.clocks.forget(now_ns - _KEEP_NS)
        parts.excess.forget(now_ns - _KEEP_NS)
        parts.findings.forget(now_ns - _KEEP_NS)
        self._overrides.forget(now_ns)
        self._intake.gone(parts.jobs.forget(now_ns - _JOB_SILENT_NS), now_ns)

    def snapshot(self) -> bytes:
        """The whole state, deterministic bytes."""
        engines = {name: engine.snapshot() for name, engine in self._engines().items()}
        rest = {
            "tick": self._tick,
            "declared": self._parts.topology.declared,
            "counters": [[*key, n] for key, n in sorted(self.counters.values.items())],
        }
        return codec.dump({"engines": engines, "rest": rest})

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot`.

        Raises
        ------
        FormatError
            When the bytes are no snapshot of this version.
        """
        saved: Mapping[str, Any] = codec.load(state)
        for name, engine in self._engines().items():
            engine.restore(saved["engines"][name])
        rest = saved["rest"]
        self._tick = int(rest["tick"])
        self._parts.declare(Topology(rest["declared"]))
        self.counters.values = {(what, reason): int(n) for what, reason, n in rest["counters"]}

    def _engines(self) -> dict[str, Any]:
        parts = self._parts
        return {
            "jobs": parts.jobs,
            "routes": parts.routes,
            "probing": parts.probing,
            "selectable": parts.selectable,
            "windows": parts.windows,
            "loads": parts.loads,
            "ledger": parts.ledger,
            "facts": parts.facts,
            "refusals": parts.refusals,
            "arming": self._arming,
            "trials": self._trials,
            "contention": self._contention,
            "throttles": self._throttles,
            "overrides": self._overrides,
            "excess": parts.excess,
            "clocks": parts.clocks,
            "findings": parts.findings,
        }


_NEUTRAL: Final = ("not-enforced", "unexpected-state", "unknown-target")
"""Refusals by agents that only say that the world moved on meanwhile; all others count for the breaker."""


class Intake:
    """Takes one message at a time."""

    def __init__(self, parts: Parts, arming: Arming) -> None:
        self._parts, self._arming = parts, arming

    def take(self, message: Message) -> list[Output]:
        """Take a message; raises FormatError, KeyError, TypeError, ValueError when it is not as its topic says."""
        parts, body, at_ns = self._parts, message.body, message.bus_at_ns
        if not isinstance(body, Event):
            bulk = {QP_WINDOW.name: parts.windows.take, OWD.name: parts.excess.take, CLOCK.name: parts.clocks.take}
            if message.topic not in bulk:
                raise FormatError("form", f"{message.topic} carries no batches")
            bulk[message.topic](body, at_ns)
            return []
        events: dict[str, Callable[[Event, int], list[Output]]] = {
            TOPOLOGY.name: self._topology,
            JOB.name: self._job,
            LIVENESS.name: self._liveness,
            FINDING.name: self._finding,
            OUTCOME.name: self._outcome,
        }
        if message.topic not in events:
            raise FormatError("form", f"{message.topic} carries no events")
        return events[message.topic](body, at_ns)

    def gone(self, qps: list[str], now_ns: int) -> None:
        """These queue pairs are there no more."""
        for qp in qps:
            self._arming.gone(qp, now_ns)
            self._parts.loads.put(qp, ())
            self._parts.windows.drop(qp)

    # --- ways ------------------------------------------------------------------------------------------------------

    def _topology(self, event: Event, at_ns: int) -> list[Output]:
        data = event.data
        if event.type == DECLARED_TYPE:
            self._parts.declare(Topology(data).refuse("nics", "links", "links.speed_mbps"))
        elif event.type == PATH_TYPE:
            self._probe_way(data, at_ns)
            self._parts.probing.hear(event.source, at_ns)
        elif event.type == FLOW_TYPE:
            self._flow_way(data, at_ns)
            self._parts.probing.hear(event.source, at_ns)
        return []

    def _probe_way(self, data: Mapping[str, Any], at_ns: int) -> None:
        parts = self._parts
        key = ProbeKey(str(data["src"]), str(data["dst"]), int(data["path"]), int(data["dscp"]))
        direction = data["dir"]
        if direction not in ("fwd", "rev"):
            raise ValueError(f"dir is fwd or rev, not {direction!r}")
        pair = (key.src, key.dst) if direction == "fwd" else (key.dst, key.src)
        kind = f"probe {direction} {data['transport']} dscp{key.dscp}"
        hops, complete = self._hops(data, pair, kind, key.path, at_ns)
        learned = parts.routes.take_probe(Directed(key, direction), hops, complete, at_ns)
        if self._learn(learned, pair, kind, key.path, hops, at_ns):
            self._arming.touch(parts.jobs.of_nic(key.src), at_ns)

    def _flow_way(self, data: Mapping[str, Any], at_ns: int) -> None:
        parts = self._parts
        flow = flow_from(dict(data))
        pair = (flow.src, flow.dst)
        kind = f"{flow.protocol} to {flow.destination_port} dscp{flow.dscp}"
        hops, complete = self._hops(data, pair, kind, flow.source_port, at_ns)
        learned = parts.routes.take_flow(flow, hops, complete, at_ns)
        if self._learn(learned, pair, kind, flow.source_port, hops, at_ns):
            qps = parts.jobs.of_flow(flow)
            self._arming.touch(qps, at_ns)
            for qp in qps:
                parts.place(qp, at_ns)

    def _hops(
        self, data: Mapping[str, Any], pair: tuple[str, str], kind: str, port: int, at_ns: int
    ) -> tuple[Hops, bool]:
        """The hops of a trace and whether it is whole; one whose packets went several ways is not."""
        hops = hops_of(data["hops"])
        broken = self._parts.topology.contradicted_by(hops)
        if broken:
            self._parts.selectable.broken(pair, kind, port, at_ns)
            self._parts.counters.add("traces", "several-ways")
        return hops, bool(data["complete"]) and None not in hops and not broken

    def _learn(
        self, learned: Learned | None, pair: tuple[str, str], kind: str, port: int, hops: Hops, at_ns: int
    ) -> bool:
        """Note a trace as evidence; whether it changed what is known."""
        if learned is None:
            self._parts.counters.add("refused", "ways-full")
            return False
        self._parts.counters.add("traces", learned.change)
        if not self._parts.topology.contradicted_by(hops):
            self._parts.selectable.note(pair, kind, port, hops, learned.change, learned.before_ns, at_ns)
        return learned.change in ("new", "changed")

    # --- jobs, probes, trouble ------------------------------------------------------------------------------------

    def _job(self, event: Event, at_ns: int) -> list[Output]:
        part = job_shard(event.data)
        self._parts.probing.hear(part.host, at_ns)
        changed, gone = self._parts.jobs.take(part, at_ns)
        self._arming.touch(changed, at_ns)
        for qp in changed:
            self._parts.place(qp, at_ns)
        self.gone(gone, at_ns)
        return []

    def _liveness(self, event: Event, at_ns: int) -> list[Output]:
        self._parts.probing.hear(str(event.data["host"]), at_ns)
        touched, unrest = self._parts.probing.take(event.data)
        for nic in sorted(touched):
            self._arming.touch(self._parts.jobs.of_nic(nic), at_ns)
        if unrest:
            self._parts.selectable.unrest(at_ns)
        return []

    def _finding(self, event: Event, at_ns: int) -> list[Output]:
        if self._parts.findings.take(event.data, at_ns):
            self._parts.selectable.unrest(at_ns)
        return []

    def _outcome(self, event: Event, at_ns: int) -> list[Output]:
        outcome = read_outcome(event.data)
        if outcome.host == HOST:
            return []
        parts = self._parts
        parts.probing.hear(outcome.host, at_ns)
        path = outcome.after.get("path")
        if outcome.state in ("applied", "undone") and isinstance(path, int) and not isinstance(path, bool):
            qp = str(outcome.target.get("id", ""))
            owned = parts.jobs.get(qp)
            if owned is not None and owned.host == outcome.host and parts.jobs.moved(qp, path, outcome.at_ns):
                parts.place(qp, at_ns)
                self._arming.touch([qp], at_ns)
        lease = parts.ledger.take(outcome, at_ns)
        if lease is None:
            parts.counters.add("outcomes", "not-ours")
            return []
        parts.counters.add("outcomes", outcome.state)
        self._arming.outcome(lease, outcome, at_ns)
        return self._judge(outcome, at_ns)

    def _judge(self, outcome: Outcome, at_ns: int) -> list[Output]:
        """Count what went well and wrong; when it is too much, say that the breaker is open."""
        reason = outcome.why.partition(":")[0]
        bad = outcome.state == "failed" or (outcome.state == "refused" and reason not in _NEUTRAL)
        if not bad and outcome.state != "applied":
            return []
        return self._parts.judged(bad, at_ns)
