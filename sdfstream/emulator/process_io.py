"""The process of an emulated job: clocks, control sockets, files, rows. One process serves all ranks.

The packets are carried by a data plane in C, in a thread of its own (`engine.plane_io`); without a C compiler, or where
the job's configuration says so, by the one in Python (`plane_io`), and the log says which.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from sdfstream.agent.publish_io import OutputPublisher
from sdfstream.emulator.engine.library_io import library
from sdfstream.emulator.engine.plane_io import EnginePlane
from sdfstream.emulator.plane_io import PythonPlane
from sdfstream.emulator.process_files_io import JobFiles
from sdfstream.emulator.process_nic_io import Enter
from sdfstream.emulator.process_plane import DataPlane
from sdfstream.emulator.process_rows import ClockOf, outputs
from sdfstream.emulator.rank_plan import JobPlan
from sdfstream.errors import UnavailableError
from sdfstream.qpcontrol.rules import QpControl, QpTarget
from sdfstream.qpcontrol.server_io import Ask, ControlServer
from sdfstream.records.job import JobShard, Rank
from sdfstream.records.signature import KeyRing
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.job")

_FLUSH_NS: Final = 250 * NS_PER_MS
_LOOK_NS: Final = NS_PER_S


async def run_job(
    plan: JobPlan,
    jobs_dir: Path,
    keys: KeyRing,
    stop: asyncio.Event,
    *,
    enter: Enter,
    clock_of: ClockOf,
    run: int,
    publisher: OutputPublisher | None = None,
    ready: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Run until `stop` is set, the time is up, or all collectives are done; the figures.

    Parameters
    ----------
    plan : JobPlan
    jobs_dir : Path
        Drop directory.
    keys : KeyRing
        Whose commands are obeyed.
    stop : asyncio.Event
    enter : Enter
    clock_of : ClockOf
        The hosts' clocks, for the rows.
    run : int
        32 random bits.
    publisher : OutputPublisher or None
    ready : callable or None
        Called once everything is open and the job's files are there.

    Raises
    ------
    ConfigError, UnavailableError
        It cannot start.
    """
    job = _JobProcess(plan, jobs_dir, keys, stop, enter, clock_of, run, publisher)
    try:
        await job.start()
        if ready is not None:
            ready()
        await job.pace()
        return job.stats()
    finally:
        await job.close()


