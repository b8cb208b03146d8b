"""The one place that starts an event loop, and the one use of uvloop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
_AGAIN_S: Final = 0.5
"""A signal that comes sooner is the same one by another way: from the terminal and from a parent."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end, on uvloop where the platform has it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    result: T = uvloop.run(main)
    return result


def run_stoppable(main: Coroutine[Any, Any, T]) -> T:
    """As `run`; SIGINT and SIGTERM cancel `main`, which cleans up.

    Raises
    ------
    KeyboardInterrupt
        It was stopped by a signal.
    """
    done: list[T] = []
    told: list[bool] = []

    async def cancellable() -> None:
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            told.append(True)
            task.cancel()

        stop_on_signals(stop)
        try:
            done.append(await main)
        except asyncio.CancelledError:
            if not told:
                raise

    run(cancellable())
    if not done:
        raise KeyboardInterrupt
    return done[0]


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGINT and SIGTERM instead of dying in mid-flush; a later second one ends the process at once."""
    loop = asyncio.get_running_loop()
    first_s: list[float] = []

    def told() -> None:
        if not first_s:
            first_s.append(loop.time())
            stop()
        elif loop.time() - first_s[0] > _AGAIN_S:
            os._exit(130)  # whatever is held goes with the process

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, told)
