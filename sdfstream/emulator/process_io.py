"""The process of an emulated job: sockets, clocks, control sockets, rows. One process serves all ranks.

A pass every two milliseconds: read what has arrived, let the engine work, send. Between two passes packets wait in
the sockets; arrivals are stamped by the kernel, so waiting falsifies no delay. The engine's clock does not count the
process's own stalls: a process that was not scheduled for a while must not take packets in its sockets for lost.
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
from sdfstream.emulator.control import QpControl, QpTarget
from sdfstream.emulator.control_io import Ask, ControlServer
from sdfstream.emulator.process_files_io import JobFiles
from sdfstream.emulator.process_net_io import JobNet
from sdfstream.emulator.process_rows import ClockOf, outputs
from sdfstream.emulator.rank_job import JobEngine, QpEnds
from sdfstream.emulator.rank_plan import JobPlan
from sdfstream.records.job import JobShard, Rank
from sdfstream.records.signature import KeyRing
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_log = logging.getLogger("sdfstream.job")

PASS_NS: Final = 2 * NS_PER_MS
_STALL_NS: Final = 5 * PASS_NS
"""A pass later than this is a stall of the process; the engine's clock stands still meanwhile."""
_FLUSH_NS: Final = 100 * NS_PER_MS
_LOOK_NS: Final = NS_PER_S


