"""The process of an emulated job: sockets, clocks, control sockets, rows. One process serves all ranks.

A pass every two milliseconds: read what has arrived, let the engine work, send. Between two passes packets wait in
the sockets; arrivals are stamped by the kernel, so that falsifies no delay. Everything the engine times runs on a
clock that does not count our own stalls: a process that was not scheduled for a while must not take packets that wait
in its sockets for lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from sdfstream.emulator.control import Control, Target
from sdfstream.emulator.control_io import Ask, ControlServer
from sdfstream.emulator.process_files_io import JobFiles
from sdfstream.emulator.process_net_io import JobNet
from sdfstream.emulator.process_rows import ClockOf, outputs
from sdfstream.emulator.rank_job import JobEngine, QpEnds
from sdfstream.emulator.rank_plan import JobPlan
from sdfstream.records.job import JobShard, Rank
from sdfstream.records.message import Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_log = logging.getLogger("sdfstream.job")

PASS_NS: Final = 2 * NS_PER_MS
_STALL_NS: Final = 5 * PASS_NS
"""A pass that comes later than this is our own fault; the engine's clock stands still meanwhile."""
_FLUSH_NS: Final = 100 * NS_PER_MS
_LOOK_NS: Final = NS_PER_S


class Publisher(Protocol):
    """Takes outputs to the bus (`bus.link.client_io.LinkPublisher`)."""

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Take `outputs`."""


async def run_job(
    plan: JobPlan,
    jobs_dir: Path,
    keys: KeyRing,
    stop: asyncio.Event,
    *,
    enter: Callable[[str | None, Callable[[], Any]], Any],
    clock_of: ClockOf,
    run: int,
    publisher: Publisher | None = None,
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
    publisher : Publisher or None
    ready : callable or None
        Called once everything is open and the job's files are there.

    Raises
    ------
    ConfigError, UnavailableError
        It cannot start.
    """
    job = _Job(plan, jobs_dir, keys, stop, enter, clock_of, run, publisher)
    try:
        await job.start()
        if ready is not None:
            ready()
        await job.pace()
        return job.stats()
    finally:
        await job.close()


class _Job:
    def __init__(
        self,
        plan: JobPlan,
        jobs_dir: Path,
        keys: KeyRing,
        stop: asyncio.Event,
        enter: Callable[[str | None, Callable[[], Any]], Any],
        clock_of: ClockOf,
        run: int,
        publisher: Publisher | None,
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
            e.plan.id: Target(e.plan.id, e.plan.ports, plan.spec.rate_bps, _Steered(e, self)) for e in self._all()
        }
        self._control = Control(keys, plan.spec.name, targets)
        self._files = JobFiles(jobs_dir, plan.spec.name)
        self._servers: list[ControlServer] = []
        self._net: JobNet | None = None
        self._open = (run, enter)

    @property
    def now_ns(self) -> int:
        """The engine's clock."""
        return self._now_ns

    def _all(self) -> list[QpEnds]:
        return list(self.engine.ends.values())

    async def start(self) -> None:
        """Open sockets, serve control, write the files."""
        self._net = JobNet(self._plan.places, *self._open, self.engine.counters)
        _ask_for_priority()
        for host in dict.fromkeys(place.host for place in self._plan.places):
            other: dict[str, Ask] = {"list": partial(self._list, host), "stats": self.stats, "stop": self._told_to_stop}
            server = ControlServer(self._files.socket(host), host, self._control, other, self.engine.counters)
            await server.start()
            self._servers.append(server)
            self._files.write(self._part(host), self._plan.spec.block)

    async def close(self) -> None:
        """Take files and sockets away, publish what is left."""
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
                self._look()
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

    def turn(self) -> None:
        """A pass out of turn: an order that moved a queue pair takes effect at once."""
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

    def _look(self) -> None:
        """Once a second: NICs that went away, and a fabric that is gone for good."""
        assert self._net is not None
        self._net.reopen()
        places = self._plan.places
        if all(place.netns is not None and not Path(place.netns).exists() for place in places):
            _log.warning("the fabric is gone; the job ends")
            self._stop.set()

    async def _flush(self) -> None:
        chunks = list(self.engine.finished)
        self.engine.finished.clear()
        if chunks and self._publisher is not None:
            spec = self._plan.spec
            await self._publisher.publish(outputs(spec.name, spec.collective, chunks, self._clock_of))

    def _part(self, host: str) -> JobShard:
        places = self._plan.places
        pairs = [(e, e.plan.queue_pair(e.requester.path, e.requester.rate_bps)) for e in self._all()]
        return JobShard(
            job=self._plan.spec.name,
            host=host,
            name=f"{self._plan.spec.collective} {self._plan.spec.name}",
            since_at_ns=self._since_at_ns,
            source="process",
            ranks=tuple(Rank(n, (p.nic,), os.getpid()) for n, p in enumerate(places) if p.host == host),
            qps=tuple(qp for e, qp in pairs if places[e.plan.rank].host == host),
            receives=tuple(qp for e, qp in pairs if places[e.plan.peer_rank].host == host),
            control=str(self._files.socket(host)),
        )

    def _list(self, host: str) -> dict[str, Any]:
        part = self._part(host).as_data()
        for qp in part["qps"]:
            ends = self.engine.find(qp["qp"])
            assert ends is not None
            sender = ends.requester
            qp |= {
                "sent_bytes": sender.sent_bytes,
                "acknowledged_bytes": sender.acknowledged_bytes,
                "retransmits": sender.retransmits,
                "moved_at_ns": sender.moved_at_ns,
            }
        return {key: part[key] for key in ("job", "host", "ranks", "qps", "receives")}

    def _told_to_stop(self) -> dict[str, Any]:
        self._stop.set()
        return {"ok": True}


class _Steered:
    """A queue pair's sending end as orders see it: what they change takes effect in a pass of its own."""

    def __init__(self, ends: QpEnds, job: _Job) -> None:
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
        """Move, and send at once what is due on the new path."""
        self._sender.steer(path, self._job.now_ns)
        self._job.turn()


def _ask_for_priority() -> None:
    """A better nice value, where we may: late passes are lost throughput.

    Not a real-time class: a job that is never pushed off its core starves agent and pipeline of a small machine.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -5)
