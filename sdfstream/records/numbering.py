"""A producer's message numbers as a reader follows them: next, repeated, or too far off to believe at once.

One number that is far away, by a mistake or by malice, must not make every later message of its host a repeat. So, as
RFC 3550 (appendix A.1) does for RTP, such a number is only remembered, and followed once the next one comes after it.
A run that truly jumped (a day of messages that were shed) costs one message whose repeat would not be known; a host
that jumps on purpose is muted for no longer than one message when it comes back.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

MOST_JUMP: Final = 1 << 20
"""Numbers, either way: at an agent's twenty messages a second, fourteen hours."""


class Step(Enum):
    """What a number is beside those before it."""

    NEXT = "next"
    REPEAT = "repeat"
    JUMP = "jump"
    """Too far off: taken as new, and not followed yet."""


class Followed(NamedTuple):
    """What a number was, and what is remembered after it."""

    step: Step
    last: int
    tentative: int | None
    missing: int
    """Numbers left out before it."""


def follow(last: int, tentative: int | None, number: int) -> Followed:
    """`number` after `last`, with the `tentative` number of a jump just before, if there was one.

    Examples
    --------
    >>> follow(7, None, 9)
    Followed(step=<Step.NEXT: 'next'>, last=9, tentative=None, missing=1)
    >>> follow(7, None, 2**63 - 1).last, follow(7, 2**63 - 1, 8).step.value
    (7, 'next')
    """
    if abs(number - last) <= MOST_JUMP:
        if number > last:
            return Followed(Step.NEXT, number, None, number - last - 1)
        return Followed(Step.REPEAT, last, tentative, 0)
    if tentative is not None:
        if number == tentative:
            return Followed(Step.REPEAT, last, tentative, 0)
        if 0 < number - tentative <= MOST_JUMP:
            return Followed(Step.NEXT, number, None, number - tentative - 1)
    return Followed(Step.JUMP, last, number, 0)
