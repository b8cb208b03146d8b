"""Why an outcome says what it says, in a sentence for a person."""

from __future__ import annotations

from typing import Final

from sdfstream.agent.commands.lease import Event, State
from sdfstream.agent.commands.standing import Lease, Place
from sdfstream.agent.commands.watch import VERDICTS
from sdfstream.records.units import NS_PER_MS

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
