"""A process that is told to stop, and takes long over it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from sdfstream.runtime import loop_io


async def test_a_long_stop_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop_io, "_LONG_STOP_S", 0.05)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop_io.stop_on_signals(stop.set)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 5.0)
        assert "second signal" not in capsys.readouterr().err
        await asyncio.sleep(0.2)
        assert "a second signal ends it at once" in capsys.readouterr().err
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
