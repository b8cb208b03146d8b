"""The life of one command at the agent that obeys it, as one table.

A command is *accepted* once it is admitted and fits what is in force. From then on it has a *lease*: the time until
which it may act, renewed by later statements of the same command. What happens next depends on what it does.

**Armed moves (failover).** Nothing is changed at first: the lease is `armed`. When the agent's own probes find the
queue pair's path dead and one of the command's alternates clean (`fire`), the move is requested (`moving`) and, once
the actuator confirms it, the queue pair has `moved`. Dead without a clean alternate is reported once (`stranded`) and
watched on. A moved queue pair whose new path dies too moves on to the next clean alternate (`moving-on`). When its
former path has been clean throughout the hold-down (`healed`) it goes back (`returning`) and the lease is `undone`. An
armed lease that ends without having fired leaves nothing behind: `expired`.

**Moves at once (steer).** Accepted and asked for in one; `moved` until the lease is over or it is undone by a command.

**Ends of moves.** A lease that is over, or undone by command, is `ending`: if the former path has been clean for the
hold-down the queue pair goes back, else it is left where it is, which is reported once (`holding`), and tried again
when the former path has healed. A queue pair is never taken back to a path that is not known to be clean, however long
that takes. If the queue pair was moved on by another command meanwhile, or is there no more, nothing is left of the
lease: `expired`.

**Limits (throttle).** `limiting`, then `limited`; every renewal renews the actuator's own time limit (`renewing`).
When the lease is over or undone the limit is lifted always, whatever the paths are like; `lifting` goes on until the
actuator confirms or its own time limit has certainly ended it (`spent`). A limit that was asked for without an answer
may be in force, so it is lifted, too.

**When the actuator says no, or nothing.** A move at once has `failed`; an armed one is armed again and reported as
failed; a return is tried again from `holding`; a lift is tried again. No answer does not mean that nothing was done:
when the job map later shows the queue pair on the path that was asked for (`found`), the lease is `moved` after all.

Conditions (`lapse`, `undo`, `gone`, …) are raised at every step as long as they hold, so one that means nothing in a
state (a lease that ends while a request is in flight) is not lost: it is met again in the next state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sdfstream.agent.commands.actuator import ActuatorAnswer
from sdfstream.agent.commands.admission import Terms
from sdfstream.records.command import Command
from sdfstream.records.units import NS_PER_MS


class LeaseState(StrEnum):
    """Where a lease stands."""

    NEW = "new"
    ARMED = "armed"
    STRANDED = "stranded"
    MOVING = "moving"
    MOVED = "moved"
    MOVING_ON = "moving-on"
    ENDING = "ending"
    HOLDING = "holding"
    RETURNING = "returning"
    LIMITING = "limiting"
    LIMITED = "limited"
    RENEWING = "renewing"
    LIFTING = "lifting"
    FAILED = "failed"
    UNDONE = "undone"
    EXPIRED = "expired"


class LeaseEvent(StrEnum):
    """What can happen to a lease."""

    ARM = "arm"
    """A failover was accepted."""
    MOVE = "move"
    """A steer was accepted."""
    LIMIT = "limit"
    """A throttle (or the receiving host's side of a kernel flow's move) was accepted."""
    RENEW = "renew"
    """A later statement of the same command was accepted."""
    FIRE = "fire"
    """The path in use is dead and an alternate is clean."""
    NO_ALTERNATE = "no-alternate"
    """The path in use is dead and no alternate is clean."""
    REVIVED = "revived"
    """The path in use is not dead."""
    DONE = "done"
    """The actuator has done what was asked."""
    NOT_DONE = "not-done"
    """The actuator refused."""
    UNSURE = "unsure"
    """The actuator did not answer in time; where that means nothing of its own, it counts as not done."""
    FOUND = "found"
    """The job map shows the queue pair where the command wanted it."""
    BACK = "back"
    """The job map shows the queue pair on its former path."""
    LAPSE = "lapse"
    """The lease is over."""
    UNDO = "undo"
    """An undo command names this one."""
    HEALED = "healed"
    """The former path has been clean throughout the hold-down."""
    UNHEALED = "unhealed"
    """It has not."""
    RETRY = "retry"
    """A lift was not confirmed, and some time has passed."""
    SPENT = "spent"
    """The actuator's own time limit has ended the limit."""
    GONE = "gone"
    """The queue pair is there no more, or others have moved it on."""


