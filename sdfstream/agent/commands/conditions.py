"""What holds for a command now: whether it fits its queue pair, which events its lease meets, and the outcome's words.

Three questions of `executor`, all answered from a host's state alone: `misfit` and `unclean` (why a new command is
refused), `conditions` (the events that `lease.TABLE` is asked about, the more important first), `why` (a sentence).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sdfstream.agent.commands.admission import Refusal, Terms
from sdfstream.agent.commands.host_state import GONE_NS, Known, Place
from sdfstream.agent.commands.lease import ON_NEW_PATH, Event, Lease, State
from sdfstream.agent.commands.path_watch import CLEAN, DEAD, VERDICTS
from sdfstream.records.command import Command
from sdfstream.records.units import NS_PER_MS


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


def misfit(place: Place, known: Known | None, command: Command, wanted: Terms, settled_ns: int) -> Refusal | None:
    """Why a command does not fit.

    Parameters
    ----------
    place : Place
    known : Known or None
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
        return _limited(place, wanted.qp)
    return None if wanted.kind == "peer" else _unmovable(known, wanted, settled_ns)


def _limited(place: Place, qp: str) -> Refusal | None:
    limits = (x for x in place.leases.values() if x.terms.kind == "limit" and x.state is not State.FAILED)
    other = next((x.command.id for x in limits if x.terms.qp == qp), None)
    return None if other is None else Refusal("unexpected-state", f"{qp} is limited by command {other}")


def _unmovable(known: Known, wanted: Terms, settled_ns: int) -> Refusal | None:
    allowed = {*known.qp.alternates, known.qp.path}
    odd = [p for p in wanted.paths if p not in allowed]
    if odd:
        return Refusal("unexpected-state", f"{wanted.qp} cannot be put on path {odd[0]}")
    if wanted.kind == "arm":
        return None
    if known.asking is not None:
        return Refusal("unexpected-state", f"{wanted.qp} is being moved already")
    if known.moved_ns is not None and known.moved_ns > settled_ns:
        return Refusal("unexpected-state", f"{wanted.qp} was moved too short a time ago")
    return None


def unclean(place: Place, lease: Lease, path: int) -> Refusal | None:
    """Why a queue pair must not be put on `path` now."""
    verdict = place.verdict(lease, path)
    if verdict == CLEAN:
        return None
    return Refusal("unexpected-state", f"path {path} is {VERDICTS[verdict]} by this host's own probes")


_SENTENCES: Final[dict[Event, str]] = {
    Event.ARM: "armed: its path is watched",
    Event.MOVE: "will be moved now",
    Event.LIMIT: "will be done now",
    Event.NO_WAY: "its path is dead, and no alternate is known to be clean: left where it is",
    Event.FOUND: "no answer came, but it is on the new path",
    Event.LAPSE: "the lease is over; it was never needed",
    Event.UNDO: "disarmed by command",
    Event.BACK: "the queue pair is back on its former path",
    Event.SPENT: "no answer came, but the limit's own time is over",
    Event.GONE: "the queue pair is gone, or has been moved on since: nothing is left of it",
}


def why(place: Place, lease: Lease, event: Event, came_from: State) -> str:
    """Of the transition that `event` has just made in `lease`."""
    if event is Event.UNHEALED:
        verdict = VERDICTS[place.verdict(lease, lease.terms.former)]
        over = "undone by command" if lease.undo else "the lease is over"
        state = "clean, but not for long enough" if verdict == "clean" else verdict
        return f"{over}, but the former path {lease.terms.former} is {state}: left on path {lease.path}"
    if event in (Event.NOT_DONE, Event.UNSURE):
        return lease.answer.why if lease.answer is not None else ""
    return _done(lease, came_from) if event is Event.DONE else _SENTENCES.get(event, "")


def _done(lease: Lease, came_from: State) -> str:
    wanted = lease.terms
    if came_from is State.LIFTING:
        return "lifted, undone by command" if lease.undo else "lifted, the lease is over"
    if came_from is State.RETURNING:
        return f"back on path {wanted.former}, which has been clean for {wanted.hold_down_ns // NS_PER_MS} ms"
    if wanted.kind == "limit":
        return f"limited to {wanted.rate_bps} bit/s"
    if wanted.kind == "peer":
        return f"paths {', '.join(map(str, wanted.paths))} are translated back"
    if wanted.kind == "arm":
        return f"the path it was on is dead and path {lease.asked} is clean: moved"
    return f"moved to path {lease.asked}"
