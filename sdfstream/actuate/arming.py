"""Failovers, armed beforehand: for every queue pair that can be steered a leased command with what to watch and where
to go, so that its agent can move it within its own process when its own probes find the path dead.

The life of one armed queue pair, as seen from here (what the agent does meanwhile is `lease.py`):

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
moved        a third of the lease is over                   the same command anew; where a way is not known
                                                            any more, the watch last known is kept
moved        outcome undone: it went back                   no command: armed afresh
any          outcome failed, refused                        banned for a while, then armed afresh
any          it is on another path than the command says    let go; armed afresh from where it is
any          its job ended                                  let go
============ ============================================== ==============================================

Of a kernel flow the receiving host must translate source ports back: a *peer* command there comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sdfstream.actuate.config import ns
from sdfstream.actuate.context import Parts
from sdfstream.actuate.guard import Proposal, check
from sdfstream.actuate.jobs import Owned
from sdfstream.actuate.ledger import Doubt, Lease
from sdfstream.actuate.paths import Mapped, Plan, draw, failover_set, watch_of
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
    lease: str = ""
    peer: str = ""
    moves: list[int] = field(default_factory=list)
    """When it was moved by a failover, lately."""


class Arming:
    """Armed failovers of all queue pairs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._armed: dict[str, _Armed] = {}

    def touch(self, qps: list[str], now_ns: int) -> None:
        """Something that matters to these queue pairs changed."""
        pause_ns = ns(self._parts.config.rearm_s)
        for qp in qps:
            record = self._armed.get(qp)
            if record is None:
                record = self._armed[qp] = _Armed(now_ns)
            record.due_ns = min(record.due_ns, max(now_ns, record.looked_ns + pause_ns))

    def gone(self, qp: str, now_ns: int) -> None:
        """The queue pair is there no more: its leases are not renewed."""
        record = self._armed.pop(qp, None)
        for command in (record.lease, record.peer) if record is not None else ():
            if (lease := self._parts.ledger.get(command)) is not None:
                self._parts.ledger.end(lease, now_ns)
        self._parts.loads.reserve(qp, ())

    def lease(self, qp: str) -> Lease | None:
        """The failover command of a queue pair, as long as it is not over."""
        record = self._armed.get(qp)
        lease = None if record is None else self._parts.ledger.get(record.lease)
        return None if lease is None or lease.state == "over" else lease

    def outcome(self, lease: Lease, outcome: Outcome, now_ns: int) -> None:
        """An agent told what became of a failover of ours."""
        record = self._armed.get(lease.qp)
        if record is None or lease.id not in (record.lease, record.peer):
            return
        if outcome.state == "applied" and lease.id == record.lease:
            record.moves.append(now_ns)
        if outcome.state in ("failed", "refused"):
            pause_ns = ns(self._parts.config.path_ban_s) if outcome.state == "failed" else _REFUSED_NS
            self._parts.facts.banned[lease.qp, 0] = now_ns + pause_ns
        if outcome.state not in ("accepted", "held"):
            record.due_ns = min(record.due_ns, now_ns)

    def tick(self, now_ns: int) -> list[Output]:
        """See to the queue pairs whose time has come, the longest waiting first."""
        due = [(record.due_ns, qp) for qp, record in self._armed.items() if record.due_ns <= now_ns]
        out: list[Output] = []
        for _, qp in sorted(due)[:_MOST_A_TICK]:
            owned = self._parts.jobs.get(qp)
            if owned is None:
                self.gone(qp, now_ns)
            else:
                out += self._see_to(owned, self._armed[qp], now_ns)
        return out

    def _see_to(self, owned: Owned, record: _Armed, now_ns: int) -> list[Output]:
        parts = self._parts
        record.looked_ns = now_ns
        record.moves = [at for at in record.moves if now_ns - at < ns(parts.config.breaker_window_s)]
        if owned.pair.steering == "none":
            record.due_ns = _NEVER
            return []
        out = self._peer(owned, record, now_ns)
        if not parts.config.failover:
            record.due_ns = now_ns + _RETRY_NS
            return out
        lease = self._current(owned, record, now_ns)
        moved = lease is not None and lease.state in ("applied", "held")
        keeps = lease is not None and lease.in_force
        proposal = Proposal("failover", owned, renewal=keeps, moved=moved)
        doubt = check(proposal, parts.facts, now_ns)
        if doubt is None and not self.ready(owned):
            doubt = Doubt("peer", f"{host_of(owned.pair.dst)} does not translate its source ports back yet")
        if doubt is not None:
            record.due_ns = now_ns + (_PEER_RETRY_NS if doubt.rule == "peer" else _RETRY_NS)
            return out + parts.refuse(proposal, doubt, now_ns)
        if lease is not None and moved:
            return out + self._keep_moved(owned, record, lease, now_ns)
        plan = parts.mapper.plan(owned, now_ns)
        if isinstance(plan, Plan) and not keeps and (segment := parts.mapper.clean(owned.pair.src, plan.present)):
            plan = Doubt(
                "not-clean", f"no probe shows {parts.topology.direction(segment)} on its present path to be alive"
            )
        if isinstance(plan, Doubt):
            record.due_ns = now_ns + _RETRY_NS
            return out + parts.refuse(proposal, plan, now_ns)
        return out + self._arm(owned, record, lease, plan, now_ns)

    def _current(self, owned: Owned, record: _Armed, now_ns: int) -> Lease | None:
        """The lease as far as it may go on; let go when the mode or the queue pair's path has changed under it."""
        lease = self._parts.ledger.get(record.lease)
        if lease is None or not self._parts.wanted(lease, now_ns):
            return None
        if lease.state not in ("applied", "held") and lease.expected.get("path") != owned.pair.path:
            self._parts.ledger.end(lease, now_ns)
            return None
        if lease.state == "approved" and self._parts.approved(lease, Proposal("failover", owned), now_ns):
            return None
        return lease

    def _arm(self, owned: Owned, record: _Armed, lease: Lease | None, plan: Plan, now_ns: int) -> list[Output]:
        parts = self._parts
        wanted = failover_set(
            plan.present.watch, [(m.path, m.watch) for m in plan.alternates], parts.config, self._hold_down_ms(record)
        )
        record.due_ns = now_ns + self._renew_ns(owned)
        if lease is None:
            back = {"path": owned.pair.path}
            lease, out = parts.open(Proposal("failover", owned), back, wanted, back, now_ns)
            record.lease = "" if lease is None else lease.id
            return out
        if lease.state == "waiting" or (lease.state == "told" and _ports(lease.set) == _ports(wanted)):
            return []
        lease.set = wanted
        return [parts.say(lease, now_ns)]

    def _keep_moved(self, owned: Owned, record: _Armed, lease: Lease, now_ns: int) -> list[Output]:
        """Renew the lease of a queue pair that was moved, with what is known now of the path it left and of others."""
        parts = self._parts
        former = int(lease.expected["path"])
        left = parts.mapper.path(owned, former, now_ns)
        watch = left.watch if isinstance(left, Mapped) else lease.set["watch"]
        present = parts.mapper.path(owned, owned.pair.path, now_ns)
        known = present.watch if isinstance(present, Mapped) else watch_of(lease.set, owned.pair.path)
        alternates = [] if known is None or owned.pair.path == former else [(owned.pair.path, known)]
        if isinstance(present, Mapped):
            others = parts.mapper.others(owned, present, but=former, now_ns=now_ns)
            alternates += [(m.path, m.watch) for m in others]
        lease.set = failover_set(watch, alternates, parts.config, self._hold_down_ms(record))
        record.due_ns = now_ns + self._renew_ns(owned)
        return [parts.say(lease, now_ns)]

    def _renew_ns(self, owned: Owned) -> int:
        """Until the next renewal: by lot a little less than a third of the lease, so that not all come due at once."""
        renew_ns = self._parts.config.renew_ns
        return renew_ns - draw(self._parts.config.seed, "renewal", owned.pair.qp) % (renew_ns // 4)

    def _hold_down_ms(self, record: _Armed) -> int:
        """The longer, the more often the queue pair was moved lately: a flapping path is not followed."""
        doublings = min(max(0, len(record.moves) - 1), _MOST_DOUBLINGS)
        return int(self._parts.config.hold_down_ms << doublings)

    # --- the receiving end of kernel flows ------------------------------------------------------------------------

    def ready(self, owned: Owned) -> bool:
        """Whether the receiving end is prepared for other source ports."""
        if owned.pair.steering != "kernel" or self._parts.facts.mode != "enforce":
            return True
        record = self._armed.get(owned.pair.qp)
        peer = None if record is None else self._parts.ledger.get(record.peer)
        return peer is not None and peer.state == "applied"

    def _peer(self, owned: Owned, record: _Armed, now_ns: int) -> list[Output]:
        """Have the receiving host translate the flow's source ports back, and keep it at that."""
        parts, pair = self._parts, owned.pair
        ports = sorted({port for port in (*pair.alternates, owned.own) if port != owned.own})
        if pair.steering != "kernel" or parts.facts.mode != "enforce" or not ports:
            return []
        peer = parts.ledger.get(record.peer)
        if peer is not None and parts.wanted(peer, now_ns):
            if now_ns < peer.issued_at_ns + parts.config.renew_ns:
                return []
            peer.set = {"part": "peer", "paths": ports}
            return [parts.say(peer, now_ns)]
        if parts.facts.banned.get((pair.qp, 0), 0) > now_ns or parts.facts.breaker.open_since_ns is not None:
            return []
        target = {"type": "qp", "id": pair.qp, "host": host_of(pair.dst), "job": owned.job}
        own = {"path": owned.own}
        peer = parts.ledger.open("failover", target, own, {"part": "peer", "paths": ports}, own, (), "enforce")
        record.peer = peer.id
        return [parts.say(peer, now_ns)]

    # --- state ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[qp, asdict(record)] for qp, record in self._armed.items()]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._armed = {qp: _Armed(**row) for qp, row in state}


def _ports(set_: Mapping[str, Any]) -> list[int]:
    return [int(alternate["path"]) for alternate in set_.get("alternates", ())]