class Do(StrEnum):
    """What the executor has to do on a transition."""

    REQUEST_MOVE = "ask-move"
    REQUEST_BACK = "ask-back"
    REQUEST_LIMIT = "ask-limit"
    REQUEST_LIFT = "ask-lift"
    REPORT_ACCEPTED = "accepted"
    REPORT_APPLIED = "applied"
    REPORT_HELD = "held"
    REPORT_UNDONE = "undone"
    REPORT_EXPIRED = "expired"
    REPORT_FAILED = "failed"


S, E, D = LeaseState, LeaseEvent, Do
_Table = dict[tuple[LeaseState, LeaseEvent], tuple[LeaseState, tuple[Do, ...]]]

TABLE: Final[_Table] = {
    (S.NEW, E.ARM): (S.ARMED, (D.REPORT_ACCEPTED,)),
    (S.NEW, E.MOVE): (S.MOVING, (D.REQUEST_MOVE, D.REPORT_ACCEPTED)),
    (S.NEW, E.LIMIT): (S.LIMITING, (D.REQUEST_LIMIT, D.REPORT_ACCEPTED)),
    # armed: nothing is changed yet
    (S.ARMED, E.RENEW): (S.ARMED, ()),
    (S.ARMED, E.FIRE): (S.MOVING, (D.REQUEST_MOVE,)),
    (S.ARMED, E.NO_ALTERNATE): (S.STRANDED, (D.REPORT_HELD,)),
    (S.ARMED, E.FOUND): (S.MOVED, (D.REPORT_APPLIED,)),
    (S.ARMED, E.LAPSE): (S.EXPIRED, (D.REPORT_EXPIRED,)),
    (S.ARMED, E.UNDO): (S.UNDONE, (D.REPORT_UNDONE,)),
    (S.ARMED, E.GONE): (S.EXPIRED, (D.REPORT_EXPIRED,)),
    (S.STRANDED, E.RENEW): (S.STRANDED, ()),
    (S.STRANDED, E.FIRE): (S.MOVING, (D.REQUEST_MOVE,)),
    (S.STRANDED, E.REVIVED): (S.ARMED, ()),
    (S.STRANDED, E.FOUND): (S.MOVED, (D.REPORT_APPLIED,)),
    (S.STRANDED, E.LAPSE): (S.EXPIRED, (D.REPORT_EXPIRED,)),
    (S.STRANDED, E.UNDO): (S.UNDONE, (D.REPORT_UNDONE,)),
    (S.STRANDED, E.GONE): (S.EXPIRED, (D.REPORT_EXPIRED,)),
    # moving to a new path; what ends the lease is met again afterwards
    (S.MOVING, E.RENEW): (S.MOVING, ()),
    (S.MOVING, E.DONE): (S.MOVED, (D.REPORT_APPLIED,)),
    (S.MOVING, E.NOT_DONE): (S.FAILED, (D.REPORT_FAILED,)),
    # a failed failover is armed again; a failed steer may yet be found done
    (S.FAILED, E.ARM): (S.ARMED, ()),
    (S.FAILED, E.FOUND): (S.MOVED, (D.REPORT_APPLIED,)),
    # on the new path
    (S.MOVED, E.RENEW): (S.MOVED, ()),
    (S.MOVED, E.FIRE): (S.MOVING_ON, (D.REQUEST_MOVE,)),
    (S.MOVED, E.HEALED): (S.RETURNING, (D.REQUEST_BACK,)),
    (S.MOVED, E.LAPSE): (S.ENDING, ()),
    (S.MOVED, E.UNDO): (S.ENDING, ()),
    (S.MOVED, E.BACK): (S.UNDONE, (D.REPORT_UNDONE,)),
    (S.MOVED, E.GONE): (S.EXPIRED, (D.REPORT_EXPIRED,)),
    (S.MOVING_ON, E.RENEW): (S.MOVING_ON, ()),
    (S.MOVING_ON, E.DONE): (S.MOVED, (D.REPORT_APPLIED,)),
    (S.MOVING_ON, E.NOT_DONE): (S.MOVED, (D.REPORT_FAILED,)),
    (S.ENDING, E.HEALED): (S.RETURNING, (D.REQUEST_BACK,)),
    (S.ENDING, E.UNHEALED): (S.HOLDING, (D.REPORT_HELD,)),
    (S.ENDING, E.BACK): (S.UNDONE, (D.REPORT_UNDONE,)),
    (S.ENDING, E.GONE): (S.EXPIRED, (D.REPORT_EXPIRED,)),
    (S.HOLDING, E.RENEW): (S.MOVED, ()),
    (S.HOLDING, E.HEALED): (S.RETURNING, (D.REQUEST_BACK,)),
    (S.HOLDING, E.BACK): (S.UNDONE, (D.REPORT_UNDONE,)),
    (S.HOLDING, E.GONE): (S.EXPIRED, (D.REPORT_EXPIRED,)),
    (S.RETURNING, E.RENEW): (S.RETURNING, ()),
    (S.RETURNING, E.DONE): (S.UNDONE, (D.REPORT_UNDONE,)),
    (S.RETURNING, E.NOT_DONE): (S.HOLDING, (D.REPORT_HELD,)),
    # limits
    (S.LIMITING, E.DONE): (S.LIMITED, (D.REPORT_APPLIED,)),
    (S.LIMITING, E.NOT_DONE): (S.FAILED, (D.REPORT_FAILED,)),
    (S.LIMITING, E.UNSURE): (S.LIFTING, (D.REPORT_FAILED, D.REQUEST_LIFT)),
    (S.LIMITING, E.RENEW): (S.LIMITING, ()),
    (S.LIMITED, E.RENEW): (S.RENEWING, (D.REQUEST_LIMIT,)),
    (S.LIMITED, E.LAPSE): (S.LIFTING, (D.REQUEST_LIFT,)),
    (S.LIMITED, E.UNDO): (S.LIFTING, (D.REQUEST_LIFT,)),
    (S.LIMITED, E.GONE): (S.EXPIRED, (D.REPORT_EXPIRED,)),
    (S.RENEWING, E.DONE): (S.LIMITED, ()),
    (S.RENEWING, E.NOT_DONE): (S.LIMITED, ()),
    (S.RENEWING, E.RENEW): (S.RENEWING, ()),
    (S.LIFTING, E.DONE): (S.UNDONE, (D.REPORT_UNDONE,)),
    (S.LIFTING, E.RETRY): (S.LIFTING, (D.REQUEST_LIFT,)),
    (S.LIFTING, E.SPENT): (S.UNDONE, (D.REPORT_UNDONE,)),
    (S.LIFTING, E.GONE): (S.EXPIRED, (D.REPORT_EXPIRED,)),
}
"""(state, event) to (next state, what to do). A pair that is not here means nothing."""

