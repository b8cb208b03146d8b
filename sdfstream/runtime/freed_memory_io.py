"""Memory that a burst took goes back to the kernel once the burst is over.

glibc retains what was freed in the middle of its heap: after a backlog of messages was worked off, half of a heap of
400 MB was free, and the process stayed as large as the backlog had made it. So the heap is looked at now and then, and
trimmed when much less of it is in use than was at its fullest since. Short bursts between two looks leave as much (118
of 256 MB after 100,000 hostile messages, at a use that never fell), so a heap that is free to a good part is trimmed
too, now and then: what is free says not whether it was given back before. Arrow's and chDB's allocators give back by
themselves (`allocators`).
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Any, Final

BURST_BYTES: Final = 32 << 20
"""A heap whose use has fallen by so much is trimmed, and one of which more is free, and a good part."""
_FREE_SHARE: Final = 0.25
_LOOK_S: Final = 10.0
_LOOKS: Final = 6
"""Looks from one trimming of a partly free heap to the next."""
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
    heap : callable
        Bytes of the heap that are in use now, and that are free.
    trim : callable
        Gives free pages of the heap back.
    """

    def __init__(self, heap: Callable[[], tuple[int, int]], trim: Callable[[], None]) -> None:
        self._heap, self._trim = heap, trim
        self._most_bytes = 0
        """In use at most since the last trimming."""
        self._looks = 0
        """Since the last trimming."""

    def look(self) -> None:
        """Trim where a burst is over, or much of the heap is free."""
        used_bytes, free_bytes = self._heap()
        self._most_bytes = max(self._most_bytes, used_bytes)
        self._looks += 1
        much = free_bytes > max(BURST_BYTES, _FREE_SHARE * (used_bytes + free_bytes))
        if self._most_bytes - used_bytes > BURST_BYTES or (much and self._looks >= _LOOKS):
            self.trim()

    def trim(self) -> None:
        """Give all free pages back now."""
        self._trim()
        self._most_bytes, self._looks = self._heap()[0], 0


def of_glibc() -> FreedMemory | None:
    """The C library's heap; None where that is not glibc 2.33 or later."""
    library: Any = ctypes.CDLL(None)
    try:
        mallinfo2, malloc_trim = library.mallinfo2, library.malloc_trim
    except AttributeError:
        return None
    mallinfo2.restype = _Mallinfo2

    def heap() -> tuple[int, int]:
        info = mallinfo2()
        return int(info.uordblks), int(info.fordblks)

    return FreedMemory(heap, lambda: malloc_trim(0))


async def give_back() -> None:
    """Look at this process's heap until cancelled."""
    heap = of_glibc()
    while heap is not None:
        await asyncio.sleep(_LOOK_S)
        heap.look()
