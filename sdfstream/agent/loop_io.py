"""The agent process: probes, answers, assesses liveness, publishes. Read this file first, top to bottom.

Two rhythms. The *tick* sends due probes; every few ticks it reads answers and TX stamps and assesses liveness, and
every flush it publishes the finished rows. The *reflector* is woken by arriving probes, but at most once per
``turnaround_ms``, so that under load one pass answers many. Neither falsifies a delay: all stamps are the kernel's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

import pyarrow as pa

from sdfstream.agent.answering_io import Answering
from sdfstream.agent.engine.packets_io import packets_by
from sdfstream.agent.engine.thread_io import engine_of
from sdfstream.agent.host_io import PACKETS_LOOK_NS, HostAgent
from sdfstream.agent.lateness_io import PaceKeeper
from sdfstream.agent.numpy_packets_io import NumpyPackets
from sdfstream.agent.observer import LivenessObserver
from sdfstream.agent.packets import RoceProbes
from sdfstream.agent.priority_io import BESIDE_PRIORITY, PRIORITY, ask_for_priority, follow_in_priority
from sdfstream.agent.publish_io import Numbering, OutputPublisher, PublishBuffer
from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.agent.wake_io import Wake, surveyed, until_set, working
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, udp_alone
from sdfstream.probes.phc_io import LOOK_NS, HostClocks
from sdfstream.records.message import Output
from sdfstream.records.topics import PORT, PROBE
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.runtime.own_troubles import POLL_S, Counted, OwnTroubles
from sdfstream.stats import Counters, HasCounters

_log = logging.getLogger("sdfstream.agent")

_SURVEY_S: Final = 1.0
_SUSPECT_NS: Final = 50 * NS_PER_MS
_TICK_MS: Final = (1.0, 20.0)
_LOG_NS: Final = 60 * NS_PER_S
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
"""Counters whose names contain one of these are logged."""
_DRAIN_S: Final = 2.0
"""How long a stopping agent tries to publish what it still has."""


class HostPorts(Protocol):
    """Reads the port counters of a host (`reader_io.PortReader`)."""

    def read(self, now_ns: int) -> pa.RecordBatch | None:
        """One batch of schema PORT; may block."""


PortsOf = Callable[[str, Sequence[NicConfig], str], HostPorts]
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
    watch: Callable[[Callable[[], dict[str, int]], Callable[[], list[str]]], None] | None = None,
    counted: Sequence[HasCounters] = (),
    alive: Callable[[], None] = lambda: None,
    roce: RoceProbes | None = None,
) -> dict[str, int]:
    """Run until `stop` is set; flushes what is finished and returns the counters.

    Parameters
    ----------
    publisher : OutputPublisher
        Gets one batch per host and flush, and events at once.
    ports : callable or None
        Makes the reader of a host's ports; None: ports are not read.
    boot_id : str
        Names this run in liveness events; best the publisher's own. A random one by default.
    observer : LivenessObserver, optional
        Called after every assessment of liveness, in the same pass; may request watch sessions and traces.
    numbers : Numbering, optional
        Numbers outputs under `boot_id` as they are made, so that what is sent again is known as a repeat.
    spill : SpillFolder, optional
        Keeps outputs that memory does not hold while the bus is away.
    watch : callable, optional
        Given, once, a function that reads the counters, and one that says what is wrong.
    counted : sequence of HasCounters
        Further parts of the process, whose troubles are the agent's.
    alive : callable
        Called by the probing loop at every flush, the first time once everything is open.
    roce : RoceProbes, optional
        Carries the RoCEv2 sessions, which are not run without it.

    Raises
    ------
    ConfigError, UnavailableError
        At the start, when it can never work. Later, NICs may come and go and the bus may be away.
    """
    boot_id = boot_id or secrets.token_hex(8)
    counters = Counters("agent")
    limits = {"max_bytes": config.buffer_bytes, "catch_up_bytes_s": config.catch_up_bytes_s}
    buffer = PublishBuffer(
        publisher, counters, **limits, numbers=numbers, boot_id=boot_id, spill=spill, in_thread=follow_in_priority
    )
    agent = _Agent(udp_alone(config), buffer, counters, boot_id, observer, counted, roce)
    agent.alive = alive
    if watch is not None:
        watch(agent.counters, agent.troubles.sentences)
    try:
        await agent.run(ports, stop)
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
        counted: Sequence[HasCounters] = (),
        roce: RoceProbes | None = None,
    ) -> None:
        self.config = config
        self._roce = roce
        self._observer = observer
        self.stats = stats
        self.buffer = buffer
        self._engine = engine_of(config)
        packets_of = NumpyPackets if self._engine is None else packets_by(self._engine)
        self.hosts = [
            HostAgent(config, h, boot_id, secrets.randbits(64), packets_of, None if roce is None else roce.host(h.host))
            for h in config.hosts
        ]
        self._answering: Answering | None = None
        self._failed: set[str] = set()
        self._more_counters: list[Counters] = []
        self._logged: dict[str, int] = {}
        self._survey_now, self._ports_now = asyncio.Event(), asyncio.Event()
        self.alive: Callable[[], None] = lambda: None
        self._pace = PaceKeeper(stats, None if self._engine is None else self._engine.lateness)
        self._nics_helper = stats.troubles.helper("nics")
        more = () if roce is None else (roce,)
        self.troubles = OwnTroubles((Counted(stats), *self.hosts, *counted, *more))

    def start(self) -> None:
        """Open everything and begin to answer."""
        if self.config.realtime:
            ask_for_priority(PRIORITY if self._engine is None else BESIDE_PRIORITY)
        for host in self.hosts:
            host.start()
        if self._engine is not None:
            self._engine.start()
        self._answering = Answering(self.hosts, self.config.turnaround_ms, self._guard)
        if self._observer is not None:
            self._observer.attach(self.hosts)

    def close(self) -> None:
        """Stop answering and close everything."""
        if self._answering is not None:
            self._answering.close()
        for host in self.hosts:
            host.close()
        if self._engine is not None:
            self._engine.close()
        if self._roce is not None:
            self._roce.close()

    def counters(self) -> dict[str, int]:
        """All counters, summed over hosts."""
        total = self.stats.as_dict()
        counted = [host.all_counters() for host in self.hosts] + [c.as_dict() for c in self._more_counters]
        counted += [self._roce.all_counters()] if self._roce is not None else []
        for counters in counted:
            for name, n in counters.items():
                total[name] = total.get(name, 0) + n
        return total

    async def run(self, ports: PortsOf | None, stop: asyncio.Event) -> None:
        """Work until `stop` is set or a task fails; then publish what is finished."""
        self.start()
        config = self.config
        lasting = (self.pace(), self.survey_nics(), self.buffer.run(), self.look_at_troubles())
        tasks = [asyncio.create_task(work) for work in lasting]
        if ports is not None:
            tasks += [asyncio.create_task(self.read_ports(ports, h)) for h in config.hosts if h.read_ports]
        if config.hardware_stamps and config.phc_rate_hz > 0:
            tasks += [asyncio.create_task(self.compare_clocks(h)) for h in config.hosts]
        tasks.append(asyncio.create_task(until_set(stop)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.flush(time.monotonic_ns())
        self.buffer.put([host.farewell() for host in self.hosts])
        await self.buffer.drain(_DRAIN_S)

    async def pace(self) -> None:
        """Tick for ever, and at once when the packet engine has found something."""
        flush_ns = self.config.flush_ms * NS_PER_MS
        flush_at = suspect_at = time.monotonic_ns()
        log_at = flush_at + _LOG_NS
        loop = asyncio.get_running_loop()
        wake = Wake()
        if self._engine is not None:
            self._engine.on_found(loop, wake.call)
        if self._roce is not None:
            in_loop = loop.call_soon_threadsafe
            self._roce.start(partial(in_loop, wake.call), partial(in_loop, self._ports_now.set))
        next_s = loop.time()
        while True:
            now_ns = time.monotonic_ns()
            flush = now_ns >= flush_at
            due = self._due(now_ns, flush=flush)
            if due:
                self.assess_liveness(due, now_ns, time.time_ns() - int((loop.time() - next_s) * NS_PER_S))
            if flush:
                self.flush(now_ns)
                self.alive()
                flush_at = max(flush_at + flush_ns, now_ns)
            if now_ns >= log_at:
                self.log_trouble()
                log_at = now_ns + _LOG_NS
            if now_ns >= suspect_at:
                suspect_at = now_ns + _SUSPECT_NS
                if any([h.nic_monitor.suspected() for h in self.hosts]):
                    self._survey_now.set()
            if any([h.change_sessions(now_ns) for h in due]):
                self._survey_now.set()
            for host in self.hosts:
                if not host.packets.self_driven:
                    host.packets.send_due(now_ns)
            if loop.time() >= next_s:
                self._pace.note(loop.time() - next_s)
                next_s = max(next_s + self._tick_ms() / 1e3, loop.time())
            await wake.until(next_s)

    def _due(self, now_ns: int, *, flush: bool) -> list[HostAgent]:
        """The hosts whose liveness is to be looked at now."""
        if self._engine is None:
            return [h for h in self.hosts if flush or now_ns >= h.assess_at_ns or h.has_changes]
        self._engine.collect(now_ns)
        return [h for h in self.hosts if now_ns >= h.assess_at_ns or h.has_changes]

    def assess_liveness(self, hosts: Sequence[HostAgent], now_ns: int, due_at_ns: int) -> None:
        """Read answers, then assess liveness and act by it; changes go to the bus at once.

        What a silence brings about in the traces takes longer than all of that, so it is done last.
        """
        for host in hosts:
            host.assess_at_ns = now_ns + host.assess_pause_ns
            if not host.packets.self_driven:
                self._guard("answers", partial(host.packets.read_answers, due_at_ns))
            self.buffer.put(host.liveness(now_ns))
            if self._observer is not None:
                notify = partial(self._notify_observer, self._observer, host.name, now_ns)
                self._guard("observer", notify)
        for host in hosts:
            self.buffer.put(host.step_traces(now_ns))

    def _notify_observer(self, observer: LivenessObserver, host: str, now_ns: int) -> bool:
        self.buffer.put(observer.on_liveness(host, now_ns))
        return True

    def flush(self, now_ns: int) -> None:
        """Put finished rows into the buffer."""
        for host in self.hosts:
            self.buffer.put(host.rows(now_ns))

    async def look_at_troubles(self) -> None:
        """Let the first host's heartbeat say, for ever, what is wrong with this process."""
        while True:
            self._pace.look(self.hosts)
            self.troubles.look(time.monotonic(), time.time_ns())
            if self.hosts:
                self.hosts[0].troubles = self.troubles.as_data()
            await asyncio.sleep(POLL_S)

    def log_trouble(self) -> None:
        """Log what was refused, lost or shed since the last call, if anything was."""
        now = self.counters()
        fresh = {name: n - self._logged.get(name, 0) for name, n in now.items() if any(w in name for w in TROUBLE)}
        listed = ", ".join(f"{name} {n}" for name, n in fresh.items() if n)
        if listed:
            _log.warning("in the last minute: %s", listed)
        self._logged = now

    async def survey_nics(self) -> None:
        """Survey the NICs for ever. In a thread: to enter namespaces takes long on a busy machine."""
        with ThreadPoolExecutor(1, "nics", follow_in_priority) as pool:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._survey_now.wait(), _SURVEY_S)
                self._survey_now.clear()
                for host in self.hosts:
                    with working(self._nics_helper):
                        survey = await surveyed(pool, host)
                    host.apply(survey)
                    if host.nic_monitor.again:
                        self._survey_now.set()

    async def read_ports(self, ports: PortsOf, host: HostConfig) -> None:
        """Read a host's ports for ever, in a thread of their own: a slow driver must not stall probing."""
        clock = next(h.clock for h in self.hosts if h.name == host.host)
        helper = self.stats.troubles.helper(f"ports of {host.host}")
        with ThreadPoolExecutor(1, "ports", follow_in_priority) as pool:
            loop = asyncio.get_running_loop()
            reader = await loop.run_in_executor(pool, ports, host.host, host.nics, host.port_root)
            while True:
                try:
                    with working(helper):
                        batch = await loop.run_in_executor(pool, reader.read, clock.at(time.time_ns()))
                except Exception as error:  # odd hardware must not end the probing
                    self._log_once("ports", error)
                    self.stats.troubles.begin("ports", f"they cannot be read: {type(error).__name__}")
                else:
                    self.stats.troubles.end("ports")
                    if batch is not None and batch.num_rows:
                        self.buffer.put([Output(PORT.name, host.host, batch)])
                await self._until_port_or(self.config.port_interval_ms / 1e3)

    async def _until_port_or(self, seconds: float) -> None:
        """Wait so long, or until an RDMA port has changed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ports_now.wait(), seconds)
        self._ports_now.clear()

    async def compare_clocks(self, host: HostConfig) -> None:
        """Compare the NICs' hardware clocks with the host's own for ever, in a thread: an odd driver takes its time."""
        reader = HostClocks(host, next(h.clock for h in self.hosts if h.name == host.host))
        helper = self.stats.troubles.helper(f"clocks of {host.host}")
        self._more_counters.append(reader.counters)
        try:
            with ThreadPoolExecutor(1, "clocks", follow_in_priority) as pool:
                loop = asyncio.get_running_loop()
                while True:
                    try:
                        with working(helper):
                            batch = await loop.run_in_executor(pool, reader.read)
                    except Exception as error:  # odd hardware must not end the probing
                        self._log_once("host-clock", error)
                        self.stats.troubles.begin("clocks", f"they cannot be compared: {type(error).__name__}")
                    else:
                        self.stats.troubles.end("clocks")
                        if batch is not None:
                            self.buffer.put([Output(PROBE.name, host.host, batch)])
                    seldom = not reader.known
                    await asyncio.sleep(LOOK_NS / NS_PER_S if seldom else 1.0 / self.config.phc_rate_hz)
        finally:
            reader.close()

    def _tick_ms(self) -> float:
        if self._engine is not None:  # it calls when something happens
            return min(PACKETS_LOOK_NS / NS_PER_MS, self.config.flush_ms)
        if self.config.tick_ms:
            return self.config.tick_ms
        shortest_ns = min((h.shortest_ns for h in self.hosts), default=NS_PER_S)
        return min(max(shortest_ns / NS_PER_MS / 3, _TICK_MS[0]), _TICK_MS[1], self.config.flush_ms)

    def _guard(self, where: str, work: Callable[[], bool]) -> bool:
        """Do `work` on foreign input; an exception in it is counted under `where` and logged, and ends nothing."""
        try:
            return work()
        except Exception as error:  # one packet must not be able to stop a host's probing
            self._log_once(where, error)
            return True

    def _log_once(self, where: str, error: Exception) -> None:
        self.stats.add("failed", where)
        if where not in self._failed:
            self._failed.add(where)
            _log.error("%s failed; from now on this is only counted", where, exc_info=error)
