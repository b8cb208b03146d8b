"""Which queue pair leaves a full link, and for where: one canary at a time, never all to the best.

On a full link (`policy.hot_links`) the slowest queue pairs are looked at first. One may go where

- the way is known both ways and covered by probes, clean, and does not cross the full link or another one that
  trouble was found on;
- no queue stands on it, by probes whose clocks are known well enough;
- the predicted share (`shares`) is at least `least_gain` above what it gets now.

Of such ways two are drawn by lot and the better one is taken (power of two choices): everybody's best way would be the
next full link. Then the guard is asked, the command sent, and the next one waits until the effect is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.actuate.arming import Arming
from sdfstream.actuate.config import ns
from sdfstream.actuate.context import Parts
from sdfstream.actuate.effect import Trial, Trials, companions
from sdfstream.actuate.guard import Proposal, check
from sdfstream.actuate.jobs import Owned
from sdfstream.actuate.ledger import Doubt, Lease
from sdfstream.actuate.measurements import Queue
from sdfstream.actuate.paths import Mapped, Shares, draw
from sdfstream.records.message import Output
from sdfstream.records.topics import COMMAND
from sdfstream.records.units import NS_PER_S, TICK_NS

_STEERED: tuple[str, ...] = ("link", "switch")
_MOST_LOOKED_AT: Final = 16
"""Queue pairs whose ways are worked out in one look; the others have their turn in the next."""
_AGAIN_NS: Final = 3 * NS_PER_S
"""A queue pair that could not be moved is looked at again after this long."""
_LOOK_EVERY: Final = 5
"""Ticks between two looks."""


@dataclass(slots=True)
class Hot:
    """A link direction that is too full."""

    hop: str
    reason: tuple[str, ...] = ()
    """Finding ids; none: queue pairs collide there."""
    qps: list[str] = field(default_factory=list)
    """Queue pairs whose data cross it, by name."""


class Contention:
    """Steers queue pairs off full links, and keeps the leases of those that were."""

    def __init__(self, parts: Parts, arming: Arming, trials: Trials) -> None:
        self._parts, self._arming, self._trials = parts, arming, trials
        self._drawn = 0
        self._looked: dict[str, int] = {}
        """Queue pair to when it was found that it cannot be moved."""
        self._queues: dict[tuple[str, int], Queue] = {}
        """Within one look."""
        self._wished: dict[str, dict[str, Any]] = {}
        """Command that waits for approval to its trial."""

    def tick(self, tick: int, now_ns: int) -> list[Output]:
        """Renew what is steered; every half second look for what should be."""
        out = self._keep(now_ns)
        if tick % _LOOK_EVERY == 0:
            rates = self._parts.windows.rates(self._span(), now_ns)
            hot = hot_links(self._parts, rates, now_ns)
            if hot:
                found = crossing(self._parts.loads.of)
                shares = Shares.make(
                    self._parts.topology, rates, found, self._parts.config.busy_share, self._parts.jobs
                )
                out += self._look(hot, shares, now_ns)
        return out

    def _look(self, hot: list[Hot], shares: Shares, now_ns: int) -> list[Output]:
        """One look at all full links, until one queue pair is moved: the loads are others then."""
        self._looked = {qp: at_ns for qp, at_ns in self._looked.items() if now_ns - at_ns < _AGAIN_NS}
        self._queues.clear()
        full = {place.hop for place in hot}
        known = len(self._looked)
        out: list[Output] = []
        for place in hot:
            said = self._relieve(place, full, shares, now_ns)
            out += said
            if any(output.topic == COMMAND.name for output in said):
                break
            if len(self._looked) - known >= _MOST_LOOKED_AT:
                break
        return out

    def _span(self) -> int:
        return max(5, round(self._parts.config.effect_s * NS_PER_S / TICK_NS))

    # --- choosing --------------------------------------------------------------------------------------------------

    def _relieve(self, hot: Hot, full: set[str], shares: Shares, now_ns: int) -> list[Output]:
        """Move one queue pair off a full link, if any should be."""
        parts, out = self._parts, list[Output]()
        slowest = sorted((shares.rates[qp], qp) for qp in hot.qps if qp in shares.rates)
        speed = parts.topology.speed_bps(hot.hop) or shares.load_bps(hot.hop)
        known = len(self._looked)
        for rate, qp in slowest:
            owned = parts.jobs.get(qp)
            if owned is None or qp in self._looked or rate < parts.config.busy_share * speed:
                continue
            if len(self._looked) - known >= _MOST_LOOKED_AT:
                break
            if not self._movable(owned, hot):
                continue
            self._looked[qp] = now_ns
            proposal = Proposal("steer", owned, reason=hot.reason, rail=parts.topology.rail(owned.pair.src))
            doubt = check(proposal, parts.facts, now_ns)
            if doubt is None:
                chosen = self._choose(owned, hot, full, rate, shares, now_ns)
                if isinstance(chosen, Proposal):
                    return out + self._send(chosen, hot, shares, now_ns)
                doubt = chosen
            out += parts.refuse(proposal, doubt, now_ns)
        return out

    def _movable(self, owned: Owned, hot: Hot) -> bool:
        """Whether it is not being dealt with already, and can be."""
        qp = owned.pair.qp
        if owned.pair.steering == "none" or qp in self._trials or self._trials.busy(hot.qps, owned.job):
            return False
        waiting = self._wished.values()
        if any(row["job"] == owned.job or {row["qp"], *row["companions"]} & set(hot.qps) for row in waiting):
            return False
        if any(lease.action == "steer" and lease.qp == qp and _undecided(lease) for lease in self._parts.ledger):
            return False
        armed = self._arming.lease(qp)
        failed_over = armed is not None and armed.state in ("applied", "held")
        return not failed_over and self._arming.ready(owned)

    def _choose(
        self, owned: Owned, hot: Hot, full: set[str], rate: float, shares: Shares, now_ns: int
    ) -> Proposal | Doubt:
        parts = self._parts
        present = parts.mapper.path(owned, owned.pair.path, now_ns)
        if isinstance(present, Doubt):
            return present
        found: list[tuple[float, Mapped]] = []
        errs, unclean = [parts.clocks.err_ns(nic, now_ns) for nic in (owned.pair.src, owned.pair.dst)], 0
        for way in parts.mapper.alternates(owned, now_ns):
            # answers are small: a queue on their way costs a little time, and no share of a link
            if full & set(way.data) or parts.mapper.clean(owned.pair.src, way):
                unclean += 1
                continue
            queues = {hop: self._queue(hop, owned.pair.dscp, now_ns) for hop in way.data[1:]}
            if any(not q.n or q.excess_ns >= parts.standing_ns(hop) for hop, q in queues.items()):
                unclean += 1
                continue
            errs += [q.err_ns for q in queues.values()]
            if (until_ns := parts.facts.banned.get((owned.pair.qp, way.path), 0)) and until_ns > now_ns:
                continue
            found.append((shares.hoped(owned, way, hot.hop), way))
        good = [(hoped, way) for hoped, way in found if hoped >= (1 + parts.config.least_gain) * rate]
        if not good:
            return Doubt(
                "no-better-way",
                f"of {len(owned.pair.alternates)} source ports {len(found)} have a known, free way ({unclean} cross "
                f"something full, silent or unknown), and none promises {parts.config.least_gain:.0%} more than "
                f"{rate / 1e6:.1f} Mbit/s",
            )
        best = self._two(owned, good)
        proposal = Proposal(
            "steer", owned, best[1].path, hot.reason, parts.topology.rail(owned.pair.src), err_ns=max(errs)
        )
        return check(proposal, parts.facts, now_ns) or proposal

    def _queue(self, hop: str, dscp: int, now_ns: int) -> Queue:
        known = self._queues.get((hop, dscp))
        if known is None:
            known = self._queues[hop, dscp] = self._parts.queue(hop, now_ns, dscp)
        return known

    def _two(self, owned: Owned, good: list[tuple[float, Mapped]]) -> tuple[float, Mapped]:
        """The better of two drawn by lot."""
        self._drawn += 1
        lots = sorted(good, key=lambda g: draw(self._parts.config.seed, self._drawn, owned.pair.qp, g[1].path))
        return max(lots[:2], key=lambda g: g[0])

    # --- commands --------------------------------------------------------------------------------------------------

    def _send(self, proposal: Proposal, hot: Hot, shares: Shares, now_ns: int) -> list[Output]:
        parts, owned = self._parts, proposal.owned
        assert proposal.path is not None
        set_ = self._set(owned, owned.pair.path, proposal.path, now_ns)
        if isinstance(set_, Doubt):
            return parts.refuse(proposal, set_, now_ns)
        back = {"path": owned.pair.path}
        lease, out = parts.open(proposal, back, set_, back, now_ns)
        if lease is None:
            return out
        beside = companions((*hot.qps, *(o.pair.qp for o in parts.jobs.of_job(owned.job))), owned.pair.qp)
        way = parts.mapper.path(owned, proposal.path, now_ns)
        trial = Trial(
            lease.id,
            owned.pair.qp,
            owned.job,
            hot.hop,
            proposal.rail,
            owned.pair.path,
            proposal.path,
            now_ns,
            shares.hoped(owned, way, hot.hop) if isinstance(way, Mapped) else 0.0,
            parts.windows.newest_of(owned.pair.qp),
            beside,
            parts.queue(hot.hop, now_ns).excess_ns,
            owned.pair.steering == "kernel",
        )
        if lease.state == "sent":
            self._trials.begin(trial)
            parts.loads.put(owned.pair.qp, way.data if isinstance(way, Mapped) else ())
        elif lease.state == "waiting":
            self._wished[lease.id] = _row(trial)
        else:  # only said: not again and again
            parts.facts.banned[owned.pair.qp, 0] = now_ns + ns(parts.config.path_ban_s)
        return out

    def _set(self, owned: Owned, former: int, path: int, now_ns: int) -> dict[str, Any] | Doubt:
        parts = self._parts
        left, new = parts.mapper.path(owned, former, now_ns), parts.mapper.path(owned, path, now_ns)
        if isinstance(left, Doubt):
            return left
        if isinstance(new, Doubt):
            return new
        return {
            "path": path,
            "watch": new.watch,
            "former_watch": left.watch,
            "hold_down_ms": parts.config.hold_down_ms,
            "clean_probes": parts.config.clean_probes,
        }

    def _keep(self, now_ns: int) -> list[Output]:
        """Renew the leases of steered queue pairs; send what was approved."""
        out: list[Output] = []
        for lease in [x for x in self._parts.ledger if x.action == "steer" and x.state != "over"]:
            out += self._keep_one(lease, now_ns)
        return out

    def _keep_one(self, lease: Lease, now_ns: int) -> list[Output]:
        parts = self._parts
        owned = parts.jobs.get(lease.qp)
        if owned is None or not parts.wanted(lease, now_ns):
            parts.ledger.end(lease, now_ns)
            self._wished.pop(lease.id, None)
            return []
        if lease.state == "approved":
            return self._go(lease, owned, now_ns)
        if lease.state != "applied" or now_ns < lease.issued_at_ns + parts.config.renew_ns:
            return []
        former, path = int(lease.expected["path"]), int(lease.set["path"])
        if owned.pair.path != path:  # moved on by a failover, which has its own lease
            parts.ledger.end(lease, now_ns)
            return []
        proposal = Proposal("steer", owned, path, tuple(lease.reason), renewal=True, moved=True)
        doubt = check(proposal, parts.facts, now_ns)
        if doubt is not None:  # the lease is left to lapse, unless the doubt ends before
            return parts.refuse(proposal, doubt, now_ns)
        fresh = self._set(owned, former, path, now_ns)
        lease.set = fresh if not isinstance(fresh, Doubt) else lease.set
        return [parts.say(lease, now_ns)]

    def _go(self, lease: Lease, owned: Owned, now_ns: int) -> list[Output]:
        """A person agreed: look once more, then send it and begin its trial."""
        parts, row = self._parts, self._wished.pop(lease.id, None)
        path = int(lease.set["path"])
        proposal = Proposal("steer", owned, path, tuple(lease.reason), parts.topology.rail(owned.pair.src))
        set_ = self._set(owned, int(lease.expected["path"]), path, now_ns)
        doubt = set_ if isinstance(set_, Doubt) else parts.approved(lease, proposal, now_ns)
        if doubt is not None or isinstance(set_, Doubt) or row is None:
            parts.ledger.end(lease, now_ns)
            return [] if doubt is None else parts.refuse(proposal, doubt, now_ns)
        lease.set = set_
        self._trials.begin(_trial(row, now_ns, parts.windows.newest_of(lease.qp)))
        return [parts.say(lease, now_ns)]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        looked = list(self._looked.items())
        return {"drawn": self._drawn, "looked": looked, "wished": [[name, row] for name, row in self._wished.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._drawn = state["drawn"]
        self._looked = {qp: at_ns for qp, at_ns in state["looked"]}
        self._wished = {name: row for name, row in state["wished"]}


def _undecided(lease: Lease) -> bool:
    """A steer that is not applied yet and may still be."""
    return lease.state in ("waiting", "approved", "sent", "accepted", "held")


def _row(trial: Trial) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in Trial.__slots__}


def _trial(row: Mapping[str, Any], now_ns: int, base: int) -> Trial:
    return Trial(**{**row, "began_ns": now_ns, "base": base})


def crossing(loads: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Hop to the queue pairs whose data cross it, their own NIC's cable left out; by name."""
    found: dict[str, list[str]] = {}
    for qp in sorted(loads):
        for hop in loads[qp][1:]:
            found.setdefault(hop, []).append(qp)
    return found


