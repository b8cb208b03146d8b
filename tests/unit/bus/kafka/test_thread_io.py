"""A loop beside the process's own: it goes on while that one is busy, and ends with whoever began it."""

import asyncio
import time

import pytest

from sdfstream.bus.kafka.thread_io import LoopThread


async def test_it_goes_on_while_the_loop_of_the_process_is_busy() -> None:
    beside, times_s = LoopThread("beside"), list[float]()

    async def tick() -> None:
        while True:
            times_s.append(time.monotonic())
            await asyncio.sleep(0.01)

    beside.start()
    ticking = asyncio.create_task(beside.run(tick()))
    await asyncio.sleep(0.1)
    began_s = time.monotonic()
    time.sleep(0.3)  # noqa: ASYNC251 (that is the test)
    assert sum(at_s > began_s for at_s in times_s) > 3
    await beside.end()
    assert not beside.alive
    with pytest.raises(asyncio.CancelledError):
        await ticking


async def test_what_it_runs_returns_raises_and_is_cancelled_with_its_caller() -> None:
    beside, cancelled = LoopThread("beside"), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def fail() -> None:
        raise ValueError("no")

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            loop.call_soon_threadsafe(cancelled.set)
            raise

    beside.start()
    assert await beside.run(asyncio.sleep(0, "yes")) == "yes"
    with pytest.raises(ValueError, match="no"):
        await beside.run(fail())
    waiting = asyncio.create_task(beside.run(wait()))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.wait_for(cancelled.wait(), 5.0)
    await beside.end()
