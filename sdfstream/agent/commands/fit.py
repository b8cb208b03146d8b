"""Whether a new command fits what is in force on its queue pair; why not, where it does not."""

from __future__ import annotations

from sdfstream.agent.commands.admission import Refusal
from sdfstream.agent.commands.inventory import Known
from sdfstream.agent.commands.lease import State
from sdfstream.agent.commands.standing import Lease, Place
from sdfstream.agent.commands.terms import Terms
from sdfstream.agent.commands.watch import CLEAN, VERDICTS
from sdfstream.records.command import Command


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
