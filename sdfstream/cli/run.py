"""``sdfstream run``: stages on their own, each a consumer group of a Kafka bus."""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream.cli.options import add_metrics, add_reference, with_reference
from sdfstream.cli.output import emit, progress
from sdfstream.cli.patience import PATIENCE_S, opened
from sdfstream.errors import ConfigError

if TYPE_CHECKING:
    from sdfstream import pipeline
    from sdfstream.archive.work_io import ArchiveWork
    from sdfstream.bus import Bus
    from sdfstream.settings import Settings

HELP = "run stages of the pipeline against Kafka, each as a consumer group"
EXAMPLE = "sdfstream run sync workload detect --bus kafka://localhost:9092"
STAGES: Final = ("sync", "sync-edge", "sync-mesh", "workload", "detect", "actuate", "plan", "archive")
_PARTS: Final = {"sync-edge", "sync-mesh"}
"""What takes the place of sync where one process does not suffice."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """STAGE…, --bus, --config, --data, --member, --reference, --seconds."""
    parser.add_argument("stages", metavar="STAGE", nargs="+", choices=STAGES, help=f"of {', '.join(STAGES)}")
    parser.add_argument("--bus", metavar="kafka://HOST:PORT", help="the bus (default: the settings' bus)")
    parser.add_argument("--config", type=Path, help="settings file (YAML)")
    parser.add_argument("--data", type=Path, help="data folder of an embedded archive (default: ./sdfstream-data)")
    parser.add_argument(
        "--member", metavar="NAME", default="", help="name among the replicas: its restart within 10 s moves no work"
    )
    add_reference(parser)
    add_metrics(parser)
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="end after this long (default: on Ctrl-C or SIGTERM)"
    )


def run(args: argparse.Namespace) -> int:
    """Run until told to stop; what was read is dealt with and committed, the rest is left to the group."""
    import logging

    from sdfstream import settings
    from sdfstream.cli import loop

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    chosen = with_reference(settings.load(args.config), args)
    named = {"bus": args.bus, "data": args.data}
    chosen = chosen.model_copy(update={name: value for name, value in named.items() if value is not None})
    if chosen.bus == "memory":
        raise ConfigError("run needs --bus kafka://HOST:PORT; the whole pipeline in one process is `sdfstream up`")
    if "sync" in args.stages and _PARTS & set(args.stages):
        raise ConfigError("sync is sync-edge and sync-mesh in one; both at once would tell every clock twice")
    counters = loop.run(_run(chosen, list(dict.fromkeys(args.stages)), args.seconds, args.member, args.metrics))
    emit(args.json, {"stages": args.stages, "counters": counters}, "")
    return 0


async def _run(
    chosen: Settings, names: list[str], seconds: float | None, member: str, metrics: str | None
) -> dict[str, int]:
    import asyncio

    from sdfstream import pipeline
    from sdfstream.bus.open_io import open_bus
    from sdfstream.cli.loop import stop_on_signals

    control = pipeline.Control(drain=False)
    stop_on_signals(control.stop.set)
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, control.stop.set)
    run_id = uuid.uuid4().hex
    bus = await open_bus(chosen.bus, time.time_ns, boot_id=run_id, kafka=chosen.kafka)
    try:
        progress(f"{', '.join(names)} on {chosen.bus}; Ctrl-C stops")
        bus_id = getattr(bus, "cluster_id", "") or chosen.bus
        return await serve(
            bus, chosen, names, control, bus_id=bus_id, keep=pipeline.Keep(), member=member, metrics=metrics
        )
    finally:
        await bus.close()


async def serve(
    bus: Bus,
    chosen: Settings,
    names: list[str],
    control: pipeline.Control,
    *,
    bus_id: str,
    keep: pipeline.Keep | None = None,
    member: str = "",
    metrics: str | None = None,
) -> dict[str, int]:
    """Run the stages `names` on `bus` until `control` says stop; their counters.

    Parameters
    ----------
    bus_id : str
        Names the bus for the archive, which takes a message of one bus once, however often it is delivered.
    keep : Keep, optional
        How often the stages' work is committed and kept for whoever goes on with it.
    member : str
        Names this process among those that do the same work.
    metrics : str, optional
        ``HOST:PORT`` to serve metrics and health at.
    """
    import asyncio

    from sdfstream import pipeline
    from sdfstream.archive.upkeep_io import UpkeepThread

    authority = pipeline.authority(chosen, time.time_ns()) if "actuate" in names else None
    if "plan" in names and chosen.plan.mesh == "off":
        chosen = chosen.model_copy(update={"plan": replace(chosen.plan, mesh="auto")})
    every = [*pipeline.makers(chosen, authority), *pipeline.sync_parts(chosen)]
    path = [maker for maker in every if maker.name in names]
    async with AsyncExitStack() as stack:
        archive: ArchiveWork | None = None
        parts: list[Any] = [*path, bus, control]
        if "archive" in names:
            # a folder that cannot be opened will not open later; a server that starts will
            patience_s = PATIENCE_S if "://" in (chosen.archive or "") else 0.0
            archive = await opened(partial(_archive, chosen, bus_id), control.stop, patience_s)
            stack.callback(archive.close)
            upkeep = UpkeepThread.start(archive.config.target, chosen.retention)
            stack.push_async_callback(asyncio.to_thread, upkeep.close)
            parts += [archive, upkeep]
        if metrics is not None:
            from sdfstream.cli.metrics import Told
            from sdfstream.cli.metrics_io import telling

            told = Told(control, names, parts, gauges=_gauges(archive))
            await stack.enter_async_context(telling(metrics, told, getattr(bus, "ask", None)))
        await pipeline.run(bus, path, (), time.time_ns, control, keep=keep, member=member, archive=archive)
    return {name: n for part in parts for name, n in part.counters.as_dict().items()}


def _gauges(archive: ArchiveWork | None) -> dict[str, Callable[[], float]]:
    """What is true of the archive now."""
    if archive is None:
        return {}
    return {f"archive_{name}": partial(_figure, archive, name) for name in archive.figures() if name != "oldest_age_s"}


def _figure(archive: ArchiveWork, name: str) -> float:
    return archive.figures()[name]


def _archive(chosen: Settings, bus_id: str) -> ArchiveWork:
    from sdfstream.archive.config import LIVE, ArchiveConfig
    from sdfstream.archive.work_io import ArchiveWork

    chosen.data.mkdir(parents=True, exist_ok=True)
    return ArchiveWork.open(
        ArchiveConfig(
            target=chosen.archive or str(chosen.data / "archive"),
            bus_id=bus_id,
            limits=LIVE,
            retention=chosen.retention,
            spill_dir=str(chosen.data / "archive-spill"),
            kept_dir=str(chosen.data / "archive-kept"),
        )
    )
