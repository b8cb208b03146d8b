"""Which queue pair leaves a full link, and for which path: one canary at a time, never all to the best.

A link is full where a finding says so, or where queue pairs collide and a queue stands (`full_links`). On a full link
the slowest queue pairs are looked at first. One may go to a path

- whose route is known in both directions and covered by probes, clean, and does not cross the full link or another
  full one;
- on which no queue stands, by probes whose clocks are known well enough;
- whose predicted share (`links.Shares`) is at least `least_gain` above what the queue pair gets now.

Of such paths two are drawn by lot and the better one is taken (power of two choices): everybody's best path would be
the next full link. Then the guard is asked, the command sent, and the next one waits until the effect is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sdfstream.actuate.context import Context
from sdfstream.actuate.effect import Effects, MoveTrial, MoveTrials
from sdfstream.actuate.guard import Proposal, check
from sdfstream.actuate.jobs import OwnedQp
from sdfstream.actuate.ledger import PEER, IssuedCommand
from sdfstream.actuate.links import OpenFinding, Shares
from sdfstream.actuate.paths import MappedPath, draw
from sdfstream.actuate.queues import LinkQueue
from sdfstream.actuate.refusals import Doubt
from sdfstream.records.message import Output
from sdfstream.records.topics import COMMAND
from sdfstream.records.units import NS_PER_S, NS_PER_US, TICK_NS

_STEERED: tuple[str, ...] = ("link", "switch")
_MOST_LOOKED_AT: Final = 16
"""Queue pairs whose paths are worked out in one look; the others have their turn in the next."""
_MOST_AFFECTED: Final = 64
"""Queue pairs beside the moved one that are looked at."""
_AGAIN_NS: Final = 3 * NS_PER_S
"""A queue pair that could not be moved is looked at again after this long."""
_PACKET_BITS: Final = 1_500 * 8


@dataclass(slots=True)
class FullLink:
    """A link direction that is too full."""

    hop: str
    reason: tuple[str, ...] = ()
    """Finding ids; none: queue pairs collide there."""
    qps: list[str] = field(default_factory=list)
    """Queue pairs whose data cross it, by name."""


class Contention:
    """Steers queue pairs off full links, and keeps the leases of those that were."""

    def __init__(self, context: Context, trials: MoveTrials) -> None:
        self._context, self._trials = context, trials
        self._effects = Effects(context)
        self._drawn = 0
        self._looked: dict[str, int] = {}
        """Queue pair to when it was found that it cannot be moved."""
        self._queues: dict[tuple[str, int], LinkQueue] = {}
        """Within one look."""
        self._awaiting_approval: dict[str, MoveTrial] = {}
        """Command that waits for approval to its trial."""

    def tick(self, now_ns: int, *, look: bool) -> list[Output]:
        """Conclude trials, renew the leases of what is steered; with `look`, steer what should be."""
        out = self._conclude(now_ns) + self._renew(now_ns)
        if look:
            rates = self._context.windows.rates(self._span(), now_ns)
            links = full_links(self._context, rates, now_ns)
            if links:
                found = self._context.loads.crossing()
                shares = Shares.make(
                    self._context.topology, rates, found, self._context.config.busy_share, self._context.jobs
                )
                out += self._look(links, shares, now_ns)
        return out

    def _look(self, links: list[FullLink], shares: Shares, now_ns: int) -> list[Output]:
        """One look at all full links, until one queue pair is moved: the loads are others then."""
        self._looked = {qp: at_ns for qp, at_ns in self._looked.items() if now_ns - at_ns < _AGAIN_NS}
        self._queues.clear()
        full = {link.hop for link in links}
        known = len(self._looked)
        out: list[Output] = []
        for link in links:
            relief = self._relieve(link, full, shares, now_ns)
            out += relief
            if any(output.topic == COMMAND.name for output in relief):
                break
            if len(self._looked) - known >= _MOST_LOOKED_AT:
                break
        return out

    def _span(self) -> int:
        return max(5, round(self._context.config.effect_s * NS_PER_S / TICK_NS))

    # --- choosing --------------------------------------------------------------------------------------------------

    def _relieve(self, link: FullLink, full: set[str], shares: Shares, now_ns: int) -> list[Output]:
        """Move one queue pair off a full link, if any should be."""
        context, out = self._context, list[Output]()
        slowest = sorted((shares.rates[qp], qp) for qp in link.qps if qp in shares.rates)
        speed = context.topology.speed_bps(link.hop) or shares.load_bps(link.hop)
        known = len(self._looked)
        for rate, qp in slowest:
            owned = context.jobs.get(qp)
            if owned is None or qp in self._looked or rate < context.config.busy_share * speed:
                continue
            if len(self._looked) - known >= _MOST_LOOKED_AT:
                break
            if not self._movable(owned, link):
                continue
            self._looked[qp] = now_ns
            proposal = Proposal("steer", owned, reason=link.reason, rail=context.topology.rail(owned.pair.src))
            doubt = check(proposal, context.facts, now_ns)
            if doubt is None:
                chosen = self._choose(owned, link, full, rate, shares, now_ns)
                if isinstance(chosen, Proposal):
                    return out + self._send(chosen, link, shares, now_ns)
                doubt = chosen
            out += context.commands.refuse(proposal, doubt, now_ns)
        return out

    def _movable(self, owned: OwnedQp, link: FullLink) -> bool:
        """Whether it can be moved, and no move or trial concerns it already."""
        qp = owned.pair.qp
        if owned.pair.steering == "none" or qp in self._trials:
            return False
        moves = (*self._trials.values(), *self._awaiting_approval.values())
        if any(trial.job == owned.job or {trial.qp, *trial.affected} & set(link.qps) for trial in moves):
            return False
        if any(_undecided(command) or _failed_over(command) for command in self._context.ledger.of_qp(qp)):
            return False
        return self._context.ledger.is_received(owned.pair, self._context.facts.mode)

    def _choose(
        self, owned: OwnedQp, link: FullLink, full: set[str], rate: float, shares: Shares, now_ns: int
    ) -> Proposal | Doubt:
        context = self._context
        present = context.mapper.path(owned, owned.pair.path, now_ns)
        if isinstance(present, Doubt):
            return present
        found: list[tuple[float, MappedPath]] = []
        errs, unclean = [context.clocks.err_ns(nic, now_ns) for nic in (owned.pair.src, owned.pair.dst)], 0
        for path in context.mapper.alternates(owned, now_ns):
            queues = self._free_queues(owned, path, full, now_ns)
            if queues is None:
                unclean += 1
                continue
            errs += [queue.err_ns for queue in queues]
            if not context.facts.is_banned(owned.pair.qp, now_ns, path.path):
                found.append((shares.predicted_bps(owned, path, link.hop), path))
        least_bps = (1 + context.config.least_gain) * rate
        good = [(predicted_bps, path) for predicted_bps, path in found if predicted_bps >= least_bps]
        if not good:
            return Doubt(
                "no-better-way",
                f"of {len(owned.pair.alternates)} source ports {len(found)} have a known, free way ({unclean} cross "
                f"something full, silent or unknown), and none promises {context.config.least_gain:.0%} more than "
                f"{rate / 1e6:.1f} Mbit/s",
            )
        path = self._draw_two(owned, good)
        rail = context.topology.rail(owned.pair.src)
        proposal = Proposal("steer", owned, path.path, link.reason, rail, err_ns=max(errs))
        return check(proposal, context.facts, now_ns) or proposal

    def _free_queues(self, owned: OwnedQp, path: MappedPath, full: set[str], now_ns: int) -> list[LinkQueue] | None:
        """The queues of the links that the data would cross; None: one is full, silent, unknown or has a queue on it.

        Answers are small: a queue on their route costs a little time, and no share of a link.
        """
        if full & set(path.data) or self._context.mapper.unclean_segment(owned.pair.src, path):
            return None
        queues = {hop: self._queue(hop, owned.pair.dscp, now_ns) for hop in path.data[1:]}
        standing = (not q.n or q.excess_ns >= _standing_ns(self._context, hop) for hop, q in queues.items())
        return None if any(standing) else list(queues.values())

    def _queue(self, hop: str, dscp: int, now_ns: int) -> LinkQueue:
        known = self._queues.get((hop, dscp))
        if known is None:
            known = self._queues[hop, dscp] = self._context.queue_delays.queue(hop, now_ns, dscp)
        return known

    def _draw_two(self, owned: OwnedQp, good: list[tuple[float, MappedPath]]) -> MappedPath:
        """The better of two drawn by lot."""
        self._drawn += 1
        lots = sorted(good, key=lambda g: draw(self._context.config.seed, self._drawn, owned.pair.qp, g[1].path))
        return max(lots[:2], key=lambda g: g[0])[1]

    # --- commands --------------------------------------------------------------------------------------------------

    def _send(self, proposal: Proposal, link: FullLink, shares: Shares, now_ns: int) -> list[Output]:
        context, owned = self._context, proposal.owned
        assert proposal.path is not None
        set_ = self._set(owned, owned.pair.path, proposal.path, now_ns)
        if isinstance(set_, Doubt):
            return context.commands.refuse(proposal, set_, now_ns)
        back = {"path": owned.pair.path}
        command, out = context.commands.open(proposal, back, set_, back, now_ns)
        if command is None:
            return out
        beside = {*link.qps, *(o.pair.qp for o in context.jobs.of_job(owned.job))} - {owned.pair.qp}
        mapped = context.mapper.path(owned, proposal.path, now_ns)
        trial = MoveTrial(
            command.id,
            owned.pair.qp,
            owned.job,
            link.hop,
            proposal.rail,
            owned.pair.path,
            proposal.path,
            now_ns,
            shares.predicted_bps(owned, mapped, link.hop) if isinstance(mapped, MappedPath) else 0.0,
            context.windows.newest_of(owned.pair.qp),
            sorted(beside)[:_MOST_AFFECTED],
            context.queue_delays.queue(link.hop, now_ns).excess_ns,
            owned.pair.steering == "kernel",
        )
        if command.state == "sent":
            self._begin(trial)
            context.loads.put(owned.pair.qp, mapped.data if isinstance(mapped, MappedPath) else ())
        elif command.state == "waiting":
            self._awaiting_approval[command.id] = trial
        else:  # dry-run: published once, not again and again
            context.commands.ban(owned.pair.qp, now_ns)
        return out

    def _begin(self, trial: MoveTrial) -> None:
        """Its command was sent: from now on its effect is measured."""
        self._trials[trial.qp] = trial
        self._context.facts.measure(trial.qp, trial.rail)

    def _conclude(self, now_ns: int) -> list[Output]:
        """End the trials of which it is known whether the move was worth it."""
        out: list[Output] = []
        for trial in list(self._trials.values()):
            ended = self._effects.follow(trial, now_ns)
            if ended is not None:
                del self._trials[trial.qp]
                self._context.facts.end_measuring(trial.qp)
                out += ended
        return out

    def _set(self, owned: OwnedQp, former: int, path: int, now_ns: int) -> dict[str, Any] | Doubt:
        context = self._context
        left, new = context.mapper.path(owned, former, now_ns), context.mapper.path(owned, path, now_ns)
        if isinstance(left, Doubt):
            return left
        if isinstance(new, Doubt):
            return new
        return {
            "path": path,
            "watch": new.watch,
            "former_watch": left.watch,
            "hold_down_ms": context.config.hold_down_ms,
            "clean_probes": context.config.clean_probes,
        }

    def _renew(self, now_ns: int) -> list[Output]:
        """Renew the leases of steered queue pairs; send what was approved."""
        out: list[Output] = []
        for command in [x for x in self._context.ledger if x.action == "steer" and x.state != "over"]:
            out += self._renew_one(command, now_ns)
        return out

    def _renew_one(self, command: IssuedCommand, now_ns: int) -> list[Output]:
        context = self._context
        owned = context.jobs.get(command.qp)
        if owned is None or not context.commands.goes_on(command, now_ns):
            context.ledger.end(command, now_ns)
            self._awaiting_approval.pop(command.id, None)
            return []
        if command.state == "approved":
            return self._send_approved(command, owned, now_ns)
        if command.state != "applied" or now_ns < command.issued_at_ns + context.config.renew_ns:
            return []
        former, path = int(command.expected["path"]), int(command.set["path"])
        if owned.pair.path != path:  # moved on by a failover, which has its own lease
            context.ledger.end(command, now_ns)
            return []
        proposal = Proposal("steer", owned, path, tuple(command.reason), renewal=True, moved=True)
        doubt = check(proposal, context.facts, now_ns)
        if doubt is not None:  # the lease is left to lapse, unless the doubt ends before
            return context.commands.refuse(proposal, doubt, now_ns)
        fresh = self._set(owned, former, path, now_ns)
        command.set = fresh if not isinstance(fresh, Doubt) else command.set
        return [context.commands.publish(command, now_ns)]

    def _send_approved(self, command: IssuedCommand, owned: OwnedQp, now_ns: int) -> list[Output]:
        """A person agreed: look once more, then send it and begin its trial."""
        context, trial = self._context, self._awaiting_approval.pop(command.id, None)
        path = int(command.set["path"])
        proposal = Proposal("steer", owned, path, tuple(command.reason), context.topology.rail(owned.pair.src))
        set_ = self._set(owned, int(command.expected["path"]), path, now_ns)
        doubt = set_ if isinstance(set_, Doubt) else context.commands.release(command, proposal, now_ns)
        if doubt is not None or isinstance(set_, Doubt) or trial is None:
            context.ledger.end(command, now_ns)
            return [] if doubt is None else context.commands.refuse(proposal, doubt, now_ns)
        command.set = set_
        self._begin(replace(trial, began_ns=now_ns, base=context.windows.newest_of(command.qp)))
        return [context.commands.publish(command, now_ns)]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        looked = list(self._looked.items())
        return {
            "drawn": self._drawn,
            "looked": looked,
            "wished": [[command_id, trial.as_row()] for command_id, trial in self._awaiting_approval.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._drawn = state["drawn"]
        self._looked = {qp: at_ns for qp, at_ns in state["looked"]}
        self._awaiting_approval = {command_id: MoveTrial.from_row(row) for command_id, row in state["wished"]}


def _undecided(command: IssuedCommand) -> bool:
    """A steer that is not applied yet and may still be."""
    return command.action == "steer" and command.state in ("waiting", "approved", "sent", "accepted", "held")


def _failed_over(command: IssuedCommand) -> bool:
    """A failover that has moved its queue pair."""
    moves = command.action == "failover" and command.set.get("part") != PEER
    return moves and command.state in ("applied", "held")


def _standing_ns(context: Context, hop: str) -> float:
    """Excess from which a queue stands on a link: a slow one is late by some packets without being full."""
    config, speed = context.config, context.topology.speed_bps(hop)
    packets_ns = config.excess_packets * _PACKET_BITS * NS_PER_S / speed if speed else 0.0
    return max(config.excess_us * NS_PER_US, packets_ns)


def full_links(context: Context, rates: Mapping[str, float], now_ns: int) -> list[FullLink]:
    """Links that queue pairs are to be moved away from, by findings and where they collide; the worst off first.

    A job is as slow as its slowest queue pair: another one's move is measured for seconds, and brings nothing.
    """
    found = context.loads.crossing()
    full: dict[str, FullLink] = {}
    for finding in context.findings:
        if finding.subject_type not in _STEERED or not finding.confidence >= context.config.least_confidence:
            continue
        for direction in finding.directions:
            hop = context.topology.hop(direction)
            if hop is not None and hop in found and _confirmed(context, finding, hop, now_ns):
                known = full.setdefault(hop, FullLink(hop, (), found[hop]))
                known.reason = (*known.reason, finding.id)
    if context.config.steer_collisions:
        for hop in sorted(found):
            crowded = len(found[hop]) >= 2 and _full(context, hop, found[hop], rates)
            if hop not in full and crowded and _stands(context, hop, now_ns):
                full[hop] = FullLink(hop, (), found[hop])

    def worst_bps(link: FullLink) -> float:
        return min((rates[qp] for qp in link.qps if qp in rates), default=float("inf"))

    return sorted(full.values(), key=lambda link: (worst_bps(link), link.hop))


def _confirmed(context: Context, finding: OpenFinding, hop: str, now_ns: int) -> bool:
    """A queue belongs to one direction of a link: of those that a finding suspects, only where one stands."""
    return finding.kind != "congestion" or _stands(context, hop, now_ns)


def _stands(context: Context, hop: str, now_ns: int) -> bool:
    """Whether a queue stands there by the probes that cross it; where none does, that is not known."""
    queue = context.queue_delays.queue(hop, now_ns)
    return queue.n > 0 and queue.excess_ns >= _standing_ns(context, hop)


def _full(context: Context, hop: str, qps: Sequence[str], rates: Mapping[str, float]) -> bool:
    """Whether what queue pairs get on a link comes near what it carries; where that is not known, it may."""
    speed = context.topology.speed_bps(hop)
    return not speed or sum(rates.get(qp, 0.0) for qp in qps) >= 0.5 * speed