ENDS: Final = frozenset({LeaseState.FAILED, LeaseState.UNDONE, LeaseState.EXPIRED})
"""Nothing of the command is in force, as far as is known."""
ON_NEW_PATH: Final = frozenset(
    {LeaseState.MOVED, LeaseState.MOVING_ON, LeaseState.ENDING, LeaseState.HOLDING, LeaseState.RETURNING}
)
"""The queue pair left its former path by this command."""


RETRY_NS: Final = (50 * NS_PER_MS, 5_000 * NS_PER_MS)
"""First and longest pause before a request that was not done is made again; each doubles the one before."""


@dataclass(slots=True)
class Lease:
    """A command in force."""

    command: Command
    data: Mapping[str, Any]
    """As signed."""
    terms: Terms
    host: str
    deadline_ns: int
    """Steady clock: it has then lasted as long as it was given."""
    src: str
    """NIC that sends; its probes watch."""
    state: LeaseState = LeaseState.NEW
    path: int | None = None
    """Source port that it put its queue pair on."""
    requested_path: int | None = None
    """Source port that was asked for last."""
    requested_rate_bps: int | None = None
    ttl_ns: int = 0
    """The time limit in the last request."""
    limit_until_ns: int = 0
    """Steady clock by which the actuator's own time limit has ended the limit for certain."""
    resumed: bool = False
    """Taken over from the journal: what an earlier run asked for may have been done unseen."""
    request: int | None = None
    """Number of the request in flight; None: none is."""
    answer: ActuatorAnswer | None = None
    """To the last request."""
    undo: bool = False
    """An undo command names it."""
    retry_ns: int = 0
    """Not asked again before; steady clock."""
    pause_ns: int = RETRY_NS[0]
