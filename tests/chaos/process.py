"""One child process: its log, its death by our hand or its own, its restart.

A child ends when the process that started it does (parent-death signal), also when that one is killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

RESTART_S = 1.0
"""A child that ended by itself is started again after this long, as a supervisor of services would."""


ORDINARY: Final = os.getpriority(os.PRIO_PROCESS, 0)
_URGENT: Final = 10


def _now() -> str:
    return time.strftime("%H:%M:%S", time.gmtime()) + f"{time.time() % 1:.2f}"[1:]


def hurry() -> None:
    """Give this process priority over the stages that it starts, where it may: agents, broker and ClickHouse are the
    world that they live in, and it does not wait for what is tested.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, ORDINARY - _URGENT)


@dataclass(slots=True)
class Child:
    """A process that is to run until `stop`."""

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    pipe: bool = False
    """Its standard input is a pipe of ours."""
    urgent: bool = False
    """It keeps our priority; the others get the ordinary one."""
    starts: int = 0
    deaths: list[tuple[float, int]] = field(default_factory=list)
    """Ends that were not ours: (monotonic seconds, exit status)."""
    process: asyncio.subprocess.Process | None = None
    _ours: bool = False
    _watch: asyncio.Task[None] | None = None
    _hearing: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether it runs (or is frozen)."""
        return self.process is not None and self.process.returncode is None

    async def start(self, *more: str) -> None:
        """Start it, with `more` arguments behind the others."""
        self.starts += 1
        self._ours = False
        command = [*self.argv, *more]
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        self.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE if self.pipe else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **self.env},
            limit=1 << 20,
        )
        assert self.process.stdout is not None
        self._hearing.append(asyncio.create_task(self._hear(self.process.stdout, self.starts)))
        if not self.urgent:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.process.pid, ORDINARY)

    async def _hear(self, said: asyncio.StreamReader, start: int) -> None:
        """What it says goes to its log, with the time."""
        with self.log.open("ab", buffering=0) as log:
            log.write(f"{_now()} --- start {start}\n".encode())
            with suppress(ValueError, OSError):  # a line longer than any of ours ends the hearing, not the run
                while line := await said.readline():
                    log.write(_now().encode() + b" " + line)

    def keep(self) -> None:
        """Start it again whenever it ends by itself."""
        self._watch = asyncio.create_task(self._keeping(), name=f"keep {self.name}")

    async def kill(self) -> None:
        """kill -9; it stays dead until `start`."""
        await self._end(signal.SIGKILL, 10.0)

    async def stop(self, timeout_s: float = 20.0) -> bool:
        """Ask it to end for good; False when it had to be killed."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        return await self._end(signal.SIGTERM, timeout_s)

    def send(self, signum: signal.Signals) -> None:
        """A signal, such as SIGSTOP or SIGCONT."""
        if self.process is not None and self.alive:
            with suppress(ProcessLookupError):
                self.process.send_signal(signum)

    def said(self, words: str) -> bool:
        """Whether its log holds `words` since its last start."""
        with suppress(OSError):
            return words in self.log.read_text(errors="replace").rpartition("--- start ")[2]
        return False

    async def _end(self, how: signal.Signals, timeout_s: float) -> bool:
        self._ours = True
        process = self.process
        if process is None or process.returncode is not None:
            return True
        with suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return False
        return True

    async def _keeping(self) -> None:
        while True:
            process = self.process
            if process is None or process.returncode is not None:
                await asyncio.sleep(0.1)
                continue
            status = await process.wait()
            if self._ours or process is not self.process:
                continue
            self.deaths.append((time.monotonic(), status))
            await asyncio.sleep(RESTART_S)
            if not self._ours and process is self.process:
                await self.start()
