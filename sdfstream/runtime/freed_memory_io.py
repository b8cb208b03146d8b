"""Memory that a burst took goes back to the kernel once the burst is over.

glibc retains what was freed in the middle of its heap: after a backlog of messages was worked off, half of a heap of
400 MB was free, and the process stayed as large as the backlog had made it. So the heap is looked at now and then, and
trimmed when much less of it is in use than was at its fullest since. Arrow's and chDB's allocators give back by
themselves (`allocators`).
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Any, Final

BURST_BYTES: Final = 32 << 20
"""A heap whose use has fallen by so much is trimmed."""
_LOOK_S: Final = 10.0
_FIELDS: Final = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


class FreedMemory:
    """Trims the heap after a burst; call `look` now and then.

    Parameters
    ----------
    in_use : callable
        Bytes of the heap in use now.
    trim : callable
        Gives free pages of the heap back.
    """

    def __init__(self, in_use: Callable[[], int], trim: Callable[[], None]) -> None:
        self._in_use, self._trim = in_use, trim
        self._most_bytes = 0
        """In use at most since the last trimming."""

    def look(self) -> None:
        """Trim where a burst is over."""
        now_bytes = self._in_use()
        self._most_bytes = max(self._most_bytes, now_bytes)
        if self._most_bytes - now_bytes > BURST_BYTES:
            self._trim()
            self._most_bytes = now_bytes


def of_glibc() -> FreedMemory | None:
    """The C library's heap; None where that is not glibc 2.33 or later."""
    library: Any = ctypes.CDLL(None)
    try:
        mallinfo2, malloc_trim = library.mallinfo2, library.malloc_trim
    except AttributeError:
        return None
    mallinfo2.restype = _Mallinfo2
    return FreedMemory(lambda: int(mallinfo2().uordblks), lambda: malloc_trim(0))


async def give_back() -> None:
    """Look at this process's heap until cancelled."""
    heap = of_glibc()
    while heap is not None:
        await asyncio.sleep(_LOOK_S)
        heap.look()
