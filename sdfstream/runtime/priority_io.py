"""A little more of a busy machine for the thread that runs the stages: what comes late is told late."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

NICE: Final = -5
"""Three times the share of a thread at normal priority, of at most one core."""


def ask_for_more() -> None:
    """Nice −5 for the calling thread, and for those that it starts from now on; as before where that is not allowed.

    The archive's threads, started before, keep theirs: they may wait.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, min(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
