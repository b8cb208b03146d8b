"""The state of one host, and what follows from it for a command. `executor` changes the state.

The state is a host's queue pairs (`inventory`), leases and watches (`HostState`).

Three answers follow from the state alone: `misfit` and `unclean` (why a new command is refused), `conditions` (the
events that `lease.TABLE` is consulted for, the more important first), `why` (a sentence for an outcome).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.agent.commands.admission import Refusal, Terms
from sdfstream.agent.commands.inventory import GONE_NS, QpInventory, QpState
from sdfstream.agent.commands.lease import ON_NEW_PATH, Lease, LeaseEvent, LeaseState
from sdfstream.agent.commands.path_watch import (
    CLEAN,
    DEAD,
    VERDICTS,
    PathWatches,
    ProbeStates,
    WatchKey,
)
from sdfstream.records.command import Command
from sdfstream.records.units import NS_PER_MS

ORDER_NS: Final = 20 * NS_PER_MS
"""After which a move that should have been ordered is requested here."""


@dataclass(slots=True)
class HostState:
    """One host."""

    name: str
    slots: ProbeStates | None = None
    watches: PathWatches = field(default_factory=PathWatches)
    inventory: QpInventory = field(default_factory=QpInventory)
    leases: dict[str, Lease] = field(default_factory=dict)
    look_at_ns: int = 0
    """Leases are looked at again at this time, whatever happens."""
    needs_look: bool = False
    """Something happened that may matter to any lease."""
    first_look_ns: int | None = None
    """First look at this host."""
    routes_changed: bool = True
    """What is watched, or which of it is in use, may have changed since `watched_routes` was last called."""
    orders_changed: bool = True
    """What may be ordered may have changed since `orders` was last called."""
    handed_over: Collection[str] = ()
    """Commands whose move is ordered without asking the executor, as soon as their path is dead."""

    def known(self, lease: Lease) -> QpState | None:
        """The queue pair of a lease; None: it is not there (yet)."""
        return self.inventory.get(lease.terms.qp, sends=lease.terms.kind != "peer")

    def verdict(self, lease: Lease, path: int | None) -> int:
        """Of the watch of one of the lease's paths."""
        return self.watches.verdict(_watch_key(lease, path))

    def alternate(self, lease: Lease, known: QpState) -> int | None:
        """The first path of the lease that is clean and not in use."""
        for path in lease.terms.paths:
            if path != known.path and self.verdict(lease, path) == CLEAN:
                return path
        return None

    def awaits_order(self, lease: Lease, now_ns: int) -> bool:
        """Whether its move is ordered in this instant by what found its path dead: the word of it is on its way."""
        since_ns = self.watches.dead_since_ns(_watch_key(lease, lease.terms.former))
        if lease.command.id not in self.handed_over or since_ns is None or now_ns - since_ns >= ORDER_NS:
            return False
        self.needs_look = True
        return True

    def healed(self, lease: Lease, now_ns: int) -> bool:
        """The former path has been clean throughout the hold-down."""
        since_ns = self.watches.clean_since_ns(_watch_key(lease, lease.terms.former))
        return since_ns is not None and now_ns - since_ns >= lease.terms.hold_down_ns

    def watch(self, lease: Lease) -> None:
        """Watch the lease's paths by its newest statement, from the next assessment on."""
        self.routes_changed = True
        for path, segments in (lease.terms.watches or {}).items():
            self.watches.put(_watch_key(lease, path), lease.src, segments, lease.command.issued_at_ns)
        if lease.terms.watches:
            self.needs_look = True  # newer lists may matter to other leases, too

    def assess(self, now_ns: int) -> bool:
        """Assess the watches by the present liveness; whether any verdict may have changed."""
        return self.slots is not None and self.watches.assess(self.slots, now_ns)

    def note_done(self, lease: Lease, now_ns: int) -> None:
        """The lease's last request was done: its queue pair is on another path, or under another limit."""
        known = self.known(lease)
        if known is None:
            return
        known.changed_ns = now_ns
        self.routes_changed = True
        if lease.state in (LeaseState.MOVING, LeaseState.MOVING_ON):
            lease.path = lease.requested_path
        if lease.state in (LeaseState.MOVING, LeaseState.MOVING_ON, LeaseState.RETURNING):
            path = lease.terms.former if lease.state is LeaseState.RETURNING else lease.requested_path
            assert path is not None
            known.path, known.moved_ns = path, now_ns
            if known.qp.steering == "kernel":
                self.inventory.kernel_paths[known.qp.qp] = path
        elif lease.terms.kind == "limit":
            known.rate_bps = None if lease.state is LeaseState.LIFTING else lease.requested_rate_bps

    def unwatch(self, lease: Lease, keep: Mapping[int, Any] | None = None) -> None:
        """Watch its paths no longer, but those in `keep`."""
        self.routes_changed = True
        for path in lease.terms.watches or {}:
            if path not in (keep or {}):
                self.watches.drop(_watch_key(lease, path))


