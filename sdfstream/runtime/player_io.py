"""The loop of ``sdfstream play``: a recording's messages onto a bus, each when it is due."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sdfstream.bus import Publisher
from sdfstream.bus.recording.playback import Pace, Pass, TimeLine
from sdfstream.errors import FormatError, SdfError
from sdfstream.records.message import Message, Output
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

if TYPE_CHECKING:
    from sdfstream.bus.recording.reader_io import Recording

log = logging.getLogger("sdfstream.play")

PAUSE_S: Final = 1.5
"""Pause between two passes: as long as an agent's restart takes, and shorter than ``detect.agent_stale_s``, after
which its host counts as silent."""
_BATCH_SPAN_NS: Final = 20_000_000
"""Messages that are due within so much of each other are published by one call."""
_MAX_BATCH: Final = 500
_RETRY_S: Final = 1.0


@dataclass(slots=True)
class Player:
    """Plays one recording; `play` returns at its end, or when its stop event is set.

    Counters: ``messages`` and ``rows`` (topic), ``passes``, ``refused`` (what the bus would not take), ``again``
    (attempts to publish that failed), ``late-ms`` (by how much in sum messages went later than they were due).
    """

    recording: Recording
    topics: Sequence[str]
    publisher: Publisher
    run_id: str
    speed: float = 1.0
    clock: Callable[[], int] = time.time_ns
    counters: Counters = field(default_factory=lambda: Counters("play"))
    on_published: Callable[[int], None] = lambda due_ns: None
    """Called after each publish with the time at which it was due; the health check measures progress by it."""

    async def play(self, stop: asyncio.Event, *, loop: bool, on_pass: Callable[[int, TimeLine], None]) -> None:
        """Play once, or with `loop` until `stop`; `on_pass` is called at the start of every pass with its number."""
        number = 0
        while not stop.is_set():
            line = TimeLine(self.recording.start_at_ns, self.clock(), self.speed)
            on_pass(number, line)
            await self._pass(Pass(f"{self.run_id}/{number}", line), line, stop)
            self.counters.add("passes", n=0 if stop.is_set() else 1)
            number += 1
            if not loop:
                return
            await _wait(stop, PAUSE_S)

    async def _pass(self, now: Pass, line: TimeLine, stop: asyncio.Event) -> None:
        pace = Pace(line.at)
        batch: list[Output] = []
        last: Message | None = None
        due_ns = 0
        for message in self.recording.messages(self.topics):
            next_due_ns = pace.due(message.bus_at_ns)
            if last is not None and (next_due_ns - due_ns > _BATCH_SPAN_NS or len(batch) >= _MAX_BATCH):
                await self._publish(batch, due_ns, stop)
                pace.went(last.bus_at_ns, self.clock())
                batch, last = [], None
                next_due_ns = pace.due(message.bus_at_ns)
            if last is None:
                due_ns = next_due_ns
            if stop.is_set():
                return
            batch.append(now.output(message))
            last = message
        await self._publish(batch, due_ns, stop)
        await _wait(stop, (line.at(self.recording.end_at_ns) - self.clock()) / NS_PER_S)

    async def _publish(self, outputs: Sequence[Output], due_ns: int, stop: asyncio.Event) -> None:
        """Publish `outputs` at `due_ns`; when the bus fails, again every `_RETRY_S` until `stop`."""
        await _wait(stop, (due_ns - self.clock()) / NS_PER_S)
        while outputs and not stop.is_set():
            try:
                await self._publish_each_readable(outputs)
            except SdfError as error:
                # numbers and boot ids stay, so that readers recognise what had arrived all the same as a repeat
                self.counters.add("again")
                log.warning("the bus did not take it (%s); trying again", error)
                await _wait(stop, _RETRY_S)
                continue
            self.counters.add("late-ms", n=max(self.clock() - due_ns, 0) // 1_000_000)
            self.on_published(due_ns)
            return

    async def _publish_each_readable(self, outputs: Sequence[Output]) -> None:
        try:
            await self.publisher.publish(outputs)
        except FormatError:
            if len(outputs) > 1:
                for output in outputs:
                    await self._publish_each_readable([output])
                return
            self.counters.add("refused", outputs[0].topic)
            return
        for output in outputs:
            self.counters.add("messages", output.topic)
            self.counters.add("rows", output.topic, getattr(output.body, "num_rows", 1))


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    if seconds > 0 and not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
