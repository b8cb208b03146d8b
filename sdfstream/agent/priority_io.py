"""Real-time priority of the agent's threads, so that a busy host delays neither probing nor what it reports."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

_log = logging.getLogger("sdfstream.agent")

PRIORITY: Final = 10
BESIDE_PRIORITY: Final = 8
"""Of Python beside the packet engine, whose thread has `PRIORITY`."""


def ask_for_priority(priority: int = PRIORITY) -> None:
    """SCHED_FIFO, so that a busy host does not delay probing; threads and child processes keep their priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except OSError as error:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)
        _log.info("running at normal priority (%s); stamps are the kernel's, so delays stay true", error.strerror)


def follow_in_priority() -> None:
    """Let the calling thread, and those it starts, come right behind the probing thread.

    A helper takes turns with it at the interpreter's lock. At normal priority a busy machine would push the helper off
    its core while it holds the lock, and probing would stand still until it is let on again: 50 ms were measured.
    """
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(os.getpid()) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO:
            beside = os.sched_getparam(os.getpid()).sched_priority
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(beside - 1))