def _watch_key(lease: Lease, path: int | None) -> WatchKey:
    """Of the watch of one of the lease's paths."""
    return WatchKey(lease.command.id, path or 0)


@dataclass(frozen=True, slots=True)
class Moment:
    """When and under which rules conditions are looked at."""

    now_ns: int
    """Steady clock."""
    bus_ns: int
    """Bus time is at least this."""
    epoch: int
    """The highest seen: a command of an epoch that is over starts nothing."""
    dwell_ns: int
    """Between two moves of a queue pair."""

    def dwells(self, known: QpState) -> bool:
        """It was moved too short a time ago to be moved without need."""
        return known.moved_ns is not None and self.now_ns - known.moved_ns < self.dwell_ns

    def over(self, lease: Lease) -> bool:
        """The lease is over by one of the two clocks."""
        return self.now_ns >= lease.deadline_ns or self.bus_ns >= lease.command.expires_at_ns


def conditions(host_state: HostState, lease: Lease, at: Moment) -> list[LeaseEvent]:
    """What is true of a lease; nothing is said of one that waits for an answer."""
    if lease.request is not None:
        return []
    known = host_state.known(lease)
    if known is None:
        first_look_ns = at.now_ns if host_state.first_look_ns is None else host_state.first_look_ns
        return [LeaseEvent.GONE] if at.now_ns - first_look_ns >= GONE_NS else []
    ends = [LeaseEvent.UNDO] * lease.undo + [LeaseEvent.LAPSE] * at.over(lease)
    if lease.terms.kind in ("limit", "peer"):
        return [*ends, *_of_limit(lease, at)]
    if lease.state in ON_NEW_PATH:
        return _of_moved(host_state, lease, known, ends, at)
    return [*_of_found(host_state, lease, known), *ends, *_of_armed(host_state, lease, known, ends, at)]


def _of_limit(lease: Lease, at: Moment) -> list[LeaseEvent]:
    if lease.state is LeaseState.LIFTING:
        spent = lease.terms.kind == "limit" and at.now_ns >= lease.limit_until_ns
        return [LeaseEvent.SPENT] * spent + [LeaseEvent.RETRY] * (at.now_ns >= lease.retry_ns)
    if lease.state is LeaseState.LIMITED and lease.terms.kind == "peer" and lease.resumed:
        return [LeaseEvent.RENEW]  # the actuator of the restarted agent does not know the flow yet
    if lease.state is LeaseState.LIMITED and lease.requested_rate_bps != lease.terms.rate_bps:
        return [LeaseEvent.RENEW]  # a renewal that changed the rate came while the last one was in flight
    return []


