"""Waiting at the start for a server that starts too."""

from __future__ import annotations

import asyncio

import pytest

from sdfstream.errors import UnavailableError
from sdfstream.serve.retry_io import open_with_retry


async def test_a_server_that_comes_is_waited_for_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    asked = 0

    def open_it() -> str:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise UnavailableError("nobody answers at x")
        return "open"

    assert await open_with_retry(open_it, asyncio.Event()) == "open"
    assert capsys.readouterr().err.count("nobody answers at x") == 1


@pytest.mark.parametrize(("retry_for_s", "stopped"), [(0.0, False), (60.0, True)])
async def test_one_that_does_not_come_is_an_error_also_at_a_stop(retry_for_s: float, stopped: bool) -> None:
    def open_it() -> str:
        raise UnavailableError("nobody answers at x")

    stop = asyncio.Event()
    waiting = asyncio.create_task(open_with_retry(open_it, stop, retry_for_s))
    await asyncio.sleep(0.2)
    assert waiting.done() is not stopped
    stop.set()
    with pytest.raises(UnavailableError, match="nobody answers at x"):
        await asyncio.wait_for(waiting, 2.0)
