"""The heap is trimmed once a burst is over, and not for small change."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from sdfstream.runtime import freed_memory_io, loop_io
from sdfstream.runtime.freed_memory_io import BURST_BYTES, FreedMemory


def test_only_a_burst_that_is_over_is_trimmed() -> None:
    in_use = [100 << 20]
    trimmed: list[int] = []
    heap = FreedMemory(lambda: (in_use[0], 0), lambda: trimmed.append(in_use[0]))
    for bytes_now, expected in (
        (100 << 20, 0), (200 << 20, 0), ((200 << 20) - BURST_BYTES, 0), (120 << 20, 1), (120 << 20, 1), (90 << 20, 1),
        (80 << 20, 2),
    ):  # fmt: skip
        in_use[0] = bytes_now
        heap.look()
        assert len(trimmed) == expected, bytes_now


@pytest.mark.parametrize(
    ("used", "free", "at_looks"),
    [(120 << 20, 100 << 20, [6, 12]), (120 << 20, 30 << 20, []), (800 << 20, 90 << 20, [])],
)
def test_a_heap_that_stays_partly_free_is_trimmed_at_every_sixth_look(
    used: int, free: int, at_looks: list[int]
) -> None:
    looks: list[int] = []
    trimmed: list[int] = []
    heap = FreedMemory(lambda: (used, free), lambda: trimmed.append(len(looks)))
    for number in range(13):
        looks.append(number)
        heap.look()
    assert trimmed == at_looks


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(freed_memory_io.of_glibc() is None, reason="another C library than glibc 2.33 or later")
def test_a_process_is_small_again_after_a_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory_io, "_LOOK_S", 0.05)
    heap = freed_memory_io.of_glibc()
    assert heap is not None
    heap._trim()  # what other tests freed in this process would serve for the backlog

    async def work() -> tuple[int, int, int]:
        before = resident_bytes()
        backlog = [bytearray(b"x" * 60_000) for _ in range(3000)]
        full = resident_bytes()
        await asyncio.sleep(0.3)
        backlog = backlog[::100]  # what stays lies between what goes
        await asyncio.sleep(0.3)
        assert backlog
        return before, full, resident_bytes()

    before, full, after = loop_io.run(work())
    assert full - before > 150_000_000
    assert after - before < 60_000_000