def _of_found(host_state: HostState, lease: Lease, known: QpState) -> list[LeaseEvent]:
    """Was it moved by this agent unnoticed: no answer came, or an earlier run of the agent died with the answer?"""
    ours = (lease.requested_path,) if lease.requested_path is not None else lease.terms.paths if lease.resumed else ()
    if known.pending_request is not None or known.path not in ours:
        return []
    others = (x for x in host_state.leases.values() if x is not lease and x.terms.qp == lease.terms.qp)
    if any(x.path == known.path and x.state in ON_NEW_PATH for x in others):
        return []
    return [LeaseEvent.FOUND]


def _of_armed(
    host_state: HostState, lease: Lease, known: QpState, ends: Sequence[LeaseEvent], at: Moment
) -> list[LeaseEvent]:
    if lease.terms.kind != "arm" or ends:
        return []
    if lease.state is LeaseState.FAILED:
        return [LeaseEvent.ARM]
    if known.path != lease.terms.former or lease.command.epoch < at.epoch:
        return []
    if host_state.verdict(lease, known.path) != DEAD:
        return [LeaseEvent.REVIVED]
    if known.pending_request is not None or at.now_ns < lease.retry_ns:
        return []
    if host_state.alternate(lease, known) is None:
        return [LeaseEvent.NO_ALTERNATE]
    return [] if host_state.awaits_order(lease, at.now_ns) else [LeaseEvent.FIRE]


def _of_moved(
    host_state: HostState, lease: Lease, known: QpState, ends: Sequence[LeaseEvent], at: Moment
) -> list[LeaseEvent]:
    if known.pending_request is not None:
        return []
    if known.path == lease.terms.former:
        return [LeaseEvent.BACK]
    if known.path == lease.requested_path:
        lease.path = known.path
    if known.path != lease.path:  # another command has moved it on; as long as that lasts, this one waits under it
        return [LeaseEvent.GONE] if ends else []
    if at.now_ns < lease.retry_ns:
        return list(ends)
    if lease.terms.kind == "arm" and not ends and _moves_on(host_state, lease, known, at):
        return [LeaseEvent.FIRE]
    if not host_state.healed(lease, at.now_ns):
        return [*ends, LeaseEvent.UNHEALED]
    goes_back = lease.terms.kind == "arm" or lease.state is not LeaseState.MOVED
    return [*ends, LeaseEvent.HEALED] if goes_back and not at.dwells(known) else list(ends)


def _moves_on(host_state: HostState, lease: Lease, known: QpState, at: Moment) -> bool:
    """Whether the path that it was moved to is dead and another one is clean, under a command of the newest epoch."""
    if lease.command.epoch < at.epoch or host_state.verdict(lease, known.path) != DEAD:
        return False
    return host_state.alternate(lease, known) is not None


def misfit(
    host_state: HostState, known: QpState | None, command: Command, wanted: Terms, settled_ns: int
) -> Refusal | None:
    """Why a command does not fit.

    Parameters
    ----------
    host_state : HostState
    known : QpState or None
        Its queue pair; None: there is none.
    command : Command
    wanted : Terms
    settled_ns : int
        A queue pair that was moved after this must not be moved at once again; steady clock.
    """
    if known is None or known.missing_ns is not None or command.target.get("job", known.job) != known.job:
        return Refusal("unknown-target", f"there is no queue pair {wanted.qp} of that job on this host")
    steering = known.qp.steering
    unfit = steering == "none" or (wanted.kind == "peer" and steering != "kernel")
    if unfit or (steering == "socket" and not known.control):
        return Refusal("unexpected-state", f"{wanted.qp} cannot be changed so (steering: {steering})")
    if wanted.former is not None and wanted.former != known.path:
        return Refusal("unexpected-state", f"{wanted.qp} is on path {known.path}, not {wanted.former}")
    if wanted.expected_rate is not None and wanted.expected_rate[0] != known.rate_bps:
        return Refusal("unexpected-state", f"the limit of {wanted.qp} is {known.rate_bps}")
    if wanted.kind == "limit":
        return _limited(host_state, wanted.qp)
    return None if wanted.kind == "peer" else _unmovable(known, wanted, settled_ns)


