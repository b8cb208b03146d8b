"""The agent process: probes, answers, judges liveness, publishes.

Two rhythms. The *tick* sends what is due; every few ticks it reads answers and sending times and judges liveness,
and every flush it publishes the finished rows. The *reflector* is woken by arriving probes, but at most once per
``turnaround_ms``, so that under load one pass answers many. Neither falsifies a delay: all stamps are the kernel's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

import pyarrow as pa

from sdfstream.agent.answering_io import Answering
from sdfstream.agent.host_io import HostAgent, Survey
from sdfstream.agent.observer import LivenessObserver
from sdfstream.agent.publish_io import Numbering, OutputPublisher, PublishBuffer
from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig
from sdfstream.probes.phc_io import LOOK_NS, HostClocks
from sdfstream.records.message import Output
from sdfstream.records.topics import PORT, PROBE
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

_LOOK_S: Final = 1.0
_SUSPECT_LOOK_NS: Final = 50 * NS_PER_MS
_TICK_MS: Final = (1.0, 20.0)
_PRIORITY: Final = 10
_TELL_NS: Final = 60 * NS_PER_S
TROUBLE: Final = (
    ".refused",
    ".unsent",
    ".shed",
    "failed",
    ".nic-",
    ".port-taken",
    "unmatched",
    "unreadable",
    ".spill-torn",
)
"""Parts of the names of counters that a person wants to hear of."""
_LAST_WORDS_S: Final = 2.0
"""How long a stopping agent tries to publish what it still has."""


class Ports(Protocol):
    """Reads the port counters of a host (`reader_io.PortReader`)."""

    def read(self, now_ns: int) -> pa.RecordBatch | None:
        """One batch of schema PORT; may block."""


PortsOf = Callable[[str, Sequence[NicConfig], str], Ports]
"""Host, its NICs and the root of sysfs to a reader of its ports."""


async def run_agent(
    config: AgentConfig,
    publisher: OutputPublisher,
    ports: PortsOf | None,
    stop: asyncio.Event,
    *,
    boot_id: str = "",
    observer: LivenessObserver | None = None,
    numbers: Numbering | None = None,
    spill: SpillFolder | None = None,
    watch: Callable[[Callable[[], dict[str, int]]], None] | None = None,
) -> dict[str, int]:
    """Run until `stop` is set; flushes what is finished and returns the counters.

    Parameters
    ----------
    config : AgentConfig
    publisher : Publisher
        Gets one batch per host and flush, and events at once.
    ports : callable or None
        Makes the reader of a host's ports; None: ports are not read.
    stop : asyncio.Event
    boot_id : str
        Names this run in liveness events; best the publisher's own. A random one by default.
    observer : LivenessObserver, optional
        Called after every evaluation of liveness, in the same pass; may request watch sessions and traces.
    numbers : Numbering, optional
        Numbers outputs under `boot_id` as they are made, so that what is sent again is known as a repeat.
    spill : SpillFolder, optional
        Keeps outputs that memory does not hold while the bus is away.
    watch : callable, optional
        Given, once, what tells the counters while it runs.

    Raises
    ------
    ConfigError, UnavailableError
        At the start, when it can never work. Later, NICs may come and go and the bus may be away.
    """
    boot_id = boot_id or secrets.token_hex(8)
    counters = Counters("agent")
    buffer = PublishBuffer(
        publisher,
        counters,
        config.buffer_bytes,
        numbers=numbers,
        boot_id=boot_id,
        spill=spill,
        catch_up_bytes_s=config.catch_up_bytes_s,
        in_thread=_follow_in_priority,
    )
    agent = _Agent(config, buffer, counters, boot_id, observer)
    if watch is not None:
        watch(agent.counters)
    try:
        agent.start()
        if observer is not None:
            observer.attach(agent.hosts)
        tasks = [asyncio.create_task(work) for work in (agent.pace(), agent.look(), agent.buffer.run())]
        if ports is not None:
            tasks += [asyncio.create_task(agent.read_ports(ports, h)) for h in config.hosts if h.read_ports]
        if config.hardware_stamps and config.phc_rate_hz > 0:
            tasks += [asyncio.create_task(agent.compare_clocks(h)) for h in config.hosts]
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, stopping):
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
        agent.flush(time.monotonic_ns())
        await agent.buffer.drain(_LAST_WORDS_S)
        return agent.counters()
    finally:
        agent.close()


class _Agent:
    def __init__(
        self,
        config: AgentConfig,
        buffer: PublishBuffer,
        stats: Counters,
        boot_id: str,
        observer: LivenessObserver | None,
    ) -> None:
        self.config = config
        self._observer = observer
        self.stats = stats
        self.buffer = buffer
        peers = {s.dst_address: s.dst for h in config.hosts for s in h.sessions}
        peers |= {n.address: n.nic for h in config.hosts for n in h.nics}
        self.hosts = [HostAgent(config, h, peers, boot_id, secrets.randbits(64)) for h in config.hosts]
        self._answering: Answering | None = None
        self._failed: set[str] = set()
        self._more_counters: list[Counters] = []
        self._told: dict[str, int] = {}
        self._look_now = asyncio.Event()

    def start(self) -> None:
        """Open everything and begin to answer."""
        if self.config.realtime:
            _ask_for_priority()
        for host in self.hosts:
            host.start()
        self._answering = Answering(self.hosts, self.config.turnaround_ms, self._guard)

    def close(self) -> None:
        """Stop answering and close everything."""
        if self._answering is not None:
            self._answering.close()
        for host in self.hosts:
            host.close()

    def counters(self) -> dict[str, int]:
        """All counters, summed over hosts."""
        total = self.stats.as_dict()
        parts = [host.all_counters() for host in self.hosts] + [c.as_dict() for c in self._more_counters]
        for part in parts:
            for name, n in part.items():
                total[name] = total.get(name, 0) + n
        return total

    async def pace(self) -> None:
        """Tick for ever."""
        flush_ns = self.config.flush_ms * NS_PER_MS
        flush_at = suspect_at = time.monotonic_ns()
        tell_at = flush_at + _TELL_NS
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            now_ns = time.monotonic_ns()
            flush = now_ns >= flush_at
            due = [h for h in self.hosts if flush or now_ns >= h.judge_at]
            if due:
                self.judge(due, now_ns, time.time_ns() - int((loop.time() - next_s) * NS_PER_S))
            if flush:
                self.flush(now_ns)
                flush_at = max(flush_at + flush_ns, now_ns)
            if now_ns >= tell_at:
                self.tell_trouble()
                tell_at = now_ns + _TELL_NS
            if now_ns >= suspect_at:
                suspect_at = now_ns + _SUSPECT_LOOK_NS
                if any([h.nic_watch.suspected() for h in self.hosts]):
                    self._look_now.set()
            if any([h.follow_wishes(now_ns) for h in due]):
                self._look_now.set()
            for host in self.hosts:
                host.probe(now_ns)
            next_s = max(next_s + self._tick_ms() / 1e3, loop.time())
            await asyncio.sleep(next_s - loop.time())

    async def look(self) -> None:
        """Look after the NICs for ever. In a thread: to enter namespaces takes long on a busy machine."""
        with ThreadPoolExecutor(1, "nics", _follow_in_priority) as pool:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._look_now.wait(), _LOOK_S)
                self._look_now.clear()
                for host in self.hosts:
                    host.looked(await _surveyed(pool, host))
                    if host.nic_watch.again:
                        self._look_now.set()

    def tell_trouble(self) -> None:
        """Log what was refused, lost or shed since the last call, if anything was."""
        now = self.counters()
        fresh = {name: n - self._told.get(name, 0) for name, n in now.items() if any(w in name for w in TROUBLE)}
        told = ", ".join(f"{name} {n}" for name, n in fresh.items() if n)
        if told:
            _log.warning("in the last minute: %s", told)
        self._told = now

    def judge(self, hosts: Sequence[HostAgent], now_ns: int, due_at_ns: int) -> None:
        """Read answers, then judge liveness; what changed goes to the bus at once."""
        for host in hosts:
            host.judge_at = now_ns + host.judge_ns
            self._guard(partial(host.hear, due_at_ns))
            self.buffer.put(host.liveness(now_ns))
            if self._observer is not None:
                self._guard(partial(self._notify_observer, self._observer, host.name, now_ns))
            self.buffer.put(host.go_on_tracing(now_ns))

    def _notify_observer(self, observer: LivenessObserver, host: str, now_ns: int) -> bool:
        self.buffer.put(observer.on_liveness(host, now_ns))
        return True

    def flush(self, now_ns: int) -> None:
        """Put finished rows into the buffer."""
        for host in self.hosts:
            self.buffer.put(host.rows(now_ns))

    async def read_ports(self, ports: PortsOf, host: HostConfig) -> None:
        """Read a host's ports for ever, in a thread of their own: a slow driver must not stall probing."""
        clock = next(h.clock for h in self.hosts if h.name == host.host)
        with ThreadPoolExecutor(1, "ports", _follow_in_priority) as pool:
            loop = asyncio.get_running_loop()
            reader = await loop.run_in_executor(pool, ports, host.host, host.nics, host.port_root)
            while True:
                try:
                    batch = await loop.run_in_executor(pool, reader.read, clock.at(time.time_ns()))
                except Exception as error:  # odd hardware must not end the probing
                    self._say_once("ports", error)
                else:
                    if batch is not None and batch.num_rows:
                        self.buffer.put([Output(PORT.name, host.host, batch)])
                await asyncio.sleep(self.config.port_interval_ms / 1e3)

    async def compare_clocks(self, host: HostConfig) -> None:
        """Compare the NICs' hardware clocks with the host's own for ever, in a thread: an odd driver takes its time."""
        reader = HostClocks(host, next(h.clock for h in self.hosts if h.name == host.host))
        self._more_counters.append(reader.counters)
        try:
            with ThreadPoolExecutor(1, "clocks", _follow_in_priority) as pool:
                loop = asyncio.get_running_loop()
                while True:
                    try:
                        batch = await loop.run_in_executor(pool, reader.read)
                    except Exception as error:  # odd hardware must not end the probing
                        self._say_once("host-clock", error)
                    else:
                        if batch is not None:
                            self.buffer.put([Output(PROBE.name, host.host, batch)])
                    seldom = not reader.known
                    await asyncio.sleep(LOOK_NS / NS_PER_S if seldom else 1.0 / self.config.phc_rate_hz)
        finally:
            reader.close()

    def _tick_ms(self) -> float:
        if self.config.tick_ms:
            return self.config.tick_ms
        shortest_ns = min((h.shortest_ns for h in self.hosts), default=NS_PER_S)
        return min(max(shortest_ns / NS_PER_MS / 3, _TICK_MS[0]), _TICK_MS[1], self.config.flush_ms)

    def _guard(self, work: Callable[[], bool]) -> bool:
        """Do `work` on what strangers sent; a mistake of ours in it is counted and told, and does not end the agent."""
        try:
            return work()
        except Exception as error:  # one packet must not be able to stop a host's probing
            self._say_once(getattr(work, "func", work).__qualname__, error)
            return True

    def _say_once(self, where: str, error: Exception) -> None:
        self.stats.add("failed", where)
        if where not in self._failed:
            self._failed.add(where)
            _log.error("%s failed; from now on this is only counted", where, exc_info=error)


async def _surveyed(pool: ThreadPoolExecutor, host: HostAgent) -> Survey:
    """A survey of a host's NICs made in `pool`; what it opened is closed again when nobody waits for it any more."""
    survey = pool.submit(host.survey())
    try:
        return await asyncio.wrap_future(survey)
    except asyncio.CancelledError:
        if not survey.cancelled():
            survey.result().discard()
        raise


def _ask_for_priority() -> None:
    """SCHED_FIFO, so that a busy host does not delay probing; threads and children stay as they were."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_PRIORITY))
    except OSError as error:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)
        _log.info("running at normal priority (%s); stamps are the kernel's, so delays stay true", error.strerror)


def _follow_in_priority() -> None:
    """Let the calling thread, and those it starts, come right behind the probing thread.

    A helper takes turns with it at the interpreter's lock. At normal priority a busy machine would push the helper off
    its core while it holds the lock, and probing would stand still until it is let on again: 50 ms were measured.
    """
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(os.getpid()) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY - 1))
