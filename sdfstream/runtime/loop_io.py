"""The one place that starts an event loop, and the one use of uvloop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from sdfstream.runtime import freed_memory_io
from sdfstream.runtime.output_io import progress

T = TypeVar("T")
_SAME_SIGNAL_S: Final = 0.5
"""A second signal within this time is a copy of the first: one came from the terminal, one from a parent process."""

_LONG_STOP_S: Final = 5.0
_STOPPING: Final = "still stopping: what was read is being dealt with and committed; a second signal ends it at once"


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end, on uvloop where the platform has it; freed memory is given back meanwhile."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_beside_trimming(main))
    result: T = uvloop.run(_beside_trimming(main))
    return result


async def _beside_trimming(main: Coroutine[Any, Any, T]) -> T:
    trimming = asyncio.create_task(freed_memory_io.give_back(), name="freed-memory")
    try:
        return await main
    finally:
        trimming.cancel()


def run_stoppable(main: Coroutine[Any, Any, T]) -> T:
    """As `run`; SIGINT and SIGTERM cancel `main`, which cleans up.

    Raises
    ------
    KeyboardInterrupt
        It was stopped by a signal.
    """
    done: list[T] = []
    stopped: list[bool] = []

    async def cancellable() -> None:
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            stopped.append(True)
            task.cancel()

        stop_on_signals(stop)
        try:
            done.append(await main)
        except asyncio.CancelledError:
            if not stopped:
                raise

    run(cancellable())
    if not done:
        raise KeyboardInterrupt
    return done[0]


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGINT and SIGTERM instead of dying in mid-flush; a later second one ends the process at once.

    Where the end takes long, as without a broker to commit to, a line says so and what a second signal does.
    """
    loop = asyncio.get_running_loop()
    first_s: list[float] = []

    def on_signal() -> None:
        if not first_s:
            first_s.append(loop.time())
            loop.call_later(_LONG_STOP_S, progress, _STOPPING)
            stop()
        elif loop.time() - first_s[0] > _SAME_SIGNAL_S:
            os._exit(130)  # what is in memory is lost

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, on_signal)