def _limited(host_state: HostState, qp: str) -> Refusal | None:
    limits = (x for x in host_state.leases.values() if x.terms.kind == "limit" and x.state is not LeaseState.FAILED)
    other = next((x.command.id for x in limits if x.terms.qp == qp), None)
    return None if other is None else Refusal("unexpected-state", f"{qp} is limited by command {other}")


def _unmovable(known: QpState, wanted: Terms, settled_ns: int) -> Refusal | None:
    allowed = {*known.qp.alternates, known.qp.path}
    refusal = [p for p in wanted.paths if p not in allowed]
    if refusal:
        return Refusal("unexpected-state", f"{wanted.qp} cannot be put on path {refusal[0]}")
    if wanted.kind == "arm":
        return None
    if known.pending_request is not None:
        return Refusal("unexpected-state", f"{wanted.qp} is being moved already")
    if known.moved_ns is not None and known.moved_ns > settled_ns:
        return Refusal("unexpected-state", f"{wanted.qp} was moved too short a time ago")
    return None


def unclean(host_state: HostState, lease: Lease, path: int) -> Refusal | None:
    """Why a queue pair must not be put on `path` now."""
    verdict = host_state.verdict(lease, path)
    if verdict == CLEAN:
        return None
    return Refusal("unexpected-state", f"path {path} is {VERDICTS[verdict]} by this host's own probes")


_SENTENCES: Final[dict[LeaseEvent, str]] = {
    LeaseEvent.ARM: "armed: its path is watched",
    LeaseEvent.MOVE: "will be moved now",
    LeaseEvent.LIMIT: "will be done now",
    LeaseEvent.NO_ALTERNATE: "its path is dead, and no alternate is known to be clean: left where it is",
    LeaseEvent.FOUND: "no answer came, but it is on the new path",
    LeaseEvent.LAPSE: "the lease is over; it was never needed",
    LeaseEvent.UNDO: "disarmed by command",
    LeaseEvent.BACK: "the queue pair is back on its former path",
    LeaseEvent.SPENT: "no answer came, but the limit's own time is over",
    LeaseEvent.GONE: "the queue pair is gone, or has been moved on since: nothing is left of it",
}


def why(host_state: HostState, lease: Lease, event: LeaseEvent, came_from: LeaseState) -> str:
    """Of the transition that `event` has just made in `lease`."""
    if event is LeaseEvent.UNHEALED:
        verdict = VERDICTS[host_state.verdict(lease, lease.terms.former)]
        over = "undone by command" if lease.undo else "the lease is over"
        state = "clean, but not for long enough" if verdict == "clean" else verdict
        return f"{over}, but the former path {lease.terms.former} is {state}: left on path {lease.path}"
    if event in (LeaseEvent.NOT_DONE, LeaseEvent.UNSURE):
        return lease.answer.why if lease.answer is not None else ""
    return _done(lease, came_from) if event is LeaseEvent.DONE else _SENTENCES.get(event, "")


def _done(lease: Lease, came_from: LeaseState) -> str:
    wanted = lease.terms
    if came_from is LeaseState.LIFTING:
        return "lifted, undone by command" if lease.undo else "lifted, the lease is over"
    if came_from is LeaseState.RETURNING:
        return f"back on path {wanted.former}, which has been clean for {wanted.hold_down_ns // NS_PER_MS} ms"
    if wanted.kind == "limit":
        return f"limited to {wanted.rate_bps} bit/s"
    if wanted.kind == "peer":
        return f"paths {', '.join(map(str, wanted.paths))} are translated back"
    if wanted.kind == "arm":
        return f"the path it was on is dead and path {lease.requested_path} is clean: moved"
    return f"moved to path {lease.requested_path}"
