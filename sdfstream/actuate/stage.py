"""The controller as a stage: messages about routes, jobs and findings in; signed commands and refusals out.

Inside a call the stage walks the stream itself: every 100 ms boundary of bus time up to a message, then the message.
Messages only change what is known (`MessageIntake`); commands are decided at the boundaries. Output therefore depends
on the stream alone, not on how the driver cut it into calls.

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
from sdfstream.actuate.context import Context
from sdfstream.actuate.effect import MoveTrials
from sdfstream.actuate.incast import Throttles
from sdfstream.actuate.overrides import Overrides
from sdfstream.actuate.refusals import HOST
from sdfstream.actuate.routes import Directed, Hops, Learned, ProbeKey, Selectability, hops_of
from sdfstream.errors import FormatError
from sdfstream.numeric import codec
from sdfstream.records.command import Outcome
from sdfstream.records.command import outcome as read_outcome
from sdfstream.records.fabric import DECLARED_TYPE, FLOW_TYPE, PATH_TYPE, Topology, flow_from
from sdfstream.records.job import job_shard
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.signature import REPLAY_KEY, KeyRing, Signer
from sdfstream.records.slices import in_slices
from sdfstream.records.topics import CLOCK, COMMAND, FINDING, JOB, LIVENESS, OUTCOME, OVERRIDE, OWD, QP_WINDOW, TOPOLOGY
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.stats import Counters

REPLAY_EPOCH: Final = 1
_LOOK_TICKS: Final = 5
"""100 ms boundaries between two looks at full links and converged NICs."""
_FORGET_TICKS: Final = 600
_MOST_TICKS: Final = 300
"""A gap in bus time over more boundaries (30 s) is taken in one stride."""
_KEEP_NS: Final = 60 * NS_PER_S
_JOB_SILENT_NS: Final = 300 * NS_PER_S
"""A job shard (repeated every 10 s) that did not come for this long is gone, with its agent."""


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
    overrides; publishes commands (``sdf.control.command.v1``) and, as host ``controller``, outcomes
    (``sdf.control.outcome.v1``): refusals and measured effects.

    Parameters
    ----------
    config : ActuateConfig
    authority : Authority, optional
        Without one (a replay, a look at a configuration) commands are signed by a key that no agent trusts, and modes
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
        self._context = Context.make(self.config, self.counters, signer, epoch)
        self._context.trusted = authority is not None
        if authority is None and self.config.mode in ("approve", "enforce"):
            self._context.facts.change_mode("dry-run")
        self._arming = Arming(self._context)
        self._trials = MoveTrials()
        self._contention = Contention(self._context, self._trials)
        self._throttles = Throttles(self._context)
        self._overrides = Overrides(self._context, authority.operators if authority is not None else KeyRing(()))
        self._intake = MessageIntake(self._context, self._arming)
        self._tick = -1
        """Number of the last 100 ms boundary that was stepped; −1: none yet."""

    @property
    def mode(self) -> str:
        """The mode in force."""
        return self._context.facts.mode

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` in order, then go on to `now_ns`."""
        out: list[Output] = []
        # a message alone, as most that are urgent come, is a run by itself
        for run in in_slices(messages) if len(messages) > 1 else filter(None, (messages,)):
            out += self._until(run[0].bus_at_ns)
            if run[0].topic == OWD.name:
                self.counters.add("received", OWD.name, len(run))
                self._context.queue_delays.take(run)
                continue
            for message in run:
                out += self._take(message)
        out += self._until(now_ns)
        return out

    def finish(self, now_ns: int) -> list[Output]:
        """End of the input: leases are left to lapse, for the next controller knows nothing of them."""
        return self._until(now_ns)

    def selectable(self) -> list[Selectability]:
        """``path_selectable`` of every pair of NICs that was traced, with the counts it rests on."""
        return self._context.selectable.all(max(0, self._tick) * TICK_NS)

    def _until(self, now_ns: int) -> list[Output]:
        last = now_ns // TICK_NS
        if self._tick < 0:
            self._tick = last - 1
        if last - self._tick > _MOST_TICKS:
            self.counters.add("ticks-skipped", n=last - 1 - self._tick)
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
        context = self._context
        context.facts.expire(now_ns)
        context.selectable.settle(now_ns)
        out = self._arming.tick(now_ns) if self._arming.due_ns <= now_ns else []
        look = self._tick % _LOOK_TICKS == 0
        out += self._contention.tick(now_ns, look=look)
        if look and (context.config.throttle_incast or self._throttles.limits):
            out += self._throttles.tick(now_ns)
        if self._tick % _FORGET_TICKS == 0:
            self._forget(now_ns)
        return out

    def _forget(self, now_ns: int) -> None:
        context = self._context
        context.routes.forget(now_ns)
        context.selectable.forget(now_ns)
        context.ledger.forget(now_ns - _KEEP_NS)
        context.refusals.forget(now_ns - 10 * _KEEP_NS)
        context.probing.forget(now_ns - 2 * _JOB_SILENT_NS)
        context.clocks.forget(now_ns - _KEEP_NS)
        context.queue_delays.forget(now_ns - _KEEP_NS)
        context.findings.forget(now_ns - _KEEP_NS)
        self._overrides.forget(now_ns)
        self._intake.gone(context.jobs.forget(now_ns - _JOB_SILENT_NS), now_ns)

    def snapshot(self) -> bytes:
        """The whole state, deterministic bytes."""
        engines = {name: engine.snapshot() for name, engine in self._engines().items()}
        rest = {
            "tick": self._tick,
            "declared": self._context.topology.declared,
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
        self._context.declare(Topology(rest["declared"]))
        self.counters.values = {(what, reason): int(n) for what, reason, n in rest["counters"]}

    def _engines(self) -> dict[str, Any]:
        context = self._context
        return {
            "jobs": context.jobs,
            "routes": context.routes,
            "probing": context.probing,
            "selectable": context.selectable,
            "windows": context.windows,
            "loads": context.loads,
            "ledger": context.ledger,
            "facts": context.facts,
            "refusals": context.refusals,
            "arming": self._arming,
            "trials": self._trials,
            "contention": self._contention,
            "throttles": self._throttles,
            "overrides": self._overrides,
            "excess": context.queue_delays,
            "clocks": context.clocks,
            "findings": context.findings,
        }


_NEUTRAL: Final = ("not-enforced", "unexpected-state", "unknown-target")
"""Refusals by agents whose state has moved on meanwhile; all others count for the breaker."""


class MessageIntake:
    """Takes one message at a time."""

    def __init__(self, context: Context, arming: Arming) -> None:
        self._context, self._arming = context, arming

    def take(self, message: Message) -> list[Output]:
        """Take a message; raises FormatError, KeyError, TypeError, ValueError when it does not follow its topic."""
        context, body, at_ns = self._context, message.body, message.bus_at_ns
        if not isinstance(body, Event):
            bulk = {
                QP_WINDOW.name: context.windows.take,
                CLOCK.name: context.clocks.take,
            }
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
            self._context.loads.put(qp, ())
            self._context.windows.drop(qp)

    # --- routes ----------------------------------------------------------------------------------------------------

    def _topology(self, event: Event, at_ns: int) -> list[Output]:
        data = event.data
        if event.type == DECLARED_TYPE:
            self._context.declare(Topology(data).refuse("nics", "links", "links.speed_mbps"))
        elif event.type == PATH_TYPE:
            self._take_probe_route(data, at_ns)
            self._context.probing.received_from(event.source, at_ns)
        elif event.type == FLOW_TYPE:
            self._take_flow_route(data, at_ns)
            self._context.probing.received_from(event.source, at_ns)
        return []

    def _take_probe_route(self, data: Mapping[str, Any], at_ns: int) -> None:
        context = self._context
        key = ProbeKey(str(data["src"]), str(data["dst"]), int(data["path"]), int(data["dscp"]))
        direction = data["dir"]
        if direction not in ("fwd", "rev"):
            raise ValueError(f"dir is fwd or rev, not {direction!r}")
        pair = (key.src, key.dst) if direction == "fwd" else (key.dst, key.src)
        kind = f"probe {direction} {data['transport']} dscp{key.dscp}"
        hops, complete = self._hops(data, pair, kind, key.path, at_ns)
        learned = context.routes.take_probe(Directed(key, direction), hops, complete, at_ns)
        if self._learn(learned, pair, kind, key.path, hops, at_ns):
            self._arming.touch(context.jobs.of_nic(key.src), at_ns)

    def _take_flow_route(self, data: Mapping[str, Any], at_ns: int) -> None:
        context = self._context
        flow = flow_from(dict(data))
        pair = (flow.src, flow.dst)
        kind = f"{flow.protocol} to {flow.destination_port} dscp{flow.dscp}"
        hops, complete = self._hops(data, pair, kind, flow.source_port, at_ns)
        learned = context.routes.take_flow(flow, hops, complete, at_ns)
        if self._learn(learned, pair, kind, flow.source_port, hops, at_ns):
            qps = context.jobs.of_flow(flow)
            self._arming.touch(qps, at_ns)
            for qp in qps:
                context.update_load(qp, at_ns)

    def _hops(
        self, data: Mapping[str, Any], pair: tuple[str, str], kind: str, port: int, at_ns: int
    ) -> tuple[Hops, bool]:
        """The hops of a trace and whether it is whole; one whose packets took several routes is not."""
        hops = hops_of(data["hops"])
        broken = self._context.topology.contradicted_by(hops)
        if broken:
            self._context.selectable.broken(pair, kind, port, at_ns)
            self._context.counters.add("traces", "several-ways")
        return hops, bool(data["complete"]) and None not in hops and not broken

    def _learn(
        self, learned: Learned | None, pair: tuple[str, str], kind: str, port: int, hops: Hops, at_ns: int
    ) -> bool:
        """Note a trace as evidence; whether it changed what is known."""
        if learned is None:
            self._context.counters.add("refused", "ways-full")
            return False
        self._context.counters.add("traces", learned.change)
        if not self._context.topology.contradicted_by(hops):
            self._context.selectable.note(pair, kind, port, hops, learned.change, learned.before_ns, at_ns)
        lapsed = learned.change == "same" and at_ns - learned.before_ns > self._context.routes.max_age_ns
        return lapsed or learned.change in ("new", "changed")

    # --- jobs, probes, findings ------------------------------------------------------------------------------------

    def _job(self, event: Event, at_ns: int) -> list[Output]:
        shard = job_shard(event.data)
        self._context.probing.received_from(shard.host, at_ns)
        changed, gone = self._context.jobs.take(shard, at_ns)
        self._arming.touch(changed, at_ns)
        for qp in changed:
            self._context.update_load(qp, at_ns)
        self.gone(gone, at_ns)
        return []

    def _liveness(self, event: Event, at_ns: int) -> list[Output]:
        self._context.probing.received_from(str(event.data["host"]), at_ns)
        touched, unrest = self._context.probing.take(event.data)
        for nic in sorted(touched):
            self._arming.touch(self._context.jobs.of_nic(nic), at_ns)
        if unrest:
            self._context.selectable.unrest(at_ns)
        return []

    def _finding(self, event: Event, at_ns: int) -> list[Output]:
        if self._context.findings.take(event.data, at_ns):
            self._context.selectable.unrest(at_ns)
        return []

    def _outcome(self, event: Event, at_ns: int) -> list[Output]:
        outcome = read_outcome(event.data)
        if outcome.host == HOST:
            return []
        context = self._context
        context.probing.received_from(outcome.host, at_ns)
        path = outcome.after.get("path")
        if outcome.state in ("applied", "undone") and isinstance(path, int) and not isinstance(path, bool):
            qp = str(outcome.target.get("id", ""))
            owned = context.jobs.get(qp)
            if owned is not None and owned.host == outcome.host and context.jobs.moved(qp, path, outcome.at_ns):
                context.update_load(qp, at_ns)
                self._arming.touch([qp], at_ns)
        command = context.ledger.take(outcome, at_ns)
        if command is None:
            context.counters.add("outcomes", "not-ours")
            return []
        context.counters.add("outcomes", outcome.state)
        self._arming.outcome(command, outcome, at_ns)
        return self._count_result(outcome, at_ns)

    def _count_result(self, outcome: Outcome, at_ns: int) -> list[Output]:
        """Count what went well and wrong; an outcome when that opens the breaker."""
        reason = outcome.why.partition(":")[0]
        bad = outcome.state == "failed" or (outcome.state == "refused" and reason not in _NEUTRAL)
        if not bad and outcome.state != "applied":
            return []
        return self._context.commands.count_result(bad, at_ns)
