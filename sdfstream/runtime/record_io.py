"""Everything on a bus, kept as a recording."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sdfstream.bus import Bus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.open_io import open_bus
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.records.message import Message
from sdfstream.records.topics import ARCHIVED
from sdfstream.runtime.control_io import RunControl
from sdfstream.runtime.live_io import Watcher, run_watcher, supervise
from sdfstream.runtime.loop_io import stop_on_signals
from sdfstream.runtime.output_io import progress


async def record_bus(
    name: str, kafka: KafkaConfig, out: Path, cluster: str, seconds: float | None, *, from_start: bool
) -> dict[str, Any]:
    """Record the bus that `name` names until SIGINT, SIGTERM or `seconds` have passed; what was written."""
    control = RunControl(drain=False)
    stop_on_signals(control.stop.set)
    bus = await open_bus(name, time.time_ns, boot_id=uuid.uuid4().hex, kafka=kafka)
    try:
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, control.stop.set)
        progress(f"recording {name} into {out}; Ctrl-C stops")
        return await record(bus, out, cluster, control, from_start=from_start)
    finally:
        await bus.close()


async def record(bus: Bus, out: Path, cluster: str, control: RunControl, *, from_start: bool = False) -> dict[str, Any]:
    """Write everything that enters `bus` into `out` until `control` says stop; what was written.

    Raises
    ------
    ConfigError
        `out` holds a recording already.
    """
    started_s, rows = time.monotonic(), 0
    writer = RecordingWriter(out, time.time_ns, cluster=cluster)

    async def take(messages: Sequence[Message]) -> None:
        nonlocal rows
        writer.write(messages)
        rows += sum(m.rows for m in messages)

    # a group of its own: everybody who records gets everything
    watcher = Watcher(f"record-{uuid.uuid4().hex[:12]}", tuple(ARCHIVED), take, from_start=from_start)
    try:
        await supervise("record", partial(run_watcher, watcher, bus, time.time_ns, control), control)
    finally:
        await writer.close()
    counters = {name: n for one in (writer, bus, control) for name, n in one.counters.as_dict().items()}
    return {
        "recording": str(out),
        "rows": rows,
        "seconds": round(time.monotonic() - started_s, 1),
        "counters": counters,
    }
