"""What the controller's engines share: knowledge of the fabric and its jobs, the guard, and the issuing of commands.

Engines (`arming`, `contention`, `effect`, `incast`, `overrides`) ask the pieces of the `Context`; each piece of
knowledge is in the class that takes its messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sdfstream.actuate.alternates import Alternates
from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.actuate.guard import Breaker, GuardFacts
from sdfstream.actuate.jobs import OwnedQp, QpWindows, RunningJobs
from sdfstream.actuate.ledger import CommandLedger, Commands
from sdfstream.actuate.links import ActionableFindings, Loads
from sdfstream.actuate.paths import ClockErrors, Mapper, Probing
from sdfstream.actuate.queues import QueueDelays
from sdfstream.actuate.refusals import Refusals
from sdfstream.actuate.routes import Routes, Selectable
from sdfstream.records.fabric import Topology
from sdfstream.records.signature import Signer
from sdfstream.stats import Counters


@dataclass(frozen=True, slots=True)
class Crossed:
    """Ends of the link directions that a queue pair's data cross now, and would on another source port."""

    mapper: Mapper
    routes: Routes
    loads: Loads

    def __call__(self, owned: OwnedQp, path: int | None, now_ns: int) -> list[tuple[str, str]]:
        """See `GuardFacts.crossed`."""
        hops = [*self.loads.of.get(owned.pair.qp, ())]
        if path is not None:
            hops += self.routes.flow(owned.pair.flow(path), now_ns) or ()
        return self.ends(hops)

    def ends(self, hops: Iterable[str]) -> list[tuple[str, str]]:
        """Ends of the link directions that end at these hops, as far as declared."""
        found = (self.mapper.topology.arrival(hop) for hop in hops)
        return [ends for ends in found if ends is not None]


@dataclass(slots=True)
class Context:
    """One of each piece of knowledge, the guard, and what issues commands."""

    config: ActuateConfig
    counters: Counters
    jobs: RunningJobs
    routes: Routes
    probing: Probing
    selectable: Selectable
    windows: QpWindows
    loads: Loads
    mapper: Mapper
    alternates: Alternates
    ledger: CommandLedger
    facts: GuardFacts
    refusals: Refusals
    commands: Commands
    queue_delays: QueueDelays
    clocks: ClockErrors
    findings: ActionableFindings
    topology: Topology = field(default_factory=Topology)
    trusted: bool = False
    """Whether there is a key that agents trust; without one nothing is enforced."""

    @classmethod
    def make(cls, config: ActuateConfig, counters: Counters, signer: Signer, epoch: int) -> Context:
        """Everything empty."""
        jobs, probing, loads = RunningJobs(), Probing(), Loads()
        routes = Routes(ns(config.route_max_age_s))
        selectable = Selectable(config)
        windows = QpWindows(counters)
        ledger = CommandLedger(config, signer, epoch)
        facts = GuardFacts(
            config, jobs, probing, selectable, ledger, Breaker(config), config.mode, seen_path=windows.path
        )
        mapper, refusals = Mapper(config, jobs, routes, probing), Refusals(config)
        crossed = facts.crossed = Crossed(mapper, routes, loads)

        def avoids(owned: OwnedQp, hops: Sequence[str], now_ns: int) -> bool:
            return bool(facts.silences) and facts.maintained(owned, crossed.ends(hops), (), now_ns) is not None

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
            Alternates(config, mapper, loads, avoids),
            ledger,
            facts,
            refusals,
            Commands(config, counters, ledger, facts, refusals),
            QueueDelays(routes, counters),
            ClockErrors(),
            ActionableFindings(config.steer_on),
        )

    def declare(self, topology: Topology) -> None:
        """Take the declared cabling."""
        self.topology = self.mapper.topology = topology

    def update_load(self, qp: str, now_ns: int) -> None:
        """Work out anew which links the queue pair's data load."""
        owned = self.jobs.get(qp)
        route = None if owned is None else self.routes.flow(owned.pair.flow(), now_ns)
        self.loads.put(qp, route or ())
