"""The detect stage: messages in, findings and NIC states out. `evaluation` has the order in which engines are asked.

Inside a call the stage walks the stream itself: every 100 ms boundary of bus time up to a message, and every instant
between at which silence is due, then the message, or all that follow each other in one slice. What it says therefore
depends on the stream alone, not on how the driver cut it into calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.engines import Engines
from sdfstream.detect.evaluation import Evaluation
from sdfstream.detect.intake.dispatch import Dispatch
from sdfstream.detect.ledger import NEVER_NS
from sdfstream.errors import FormatError
from sdfstream.numeric import codec
from sdfstream.records.message import Message, Output
from sdfstream.records.slices import in_slices
from sdfstream.records.topics import FINDING, HOP, NIC
from sdfstream.records.units import TICK_NS
from sdfstream.stats import Counters

_MOST_TICKS: Final = 300
"""A gap in bus time over more boundaries (30 s) is taken in one stride: what nobody saw is unknown, and evaluating an
hour of it would only cost an hour's time."""


class DetectStage:
    """All detectors behind one `Stage`.

    Reads probe rows, liveness statements, port readings, corrected delays, clock states, topology, jobs and operators'
    labels (overrides, outcomes); says findings (``sdf.event.finding.v1``), NIC health (``sdf.state.nic.v1``), and
    queue and utilisation of links (``sdf.derived.hop.v1``).
    """

    name = "detect"
    reads = Dispatch.reads
    writes: tuple[str, ...] = (FINDING.name, NIC.name, HOP.name)

    def __init__(self, config: DetectConfig | None = None) -> None:
        self.config = config or DetectConfig()
        self.counters = Counters(self.name)
        self._engines = Engines(self.config, self.counters)
        self._dispatch = Dispatch(self._engines)
        self._evaluation = Evaluation(self._engines)
        self._tick = -1
        """Number of the last 100 ms boundary that was stepped; −1: none yet."""

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` in order, then go on to `now_ns`."""
        out: list[Output] = []
        for run in in_slices(messages):
            if self._dispatch.takes_together(run):
                out += self._take_together(run)
                continue
            for message in run:
                out += self._go_on_to(message) + self._take(message)
        out += self._until(now_ns)
        return out

    def _go_on_to(self, message: Message) -> list[Output]:
        out = self._until(message.bus_at_ns)
        return out + self._evaluation.news_of_slice(message.bus_at_ns) if self._evaluation.pending else out

    def _take_together(self, run: Sequence[Message]) -> list[Output]:
        """Take messages of one slice as one, or as two where silence is due between them."""
        out: list[Output] = []
        while run:
            out += self._go_on_to(run[0])
            due_ns = self._evaluation.due_ns
            before = len(run) if run[-1].bus_at_ns < due_ns else sum(m.bus_at_ns < due_ns for m in run)
            self._dispatch.take_together(run[:before])
            run = run[before:]
        return out

    def _take(self, message: Message) -> list[Output]:
        news = False
        try:
            news = self._dispatch.take(message)
        except FormatError as error:
            self.counters.add("refused", error.reason)
        out = self._evaluation.news(message.bus_at_ns) if news else []
        self._engines.admit()
        return out

    def finish(self, now_ns: int) -> list[Output]:
        """End of the input: what is open stays open, since nothing more was seen of it."""
        return self._until(now_ns)

    def _until(self, now_ns: int) -> list[Output]:
        last = now_ns // TICK_NS
        if self._tick < 0:
            self._tick = last - 1
        if last - self._tick > _MOST_TICKS:
            self.counters.add("ticks-skipped", n=last - 1 - self._tick)
            self._tick = last - 1
            self._evaluation.due_ns = NEVER_NS
            self._engines.forget(now_ns)
        out: list[Output] = []
        while True:
            boundary_ns = (self._tick + 1) * TICK_NS
            if self._evaluation.due_ns < boundary_ns and self._evaluation.due_ns <= now_ns:
                out += self._evaluation.due()
            elif boundary_ns <= now_ns:
                self._tick += 1
                out += self._evaluation.boundary(self._tick, boundary_ns)
            else:
                return out

    def snapshot(self) -> bytes:
        """The whole state, deterministic bytes."""
        counters = [[*key, n] for key, n in sorted(self.counters.values.items())]
        rest = {
            "tick": self._tick,
            "assessed": self._evaluation.assessed_ns,
            "pending": self._evaluation.pending,
            "young": self._evaluation.young,
            "due": self._evaluation.due_ns,
            "liveness": self._engines.liveness.table.snapshot(),
            "counters": counters,
        }
        return codec.dump({"engines": self._engines.snapshot(), "rest": rest})

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot`.

        Raises
        ------
        FormatError
            When the bytes are no snapshot of this version.
        """
        saved: Mapping[str, Any] = codec.load(state)
        self._engines.restore(saved["engines"])
        rest = saved["rest"]
        self._tick = int(rest["tick"])
        self._evaluation.assessed_ns, self._evaluation.pending = int(rest["assessed"]), bool(rest["pending"])
        self._evaluation.young = bool(rest.get("young", False))  # a release before knew neither
        self._evaluation.due_ns = int(rest.get("due", NEVER_NS))
        self._engines.liveness.table.restore(rest["liveness"])
        self.counters.values = {(what, reason): int(n) for what, reason, n in rest["counters"]}
