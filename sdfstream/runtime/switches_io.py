"""gnmic's topic read, rows of switches' ports published, then positions committed: what ``sdfstream switches`` runs.

The order of one turn, and what a stop between two steps costs:

1. read records, take them into readings (`probes.switches.readings`): nothing, they are read again;
2. publish the rows that are due, and wait until the brokers have them: some rows may be on the bus, and come again;
3. commit positions before the first record that is not out yet: nothing.

So every row is published **at least once**, and twice only around a failure. A row that comes again is the same row:
the same port, instant and counters.

Brokers that are away end a turn with an error; the readings are dropped, and after a back-off reading begins again at
the last commit. At a stop (SIGINT, SIGTERM) readings that go on are cut off, published and committed.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sdfstream.bus import Bus
from sdfstream.bus.foreign.kafka_io import ForeignTopic
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.open_io import kafka_at, open_bus
from sdfstream.bus.sequences import Numbers
from sdfstream.probes.switches import gnmic
from sdfstream.probes.switches.readings import SwitchReadings
from sdfstream.records.message import Output
from sdfstream.records.switches import BOOT_PREFIX
from sdfstream.runtime.control_io import RunControl
from sdfstream.runtime.live_io import supervise
from sdfstream.runtime.loop_io import stop_on_signals
from sdfstream.runtime.metrics import ProcessStatus
from sdfstream.runtime.metrics_io import serving
from sdfstream.runtime.output_io import progress
from sdfstream.stats import Counters

NAME: Final = "switches"
"""Of the consumer group, too."""
FLUSH_S: Final = 0.25
"""Between two publications; a reading waits up to a second besides."""
_MOST_RECORDS: Final = 500
_MOST_WAITING: Final = 8192
"""So many rows are published without waiting for `FLUSH_S`."""


class SwitchFeed:
    """Rows of switches from a topic of gnmic to `bus`.

    Parameters
    ----------
    bus : Bus
        Where the rows go.
    kafka : KafkaConfig
        The brokers that hold the topic.
    topic : str
        Its name; our prefix is not put before it.
    """

    def __init__(self, bus: Bus, kafka: KafkaConfig, topic: str, control: RunControl, clock: Callable[[], int]) -> None:
        self.counters = Counters(NAME)
        self._bus, self._kafka, self._topic = bus, kafka, topic
        self._control, self._clock = control, clock
        self._boot_id = f"{BOOT_PREFIX}{secrets.token_hex(8)}"
        self._numbers = Numbers()
        self._readings = SwitchReadings(self.counters)

    async def open(self, *, from_start: bool = False) -> ForeignTopic:
        """Join the group, with nothing read; raises as `ForeignTopic.start`."""
        self._readings = SwitchReadings(self.counters)
        source = ForeignTopic(self._kafka, self._topic, NAME, self._readings.forget, self.counters)
        await source.start(from_start=from_start)
        return source

    async def serve(self, opened: list[ForeignTopic]) -> None:
        """Read and publish until `control.stop` is set; the first time from what is `opened` already."""
        source = opened.pop() if opened else await self.open()
        try:
            while not self._control.stop.is_set():
                await self._read(source, time.monotonic() + FLUSH_S)
                await self._deliver(source)
            await self._deliver(source, everything=True)
        finally:
            self._control.forget(NAME)
            await source.close()

    async def _read(self, source: ForeignTopic, until_s: float) -> None:
        """Take records until `until_s`, a stop, or more rows are due than one publication should have."""
        while (left_s := until_s - time.monotonic()) > 0 and self._readings.waiting < _MOST_WAITING:
            records = await source.read(_MOST_RECORDS, left_s)
            now_ns = self._clock()
            for record in records:
                self._readings.take(gnmic.updates(record.value, self.counters), record.partition, record.offset, now_ns)
            self.counters.add("messages", n=len(records))
            lag = self._control.lag[NAME] = await source.lag()
            if records or not lag:
                self._control.progress_at_s[NAME] = asyncio.get_running_loop().time()
            if self._control.stop.is_set():
                return

    async def _deliver(self, source: ForeignTopic, *, everything: bool = False) -> None:
        """Publish what is due, then commit: never the other way round."""
        outputs = self._readings.outputs(self._clock(), everything=everything)
        positions = self._readings.positions()
        await self._bus.publish([self._numbered(output) for output in outputs])
        self.counters.add("published", n=len(outputs))
        await source.commit(positions)

    def _numbered(self, output: Output) -> Output:
        number = self._numbers.take(output.topic, output.key)
        return replace(output, boot_id=self._boot_id, batch_seq=number)


async def feed(
    bus_name: str,
    kafka: KafkaConfig,
    topic: str,
    *,
    source: str | None = None,
    from_start: bool = False,
    seconds: float | None = None,
    metrics: str | None = None,
) -> dict[str, Any]:
    """Bring switches' counters in until SIGINT, SIGTERM or `seconds`; what was done.

    Parameters
    ----------
    bus_name, source : str
        ``kafka://host:port``: the bus, and the brokers that gnmic writes to where those are others.

    Raises
    ------
    ConfigError
        As `open_bus`, or there is no such topic.
    UnavailableError
        No broker answers at the start.
    """
    control, began_s = RunControl(drain=False), time.monotonic()
    stop_on_signals(control.stop.set)
    async with AsyncExitStack() as stack:
        bus = await open_bus(bus_name, time.time_ns, boot_id=f"{BOOT_PREFIX}{secrets.token_hex(8)}", kafka=kafka)
        stack.push_async_callback(bus.close)
        feeding = SwitchFeed(bus, kafka_at(source or bus_name, kafka), topic, control, time.time_ns)
        opened = [await feeding.open(from_start=from_start)]
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, control.stop.set)
        if metrics is not None:
            status = ProcessStatus(control, [NAME], [feeding, bus, control])
            await stack.enter_async_context(serving(metrics, status, getattr(bus, "ask", None)))
        progress(f"switches' counters from topic {topic} onto {bus_name}; Ctrl-C stops")
        await supervise(NAME, partial(feeding.serve, opened), control)
    counters = {name: n for one in (feeding, bus, control) for name, n in one.counters.as_dict().items()}
    return {
        "bus": bus_name,
        "topic": topic,
        "messages": feeding.counters.get("messages"),
        "rows": feeding.counters.get("rows"),
        "refused": feeding.counters.total("refused"),
        "seconds": round(time.monotonic() - began_s, 1),
        "counters": counters,
    }
