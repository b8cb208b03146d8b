"""What the controller's engines share: the knowledge, the guard and the desk that commands go out by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.actuate.clocks import Clocks
from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.actuate.excess import Excess, Queue
from sdfstream.actuate.findings import Findings
from sdfstream.actuate.guard import Breaker, Facts, Proposal, check, gone_out
from sdfstream.actuate.jobs import Jobs
from sdfstream.actuate.ledger import Lease, Ledger
from sdfstream.actuate.maps import Doubt, Loads, Mapper
from sdfstream.actuate.probing import Probing
from sdfstream.actuate.refusals import Refusals
from sdfstream.actuate.routes import Routes
from sdfstream.actuate.selectable import Selectable
from sdfstream.actuate.windows import Windows
from sdfstream.records.message import Output
from sdfstream.records.signature import Signer
from sdfstream.records.topology import Topology
from sdfstream.records.units import NS_PER_S, NS_PER_US
from sdfstream.stats import Counters

_PACKET_BITS: Final = 1_500 * 8


@dataclass(slots=True)
class Parts:
    """One of each."""

    config: ActuateConfig
    counters: Counters
    jobs: Jobs
    routes: Routes
    probing: Probing
    selectable: Selectable
    windows: Windows
    loads: Loads
    mapper: Mapper
    ledger: Ledger
    facts: Facts
    refusals: Refusals
    excess: Excess
    clocks: Clocks
    findings: Findings
    topology: Topology = field(default_factory=Topology)
    trusted: bool = False
    """Whether there is a key that agents trust; without one nothing is enforced."""

    @classmethod
    def make(cls, config: ActuateConfig, counters: Counters, signer: Signer, epoch: int) -> Parts:
        """Everything empty."""
        jobs, probing, loads = Jobs(), Probing(), Loads()
        routes = Routes(ns(config.route_max_age_s))
        selectable = Selectable(config)
        windows = Windows(counters)
        ledger = Ledger(signer, epoch)
        facts = Facts(config, jobs, probing, selectable, ledger, Breaker(config), config.mode, seen_path=windows.path)
        mapper = Mapper(config, routes, probing, loads)
        return cls(
            config,
            counters,
            jobs,
            routes,
            probing,
            selectable,
            windows,
            loads,
            mapper,
            ledger,
            facts,
            Refusals(config),
            Excess(counters),
            Clocks(),
            Findings(config.steer_on),
        )

    def declare(self, topology: Topology) -> None:
        """Take the declared cabling."""
        self.topology = self.mapper.topology = topology

    def place(self, qp: str, now_ns: int) -> None:
        """Work out anew which links the queue pair's data load."""
        owned = self.jobs.get(qp)
        way = None if owned is None else self.routes.flow(owned.pair.flow(), now_ns)
        self.loads.put(qp, way or ())

    def queue(self, hop: str, now_ns: int, dscp: int | None = None) -> Queue:
        """What the probes over a link say of its queue; those of class `dscp` alone, where there are any."""
        return self.excess.queue(self.routes.over(hop, now_ns), now_ns, dscp)

    def standing_ns(self, hop: str) -> float:
        """Excess from which a queue stands on a link: a slow one is late by some packets without being full."""
        speed = self.topology.speed_bps(hop)
        packets_ns = self.config.excess_packets * _PACKET_BITS * NS_PER_S / speed if speed else 0.0
        return max(self.config.excess_us * NS_PER_US, packets_ns)

    def refuse(self, proposal: Proposal, doubt: Doubt, now_ns: int) -> list[Output]:
        """The proposal is not carried out; say so, unless it was said lately or nothing is to be published."""
        self.counters.add("refusals", doubt.rule)
        if self.facts.mode in ("off", "observe"):
            return []
        return self.refusals.tell(proposal.action, proposal.owned.target, doubt, proposal.reason, now_ns)

    def open(
        self,
        proposal: Proposal,
        expected: Mapping[str, Any],
        set_: Mapping[str, Any],
        undo: Mapping[str, Any],
        now_ns: int,
    ) -> tuple[Lease | None, list[Output]]:
        """Publish a command for a proposal that passed the guard, in the mode that is in force."""
        mode = self.facts.mode
        if mode in ("off", "observe"):
            self.counters.add("observed", proposal.action)
            return None, []
        lease = self.ledger.open(proposal.action, proposal.owned.target, expected, set_, undo, proposal.reason, mode)
        if mode != "approve":
            gone_out(proposal, self.facts, now_ns)
        return lease, [self.say(lease, now_ns)]

    def say(self, lease: Lease, now_ns: int) -> Output:
        """State a command: for the first time, or anew."""
        self.counters.add("commands", f"{lease.action}-{lease.mode}")
        for_ns = ns(self.config.approval_s) if lease.mode == "approve" else self.config.lease_ns
        return self.ledger.say(lease, now_ns, for_ns)

    def approved(self, lease: Lease, proposal: Proposal, now_ns: int) -> Doubt | None:
        """A person agreed to `lease`: look once more, and let it go out if nothing speaks against it."""
        doubt = check(proposal, self.facts, now_ns)
        if doubt is None and proposal.owned.pair.path != lease.expected.get("path", proposal.owned.pair.path):
            doubt = Doubt("unexpected-state", "it is on another path by now")
        if doubt is not None:
            self.ledger.end(lease, now_ns)
            return doubt
        lease.mode, lease.state = "enforce", "sent"
        gone_out(proposal, self.facts, now_ns)
        return None

    def judged(self, bad: bool, now_ns: int) -> list[Output]:
        """A command went well or wrong; says so when that opens the breaker."""
        if not self.facts.breaker.note(bad, now_ns):
            return []
        self.counters.add("breaker", "opened")
        wrong = sum(mark for _, mark in self.facts.breaker.marks)
        doubt = Doubt(
            "breaker",
            f"{wrong} of {len(self.facts.breaker.marks)} commands within {self.config.breaker_window_s:g} s failed or "
            "were taken back; nothing new is done until an operator's mode override",
        )
        return [self.refusals.say("breaker", "refused", doubt, "", {"type": "job", "id": "*"}, (), now_ns)]

    def undo(self, lease: Lease, reason: tuple[str, ...], now_ns: int) -> list[Output]:
        """End a command before its lease does; it is not renewed any more."""
        enforced = lease.mode == "enforce" and lease.in_force
        self.ledger.end(lease, now_ns)
        if not enforced:
            return []
        ending = self.ledger.open("undo", lease.target, {}, {"command": lease.id}, dict(lease.undo), reason, "enforce")
        return [self.say(ending, now_ns)]

    def wanted(self, lease: Lease, now_ns: int) -> bool:
        """Whether `lease` may go on in the mode that is in force; ends it when not."""
        if lease.state == "over":
            return False
        mode = self.facts.mode
        fits = mode in ("enforce", "approve") if lease.mode == "enforce" else lease.mode == mode
        over = lease.state == "waiting" and now_ns >= lease.expires_at_ns
        if not fits or over:
            self.ledger.end(lease, now_ns)
        return fits and not over
