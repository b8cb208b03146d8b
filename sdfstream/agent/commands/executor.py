"""Obeys commands on an agent's hosts: the rules of when something is done, held or taken back. No I/O.

Takes messages, the job map, readings of liveness and answers of actuators; hands out requests to actuators and outcomes
(`drain`). Every entry takes the steady time; what a lease does next is in `lease.TABLE`, this file only finds out what
happened. Rules that hold whatever is commanded:

- a queue pair is only put on a path, or back on one, that the agent's own probes find clean;
- one request about a path at a time, and one move per dwell, unless it leaves a dead path;
- a command of an epoch that is over starts nothing any more; it can only end;
- a lease is over when bus time (its lower bound) says so, or when it has lasted as long as it was given since it was
  received, whichever is first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sdfstream.agent.commands.actuator import ActuatorAnswer, ActuatorRequest
from sdfstream.agent.commands.admission import Admission, Admitted, Refusal, Terms, refused, terms
from sdfstream.agent.commands.host_state import HostState, Moment, conditions, misfit, unclean, why
from sdfstream.agent.commands.lease import ON_NEW_PATH, RETRY_NS, TABLE, Do, Lease, LeaseEvent, LeaseState
from sdfstream.agent.commands.orders import GivenOrder, Order, orders
from sdfstream.agent.commands.path_watch import ProbeStates, WatchedRoutes
from sdfstream.agent.commands.watched_routes import watched_routes
from sdfstream.errors import FormatError
from sdfstream.records.command import Command, Outcome
from sdfstream.records.job import JobShard
from sdfstream.records.message import Message
from sdfstream.records.signature import KeyRing
from sdfstream.records.units import NS_PER_MS
from sdfstream.runtime.raised import is_of_message
from sdfstream.stats import Counters

LOOK_NS: Final = 25 * NS_PER_MS
"""Leases are looked at this often when no verdict changes: how late a lapse or failback may be."""


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """Bounds of what commands may do."""

    dwell_ms: int = 1_000
    """Between two moves of a queue pair; a failover off a dead path need not wait."""
    most_leases: int = 4_096
    """Commands in force at a time on one host."""


class Executor:
    """Obeys commands on all hosts of one agent process.

    Parameters
    ----------
    hosts : collection of str
    keys : KeyRing
    config : ExecutorConfig
    """

    def __init__(self, hosts: Collection[str], keys: KeyRing, config: ExecutorConfig | None = None) -> None:
        self.admission = Admission(frozenset(hosts), keys)
        self.counters: Counters = self.admission.counters
        self.realtime_offset_ns = 0
        """Agent's clock − steady clock, for the times in outcomes. The shell sets it."""
        self.dirty = False
        """Something that belongs in the journal has changed; its writer resets it."""
        self._config = config or ExecutorConfig()
        self._dwell_ns = self._config.dwell_ms * NS_PER_MS
        self.host_states = {name: HostState(name) for name in hosts}
        """State of each host; `journal` stores it."""
        self._requests: list[ActuatorRequest] = []
        self._outcomes: list[Outcome] = []
        self._in_flight: dict[int, tuple[str, str]] = {}
        """Request number to (host, command id)."""
        self._next_request = 1

    # --- what comes in ---------------------------------------------------------------------------------------------

    def attach(self, host: str, slots: ProbeStates) -> None:
        """The liveness of one host; before that its paths are unknown."""
        self.host_states[host].slots = slots

    def watched(self, host: str) -> WatchedRoutes | None:
        """The routes that the leases of this host watch; None: they are those of the last call."""
        return watched_routes(self.host_states[host])

    def orders(self, host: str, now_ns: int) -> list[Order] | None:
        """What may be ordered on `host` without asking again; None: that of the last call."""
        return orders(self.host_states[host], self._moment(now_ns))

    def ordered(self, host: str, given: GivenOrder, now_ns: int) -> int | None:
        """Take note of an order that was given; the number that its answer is to have. None: nobody waits for it."""
        host_state = self.host_states[host]
        lease = host_state.leases.get(given.command)
        known = None if lease is None else host_state.known(lease)
        if lease is None or known is None or lease.request is not None or (lease.state, LeaseEvent.FIRE) not in TABLE:
            self.counters.add("unmatched", "order")
            return None
        self._transition(host_state, lease, LeaseEvent.FIRE, now_ns)
        request = self._requests.pop()  # it has been made
        lease.requested_path, known.pending_request = given.path, request.id
        return request.id

    def take_jobs(self, host: str, shards: Iterable[JobShard], now_ns: int) -> None:
        """The job map of one host, whole."""
        self.host_states[host].inventory.take(shards, now_ns)
        self.host_states[host].routes_changed = self.host_states[host].orders_changed = True
        self._look(self.host_states[host], now_ns)

    def take_commands(self, messages: Sequence[Message], now_ns: int) -> None:
        """Commands from the bus; one at which this code raises is left and counted: probing must go on."""
        for message in messages:
            try:
                self._take_command(message, now_ns)
            except Exception as error:
                if not is_of_message(error):
                    raise
                self.counters.add("set-aside", type(error).__name__)

    def _take_command(self, message: Message, now_ns: int) -> None:
        read = self.admission.read(message, now_ns)
        if isinstance(read, Admitted):
            self.dirty = True
            read = self._accept(read, now_ns) or read
        if isinstance(read, Refusal):
            self._refuse(read, message, now_ns)

    def on_liveness(self, host: str, now_ns: int) -> None:
        """Assess the watches of `host` by its newest liveness, and see to its leases."""
        host_state = self.host_states[host]
        if host_state.assess(now_ns) or host_state.needs_look:
            self._look(host_state, now_ns)
        elif now_ns >= host_state.look_at_ns:
            self._look(host_state, now_ns, quick=not host_state.inventory.age(now_ns))

    def take_answers(self, answers: Iterable[ActuatorAnswer], now_ns: int) -> None:
        """Answers of actuators."""
        for answer in answers:
            host, command_id = self._in_flight.pop(answer.request, ("", ""))
            lease = self.host_states[host].leases.get(command_id) if host else None
            if lease is None or lease.request != answer.request:
                self.counters.add("unmatched", "answer")
                continue
            self._answer(self.host_states[host], lease, answer, now_ns)

    def drain(self) -> tuple[list[ActuatorRequest], list[Outcome]]:
        """Requests to make and outcomes to publish since the last call, each in order."""
        taken = self._requests, self._outcomes
        self._requests, self._outcomes = [], []
        return taken

    # --- what is in force ------------------------------------------------------------------------------------------

    def leases(self, host: str) -> list[Lease]:
        """Commands in force on `host`."""
        return list(self.host_states[host].leases.values())

    # --- accepting -------------------------------------------------------------------------------------------------

    def _accept(self, admitted: Admitted, now_ns: int) -> Refusal | None:
        command = admitted.command
        host_state = self.host_states[str(command.target["host"])]
        if command.action in ("undo", "failback"):
            return self._undo(host_state, command, now_ns)
        if command.action == "slice":
            return Refusal("unexpected-state", "this agent does not do slices")
        try:
            wanted = terms(command)
        except FormatError as error:
            return Refusal("malformed", error.detail)
        running = host_state.leases.get(command.id)
        if running is not None and running.state is not LeaseState.FAILED:
            return self._renew(host_state, running, admitted, wanted, now_ns)
        if len(host_state.leases) >= self._config.most_leases:
            return Refusal("unexpected-state", "too many commands are in force")
        known = host_state.inventory.get(wanted.qp, sends=wanted.kind != "peer")
        refusal = misfit(host_state, known, command, wanted, now_ns - self._dwell_ns)
        if refusal is not None or known is None:
            return refusal
        deadline_ns = now_ns + command.expires_at_ns - command.issued_at_ns
        lease = Lease(command, admitted.data, wanted, host_state.name, deadline_ns, known.qp.src)
        host_state.watch(lease)
        if wanted.kind == "move":
            host_state.assess(now_ns)
            refusal = unclean(host_state, lease, wanted.paths[0])
            if refusal is not None:
                host_state.unwatch(lease)
                return refusal
        host_state.leases[command.id] = lease
        begin = {"arm": LeaseEvent.ARM, "move": LeaseEvent.MOVE, "limit": LeaseEvent.LIMIT, "peer": LeaseEvent.LIMIT}[
            wanted.kind
        ]
        self._transition(host_state, lease, begin, now_ns)
        self._advance(host_state, lease, now_ns)
        return None

    def _renew(
        self, host_state: HostState, lease: Lease, admitted: Admitted, wanted: Terms, now_ns: int
    ) -> Refusal | None:
        command = admitted.command
        if (lease.state, LeaseEvent.RENEW) not in TABLE or lease.undo:
            return Refusal("unexpected-state", f"it is {lease.state}")
        before = lease.terms
        if (wanted.kind, wanted.qp) != (before.kind, before.qp):
            return Refusal("unexpected-state", "a renewal cannot change what a command does to what")
        known = host_state.inventory.get(wanted.qp, sends=wanted.kind != "peer")
        if known is None:
            return Refusal("unknown-target", f"the queue pair {wanted.qp} is gone")
        if lease.state in (LeaseState.ARMED, LeaseState.STRANDED):
            refusal = misfit(host_state, known, command, wanted, now_ns - self._dwell_ns)
            if refusal is not None:
                return refusal
        elif wanted.former != before.former or (wanted.kind == "move" and wanted.paths != before.paths):
            return Refusal("unexpected-state", "a renewal cannot change what was done")
        host_state.unwatch(lease, wanted.watches)
        lease.command, lease.data, lease.terms = command, admitted.data, wanted
        lease.deadline_ns = now_ns + command.expires_at_ns - command.issued_at_ns
        host_state.watch(lease)
        self._transition(host_state, lease, LeaseEvent.RENEW, now_ns)
        self._advance(host_state, lease, now_ns)
        return None

    def _undo(self, host_state: HostState, command: Command, now_ns: int) -> Refusal | None:
        named = command.set.get("command")
        lease = host_state.leases.get(named) if isinstance(named, str) else None
        if lease is None or lease.state is LeaseState.FAILED:
            return Refusal("unknown-target", f"no command {named!r} is in force on this host")
        if command.action == "undo":
            self.admission.revoke(lease.command.id)
        elif lease.state not in ON_NEW_PATH:
            return Refusal("unexpected-state", f"command {named} has moved nothing: it is {lease.state}")
        lease.undo = True
        self._report(lease.host, command, "accepted", f"ends command {named}", now_ns)
        self._advance(host_state, lease, now_ns)
        return None

    # --- what happens to leases ------------------------------------------------------------------------------------

    def _look(self, host_state: HostState, now_ns: int, *, quick: bool = False) -> None:
        """See to every lease of a host, the newest first, so that the freshest knowledge moves a queue pair.

        Where no verdict and no queue pair changed, a quick look passes over those that are armed, not over, and have
        nothing to try again.
        """
        host_state.look_at_ns, host_state.needs_look = now_ns + LOOK_NS, False
        if host_state.first_look_ns is None:
            host_state.first_look_ns = now_ns
        at = self._moment(now_ns)
        leases = [x for x in host_state.leases.values() if not (quick and _is_idle(x, at))]
        host_state.orders_changed |= bool(leases)
        for lease in sorted(leases, key=lambda x: -x.command.issued_at_ns):
            self._advance(host_state, lease, now_ns)
            if lease.state is LeaseState.FAILED and now_ns >= lease.deadline_ns + _FAILED_NS:
                self._end(host_state, lease)

    def _advance(self, host_state: HostState, lease: Lease, now_ns: int) -> None:
        """Raise the events that hold for this lease now, until nothing more follows."""
        for _ in range(len(LeaseState)):
            event = self._next_event(host_state, lease, now_ns)
            if event is None or not self._transition(host_state, lease, event, now_ns):
                return

    def _next_event(self, host_state: HostState, lease: Lease, now_ns: int) -> LeaseEvent | None:
        """The first event that holds now and means something in the lease's state."""
        at = self._moment(now_ns)
        return next((e for e in conditions(host_state, lease, at) if (lease.state, e) in TABLE), None)

    def _moment(self, now_ns: int) -> Moment:
        return Moment(now_ns, self.admission.bus.now(now_ns), self.admission.epoch, self._dwell_ns)

    # --- transitions -----------------------------------------------------------------------------------------------

    def _transition(self, host_state: HostState, lease: Lease, event: LeaseEvent, now_ns: int) -> bool:
        """Take `event` through the table; whether it meant anything."""
        step = TABLE.get((lease.state, event))
        if step is None:
            return False
        came_from = lease.state
        lease.state, todo = step
        host_state.orders_changed = True
        self.dirty = True
        if event is LeaseEvent.FOUND and (known := host_state.known(lease)) is not None:
            lease.path = lease.requested_path = known.path
        for do in todo:
            if do in _REQUESTS:
                self._request(host_state, lease, do, now_ns)
            else:
                self._report_lease(host_state, lease, do.value, event, came_from, now_ns)
        if lease.state in (LeaseState.UNDONE, LeaseState.EXPIRED):
            self._end(host_state, lease)
        return True

    def _end(self, host_state: HostState, lease: Lease) -> None:
        host_state.unwatch(lease)
        host_state.leases.pop(lease.command.id, None)

    def _chooses(self, lease: Lease, now_ns: int) -> bool:
        """The command lets the agent choose between paths, and is in force: going back is one of its choices."""
        at = self._moment(now_ns)
        return lease.terms.kind == "arm" and not lease.undo and not at.over(lease) and lease.command.epoch >= at.epoch

    def _request(self, host_state: HostState, lease: Lease, do: Do, now_ns: int) -> None:
        wanted = lease.terms
        known = host_state.known(lease)
        assert known is not None  # conditions are raised only while it is there
        left_ns = min(lease.deadline_ns - now_ns, lease.command.expires_at_ns - self.admission.bus.now(now_ns))
        lease.ttl_ns = max(left_ns, NS_PER_MS)
        how = "undo" if do is Do.REQUEST_LIFT or (do is Do.REQUEST_BACK and not self._chooses(lease, now_ns)) else "set"
        path = None
        if do is Do.REQUEST_MOVE:
            path = wanted.paths[0] if wanted.kind == "move" else host_state.alternate(lease, known)
            lease.requested_path = path
        elif do is Do.REQUEST_BACK:
            path = wanted.former
        elif do is Do.REQUEST_LIMIT:
            lease.requested_rate_bps, lease.resumed = wanted.rate_bps, False
        lease.retry_ns = now_ns + lease.pause_ns
        request = ActuatorRequest(
            id=self._next_request,
            do=how,
            qp=known.qp,
            control=known.control,
            command=lease.data,
            path=path,
            choice=wanted.kind == "arm" and how == "set",
            rate_bps=wanted.rate_bps if do is Do.REQUEST_LIMIT else None,
            ttl_ms=lease.ttl_ns // NS_PER_MS,
            peer=wanted.kind == "peer",
            paths=wanted.paths if wanted.kind == "peer" else (),
        )
        self._next_request += 1
        lease.request = request.id
        if path is not None:
            known.pending_request = request.id
        self._in_flight[request.id] = host_state.name, lease.command.id
        self._requests.append(request)

    def _answer(self, host_state: HostState, lease: Lease, answer: ActuatorAnswer, now_ns: int) -> None:
        lease.request, lease.answer = None, answer
        host_state.orders_changed = True
        known = host_state.known(lease)
        if known is not None and known.pending_request == answer.request:
            known.pending_request = None
        event = LeaseEvent.DONE
        if answer.ok:
            lease.pause_ns, lease.retry_ns = RETRY_NS[0], 0
            host_state.note_done(lease, now_ns)
        else:
            unsure = not answer.sure and (lease.state, LeaseEvent.UNSURE) in TABLE
            event = LeaseEvent.UNSURE if unsure else LeaseEvent.NOT_DONE
            lease.retry_ns = now_ns + lease.pause_ns
            lease.pause_ns = min(2 * lease.pause_ns, RETRY_NS[1])
            self.counters.add("not-done", "refused" if answer.sure else "no-answer")
        if lease.terms.kind == "limit" and lease.state in (LeaseState.LIMITING, LeaseState.RENEWING):
            lease.limit_until_ns = max(lease.limit_until_ns, now_ns + lease.ttl_ns)
        self._transition(host_state, lease, event, now_ns)
        self._advance(host_state, lease, now_ns)
        host_state.needs_look = True  # others may have waited for this one

    # --- reporting ----------------------------------------------------------------------------------------------------

    def _report_lease(
        self, host_state: HostState, lease: Lease, state: str, event: LeaseEvent, came_from: LeaseState, now_ns: int
    ) -> None:
        answer = lease.answer if event in (LeaseEvent.DONE, LeaseEvent.NOT_DONE, LeaseEvent.UNSURE) else None
        self._report(lease.host, lease.command, state, why(host_state, lease, event, came_from), now_ns, answer)

    def _report(
        self, host: str, command: Command, state: str, reason: str, now_ns: int, answer: ActuatorAnswer | None = None
    ) -> None:
        at_ns = now_ns + self.realtime_offset_ns
        self.counters.add(state, command.action)
        self._outcomes.append(
            Outcome(
                command=command.id,
                state=state,
                why=reason,
                host=host,
                at_ns=at_ns,
                action=command.action,
                target=dict(command.target),
                applied_at_ns=at_ns if state in ("applied", "undone") else None,
                before=dict(answer.before) if answer else {},
                after=dict(answer.after) if answer else {},
            )
        )

    def _refuse(self, refusal: Refusal, message: Message, now_ns: int) -> None:
        self.counters.add("refused", refusal.reason)
        outcome = refused(message, refusal, now_ns + self.realtime_offset_ns)
        self._outcomes += [outcome] if outcome is not None else []


def _is_idle(lease: Lease, at: Moment) -> bool:
    return lease.state is LeaseState.ARMED and lease.retry_ns == 0 and not at.over(lease)


_REQUESTS: Final = frozenset({Do.REQUEST_MOVE, Do.REQUEST_BACK, Do.REQUEST_LIMIT, Do.REQUEST_LIFT})
_FAILED_NS: Final = 10_000 * NS_PER_MS
"""How long after its lease a move that failed is still looked for."""
