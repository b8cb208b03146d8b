"""Running an agent from the command line: its publishers, a progress line, the closing report."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from sdfstream.agent.bus_io import open_publisher
from sdfstream.agent.clockpage.task_io import clock_pages
from sdfstream.agent.loop_io import TROUBLE, run_agent
from sdfstream.agent.open_files import ensure_open_files
from sdfstream.agent.packets import RoceOf, RoceProbes
from sdfstream.agent.publish_io import OutputPublisher
from sdfstream.agent.report import PathReport, table
from sdfstream.agent.spill.folder_io import spill_folder
from sdfstream.bus.sequences import Numbers
from sdfstream.probes.config import AgentConfig, carries_roce, udp_alone
from sdfstream.records.message import Output
from sdfstream.records.topics import PROBE
from sdfstream.runtime import loop_io, startup_memory_io
from sdfstream.runtime.control_io import RunControl
from sdfstream.runtime.output_io import end_progress, show_progress
from sdfstream.runtime.service_manager_io import ServiceManager
from sdfstream.stats import HasCounters

if TYPE_CHECKING:
    from sdfstream.bus.kafka.config import KafkaConfig

_PROGRESS_S: Final = 1.0

Watch: TypeAlias = Callable[[Callable[[], dict[str, int]], Callable[[], list[str]]], None]
"""Given, once, what reads the agent's counters, and what says what is wrong with it."""


class _AllPublishers:
    """Publishes to all of `publishers`, adds the rows to `report`, and reports progress to `signs`."""

    def __init__(self, publishers: Sequence[OutputPublisher], report: PathReport | None) -> None:
        self._publishers = publishers
        self._report = report
        self.signs = RunControl()

    async def publish(self, outputs: Sequence[Output]) -> None:
        for publisher in self._publishers:
            await publisher.publish(outputs)
        self.signs.progress_at_s["publish"] = time.monotonic()
        if self._report is not None:  # not before: what fails comes again
            for output in outputs:
                if output.topic == PROBE.name and isinstance(output.body, pa.RecordBatch):
                    self._report.add(output.body)


async def run(
    config: AgentConfig,
    bus: str | None,
    out: Path | None,
    seconds: float | None,
    *,
    report: bool,
    kafka: KafkaConfig | None = None,
    metrics: str | None = None,
    roce_of: RoceOf | None = None,
) -> dict[str, Any]:
    """Run an agent until SIGINT, SIGTERM or `seconds` have passed; figures for `readable`.

    `bus` is ``link:PATH``, ``kafka://HOST:PORT[,…]`` (reached as `kafka` says) or a folder for a recording, as `out`
    is; `report` summarises every path, for the closing report and the progress line; metrics and health are served at
    `metrics` (``HOST:PORT``); `roce_of` makes what carries the RoCEv2 sessions, and is called only where there are any.
    """
    ensure_open_files(config)
    roce = roce_of(config) if roce_of is not None and carries_roce(config) else None
    config = udp_alone(config)
    gc.freeze()  # modules stay loaded: the collector need not visit them
    stop = _stop_event(seconds)
    paths = PathReport(np.random.default_rng()) if report else None
    boot_id = secrets.token_hex(8)
    async with contextlib.AsyncExitStack() as stack:
        names = [name for name in (bus, str(out) if out else None) if name]
        opening = [open_publisher(name, boot_id, kafka=kafka, compression=config.compression) for name in names]
        publishers = [await stack.enter_async_context(one) for one in opening]
        began = time.monotonic()
        counted: list[Any] = [one for one in publishers if hasattr(one, "counters")]
        clock_counters = await stack.enter_async_context(clock_pages(config, names, publishers, boot_id, counted))
        await stack.enter_async_context(_progress_line(paths))
        publisher = _AllPublishers(publishers, paths)
        watch = await stack.enter_async_context(_metrics(metrics, publisher, publishers))
        manager = ServiceManager.of()
        stack.callback(asyncio.create_task(_say_stopping(stop, manager)).cancel)
        stack.callback(asyncio.create_task(startup_memory_io.give_back(), name="startup-memory").cancel)
        watches = [_status_of(manager), *([watch] if watch else [])]
        serving = (watches, counted, manager, roce)
        counters = await _run_with_services(config, publisher, publishers, stop, boot_id, *serving)
        counters |= clock_counters()
    return {
        "host": ", ".join(h.host for h in config.hosts),
        "seconds": round(time.monotonic() - began, 3),
        "paths": paths.paths() if paths is not None else None,
        "counters": counters,
        "recording": str(out) if out else None,
    }


def _stop_event(seconds: float | None) -> asyncio.Event:
    """Set by SIGINT, SIGTERM, or once `seconds` have passed."""
    stop = asyncio.Event()
    loop_io.stop_on_signals(stop.set)
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, stop.set)
    return stop


