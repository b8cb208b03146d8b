"""Unix sockets in folders of any depth: a socket's path may be at most 107 bytes, a folder's descriptor is short."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 107


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name of `path` that a socket may be bound or connected to, while the block runs."""
    if len(os.fsencode(path)) <= _MOST_BYTES or not hasattr(os, "O_PATH"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
