"""Messages into knowledge: which event changes what, and who is looked at again because of it.

An agent counts as heard only by what it says itself; what other stages derive from its rows comes on for a while after
it has died.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sdfstream.actuate.arming import Arming
from sdfstream.actuate.ledger import HOST
from sdfstream.actuate.parts import Parts
from sdfstream.actuate.routes import Directed, Hops, Learned, ProbeKey, hops_of
from sdfstream.errors import FormatError
from sdfstream.records.command import Outcome
from sdfstream.records.command import outcome as read_outcome
from sdfstream.records.flow import FLOW_TYPE, flow_from
from sdfstream.records.job import job_shard
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import CLOCK, FINDING, JOB, LIVENESS, OUTCOME, OWD, QP_WINDOW, TOPOLOGY
from sdfstream.records.topology import DECLARED_TYPE, PATH_TYPE, Topology

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