async def run_job(
    plan: JobPlan,
    jobs_dir: Path,
    keys: KeyRing,
    stop: asyncio.Event,
    *,
    enter: Callable[[str | None, Callable[[], Any]], Any],
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
    enter : callable
        (path of a network namespace or None, work) to the result of the work, done there.
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
        enter: Callable[[str | None, Callable[[], Any]], Any],
        clock_of: ClockOf,
        run: int,
        publisher: OutputPublisher | None,
    ) -> None:
        self._plan = plan
        self._stop = stop
        self._clock_of = clock_of
        self._publisher = publisher
        self._now_ns = self._real_ns = self._started_ns = time.monotonic_ns()
        self._since_at_ns = time.time_ns()
        self.engine = JobEngine(plan, run, self._now_ns)
        self._own_ns = 0
        self._worst_pass_ns = 0
        targets = {
            e.plan.id: QpTarget(e.plan.id, e.plan.ports, plan.spec.rate_bps, _Steered(e, self))
            for e in self._all_ends()
        }
        self._control = QpControl(keys, plan.spec.name, targets)
        self._files = JobFiles(jobs_dir, plan.spec.name)
        self._servers: list[ControlServer] = []
        self._net: JobNet | None = None
        self._open = (run, enter)

    @property
    def now_ns(self) -> int:
        """The engine's clock."""
        return self._now_ns

    def _all_ends(self) -> list[QpEnds]:
        return list(self.engine.ends.values())

    async def start(self) -> None:
        """Open sockets, serve control, write the files."""
        self._net = JobNet(self._plan.nics, *self._open, self.engine.counters)
        _ask_for_priority()
        for host in dict.fromkeys(nic.host for nic in self._plan.nics):
            other: dict[str, Ask] = {
                "list": partial(self._list, host),
                "stats": self.stats,
                "stop": self._stop_on_request,
            }
            server = ControlServer(self._files.socket(host), host, self._control, other, self.engine.counters)
            await server.start()
            self._servers.append(server)
            self._files.write(self._shard(host), self._plan.spec.block)

    async def close(self) -> None:
        """Remove files and sockets, publish the last rows."""
        for server in self._servers:
            await server.close()
        self._files.close()
        if self._net is not None:
            self._net.close()
        await self._flush()

    async def pace(self) -> None:
        """Pass after pass."""
        seconds = self._plan.spec.seconds
        end_ns = None if seconds is None else self._started_ns + int(seconds * NS_PER_S)
        flush_ns = look_ns = self._real_ns
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while not self._stop.is_set() and not self.engine.is_done:
            self._pass()
            now_ns = self._real_ns
            if end_ns is not None and now_ns >= end_ns:
                return
            if now_ns >= flush_ns:
                flush_ns = now_ns + _FLUSH_NS
                await self._flush()
            if now_ns >= look_ns:
                look_ns = now_ns + _LOOK_NS
                self._check_nics()
            next_s = max(next_s + PASS_NS / NS_PER_S, loop.time())
            await asyncio.sleep(next_s - loop.time())

    def stats(self) -> dict[str, Any]:
        """Figures since the start, plain JSON."""
        return {
            "job": self._plan.spec.name,
            "at_ns": time.time_ns(),
            "pid": os.getpid(),
            "seconds": (time.monotonic_ns() - self._started_ns) / NS_PER_S,
            "cpu_seconds": time.process_time(),
            "worst_pass_ms": self._worst_pass_ns / NS_PER_MS,
            **self.engine.stats(),
        }

    def pass_now(self) -> None:
        """An additional pass: a command that moved a queue pair takes effect at once."""
        if self._net is not None:
            self._pass()

    def _pass(self) -> None:
        assert self._net is not None
        real_ns = time.monotonic_ns()
        self._worst_pass_ns = max(self._worst_pass_ns, real_ns - self._real_ns)
        self._now_ns += min(real_ns - self._real_ns, _STALL_NS)
        self._real_ns = real_ns
        now_ns = self._now_ns
        receive = self.engine.receive
        self._net.receive(lambda rank, port, tos, at_ns, packet: receive(rank, port, tos, at_ns, packet, now_ns))
        self._control.expire(real_ns)
        batch = self.engine.step(now_ns)
        if batch:
            self._net.send(batch)

    def _check_nics(self) -> None:
        """Once a second: reopen NICs that went away; stop when the fabric is gone for good."""
        assert self._net is not None
        self._net.reopen()
        nics = self._plan.nics
        if all(nic.netns is not None and not Path(nic.netns).exists() for nic in nics):
            _log.warning("the fabric is gone; the job ends")
            self._stop.set()

    async def _flush(self) -> None:
        chunks = list(self.engine.finished)
        self.engine.finished.clear()
        if chunks and self._publisher is not None:
            spec = self._plan.spec
            await self._publisher.publish(outputs(spec.name, spec.collective, chunks, self._clock_of))

    def _shard(self, host: str) -> JobShard:
        nics = self._plan.nics
        pairs = [(e, e.plan.queue_pair(e.requester.path, e.requester.rate_bps)) for e in self._all_ends()]
        return JobShard(
            job=self._plan.spec.name,
            host=host,
            name=f"{self._plan.spec.collective} {self._plan.spec.name}",
            since_at_ns=self._since_at_ns,
            source="process",
            ranks=tuple(Rank(n, (p.nic,), os.getpid()) for n, p in enumerate(nics) if p.host == host),
            qps=tuple(qp for e, qp in pairs if nics[e.plan.rank].host == host),
            receives=tuple(qp for e, qp in pairs if nics[e.plan.peer_rank].host == host),
            control=str(self._files.socket(host)),
        )

    def _list(self, host: str) -> dict[str, Any]:
        shard = self._shard(host).as_data()
        for qp in shard["qps"]:
            ends = self.engine.find(qp["qp"])
            assert ends is not None
            sender = ends.requester
            qp |= {
                "sent_bytes": sender.sent_bytes,
                "acknowledged_bytes": sender.acknowledged_bytes,
                "retransmits": sender.retransmits,
                "moved_at_ns": sender.moved_at_ns,
            }
        return {key: shard[key] for key in ("job", "host", "ranks", "qps", "receives")}

    def _stop_on_request(self) -> dict[str, Any]:
        self._stop.set()
        return {"ok": True}


class _Steered:
    """A queue pair's sending end as commands see it: a change takes effect in a pass of its own."""

    def __init__(self, ends: QpEnds, job: _JobProcess) -> None:
        self._sender = ends.requester
        self._job = job

    @property
    def path(self) -> int:
        """Source port now."""
        return self._sender.path

    @property
    def rate_bps(self) -> int | None:
        """Limit in force."""
        return self._sender.rate_bps

    @rate_bps.setter
    def rate_bps(self, rate_bps: int | None) -> None:
        self._sender.rate_bps = rate_bps

    def steer(self, path: int, now_ns: int) -> None:
        """Move, and send at once the packets due on the new path."""
        self._sender.steer(path, self._job.now_ns)
        self._job.pass_now()


def _ask_for_priority() -> None:
    """A better nice value, where we may: late passes are lost throughput.

    Not a real-time class: a job that is never pushed off its core starves agent and pipeline of a small machine.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -5)
