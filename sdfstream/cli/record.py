"""``sdfstream record``: everything on a bus, kept as a recording."""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfstream.cli.output import emit, progress

if TYPE_CHECKING:
    from sdfstream import pipeline
    from sdfstream.bus import Bus
    from sdfstream.bus.kafka_config import KafkaConfig
    from sdfstream.records.message import Message

HELP = "record everything on a Kafka bus, for sdfstream replay (a pipeline in one process: sdfstream up --record)"
EXAMPLE = "sdfstream record --bus kafka://localhost:9092 --out recording --seconds 60"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--bus, --config, --out, --seconds, --from-start, --cluster."""
    parser.add_argument("--bus", metavar="kafka://HOST:PORT", help="the bus (default: the settings' bus)")
    parser.add_argument("--config", type=Path, help="settings file (YAML), for its kafka part")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="new folder for the recording")
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="end after this long (default: on Ctrl-C or SIGTERM)"
    )
    parser.add_argument(
        "--from-start", action="store_true", help="begin with the oldest message the brokers still have"
    )
    parser.add_argument("--cluster", default="", help="the cluster's name, written into the recording")


def run(args: argparse.Namespace) -> int:
    """Record until told to stop."""
    import logging

    from sdfstream import settings
    from sdfstream.cli import loop
    from sdfstream.errors import ConfigError

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    chosen = settings.load(args.config)
    name = args.bus or chosen.bus
    if name == "memory":
        raise ConfigError(
            "give --bus kafka://HOST:PORT; a bus in memory is its own process's alone, and recorded with "
            "`sdfstream up --record DIR`"
        )
    result = loop.run(_record(name, chosen.kafka, args))
    emit(args.json, result, _text(result))
    return 0


async def _record(name: str, kafka: KafkaConfig, args: argparse.Namespace) -> dict[str, Any]:
    import asyncio

    from sdfstream import pipeline
    from sdfstream.bus.open_io import open_bus
    from sdfstream.cli.loop import stop_on_signals

    control = pipeline.Control(drain=False)
    stop_on_signals(control.stop.set)
    bus = await open_bus(name, time.time_ns, boot_id=uuid.uuid4().hex, kafka=kafka)
    try:
        if args.seconds is not None:
            asyncio.get_running_loop().call_later(args.seconds, control.stop.set)
        progress(f"recording {name} into {args.out}; Ctrl-C stops")
        return await record(bus, args.out, args.cluster, control, from_start=args.from_start)
    finally:
        await bus.close()


async def record(
    bus: Bus, out: Path, cluster: str, control: pipeline.Control, *, from_start: bool = False
) -> dict[str, Any]:
    """Write everything that enters `bus` into `out` until `control` says stop; what was written.

    Raises
    ------
    ConfigError
        `out` holds a recording already.
    """
    from functools import partial

    from sdfstream import pipeline
    from sdfstream.bus.recording_io import RecordingWriter
    from sdfstream.records.topics import ARCHIVED

    started_s, rows = time.monotonic(), 0
    writer = RecordingWriter(out, time.time_ns, cluster=cluster)

    async def take(messages: Sequence[Message]) -> None:
        nonlocal rows
        writer.write(messages)
        rows += sum(m.rows for m in messages)

    # a group of its own: everybody who records gets everything
    watcher = pipeline.Watcher(f"record-{uuid.uuid4().hex[:12]}", tuple(ARCHIVED), take, from_start=from_start)
    try:
        await pipeline.supervise("record", partial(pipeline.run_watcher, watcher, bus, time.time_ns, control), control)
    finally:
        await writer.close()
    counters = {name: n for part in (writer, bus, control) for name, n in part.counters.as_dict().items()}
    return {
        "recording": str(out),
        "rows": rows,
        "seconds": round(time.monotonic() - started_s, 1),
        "counters": counters,
    }


def _text(result: dict[str, Any]) -> str:
    counters = result["counters"]
    odd = {name: n for name, n in counters.items() if {"refused", "lost", "gap", "restarted"} & set(name.split("."))}
    lines = [f"{result['rows']:,} rows in {result['seconds']:.0f} s, in {result['recording']}"]
    if odd:
        lines.append("refused or lost: " + ", ".join(f"{name} {n}" for name, n in odd.items()))
    lines.append(f"next: sdfstream replay {result['recording']} --out DIR")
    return "\n".join(lines)
