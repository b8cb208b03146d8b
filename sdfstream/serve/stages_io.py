"""Stages on their own, each sharing its work with other processes of the same bus: what ``sdfstream run`` runs."""

from __future__ import annotations

import asyncio
import gc
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from sdfstream import pipeline
from sdfstream.archive.upkeep.passes_io import UpkeepThread
from sdfstream.archive.work_io import ArchiveWork
from sdfstream.bus import Bus
from sdfstream.bus.open_io import open_bus
from sdfstream.runtime import disk_io, live_io
from sdfstream.runtime.control_io import CommitPolicy, RunControl
from sdfstream.runtime.loop_io import stop_on_signals
from sdfstream.runtime.metrics import ProcessStatus
from sdfstream.runtime.metrics_io import serving
from sdfstream.runtime.output_io import progress
from sdfstream.serve import controller_io
from sdfstream.serve.archive_config import live_archive
from sdfstream.serve.retry_io import RETRY_FOR_S, open_with_retry
from sdfstream.serve.self_report_io import reporting
from sdfstream.serve.sql_io import serve_sql
from sdfstream.settings import Settings


async def run(
    chosen: Settings, names: list[str], seconds: float | None, member: str, metrics: str | None
) -> dict[str, int]:
    """Run the stages `names` until SIGINT, SIGTERM or `seconds` have passed; their counters."""
    control = RunControl(drain=False)
    stop_on_signals(control.stop.set)
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, control.stop.set)
    run_id = uuid.uuid4().hex
    bus = await open_bus(chosen.bus, time.time_ns, boot_id=run_id, kafka=chosen.kafka)
    try:
        progress(f"{', '.join(names)} on {chosen.bus}; Ctrl-C stops")
        bus_id = getattr(bus, "cluster_id", "") or chosen.bus
        return await serve(
            bus, chosen, names, control, bus_id=bus_id, commits=CommitPolicy(), member=member, metrics=metrics
        )
    finally:
        await bus.close()


async def serve(
    bus: Bus,
    chosen: Settings,
    names: list[str],
    control: RunControl,
    *,
    bus_id: str,
    commits: CommitPolicy | None = None,
    member: str = "",
    metrics: str | None = None,
) -> dict[str, int]:
    """Run the stages `names` on `bus` until `control` says stop; their counters.

    Parameters
    ----------
    bus_id : str
        Names the bus for the archive, which takes a message of one bus once, however often it is delivered.
    keep : Keep, optional
        How often the stages' work is committed; None: no other process goes on with it.
    member : str
        Name of this process among those that share the same work.
    metrics : str, optional
        ``HOST:PORT`` to serve metrics and health at.
    """
    if "plan" in names and chosen.plan.mesh == "off":
        chosen = chosen.model_copy(update={"plan": replace(chosen.plan, mesh="auto")})
    signs = "actuate" in names or "plan" in names
    authority = controller_io.authority(chosen, time.time_ns()) if signs else None
    every = [*pipeline.makers(chosen, authority), *pipeline.split_sync(chosen)]
    makers = [maker for maker in every if maker.name in names]
    async with AsyncExitStack() as stack:
        archive: ArchiveWork | None = None
        counted: list[Any] = [*makers, bus, control]
        if "archive" in names:
            # a folder that cannot be opened will not open later; a server that starts will
            retry_for_s = RETRY_FOR_S if "://" in (chosen.archive or "") else 0.0
            archive = await open_with_retry(partial(_archive, chosen, bus_id), control.stop, retry_for_s)
            stack.callback(archive.close)
            upkeep = UpkeepThread.start(archive.config.target, chosen.retention)
            stack.push_async_callback(asyncio.to_thread, upkeep.close)
            front = serve_sql(stack, chosen)
            counted += [archive, upkeep, *([front] if front else [])]
        name = "+".join(names) + (f".{member}" if member else "")
        report = await stack.enter_async_context(reporting(bus, names[0], name, counted))
        if metrics is not None:
            gauges = _gauges(archive) | disk_io.gauges(chosen.data)
            reported = ProcessStatus(control, names, counted, gauges=gauges, troubles=report.sentences)
            await stack.enter_async_context(serving(metrics, reported, getattr(bus, "ask", None)))
        gc.freeze()  # modules and what was started stay: the collector need not visit them
        await live_io.run(bus, makers, (), time.time_ns, control, commits=commits, member=member, archive=archive)
    return {name: n for one in counted for name, n in one.counters.as_dict().items()}


def _gauges(archive: ArchiveWork | None) -> dict[str, Callable[[], float | None]]:
    """Gauges of the archive."""
    if archive is None:
        return {}
    return {f"archive_{name}": partial(_figure, archive, name) for name in archive.figures() if name != "oldest_age_s"}


def _figure(archive: ArchiveWork, name: str) -> float:
    return archive.figures()[name]


def _archive(chosen: Settings, bus_id: str) -> ArchiveWork:
    chosen.data.mkdir(parents=True, exist_ok=True)
    return ArchiveWork.open(live_archive(chosen, bus_id))
