"""The part of a program that agents speak to: a thread with the control socket, and the file that names it.

The thread holds no rule: `qpcontrol.rules` decides what is obeyed. pyverbs calls hold Python's lock, so the thread and
the program never touch a queue pair at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from sdfstream.errors import UnavailableError
from sdfstream.qpcontrol.rules import QpControl, QpTarget, RefusedError
from sdfstream.qpcontrol.server_io import ControlServer
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.signature import KeyRing
from sdfstream.stats import Counters
from sdfstream.verbs.description import Registration, drop_file, queue_pair, shard
from sdfstream.verbs.live_qp_io import LiveQp

_log = logging.getLogger("sdfstream.verbs")
_START_S: Final = 30.0
_MOVING_S: Final = 0.002
"""Pause between two looks at a queue pair that is being moved."""


class QpOwner:
    """Serves the queue pairs of one job on one host.

    Parameters
    ----------
    job, host : str
    keys : KeyRing
        Whose commands are obeyed.
    jobs_dir : Path
        Drop directory of the host's agent.

    Raises
    ------
    UnavailableError
        The socket or the file cannot be made.
    """

    def __init__(self, job: str, host: str, keys: KeyRing, jobs_dir: Path) -> None:
        self.job, self.host = job, host
        self.counters = Counters("control")
        self._qps: dict[str, tuple[Registration, LiveQp]] = {}
        self._targets: dict[str, QpTarget] = {}
        self._since_at_ns = time.time_ns()
        self._changed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready, self._ended, self._failure = threading.Event(), False, ""
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="sdfqps-"))
        except OSError as error:
            raise UnavailableError(f"no folder for the control socket: {error}") from error
        self.socket = self._folder / "control"
        self._file = jobs_dir / f"{job}@{host}.json"
        self._rules = QpControl(keys, job, self._targets, self._wake)
        self._thread = threading.Thread(target=self._serve, name=f"sdfstream {job}", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_S) or self._failure:
            self.close()
            raise UnavailableError(f"no control socket: {self._failure or 'its thread does not start'}")

    def add(self, about: Registration, qp: LiveQp) -> str:
        """Offer a queue pair; its id."""
        name = about.id(qp.number)
        self._qps[name] = (about, qp)
        self._targets[name] = QpTarget(name, (qp.path, *about.alternates), None, qp)
        qp.waits = self._wake
        try:
            self._write()
        except UnavailableError:
            del self._qps[name], self._targets[name]
            raise
        return name

    def remove(self, name: str) -> None:
        """Offer it no more."""
        self._qps.pop(name, None)
        self._targets.pop(name, None)
        self._write()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is offered."""
        return not self._qps

    def close(self) -> None:
        """Take socket and file away."""
        self._ended = True
        self._wake()
        self._thread.join(timeout=_START_S)
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- files ------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Name socket and ranks to the agent, as a whole or not at all."""
        new = self._file.with_name(f".{self._file.name}.tmp")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(drop_file(self._shard())))
            new.replace(self._file)
        except OSError as error:
            raise UnavailableError(f"{self._file}: {error.strerror}") from error

    def _shard(self) -> JobShard:
        pairs: list[QueuePair] = []
        for about, qp in list(self._qps.values()):
            pairs.append(queue_pair(about, qp, can_steer=qp.capabilities.steer != "none"))
        return shard(self.job, self.host, os.getpid(), self._since_at_ns, pairs, str(self.socket))

    def _list(self) -> dict[str, Any]:
        data = self._shard().as_data()
        for pair in data["qps"]:
            about_qp = self._qps.get(pair["qp"])
            if about_qp is not None:
                pair["moved_at_ns"] = about_qp[1].moved_at_ns
                pair["capabilities"] = about_qp[1].capabilities.as_data()
        return {key: data[key] for key in ("job", "host", "ranks", "qps", "receives")}

    # -- thread -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        loop, changed = self._loop, self._changed
        if loop is not None and changed is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(changed.set)

    def _serve(self) -> None:
        try:
            asyncio.run(self._main())
        except OSError as error:
            self._failure = str(error)
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        server = ControlServer(self.socket, self.host, self._rules, {"list": self._list}, self.counters)
        await server.start()
        self._ready.set()
        try:
            while not self._ended:
                self._changed.clear()
                self._rules.expire(time.monotonic_ns())
                moving = self._go_on_moving()
                ends_ns = self._rules.next_end_ns
                left_s = None if ends_ns is None else max(0.0, (ends_ns - time.monotonic_ns()) / 1e9)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _MOVING_S if moving else left_s)
        finally:
            await server.close()

    def _go_on_moving(self) -> bool:
        """Whether a queue pair still waits for its send queue to drain."""
        moving = False
        for name, (_, qp) in list(self._qps.items()):
            try:
                moving |= qp.is_moving and not qp.go_on()
            except RefusedError as error:
                self.counters.add("control", error.reason)
                _log.warning("%s: %s", name, error)
        return moving
