"""``sdfstream play``: a recording's agents, as if they spoke now."""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfstream.cli.options import add_metrics
from sdfstream.cli.output import emit, progress
from sdfstream.errors import ConfigError

if TYPE_CHECKING:
    from sdfstream.bus import Publisher
    from sdfstream.bus.kafka_config import KafkaConfig
    from sdfstream.bus.playback import TimeLine
    from sdfstream.bus.recording_io import Recording
    from sdfstream.cli.player import Player

HELP = "publish what a recording's agents said as if they said it now; the pipeline on that bus works on it"
EXAMPLE = "sdfstream play --bus kafka://localhost:9092 --loop"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """[IN], --bus, --config, --loop, --speed, --metrics, --seconds."""
    parser.add_argument(
        "recording",
        type=Path,
        metavar="IN",
        nargs="*",
        help="folder of a recording, several hosts' as one (default: the one shipped with the program)",
    )
    parser.add_argument("--bus", metavar="kafka://HOST:PORT|link:PATH", help="the bus (default: the settings' bus)")
    parser.add_argument("--config", type=Path, help="settings file (YAML)")
    parser.add_argument("--loop", action="store_true", help="at its end begin anew, as agents that were restarted")
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="X",
        help="that much faster (default 1); delays stay what they were, rates and the drift of clocks grow",
    )
    add_metrics(parser)
    parser.add_argument("--seconds", type=float, metavar="N", help="end after this long")


def run(args: argparse.Namespace) -> int:
    """Play until the end, or until told to stop."""
    import logging

    from sdfstream import replaying, settings
    from sdfstream.bus import playback
    from sdfstream.bus.recording_io import open_recording
    from sdfstream.cli import loop

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if not 0.01 <= args.speed <= 1000:
        raise ConfigError(f"--speed is {args.speed:g}; it must be from 0.01 to 1000")
    chosen = settings.load(args.config)
    bus = args.bus or chosen.bus
    if not bus.startswith(("kafka://", "link:")):
        raise ConfigError("play needs --bus kafka://HOST:PORT, or link:PATH of a running `sdfstream up`")
    with ExitStack() as stack:
        folders = args.recording or [
            stack.enter_context(resources.as_file(resources.files("sdfstream.cli") / "shipped_recording"))
        ]
        recording = open_recording(*folders)
        made = {topic for topics in replaying.WRITES.values() for topic in topics}
        topics = [t for t in playback.agents_topics(made) if t in recording.topics]
        if not topics:
            raise ConfigError(f"{folders[0]} holds nothing that agents said")
        result = loop.run(_play(args, recording, topics, bus, chosen.kafka, folders[0]))
    emit(args.json, result, _text(result))
    return 0


async def _play(
    args: argparse.Namespace, recording: Recording, topics: list[str], bus: str, kafka: KafkaConfig, folder: Path
) -> dict[str, Any]:
    import asyncio

    from sdfstream.cli.loop import stop_on_signals
    from sdfstream.cli.player import Player

    stop = asyncio.Event()
    stop_on_signals(stop.set)
    if args.seconds is not None:
        asyncio.get_running_loop().call_later(args.seconds, stop.set)
    run_id, began_s = uuid.uuid4().hex, time.monotonic()
    async with _publisher(bus, run_id, kafka) as publisher:
        player = Player(recording, topics, publisher, run_id, args.speed)
        span_s = (recording.end_at_ns - recording.start_at_ns) / 1e9 / args.speed
        progress(f"playing {folder}, {span_s:.0f} s, onto {bus}{', again and again' if args.loop else ''}")
        faults = _faults(folder)

        def begins(number: int, line: TimeLine) -> None:
            progress("\n".join([f"pass {number + 1}", *(f"  {text}" for text in _coming(faults, line))]))

        async with _telling(args.metrics, player, publisher):
            await player.play(stop, loop=args.loop, begins=begins)
        counters = player.counters.as_dict() | publisher.counters.as_dict()
    return {
        "recording": str(folder),
        "bus": bus,
        "passes": player.counters.get("passes"),
        "messages": player.counters.total("messages"),
        "rows": player.counters.total("rows"),
        "seconds": round(time.monotonic() - began_s, 1),
        "unreadable": recording.counters.total("refused"),
        "counters": counters,
    }


@asynccontextmanager
async def _telling(address: str | None, player: Player, publisher: Publisher) -> AsyncIterator[None]:
    """Metrics and health of the player: it gets on while it publishes, and while it waits for what is due."""
    if address is None:
        yield
        return
    from sdfstream.cli.metrics import Told
    from sdfstream.cli.metrics_io import telling
    from sdfstream.stage_control_io import Control

    signs = Control()

    def told(due_ns: int) -> None:
        signs.progress_s["play"], signs.reached_ns["play"] = time.monotonic(), due_ns

    player.told = told
    async with telling(address, Told(signs, ["play"], [player, publisher]), getattr(publisher, "ask", None)):
        yield


@asynccontextmanager
async def _publisher(name: str, run_id: str, kafka: KafkaConfig) -> AsyncIterator[Publisher]:
    """The bus itself: one that is away holds the player back, where an agent would go on and keep what it can."""
    if name.startswith("link:"):
        from sdfstream.bus.link_io import LinkPublisher

        async with LinkPublisher(name.removeprefix("link:"), boot_id=run_id) as link:
            yield link
        return
    from sdfstream.bus.open_io import open_bus

    bus = await open_bus(name, time.time_ns, boot_id=run_id, kafka=kafka)
    try:
        yield bus
    finally:
        await bus.close()


def _faults(folder: Path) -> list[dict[str, Any]]:
    """What was done to the recorded fabric, for the person who watches; nothing of it reaches the bus."""
    try:
        lines = (folder / "truth" / "faults.jsonl").read_text(encoding="utf-8").splitlines()
        return [fault for line in lines if isinstance(fault := json.loads(line), dict)]
    except (OSError, ValueError):
        return []


def _coming(faults: list[dict[str, Any]], line: TimeLine) -> list[str]:
    told = []
    for fault in faults:
        at_ns, healed_ns = fault.get("at_ns"), fault.get("healed_at_ns")
        if isinstance(at_ns, int):
            until = f" to {_hour(line.at(healed_ns))}" if isinstance(healed_ns, int) else ""
            told.append(f"{fault.get('kind')} {fault.get('target')}: {_hour(line.at(at_ns))}{until}")
    return told


def _hour(at_ns: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ns // 1_000_000_000))


def _text(result: dict[str, Any]) -> str:
    return (
        f"played {result['messages']:,} messages ({result['rows']:,} rows) in {result['seconds']:.0f} s, "
        f"{result['passes']} whole passes"
    )
