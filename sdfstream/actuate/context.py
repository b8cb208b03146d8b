"""What the controller's engines share: knowledge of the fabric and its jobs, the guard, and the publishing of commands.

Engines (`arming`, `contention`, `effect`, `incast`, `overrides`) ask the `Context`; each piece of knowledge is in
the class that takes its messages: jobs, routes, measurements, and here open findings and clock errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.actuate.guard import Breaker, GuardFacts, Proposal, check, gone_out
from sdfstream.actuate.jobs import RunningJobs
from sdfstream.actuate.ledger import CommandLedger, Doubt, IssuedCommand, Refusals
from sdfstream.actuate.measurements import LinkQueue, QpWindows, QueueDelays
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
class OpenFinding:
    """An open finding that may move something."""

    id: str
    kind: str
    subject_type: str
    subject: str
    directions: tuple[str, ...]
    """Link directions ``a->b`` that it may be about."""
    confidence: float
    seen_ns: int
    """Bus time of its newest statement."""


class ActionableFindings:
    """Open findings of the kinds that may move something."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self._kinds = frozenset(kinds)
        self._open: dict[str, OpenFinding] = {}

    def __iter__(self) -> Any:
        return iter(self._open.values())

    def take(self, data: Mapping[str, Any], at_ns: int) -> bool:
        """Take a finding; True when the fabric changes by it (something is down, or up again)."""
        kind, status, name = str(data["kind"]), data["status"], str(data["id"])
        if kind in self._kinds:
            if status == "resolved":
                self._open.pop(name, None)
            elif name in self._open or len(self._open) < _MOST_FINDINGS:
                self._open[name] = _finding(data, at_ns)
        return kind in _UNREST and status != "update"

    def forget(self, before_ns: int) -> None:
        """Drop what was not repeated since: its resolution was lost."""
        self._open = {name: finding for name, finding in self._open.items() if finding.seen_ns >= before_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [
            [t.id, t.kind, t.subject_type, t.subject, list(t.directions), t.confidence, t.seen_ns]
            for t in self._open.values()
        ]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._open = {
            row[0]: OpenFinding(row[0], row[1], row[2], row[3], tuple(row[4]), row[5], row[6]) for row in state
        }


def _finding(data: Mapping[str, Any], at_ns: int) -> OpenFinding:
    subject = data["subject"]
    kind, name = str(subject["type"]), str(subject["id"])
    named = [word for word in str(data.get("detail") or "").split() if "->" in word]
    suspects = [str(s["id"]) for s in data.get("suspects", ()) if float(s["probability"]) >= _LIKELY]
    named = named if kind in ("link", "nic") else []
    directions = tuple(dict.fromkeys([*named, *(s for s in suspects if "->" in s)]))
    if not directions and kind == "link":
        a, dashes, b = name.partition("--")
        directions = (f"{a}->{b}", f"{b}->{a}") if dashes else (name,)
    return OpenFinding(str(data["id"]), str(data["kind"]), kind, name, directions, float(data["confidence"]), at_ns)


UNKNOWN_NS: Final = float(3600 * NS_PER_S)
"""Error bar of a clock without a row, or one that is not trusted."""
_CLOCK_FRESH_NS: Final = 3 * NS_PER_S
_MOST_CLOCKS: Final = 200_000


class ClockErrors:
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
        """Drop clocks without a row since."""
        self._err = {name: row for name, row in self._err.items() if row[1] >= before_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[name, *row] for name, row in self._err.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._err = {name: (err, at_ns) for name, err, at_ns in state}


_PACKET_BITS: Final = 1_500 * 8


@dataclass(slots=True)
class Context:
    """One of each piece of knowledge, the guard, and what the engines do together: ask, refuse, publish, undo."""

    config: ActuateConfig
    counters: Counters
    jobs: RunningJobs
    routes: Routes
    probing: Probing
    selectable: Selectable
    windows: QpWindows
    loads: Loads
    mapper: Mapper
    ledger: CommandLedger
    facts: GuardFacts
    refusals: Refusals
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
            QueueDelays(counters),
            ClockErrors(),
            ActionableFindings(config.steer_on),
        )

    @property
    def mode(self) -> str:
        """The mode in force: `config.Mode`."""
        return self.facts.mode

    def change_mode(self, mode: str) -> None:
        """An operator's mode; the breaker is closed again."""
        self.facts.mode = mode
        self.facts.breaker.reset()

    @property
    def breaker_open(self) -> bool:
        """Whether too many commands went wrong."""
        return self.facts.breaker.open_since_ns is not None

    def check(self, proposal: Proposal, now_ns: int) -> Doubt | None:
        """The first rule of the guard that speaks against `proposal`; None: it may go."""
        return check(proposal, self.facts, now_ns)

    def ban(self, qp: str, now_ns: int, path: int = 0) -> None:
        """Try nothing with the queue pair (on `path` alone, where one is given) for `config.path_ban_s`."""
        self.facts.ban(qp, now_ns + ns(self.config.path_ban_s), path)

    def declare(self, topology: Topology) -> None:
        """Take the declared cabling."""
        self.topology = self.mapper.topology = topology

    def update_load(self, qp: str, now_ns: int) -> None:
        """Work out anew which links the queue pair's data load."""
        owned = self.jobs.get(qp)
        route = None if owned is None else self.routes.flow(owned.pair.flow(), now_ns)
        self.loads.put(qp, route or ())

    def queue(self, hop: str, now_ns: int, dscp: int | None = None) -> LinkQueue:
        """The queue of a link by the probes over it; those of class `dscp` alone, where there are any."""
        return self.queue_delays.queue(self.routes.over(hop, now_ns), now_ns, dscp)

    def standing_ns(self, hop: str) -> float:
        """Excess from which a queue stands on a link: a slow one is late by some packets without being full."""
        speed = self.topology.speed_bps(hop)
        packets_ns = self.config.excess_packets * _PACKET_BITS * NS_PER_S / speed if speed else 0.0
        return max(self.config.excess_us * NS_PER_US, packets_ns)

    def refuse(self, proposal: Proposal, doubt: Doubt, now_ns: int) -> list[Output]:
        """Do not carry out the proposal; the outcome, unless it was published lately or nothing is to be published."""
        self.counters.add("refusals", doubt.rule)
        if self.mode in ("off", "observe"):
            return []
        return self.refusals.refuse(proposal.action, proposal.owned.target, doubt, proposal.reason, now_ns)

    def open(
        self,
        proposal: Proposal,
        expected: Mapping[str, Any],
        set_: Mapping[str, Any],
        undo: Mapping[str, Any],
        now_ns: int,
    ) -> tuple[IssuedCommand | None, list[Output]]:
        """Publish a command for a proposal that passed the guard, in the mode that is in force."""
        mode = self.mode
        if mode in ("off", "observe"):
            self.counters.add("observed", proposal.action)
            return None, []
        command = self.ledger.open(proposal.action, proposal.owned.target, expected, set_, undo, proposal.reason, mode)
        if mode != "approve":
            gone_out(proposal, self.facts, now_ns)
        return command, [self.publish(command, now_ns)]

    def publish(self, command: IssuedCommand, now_ns: int) -> Output:
        """A statement of a command: its first, or a renewal."""
        self.counters.add("commands", f"{command.action}-{command.mode}")
        return self.ledger.publish(command, now_ns)

    def release(self, command: IssuedCommand, proposal: Proposal, now_ns: int) -> Doubt | None:
        """A person agreed to `command`: ask the guard once more, and let it go out if nothing speaks against it."""
        doubt = self.check(proposal, now_ns)
        if doubt is None and proposal.owned.pair.path != command.expected.get("path", proposal.owned.pair.path):
            doubt = Doubt("unexpected-state", "it is on another path by now")
        if doubt is not None:
            self.ledger.end(command, now_ns)
            return doubt
        command.mode, command.state = "enforce", "sent"
        gone_out(proposal, self.facts, now_ns)
        return None

    def count_result(self, bad: bool, now_ns: int) -> list[Output]:
        """Count a command that went well or wrong; an outcome when that opens the breaker."""
        if not self.facts.breaker.note(bad, now_ns):
            return []
        self.counters.add("breaker", "opened")
        wrong = sum(mark for _, mark in self.facts.breaker.marks)
        doubt = Doubt(
            "breaker",
            f"{wrong} of {len(self.facts.breaker.marks)} commands within {self.config.breaker_window_s:g} s failed or "
            "were taken back; nothing new is done until an operator's mode override",
        )
        return [self.refusals.publish("breaker", "refused", doubt, "", {"type": "job", "id": "*"}, (), now_ns)]

    def undo(self, command: IssuedCommand, reason: tuple[str, ...], now_ns: int) -> list[Output]:
        """End a command before its lease does; it is not renewed any more."""
        enforced = command.mode == "enforce" and command.in_force
        self.ledger.end(command, now_ns)
        if not enforced:
            return []
        ending = self.ledger.open(
            "undo", command.target, {}, {"command": command.id}, dict(command.undo), reason, "enforce"
        )
        return [self.publish(ending, now_ns)]

    def goes_on(self, command: IssuedCommand, now_ns: int) -> bool:
        """Whether `command` may go on in the mode that is in force; ends it when not."""
        if command.state == "over":
            return False
        mode = self.mode
        fits = mode in ("enforce", "approve") if command.mode == "enforce" else command.mode == mode
        over = command.state == "waiting" and now_ns >= command.expires_at_ns
        if not fits or over:
            self.ledger.end(command, now_ns)
        return fits and not over
