"""What is true of a lease now: the events that `lease.TABLE` is asked about, the more important first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdfstream.agent.commands.inventory import GONE_NS, Known
from sdfstream.agent.commands.lease import ON_NEW_PATH, Event, State
from sdfstream.agent.commands.standing import Lease, Place
from sdfstream.agent.commands.watch import DEAD


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

    def dwells(self, known: Known) -> bool:
        """It was moved too short a time ago to be moved without need."""
        return known.moved_ns is not None and self.now_ns - known.moved_ns < self.dwell_ns

    def over(self, lease: Lease) -> bool:
        """The lease is over by one of the two clocks."""
        return self.now_ns >= lease.deadline_ns or self.bus_ns >= lease.command.expires_at_ns


def conditions(place: Place, lease: Lease, at: Moment) -> list[Event]:
    """What is true of a lease; nothing is said of one that waits for an answer."""
    if lease.request is not None:
        return []
    known = place.known(lease)
    if known is None:
        began_ns = at.now_ns if place.began_ns is None else place.began_ns
        return [Event.GONE] if at.now_ns - began_ns >= GONE_NS else []
    ends = [Event.UNDO] * lease.undo + [Event.LAPSE] * at.over(lease)
    if lease.terms.kind in ("limit", "peer"):
        return [*ends, *_of_limit(lease, at)]
    if lease.state in ON_NEW_PATH:
        return _of_moved(place, lease, known, ends, at)
    return [*_of_found(place, lease, known), *ends, *_of_armed(place, lease, known, ends, at)]


def _of_limit(lease: Lease, at: Moment) -> list[Event]:
    if lease.state is State.LIFTING:
        spent = lease.terms.kind == "limit" and at.now_ns >= lease.limit_until_ns
        return [Event.SPENT] * spent + [Event.RETRY] * (at.now_ns >= lease.retry_ns)
    if lease.state is State.LIMITED and lease.terms.kind == "peer" and lease.resumed:
        return [Event.RENEW]  # whoever follows the flow must know of it again
    if lease.state is State.LIMITED and lease.asked_rate_bps != lease.terms.rate_bps:
        return [Event.RENEW]  # a renewal that changed the rate came while the last one was under way
    return []


def _of_found(place: Place, lease: Lease, known: Known) -> list[Event]:
    """Was it moved by us without our knowing: no answer came, or an earlier run of ours died with it?"""
    ours = (lease.asked,) if lease.asked is not None else lease.terms.paths if lease.resumed else ()
    if known.asking is not None or known.path not in ours:
        return []
    others = (x for x in place.leases.values() if x is not lease and x.terms.qp == lease.terms.qp)
    if any(x.path == known.path and x.state in ON_NEW_PATH for x in others):
        return []
    return [Event.FOUND]


def _of_armed(place: Place, lease: Lease, known: Known, ends: Sequence[Event], at: Moment) -> list[Event]:
    if lease.terms.kind != "arm" or ends:
        return []
    if lease.state is State.FAILED:
        return [Event.ARM]
    if known.path != lease.terms.former or lease.command.epoch < at.epoch:
        return []
    if place.verdict(lease, known.path) != DEAD:
        return [Event.REVIVED]
    if known.asking is not None or at.now_ns < lease.retry_ns:
        return []
    return [Event.NO_WAY if place.alternate(lease, known) is None else Event.FIRE]


def _of_moved(place: Place, lease: Lease, known: Known, ends: Sequence[Event], at: Moment) -> list[Event]:
    if known.asking is not None:
        return []
    if known.path == lease.terms.former:
        return [Event.BACK]
    if known.path == lease.asked:
        lease.path = known.path
    if known.path != lease.path:  # another command has moved it on; as long as that lasts, this one waits under it
        return [Event.GONE] if ends else []
    if at.now_ns < lease.retry_ns:
        return list(ends)
    if lease.terms.kind == "arm" and not ends and lease.command.epoch >= at.epoch:
        dead = place.verdict(lease, known.path) == DEAD
        if dead and place.alternate(lease, known) is not None:
            return [Event.FIRE]
    if not place.healed(lease, at.now_ns):
        return [*ends, Event.UNHEALED]
    goes_back = lease.terms.kind == "arm" or lease.state is not State.MOVED
    return [*ends, Event.HEALED] if goes_back and not at.dwells(known) else list(ends)
