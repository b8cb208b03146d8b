"""The one place that starts an event loop, and the one use of uvloop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end, on uvloop where the platform has it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    result: T = uvloop.run(main)
    return result


def run_stoppable(main: Coroutine[Any, Any, T]) -> T:
    """As `run`; SIGINT and SIGTERM cancel `main`, which cleans up, and a second one ends the process at once.

    Raises
    ------
    KeyboardInterrupt
        It was stopped by a signal.
    """
    done: list[T] = []

    async def cancellable() -> None:
        task, told = asyncio.current_task(), False

        def stop() -> None:
            nonlocal told
            if told:
                os._exit(130)  # whatever is held goes with the process
            told = True
            if task is not None:
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
    """Call `stop` on SIGINT and SIGTERM instead of dying in mid-flush."""
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop)
