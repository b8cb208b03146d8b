"""Bytes as a file that chDB can open by name, without a trace on disk where the system allows it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Final

RETAINED_BYTES: Final = 256 << 20
"""Most memory that a `Scratch` retains from one use to the next."""


class Scratch:
    """One file, used again and again by one thread: fresh memory for every insert costs more than filling it.

    On Linux an anonymous file in memory, so that a killed process leaves nothing behind; elsewhere a temporary one.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    @contextmanager
    def holding(self, write: Callable[[IO[bytes]], object]) -> Iterator[str]:
        """The path of the file with what `write` puts into it; the next use overwrites it."""
        file = self._file = self._file or _made()
        file.seek(0)
        write(file)
        file.flush()
        file.truncate()
        try:
            yield f"/proc/self/fd/{file.fileno()}" if hasattr(os, "memfd_create") else str(file.name)
        finally:
            if file.tell() > RETAINED_BYTES:
                self.close()

    def close(self) -> None:
        """Give the memory back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _made() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("sdf-archive"), "w+b")  # buffered: a short write goes on, or raises
    return tempfile.NamedTemporaryFile(suffix=".sdf-archive")  # pragma: no cover - not where tests run
