"""Settings of Arrow's and chDB's allocators, so that they hold freed memory for longer than by default.

Messages have about the same sizes again and again. By default Arrow's allocator returns memory to the kernel after
10 ms and chDB's after 5 s, so that every insert begins with fresh pages, which the kernel clears first; on virtual
machines that is a fifth of what an exchange costs (docs/performance.md).
"""

from __future__ import annotations

import os
import sys
from typing import Final

SETTINGS: Final = {"MIMALLOC_PURGE_DELAY": "10000", "JE_MALLOC_CONF": "dirty_decay_ms:30000"}
"""How long [ms] Arrow's and chDB's allocators hold freed memory."""


def configure() -> None:
    """Set `SETTINGS` where the environment says nothing else; the libraries look when loaded, so call this first."""
    if "pyarrow" not in sys.modules:
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)  # noqa: TID251 (no setting of ours: theirs)