@contextlib.asynccontextmanager
async def _metrics(
    address: str | None, publisher: _AllPublishers, publishers: Sequence[OutputPublisher]
) -> AsyncIterator[Watch | None]:
    """Serve metrics and health of the agent while the block runs: it is healthy while its outputs reach the bus."""
    if address is None:
        yield None
        return
    from sdfstream.runtime.metrics import ProcessStatus
    from sdfstream.runtime.metrics_io import serving

    counted: list[Any] = [one for one in publishers if hasattr(one, "counters")]
    status = ProcessStatus(publisher.signs, ["publish"], counted)

    def watch(counters: Callable[[], dict[str, int]], troubles: Callable[[], list[str]]) -> None:
        status.totals, status.troubles = counters, troubles

    async with serving(address, status):
        yield watch


async def _run_with_services(
    config: AgentConfig,
    publisher: OutputPublisher,
    publishers: Sequence[OutputPublisher],
    stop: asyncio.Event,
    boot_id: str,
    watches: Sequence[Watch],
    counted: Sequence[HasCounters],
    manager: ServiceManager,
    roce: RoceProbes | None,
) -> dict[str, int]:
    """Run the agent, with the services that its settings ask for; the counters of both."""
    from sdfstream.probes.ports.reader_io import PortReader

    def watch(counters: Callable[[], dict[str, int]], troubles: Callable[[], list[str]]) -> None:
        for one in watches:
            one(counters, troubles)

    more: dict[str, Any] = {"boot_id": boot_id, "numbers": Numbers(), "spill": spill_folder(config), "watch": watch}
    more |= {"alive": manager.alive, "roce": roce}
    if not config.jobs_dir and not config.control and config.mesh != "auto":
        return await run_agent(config, publisher, PortReader, stop, counted=counted, **more)
    from sdfstream.agent.downlink_io import downlink_of
    from sdfstream.agent.services_io import AgentServices

    async with downlink_of(config, publishers) as downlink:
        services = AgentServices(config, boot_id, downlink)
        serving = asyncio.create_task(services.run(), name="services")
        serving.add_done_callback(lambda _: stop.set())  # an agent that lost its services does not go on
        try:
            every = [*counted, *services.counted]
            counters = await run_agent(config, publisher, PortReader, stop, observer=services, counted=every, **more)
        finally:
            ended = serving.done()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=not ended)
            services.close()
        return counters | services.all_counters()


def _status_of(manager: ServiceManager) -> Watch:
    """Lets the service manager show what the agent has done, and what is wrong with it."""

    def watch(counters: Callable[[], dict[str, int]], troubles: Callable[[], list[str]]) -> None:
        def status() -> str:
            total = counters()
            done = f"{total.get('sender.sent', 0)} probes sent, {total.get('sender.answered', 0)} answered"
            return "; ".join([done, *troubles()])

        manager.status = status

    return watch


async def _say_stopping(stop: asyncio.Event, manager: ServiceManager) -> None:
    await stop.wait()
    manager.stopping()


@contextlib.asynccontextmanager
async def _progress_line(paths: PathReport | None) -> AsyncIterator[None]:
    """Show progress on stderr while the block runs; None: do not."""
    if paths is None:
        yield
        return
    task = asyncio.create_task(_show_progress(paths))
    try:
        yield
    finally:
        task.cancel()


async def _show_progress(paths: PathReport) -> None:
    """One line on stderr that is written over; on a pipe, a line every ten seconds."""
    terminal = sys.stderr.isatty()
    began = time.monotonic()
    try:
        while True:
            await asyncio.sleep(_PROGRESS_S if terminal else 10 * _PROGRESS_S)
            answered, lost = paths.totals()
            line = f"{time.monotonic() - began:6.0f} s  {answered} answered, {lost} lost"
            show_progress(line)
    finally:
        end_progress()


def readable(result: dict[str, Any]) -> str:
    """The closing report as text."""
    counters = result["counters"]
    lines = [
        f"{result['host']}: {result['seconds']:.0f} s, {counters.get('sender.sent', 0)} probes sent, "
        f"{counters.get('sender.answered', 0)} answered; {counters.get('reflector.answered', 0)} answered for others"
    ]
    if result["paths"]:
        lines += ["", table(result["paths"])]
        lines += ["spread: p99 over the smallest delay of that direction; CE and TTL: forward/reverse"]
    elif result["paths"] is not None:
        lines += ["no exchange was finished: is the peer's agent running, and its UDP port open?"]
    odd = {k: n for k, n in counters.items() if any(word in k for word in TROUBLE)}
    if odd:
        lines += ["", "refused or lost: " + ", ".join(f"{k} {n}" for k, n in odd.items())]
    if result["recording"]:
        lines += ["", f"next: sdfstream replay {result['recording']} --out DIR"]
    return "\n".join(lines)
