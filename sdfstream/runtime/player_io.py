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
"""Between two passes: as long as an agent is away that is started again, and not so long that its host counts as
silent (``detect.agent_stale_s``)."""
_TOGETHER_NS: Final = 20_000_000
"""What is due within so much of each other is published by one call."""
_MOST_TOGETHER: Final = 500
_AGAIN_S: Final = 1.0


@dataclass(slots=True)
class Player:
    """Plays one recording; `play` returns when it is at its end, or told to stop.

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
    told: Callable[[int], None] = lambda due_ns: None
    """Called after every publishing with when it was due; a health check listens."""

    async def play(self, stop: asyncio.Event, *, loop: bool, begins: Callable[[int, TimeLine], None]) -> None:
        """Play once, or with `loop_io` until `stop`; `begins` hears of every pass."""
        number = 0
        while not stop.is_set():
            line = TimeLine(self.recording.start_at_ns, self.clock(), self.speed)
            begins(number, line)
            await self._pass(Pass(f"{self.run_id}/{number}", line), line, stop)
            self.counters.add("passes", n=0 if stop.is_set() else 1)
            number += 1
            if not loop:
                return
            await _wait(stop, PAUSE_S)

    async def _pass(self, now: Pass, line: TimeLine, stop: asyncio.Event) -> None:
        pace = Pace(line.at)
        together: list[Output] = []
        last: Message | None = None
        due_ns = 0
        for message in self.recording.messages(self.topics):
            next_ns = pace.due(message.bus_at_ns)
            if last is not None and (next_ns - due_ns > _TOGETHER_NS or len(together) >= _MOST_TOGETHER):
                await self._publish(together, due_ns, stop)
                pace.went(last.bus_at_ns, self.clock())
                together, last = [], None
                next_ns = pace.due(message.bus_at_ns)
            if last is None:
                due_ns = next_ns
            if stop.is_set():
                return
            together.append(now.output(message))
            last = message
        await self._publish(together, due_ns, stop)
        await _wait(stop, (line.at(self.recording.end_at_ns) - self.clock()) / NS_PER_S)

    async def _publish(self, outputs: Sequence[Output], due_ns: int, stop: asyncio.Event) -> None:
        """Publish when it is due; a bus that does not take it is asked again and again."""
        await _wait(stop, (due_ns - self.clock()) / NS_PER_S)
        while outputs and not stop.is_set():
            try:
                await self._given(outputs)
            except SdfError as error:
                # numbers and boot ids stay, so that what had arrived all the same is known to be a repeat
                self.counters.add("again")
                log.warning("the bus did not take it (%s); trying again", error)
                await _wait(stop, _AGAIN_S)
                continue
            self.counters.add("late-ms", n=max(self.clock() - due_ns, 0) // 1_000_000)
            self.told(due_ns)
            return

    async def _given(self, outputs: Sequence[Output]) -> None:
        try:
            await self.publisher.publish(outputs)
        except FormatError:
            if len(outputs) > 1:
                for output in outputs:
                    await self._given([output])
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
