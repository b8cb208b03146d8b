"""Memory that only starting took goes back once a process runs.

Loading the interpreter's modules, Arrow and NumPy touches many pages of shared libraries that are never looked at
again, and leaves holes in the heap: of a process that lives for weeks beside a job that was more than half. So what is
the same in a library's file is unmapped, and the heap trimmed. Unmapped pages stay in the kernel's page cache: what is
needed is mapped again at the next touch, without reading from disk.

Only mappings of which no page is the process's own are touched (``Anonymous: 0 kB``), so nothing can be lost: neither
relocated tables nor a page that a debugger or a uprobe has changed.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from sdfstream.runtime import freed_memory_io

STARTED_S: Final = 10.0
"""After so long everything has been done once."""
_LEAST_BYTES: Final = 256 << 10
"""Of smaller mappings, the packet engine's among them, there is little to be had."""
_SMAPS: Final = Path("/proc/self/smaps")


async def give_back() -> None:
    """Give back what starting took, once; where the kernel or the C library cannot, nothing happens."""
    await asyncio.sleep(STARTED_S)
    heap = freed_memory_io.of_glibc()
    if heap is not None:
        heap.trim()
    unmap_unchanged()  # seven milliseconds, once


def unmap_unchanged() -> int:
    """Unmap the pages of shared libraries that are as in their files; how many bytes of them were resident."""
    try:
        lines = _SMAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    library: Any = ctypes.CDLL(None, use_errno=True)
    advise = getattr(library, "madvise", None)
    if advise is None:
        return 0
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    given = 0
    for first, end, resident_bytes in unchanged(lines):
        if not advise(first, end - first, mmap.MADV_DONTNEED):  # refused where pages are locked: they stay
            given += resident_bytes
    return given


def unchanged(smaps: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Mappings of libraries without a page of the process's own: (first address, end, resident bytes).

    Parameters
    ----------
    smaps : iterable of str
        Lines of ``/proc/PID/smaps`` (proc(5)).
    """
    words: list[str] = []
    resident_bytes = 0
    for line in smaps:
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            words = line.split(maxsplit=5)
        elif name == "Rss:":
            resident_bytes = int(rest.split()[0]) << 10
        elif name == "Anonymous:" and int(rest.split()[0]) == 0 and _is_of_library(words):
            first, end = (int(address, 16) for address in words[0].split("-"))
            if resident_bytes >= _LEAST_BYTES:
                yield first, end, resident_bytes


def _is_of_library(words: list[str]) -> bool:
    """Whether these words of a mapping's first line say that it maps a file, privately and never to be written."""
    return len(words) == 6 and words[1] in ("r-xp", "r--p") and ".so" in words[5] and not words[5].endswith("(deleted)")
