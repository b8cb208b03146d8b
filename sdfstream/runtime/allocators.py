"""Settings of Arrow's and chDB's allocators, so that they hold freed memory for longer than by default.

Messages have about the same sizes again and again. By default Arrow's allocator returns memory to the kernel after
10 ms and chDB's after 5 s, so that every insert begins with fresh pages, which the kernel clears first; on virtual
machines that is a fifth of what an exchange costs (docs/performance.md). An agent, with 20 small messages a second, has
Arrow use the C library's instead: its own begins with four megabytes.
"""

from __future__ import annotations

import os
import sys
from typing import Final

SETTINGS: Final = {"MIMALLOC_PURGE_DELAY": "10000", "JE_MALLOC_CONF": "dirty_decay_ms:30000"}
"""How long [ms] Arrow's and chDB's allocators hold freed memory."""
SMALL: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""For a process that is to be small."""


def configure(*, small: bool = False) -> None:
    """Set `SETTINGS`, or `SMALL`, where the environment says nothing else.

    The libraries look when they are loaded, so call this first.
    """
    if "pyarrow" not in sys.modules:
        for name, value in (SMALL if small else SETTINGS).items():
            os.environ.setdefault(name, value)  # noqa: TID251 (no setting of ours: theirs)
