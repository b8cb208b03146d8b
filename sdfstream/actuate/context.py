"""What the controller's engines share: knowledge of the fabric and its jobs, the guard, and the publishing of commands.

Engines (`arming`, `contention`, `effect`, `incast`, `overrides`) ask the `Context`; each piece of knowledge is kept by
the class that takes its messages: jobs, routes, measurements, and here open findings and clock errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.actuate.guard import Breaker, Facts, Proposal, check, gone_out
from sdfstream.actuate.jobs import Jobs
from sdfstream.actuate.ledger import Doubt, Lease, Ledger, Refusals
from sdfstream.actuate.measurements import Excess, Queue, Windows
from sdfstream.actuate.paths import Loads, Mapper
from sdfstream.actuate.routes import Probing, Routes
from sdfstream.actuate.selectable import Selectable
from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.message import Output
from sdfstream.records.signature import Signer
from sdfstream.records.topology import Topology
from sdfstream.records.units import NS_PER_S, NS_PER_US
from sdfstream.stats import Counters

_UNREST: Final = ("link-down", "nic-down", "path-down", "link-flap", "host-silent")
_MOST_FINDINGS: Final = 10_000
_LIKELY: Final = 0.3
"""Suspects less likely than this are not named."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """An open finding that may move something."""

    id: str
    kind: str
    subject_type: str
    subject: str
    directions: tuple[str, ...]
    """Link directions ``a->b`` that it may be about."""
    confidence: float
    seen_ns: int
    """Bus time at which it was last said."""


class Findings:
    """Open findings of some kinds."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self._kinds = frozenset(kinds)
        self._open: dict[str, Trouble] = {}

    def __iter__(self) -> Any:
        return iter(self._open.values())

    def take(self, data: Mapping[str, Any], at_ns: int) -> bool:
        """Take a finding; True when it tells that the fabric changes (something is down, or up again)."""
        kind, status, name = str(data["kind"]), data["status"], str(data["id"])
        if kind in self._kinds:
            if status == "resolved":
                self._open.pop(name, None)
            elif name in self._open or len(self._open) < _MOST_FINDINGS:
                self._open[name] = _trouble(data, at_ns)
        return kind in _UNREST and status != "update"

    def forget(self, before_ns: int) -> None:
        """Drop what was not repeated since: its resolution was lost."""
        self._open = {name: trouble for name, trouble in self._open.items() if trouble.seen_ns >= before_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [
            [t.id, t.kind, t.subject_type, t.subject, list(t.directions), t.confidence, t.seen_ns]
            for t in self._open.values()
        ]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._open = {row[0]: Trouble(row[0], row[1], row[2], row[3], tuple(row[4]), row[5], row[6]) for row in state}


def _trouble(data: Mapping[str, Any], at_ns: int) -> Trouble:
    subject = data["subject"]
    kind, name = str(subject["type"]), str(subject["id"])
    told = [word for word in str(data.get("detail") or "").split() if "->" in word]
    suspects = [str(s["id"]) for s in data.get("suspects", ()) if float(s["probability"]) >= _LIKELY]
    named = told if kind in ("link", "nic") else []
    directions = tuple(dict.fromkeys([*named, *(s for s in suspects if "->" in s)]))
    if not directions and kind == "link":
        a, dashes, b = name.partition("--")
        directions = (f"{a}->{b}", f"{b}->{a}") if dashes else (name,)
    return Trouble(str(data["id"]), str(data["kind"]), kind, name, directions, float(data["confidence"]), at_ns)


UNKNOWN_NS: Final = float(3600 * NS_PER_S)
"""Error bar of a clock that nothing is known of, or that is not trusted."""
_CLOCK_FRESH_NS: Final = 3 * NS_PER_S
_MOST_CLOCKS: Final = 200_000


class Clocks:
    """Error bar of every clock by its last causal row."""

    def __init__(self) -> None:
        self._err: dict[str, tuple[float, int]] = {}

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take clock states; FormatError when a column cannot be read."""
        clock, clocks = columns.names(batch, "clock")
        status, states = columns.names(batch, "status")
        kind, kinds = columns.names(batch, "kind")
        err = columns.values(batch, "err_ns").astype(np.float64)
        causal = np.array([name == "causal" for name in kinds] + [False])[kind]
        for row in np.flatnonzero(causal & (clock >= 0) & (status >= 0)).tolist():
            name = clocks[clock[row]]
            trusted = states[status[row]] in ("synced", "holdover")
            if name in self._err or len(self._err) < _MOST_CLOCKS:
                self._err[name] = (float(err[row]) if trusted else UNKNOWN_NS, at_ns)

    def err_ns(self, nic: str, now_ns: int) -> float:
        """Error bar of the clock of a NIC: its own, or its host's."""
        for name in (nic, host_of(nic)):
            found = self._err.get(name)
            if found is not None and now_ns - found[1] <= _CLOCK_FRESH_NS:
                return found[0]
        return UNKNOWN_NS

    def forget(self, before_ns: int) -> None:
        """Drop clocks that were not heard of since."""
        self._err = {name: row for name, row in self._err.items() if row[1] >= before_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[name, *row] for name, row in self._err.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._err = {name: (err, at_ns) for name, err, at_ns in state}


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
