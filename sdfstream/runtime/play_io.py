"""A recording's agents on a live bus, as if they published now: what ``sdfstream play`` runs."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sdfstream import strict_json
from sdfstream.bus import Publisher
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.link.client_io import LinkPublisher
from sdfstream.bus.open_io import open_bus
from sdfstream.bus.recording.playback import TimeLine
from sdfstream.bus.recording.reader_io import Recording
from sdfstream.errors import FormatError
from sdfstream.runtime.control_io import RunControl
from sdfstream.runtime.loop_io import stop_on_signals
from sdfstream.runtime.metrics import ProcessStatus
from sdfstream.runtime.metrics_io import serving
from sdfstream.runtime.output_io import progress
from sdfstream.runtime.player_io import Player


async def play(
    recording: Recording,
    topics: list[str],
    bus: str,
    kafka: KafkaConfig,
    folder: Path,
    *,
    speed: float = 1.0,
    loop: bool = False,
    metrics: str | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Play `topics` of `recording` onto `bus` until its end, SIGINT, SIGTERM or `seconds`; what was played."""
    stop = asyncio.Event()
    stop_on_signals(stop.set)
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, stop.set)
    run_id, began_s = uuid.uuid4().hex, time.monotonic()
    async with _publisher(bus, run_id, kafka) as publisher:
        player = Player(recording, topics, publisher, run_id, speed)
        span_s = (recording.end_at_ns - recording.start_at_ns) / 1e9 / speed
        progress(f"playing {folder}, {span_s:.0f} s, onto {bus}{', again and again' if loop else ''}")
        faults = _faults(folder)

        def on_pass(number: int, line: TimeLine) -> None:
            progress("\n".join([f"pass {number + 1}", *(f"  {text}" for text in _upcoming(faults, line))]))

        async with _serving_status(metrics, player, publisher):
            await player.play(stop, loop=loop, on_pass=on_pass)
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
async def _serving_status(address: str | None, player: Player, publisher: Publisher) -> AsyncIterator[None]:
    """Metrics and health of the player, which makes progress while it publishes and while it waits for due messages."""
    if address is None:
        yield
        return

    signs = RunControl()

    def on_published(due_ns: int) -> None:
        signs.progress_at_s["play"], signs.reached_at_ns["play"] = time.monotonic(), due_ns

    player.on_published = on_published
    async with serving(address, ProcessStatus(signs, ["play"], [player, publisher]), getattr(publisher, "ask", None)):
        yield


@asynccontextmanager
async def _publisher(name: str, run_id: str, kafka: KafkaConfig) -> AsyncIterator[Publisher]:
    """The bus without an agent's spill: a bus that is away holds the player back."""
    if name.startswith("link:"):
        async with LinkPublisher(name.removeprefix("link:"), boot_id=run_id) as link:
            yield link
        return

    bus = await open_bus(name, time.time_ns, boot_id=run_id, kafka=kafka)
    try:
        yield bus
    finally:
        await bus.close()


def _faults(folder: Path) -> list[dict[str, Any]]:
    """Faults of the recorded fabric, to be printed; nothing of them reaches the bus."""
    try:
        lines = (folder / "truth" / "faults.jsonl").read_text(encoding="utf-8").splitlines()
        return [fault for line in lines if isinstance(fault := strict_json.loads(line), dict)]
    except (OSError, ValueError, FormatError):
        return []


def _upcoming(faults: list[dict[str, Any]], line: TimeLine) -> list[str]:
    lines = []
    for fault in faults:
        at_ns, healed_ns = fault.get("at_ns"), fault.get("healed_at_ns")
        if isinstance(at_ns, int):
            until = f" to {_hour(line.at(healed_ns))}" if isinstance(healed_ns, int) else ""
            lines.append(f"{fault.get('kind')} {fault.get('target')}: {_hour(line.at(at_ns))}{until}")
    return lines


def _hour(at_ns: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ns // 1_000_000_000))