class _JobProcess:
    def __init__(
        self,
        plan: JobPlan,
        jobs_dir: Path,
        keys: KeyRing,
        stop: asyncio.Event,
        enter: Enter,
        clock_of: ClockOf,
        run: int,
        publisher: OutputPublisher | None,
    ) -> None:
        self._plan = plan
        self._stop = stop
        self._clock_of = clock_of
        self._publisher = publisher
        self._started_ns = time.monotonic_ns()
        self._since_at_ns = time.time_ns()
        self._counters = Counters("job")
        self._changed = asyncio.Event()
        self._files = JobFiles(jobs_dir, plan.spec.name)
        self._servers: list[ControlServer] = []
        try:
            self._plane = _open_plane(plan, run, enter)
        except BaseException:
            self._files.close()
            raise
        targets = {
            qp.id: QpTarget(qp.id, qp.ports, plan.spec.rate_bps, self._plane.sender(index))
            for index, qp in enumerate(plan.qps)
        }
        self._control = QpControl(keys, plan.spec.name, targets, self._changed.set)

    async def start(self) -> None:
        """Serve control, write the files."""
        _ask_for_priority()
        for host in dict.fromkeys(nic.host for nic in self._plan.nics):
            other: dict[str, Ask] = {
                "list": partial(self._list, host),
                "stats": self.stats,
                "stop": self._stop_on_request,
            }
            server = ControlServer(self._files.socket(host), host, self._control, other, self._counters)
            await server.start()
            self._servers.append(server)
            self._files.write(self._shard(host), self._plan.spec.block)

    async def close(self) -> None:
        """Remove files and sockets, publish the last rows."""
        for server in self._servers:
            await server.close()
        self._files.close()
        self._plane.stop()
        await self._flush()
        self._plane.close()

    async def pace(self) -> None:
        """Let the data plane work; rows, limits that end and NICs that return, each at its time."""
        stopping = asyncio.get_running_loop().create_task(self._stop.wait())
        stopping.add_done_callback(lambda _: self._changed.set())
        self._plane.start(self._changed.set)
        seconds = self._plan.spec.seconds
        end_ns = None if seconds is None else self._started_ns + int(seconds * NS_PER_S)
        flush_ns = look_ns = time.monotonic_ns()
        try:
            while not self._stop.is_set() and not self._plane.is_done:
                now_ns = time.monotonic_ns()
                if end_ns is not None and now_ns >= end_ns:
                    return
                if now_ns >= flush_ns:
                    flush_ns = now_ns + _FLUSH_NS
                    await self._flush()
                if now_ns >= look_ns:
                    look_ns = now_ns + _LOOK_NS
                    self._check_nics()
                self._control.expire(now_ns)
                due = [flush_ns, look_ns, *(ns for ns in (end_ns, self._control.next_end_ns) if ns is not None)]
                await self._wait(min(due))
        finally:
            stopping.cancel()

    async def _wait(self, until_ns: int) -> None:
        """Wait until the steady clock says so, or something has changed."""
        left_s = max(0, until_ns - time.monotonic_ns()) / NS_PER_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._changed.wait()
        self._changed.clear()

    def stats(self) -> dict[str, Any]:
        """Figures since the start, plain JSON."""
        figures = self._plane.stats()
        return {
            "job": self._plan.spec.name,
            "at_ns": time.time_ns(),
            "pid": os.getpid(),
            "seconds": (time.monotonic_ns() - self._started_ns) / NS_PER_S,
            "cpu_seconds": time.process_time(),
            "data_plane": self._plane.name,
            **figures,
            "counters": {**figures["counters"], **self._counters.as_dict()},
        }

    def _check_nics(self) -> None:
        """Once a second: reopen NICs that went away; stop when the fabric is gone for good."""
        self._plane.check()
        nics = self._plan.nics
        if all(nic.netns is not None and not Path(nic.netns).exists() for nic in nics):
            _log.warning("the fabric is gone; the job ends")
            self._stop.set()

    async def _flush(self) -> None:
        chunks = self._plane.take_rows()
        if chunks and self._publisher is not None:
            spec = self._plan.spec
            await self._publisher.publish(outputs(spec.name, spec.collective, chunks, self._clock_of))

    def _shard(self, host: str) -> JobShard:
        nics, figures = self._plan.nics, self._plane.qps()
        pairs = [
            (qp, qp.queue_pair(one["path"], one["rate_bps"]))
            for qp, one in zip(self._plan.qps, figures, strict=True)
            if host in (nics[qp.rank].host, nics[qp.peer_rank].host)
        ]
        return JobShard(
            job=self._plan.spec.name,
            host=host,
            name=f"{self._plan.spec.collective} {self._plan.spec.name}",
            since_at_ns=self._since_at_ns,
            source="process",
            ranks=tuple(Rank(n, (p.nic,), os.getpid()) for n, p in enumerate(nics) if p.host == host),
            qps=tuple(pair for qp, pair in pairs if nics[qp.rank].host == host),
            receives=tuple(pair for qp, pair in pairs if nics[qp.peer_rank].host == host),
            control=str(self._files.socket(host)),
        )

    def _list(self, host: str) -> dict[str, Any]:
        shard = self._shard(host).as_data()
        figures = {one["qp"]: one for one in self._plane.qps()}
        for qp in shard["qps"]:
            one = figures[qp["qp"]]
            qp |= {key: one[key] for key in ("sent_bytes", "acknowledged_bytes", "retransmits", "moved_at_ns")}
        return {key: shard[key] for key in ("job", "host", "ranks", "qps", "receives")}

    def _stop_on_request(self) -> dict[str, Any]:
        self._stop.set()
        return {"ok": True}


def _open_plane(plan: JobPlan, run: int, enter: Enter) -> DataPlane:
    """The data plane in C where it can be compiled and is wanted, else the one in Python."""
    if not plan.spec.engine:
        return PythonPlane(plan, run, enter)
    try:
        library()
    except UnavailableError as error:
        _log.warning("job %s: %s; its data plane is in Python and takes much of a core", plan.spec.name, error)
        return PythonPlane(plan, run, enter)
    _log.info("job %s: data plane in C", plan.spec.name)
    return EnginePlane(plan, run, enter)


def _ask_for_priority() -> None:
    """A better nice value, where we may: late passes are lost throughput.

    Not a real-time class: a job that is never pushed off its core starves agent and pipeline of a small machine.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -5)
