"""Bytes as a file that chDB can open by name, without a trace on disk where the system allows it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO


@contextmanager
def readable_file(write: Callable[[IO[bytes]], object]) -> Iterator[str]:
    """The path of a file with what `write` put into it; gone afterwards, and with the process on Linux.

    On Linux an anonymous file in memory, so that a killed process leaves nothing behind; elsewhere a temporary one.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("sdf-archive"), "w+b") as file:
            write(file)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:  # pragma: no cover - not on the systems that the tests run on
        with tempfile.NamedTemporaryFile(suffix=".sdf-archive") as named:
            write(named)
            named.flush()
            yield named.name
