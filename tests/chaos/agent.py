"""The process of an agent: takes what its NICs measured from its standard input, publishes it, keeps a journal.

``python -m tests.chaos.agent --bus kafka://HOST:PORT --boot ID --journal FILE --hosts h00,h01
--key FILE --spill FOLDER``. Everything from the
publish buffer on is the product's; what is simulated is what the NICs measure. It hears commands for its hosts, checks
their signatures and accepts them. At the end of its input it sends what it has and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import signal
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sdfstream.actuate import keys_io
from sdfstream.agent.bus_io import WaitingBus
from sdfstream.agent.publish_io import PublishBuffer
from sdfstream.agent.queues import OutputQueue
from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.bus.open_io import open_bus
from sdfstream.bus.sequences import Numbers
from sdfstream.bus.tail_io import Tail
from sdfstream.errors import SdfError
from sdfstream.records.command import Outcome
from sdfstream.records.message import Event, Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import COMMAND, OUTCOME
from sdfstream.stats import Counters
from tests.chaos import digest
from tests.chaos.journal import Journal

DRAIN_S = 90.0


class RecordingPublisher:
    """A publisher that tells the journal what the bus took."""

    def __init__(self, bus: WaitingBus, boot_id: str, journal: Journal) -> None:
        self._bus = bus
        self._boot_id = boot_id
        self._journal = journal
        self._marks: dict[tuple[str, str, int], str] = {}
        self._count: dict[tuple[str, str], int] = {}

    def mark(self, output: Output, number: str) -> None:
        """`number` is what the journal calls `output`, the next of its topic and key that the buffer numbers."""
        stream = (output.topic, output.key)
        seq = self._count[stream] = self._count.get(stream, -1) + 1
        self._marks[(*stream, seq)] = number

    async def publish(self, outputs: Sequence[Output]) -> None:
        """As the bus does."""
        await self._bus.publish(outputs)
        ours = [(o.topic, o.key, o.batch_seq) for o in outputs if o.boot_id == self._boot_id]
        self._journal.took(number for one in ours if (number := self._marks.pop(one, None)) is not None)


class Agent:
    """What runs in the process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.journal = Journal(args.journal, args.boot)
        self.counters = Counters("agent")
        self.bus = WaitingBus(lambda: open_bus(args.bus, time.time_ns, boot_id=args.boot))
        self.recorder = RecordingPublisher(self.bus, args.boot, self.journal)
        spill = SpillFolder(args.spill, args.disk)
        self.buffer = PublishBuffer(
            self.recorder, self.counters, args.memory, numbers=Numbers(), boot_id=args.boot, spill=spill
        )
        self._own = 0

    def put(self, number: str, output: Output) -> None:
        """Take up one message; the journal knows of it before the buffer does."""
        self.recorder.mark(output, number)
        self.buffer.put([output])
        self.journal.shed(self.shed_rows())

    def shed_rows(self) -> int:
        """Rows given up so far."""
        return sum(n for (what, _), n in self.counters.values.items() if what == "shed")

    async def measure(self) -> None:
        """Until the input ends."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=1 << 26)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
        while True:
            try:
                (length,) = struct.unpack(">I", await reader.readexactly(4))
                number, output = pickle.loads(await reader.readexactly(length))
            except asyncio.IncompleteReadError:
                return
            self.journal.line(f"P {number}")
            self.put(str(number), output)

    async def obey(self) -> None:
        """Hear commands; accept each once."""
        hosts, keys = self.args.hosts.split(","), KeyRing([keys_io.public_key(self.args.key)])
        accepted: set[str] = set()
        while True:
            try:
                bus = await self.bus.bus()
                listener = await Tail.open(bus, f"agent-{self.args.boot}", [COMMAND.name], hosts)
                while True:
                    for message in await listener.read(1.0):
                        if isinstance(message.body, Event):
                            self._accept(message.body, keys, accepted)
            except SdfError as error:
                print(f"no commands are heard: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(1.0)

    def _accept(self, event: Event, keys: KeyRing, accepted: set[str]) -> None:
        data = dict(event.data)
        if (why := keys.refuses(data)) or data["id"] in accepted:
            if why:
                print(f"refused command {data.get('id')}: {why}", file=sys.stderr, flush=True)
            return
        accepted.add(data["id"])
        self._own += 1
        host, at_ns = data["target"]["host"], time.time_ns()
        outcome = Outcome(data["id"], "accepted", "armed", host, at_ns, data["action"], data["target"])
        event = Event(OUTCOME.name, host, f"{self.args.boot}-{self._own}", at_ns, outcome.as_data())
        sum_ = digest.event(event.id, event.source, event.type, event.data)
        number = f"{self.args.boot}-{self._own}"
        self.journal.line(f"O {number} {OUTCOME.name} {data['id']} {sum_}")
        self.put(number, Output(OUTCOME.name, data["id"], event))


def _holds(queue: OutputQueue) -> bool:
    return bool(queue.in_flight or queue.front or queue.on_disk or queue.writing or queue.held)


async def run(args: argparse.Namespace) -> None:
    agent = Agent(args)
    await agent.bus.start()
    beside = [asyncio.create_task(agent.buffer.run()), asyncio.create_task(agent.obey())]
    await agent.measure()
    beside[1].cancel()
    await asyncio.wait([beside[1]])
    with suppress(TimeoutError):  # what is on disk when an agent ends is its next run's to send; here is none
        async with asyncio.timeout(DRAIN_S):
            while any(_holds(queue) for queue in agent.buffer._queues):  # noqa: ASYNC110 - tasks of the product's move them
                await asyncio.sleep(0.1)
    beside[0].cancel()  # what it had in hand goes back into the buffer, in order
    await asyncio.wait([beside[0]])
    await agent.buffer.drain(DRAIN_S)
    agent.journal.shed(agent.shed_rows())
    agent.journal.end()
    with suppress(SdfError, TimeoutError):
        async with asyncio.timeout(10):
            await agent.bus.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.agent")
    for name in ("--bus", "--boot", "--hosts"):
        parser.add_argument(name, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--spill", type=Path, required=True)
    parser.add_argument("--memory", type=int, default=16 << 20)
    parser.add_argument("--disk", type=int, default=64 << 20)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the harness, which ends us
    asyncio.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
