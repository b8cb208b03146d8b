"""Memory that was freed stays with this process for a while: asking the kernel for it again costs more than using it.

Messages come again and again in about the same sizes. By default Arrow's allocator gives memory back after 10 ms and
chDB's after 5 s, so that every insert begins with fresh pages, which the kernel clears first; on virtual machines that
is a fifth of what an exchange costs (docs/performance.md).
"""

from __future__ import annotations

import os
import sys
from typing import Final

SETTINGS: Final = {"MIMALLOC_PURGE_DELAY": "10000", "JE_MALLOC_CONF": "dirty_decay_ms:30000"}
"""How long [ms] Arrow's and chDB's allocators keep what was freed."""


def hold() -> None:
    """Set `SETTINGS` where the environment says nothing else; the libraries look when loaded, so call this first."""
    if "pyarrow" not in sys.modules:
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)  # noqa: TID251 (no setting of ours: theirs)