def hot_links(parts: Parts, rates: Mapping[str, float], now_ns: int) -> list[Hot]:
    """Links that queue pairs are to be moved away from: those of findings first, then where they collide."""
    found = crossing(parts.loads.of)
    hot: dict[str, Hot] = {}
    for trouble in parts.findings:
        if trouble.subject_type not in _STEERED or not trouble.confidence >= parts.config.least_confidence:
            continue
        for direction in trouble.directions:
            hop = parts.topology.hop(direction)
            if hop is not None and hop in found:
                known = hot.setdefault(hop, Hot(hop, (), found[hop]))
                known.reason = (*known.reason, trouble.id)
    if parts.config.steer_collisions:
        for hop in sorted(found):
            if hop not in hot and len(found[hop]) >= 2 and _full(parts, hop, found[hop], rates):
                queue = parts.queue(hop, now_ns)
                if queue.n and queue.excess_ns >= parts.standing_ns(hop):
                    hot[hop] = Hot(hop, (), found[hop])
    return list(hot.values())


def _full(parts: Parts, hop: str, qps: Sequence[str], rates: Mapping[str, float]) -> bool:
    """Whether what queue pairs get on a link comes near what it carries; where that is not known, it may."""
    speed = parts.topology.speed_bps(hop)
    return not speed or sum(rates.get(qp, 0.0) for qp in qps) >= 0.5 * speed
