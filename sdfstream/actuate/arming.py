"""Failovers, armed beforehand: for every queue pair that can be steered a leased command with what to watch and where
to go, so that its agent can move it within its own process when its own probes find the path dead.

The life of one armed queue pair, as seen from here (what the agent does meanwhile is in `agent.commands`):

============ ============================================== ==============================================
where        what happens                                   what follows
============ ============================================== ==============================================
no command   guard and map have no doubt, path seen clean   armed: command published
no command   some doubt                                     refused outcome; looked at again later
armed        a third of the lease is over, or new traces    the same command anew, with fresh maps
             change the picture (at most once a second)
armed        some doubt                                     not renewed; the lease lapses, nothing was moved
armed        outcome applied                                moved: the path it left stays in ``expected`` and
                                                            ``undo``, the present one leads the alternates
moved        a third of the lease is over                   the same command anew; where a route is not
                                                            known any more, its last known watch goes on
moved        outcome undone: it went back                   no command: armed afresh
any          outcome failed, refused                        banned for a while, then armed afresh
any          it is on another path than the command says    let go; armed afresh from where it is
any          its job ended                                  let go
============ ============================================== ==============================================

Of a kernel flow the receiving host must translate source ports back: a *peer* command there comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.actuate.alternates import FailoverPlan, failover_set, watch_of
from sdfstream.actuate.config import ns
from sdfstream.actuate.context import Context
from sdfstream.actuate.guard import Proposal, check
from sdfstream.actuate.jobs import OwnedQp
from sdfstream.actuate.ledger import DRY_RUN, PEER, IssuedCommand
from sdfstream.actuate.paths import MappedPath, draw
from sdfstream.actuate.refusals import Doubt
from sdfstream.records.command import Outcome
from sdfstream.records.fabric import host_of
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_MOST_A_TICK: Final = 30
"""Queue pairs looked at per 100 ms: a job of thousands is armed within seconds, and no step takes long."""
_RETRY_NS: Final = 2 * NS_PER_S
_PEER_RETRY_NS: Final = 500 * NS_PER_MS
_REFUSED_NS: Final = 10 * NS_PER_S
"""An agent that refused is not asked again at once."""
_NEVER: Final = 1 << 62
_MOST_DOUBLINGS: Final = 6


@dataclass(slots=True)
class _Armed:
    due_ns: int
    looked_ns: int = -(1 << 60)
    command: str = ""
    peer: str = ""
    moves: list[int] = field(default_factory=list)
    """When it was moved by a failover, lately."""


class Arming:
    """Armed failovers of all queue pairs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._armed: dict[str, _Armed] = {}
        self.due_ns = _NEVER
        """Bus time before which `tick` has nothing to do."""

    def touch(self, qps: list[str], now_ns: int) -> None:
        """Something that matters to these queue pairs changed."""
        pause_ns = ns(self._context.config.rearm_s)
        for qp in qps:
            record = self._armed.get(qp)
            if record is None:
                record = self._armed[qp] = _Armed(now_ns)
            self._hasten(record, max(now_ns, record.looked_ns + pause_ns))

    def _hasten(self, record: _Armed, due_ns: int) -> None:
        record.due_ns = min(record.due_ns, due_ns)
        self.due_ns = min(self.due_ns, record.due_ns)

    def gone(self, qp: str, now_ns: int) -> None:
        """The queue pair is there no more: its leases are not renewed."""
        record = self._armed.pop(qp, None)
        for command_id in (record.command, record.peer) if record is not None else ():
            if (command := self._context.ledger.get(command_id)) is not None:
                self._context.ledger.end(command, now_ns)
        self._context.loads.reserve(qp, ())

    def outcome(self, command: IssuedCommand, outcome: Outcome, now_ns: int) -> None:
        """Take an agent's outcome of a failover command."""
        record = self._armed.get(command.qp)
        if record is None or command.id not in (record.command, record.peer):
            return
        if outcome.state == "applied" and command.id == record.command:
            record.moves.append(now_ns)
        if outcome.state in ("failed", "refused"):
            pause_ns = ns(self._context.config.path_ban_s) if outcome.state == "failed" else _REFUSED_NS
            self._context.facts.ban(command.qp, now_ns + pause_ns)
        if outcome.state not in ("accepted", "held"):
            self._hasten(record, now_ns)

    def tick(self, now_ns: int) -> list[Output]:
        """Arm or renew the queue pairs whose time has come, the longest waiting first."""
        due = [(record.due_ns, qp) for qp, record in self._armed.items() if record.due_ns <= now_ns]
        out: list[Output] = []
        for _, qp in sorted(due)[:_MOST_A_TICK]:
            owned = self._context.jobs.get(qp)
            if owned is None:
                self.gone(qp, now_ns)
            else:
                out += self._arm_or_renew(owned, self._armed[qp], now_ns)
        self._look_ahead()
        return out

    def _look_ahead(self) -> None:
        self.due_ns = min((record.due_ns for record in self._armed.values()), default=_NEVER)

    def _arm_or_renew(self, owned: OwnedQp, record: _Armed, now_ns: int) -> list[Output]:
        context = self._context
        record.looked_ns = now_ns
        record.moves = [at for at in record.moves if now_ns - at < ns(context.config.breaker_window_s)]
        if owned.pair.steering == "none":
            record.due_ns = _NEVER
            return []
        out = self._peer(owned, record, now_ns)
        if not context.config.failover:
            record.due_ns = now_ns + _RETRY_NS
            return out
        command = self._current(owned, record, now_ns)
        moved = command is not None and command.state in ("applied", "held")
        renewal = command is not None and command.in_force
        proposal = Proposal("failover", owned, renewal=renewal, moved=moved)
        doubt = check(proposal, context.facts, now_ns)
        if doubt is None and not context.ledger.is_received(owned.pair, context.facts.mode):
            doubt = Doubt("peer", f"{host_of(owned.pair.dst)} does not translate its source ports back yet")
        if doubt is not None:
            record.due_ns = now_ns + (_PEER_RETRY_NS if doubt.rule == "peer" else _RETRY_NS)
            return out + context.commands.refuse(proposal, doubt, now_ns)
        if command is not None and moved:
            return out + self._renew_moved(owned, record, command, now_ns)
        plan = self._plan(owned, now_ns, renewal=renewal)
        if isinstance(plan, Doubt):
            record.due_ns = now_ns + _RETRY_NS
            return out + context.commands.refuse(proposal, plan, now_ns)
        return out + self._arm(owned, record, command, plan, now_ns)

    def _plan(self, owned: OwnedQp, now_ns: int, *, renewal: bool) -> FailoverPlan | Doubt:
        """What is to be armed; a path is armed for the first time only while probes show it alive."""
        context = self._context
        plan = context.alternates.plan(owned, now_ns)
        if isinstance(plan, Doubt) or renewal:
            return plan
        segment = context.mapper.unclean_segment(owned.pair.src, plan.present)
        if not segment:
            return plan
        name = context.topology.direction(segment)
        return Doubt("not-clean", f"no probe shows {name} on its present path to be alive")

    def _current(self, owned: OwnedQp, record: _Armed, now_ns: int) -> IssuedCommand | None:
        """Its command as far as it may go on; ended when the mode or the queue pair's path has changed under it."""
        command = self._context.ledger.get(record.command)
        if command is None or not self._context.commands.goes_on(command, now_ns):
            return None
        if command.state not in ("applied", "held") and command.expected.get("path") != owned.pair.path:
            self._context.ledger.end(command, now_ns)
            return None
        if command.state == "approved" and self._context.commands.release(command, Proposal("failover", owned), now_ns):
            return None
        return command

    def _arm(
        self, owned: OwnedQp, record: _Armed, command: IssuedCommand | None, plan: FailoverPlan, now_ns: int
    ) -> list[Output]:
        context = self._context
        wanted = failover_set(
            plan.present.watch, [(m.path, m.watch) for m in plan.alternates], context.config, self._hold_down_ms(record)
        )
        record.due_ns = now_ns + self._renew_ns(owned)
        if command is None:
            back = {"path": owned.pair.path}
            command, out = context.commands.open(Proposal("failover", owned), back, wanted, back, now_ns)
            record.command = "" if command is None else command.id
            return out
        if command.state == "waiting" or (command.state == DRY_RUN and _ports(command.set) == _ports(wanted)):
            return []
        command.set = wanted
        return [context.commands.publish(command, now_ns)]

    def _renew_moved(self, owned: OwnedQp, record: _Armed, command: IssuedCommand, now_ns: int) -> list[Output]:
        """Renew the lease of a queue pair that was moved, with what is known now of the path it left and of others."""
        context = self._context
        former = int(command.expected["path"])
        left = context.mapper.path(owned, former, now_ns)
        watch = left.watch if isinstance(left, MappedPath) else command.set["watch"]
        present = context.mapper.path(owned, owned.pair.path, now_ns)
        known = present.watch if isinstance(present, MappedPath) else watch_of(command.set, owned.pair.path)
        alternates = [] if known is None or owned.pair.path == former else [(owned.pair.path, known)]
        if isinstance(present, MappedPath):
            others = context.alternates.others(owned, present, but=former, now_ns=now_ns)
            alternates += [(m.path, m.watch) for m in others]
        command.set = failover_set(watch, alternates, context.config, self._hold_down_ms(record))
        record.due_ns = now_ns + self._renew_ns(owned)
        return [context.commands.publish(command, now_ns)]

    def _renew_ns(self, owned: OwnedQp) -> int:
        """Until the next renewal: by lot a little less than a third of the lease, so that not all come due at once."""
        renew_ns = self._context.config.renew_ns
        return renew_ns - draw(self._context.config.seed, "renewal", owned.pair.qp) % (renew_ns // 4)

    def _hold_down_ms(self, record: _Armed) -> int:
        """The longer, the more often the queue pair was moved lately: a flapping path is not followed."""
        doublings = min(max(0, len(record.moves) - 1), _MOST_DOUBLINGS)
        return int(self._context.config.hold_down_ms << doublings)

    # --- the receiving end of kernel flows ------------------------------------------------------------------------

    def _peer(self, owned: OwnedQp, record: _Armed, now_ns: int) -> list[Output]:
        """Have the receiving host translate the flow's source ports back, and keep it at that."""
        context, pair = self._context, owned.pair
        ports = sorted({port for port in (*pair.alternates, owned.own) if port != owned.own})
        if pair.steering != "kernel" or context.facts.mode != "enforce" or not ports:
            return []
        peer = context.ledger.get(record.peer)
        if peer is not None and context.commands.goes_on(peer, now_ns):
            if now_ns < peer.issued_at_ns + context.config.renew_ns:
                return []
            peer.set = {"part": PEER, "paths": ports}
            return [context.commands.publish(peer, now_ns)]
        if context.facts.is_banned(pair.qp, now_ns) or context.facts.breaker.open_since_ns is not None:
            return []
        target = {"type": "qp", "id": pair.qp, "host": host_of(pair.dst), "job": owned.job}
        own = {"path": owned.own}
        peer = context.ledger.open("failover", target, own, {"part": PEER, "paths": ports}, own, (), "enforce")
        record.peer = peer.id
        return [context.commands.publish(peer, now_ns)]

    # --- state ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[qp, _as_row(record)] for qp, record in self._armed.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._armed = {
            qp: _Armed(row["due_ns"], row["looked_ns"], row["lease"], row["peer"], row["moves"]) for qp, row in state
        }
        self._look_ahead()


def _as_row(record: _Armed) -> dict[str, Any]:
    return {
        "due_ns": record.due_ns,
        "looked_ns": record.looked_ns,
        "lease": record.command,
        "peer": record.peer,
        "moves": list(record.moves),
    }


def _ports(set_: Mapping[str, Any]) -> list[int]:
    return [int(alternate["path"]) for alternate in set_.get("alternates", ())]
