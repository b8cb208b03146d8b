"""What the agent's loop waits for."""

from __future__ import annotations

import asyncio

import pytest

from sdfstream.agent.wake_io import Wake


async def test_without_a_call_it_waits_until_the_instant() -> None:
    loop, wake = asyncio.get_running_loop(), Wake()
    at_s = loop.time() + 0.02
    assert not await wake.until(at_s)
    assert loop.time() >= at_s - 0.001


async def test_a_call_ends_the_wait() -> None:
    loop, wake = asyncio.get_running_loop(), Wake()
    loop.call_later(0.01, wake.call)
    assert await wake.until(loop.time() + 60)


async def test_a_call_before_the_wait_ends_it_at_once_and_only_that_one() -> None:
    loop, wake = asyncio.get_running_loop(), Wake()
    wake.call()
    wake.call()
    assert await wake.until(loop.time() + 60)
    assert not await wake.until(loop.time() + 0.01)


async def test_an_instant_that_is_over_still_lets_others_work() -> None:
    loop, wake = asyncio.get_running_loop(), Wake()
    turns: list[int] = []
    loop.call_soon(turns.append, 1)
    assert not await wake.until(loop.time() - 1)
    assert turns == [1]


async def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    loop, wake = asyncio.get_running_loop(), Wake()
    waiting = asyncio.create_task(wake.until(loop.time() + 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    wake.call()
    assert await wake.until(loop.time() + 60)
