"""A live change of a queue pair's source port through the state SQD, step by step and without I/O.

    RTS ──halt──► SQD ──address──► SQD ──resume──► RTS ──prompt──► done
                                    ▲  refused │
                                    └─ remind ◄┘

In SQD the send queue begins nothing new, but goes on with what it has sent: acknowledgements are awaited and lost
packets sent again. Once nothing is on its path the queue is *drained* and may resume; before, the device refuses it.

The address is changed *before* the queue has drained. On a dead path it never would: what the device sends again goes
by the new address, or, on Soft-RoCE, counts as drained at the next retry and is sent again after the queue has resumed.
Either way the program sees no error, as long as retries are left. Soft-RoCE does not begin with that by itself (Linux
6.1), so it gets a prompt, always: a queue whose retry has just begun counts as drained at once. Nor does it always
notice that the last acknowledgement has come, and then stays in SQD for ever: it is reminded between two attempts.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sdfstream.records.units import NS_PER_MS

POLL_NS: Final = NS_PER_MS // 2
"""Pause between two attempts to resume."""


class MoveStep(Enum):
    """What to do next."""

    HALT = "RTS to SQD"
    ADDRESS = "new address in SQD"
    RESUME = "SQD to RTS"
    REMIND = "have the device look whether its send queue has drained"
    PROMPT = "have the device look at its send queue"
    DONE = "the queue pair sends by the new port"
    FAILED = "the device refused"


@dataclass(slots=True)
class LiveMove:
    """One move; `step` is to be done, its result goes into `did`."""

    needs_prompt: bool
    """The device does not go on by itself."""
    step: MoveStep = MoveStep.HALT
    waited: int = 0
    """Attempts to resume that came before the queue had drained."""
    error: int = 0
    """errno of what the device refused."""
    _address_error: int = 0

    def did(self, error: int) -> MoveStep:
        """Take the result of `step`, an errno or 0; the next one."""
        match self.step:
            case MoveStep.HALT:
                self._next_or_fail(MoveStep.ADDRESS, error)
            case MoveStep.ADDRESS:
                self._address_error = error  # the queue must resume all the same
                self.step = MoveStep.RESUME
            case MoveStep.RESUME if error in (errno.EINVAL, errno.EBUSY, errno.EAGAIN):
                self.waited += 1
                self.step = MoveStep.REMIND if self.needs_prompt else MoveStep.RESUME
            case MoveStep.REMIND:
                self.step = MoveStep.RESUME
            case MoveStep.RESUME if self._address_error:
                self._next_or_fail(MoveStep.FAILED, error or self._address_error)
            case MoveStep.RESUME:
                after = MoveStep.PROMPT if self.needs_prompt else MoveStep.DONE
                self._next_or_fail(after, error)
            case MoveStep.PROMPT:  # refused on purpose: only the look counts
                self.step = MoveStep.DONE
        return self.step

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.step in (MoveStep.DONE, MoveStep.FAILED)

    def _next_or_fail(self, after: MoveStep, error: int) -> None:
        self.step, self.error = (MoveStep.FAILED, error) if error else (after, 0)
