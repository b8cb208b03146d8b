"""All stages in memory, one stream of wire messages through all of them: what raises, what grows, what takes long.

A stage is stepped directly, not by the seam that sets a message aside: whatever that seam would catch is a find here.
Outputs of a stage go to the others as on a bus, and each must encode and decode.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.stage import ActuateStage, Authority
from sdfstream.archive.events import event_rows
from sdfstream.archive.rows import bulk_rows
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.board.why import explain
from sdfstream.bus import codec
from sdfstream.detect.stage import DetectStage
from sdfstream.errors import FormatError
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.stage import PlanStage
from sdfstream.records.message import Message, Output
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.records.topics import ARCHIVED
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.driver import Ticker
from sdfstream.runtime.output_io import compact
from sdfstream.stats import Counters
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_stage import SyncEdgeStage
from sdfstream.sync.mesh_stage import SyncMeshStage
from sdfstream.sync.stage import SyncStage
from sdfstream.workload.stage import WorkloadStage
from tests.fuzz.finds import Finds
from tests.fuzz.traffic import Wire
from tests.fuzz.values import NOW_NS

_VIEW_NS: Final = 30 * NS_PER_S
_MOST_CAUSED: Final = 10_000
"""Messages that one message may cause, over all stages."""


class Steps(Protocol):
    """What the chain needs of a stage or of a reader that is stepped like one."""

    reads: tuple[str, ...]
    counters: Counters

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take messages up to `now_ns`."""


class BoardSteps:
    """The read model: takes every message; now and then somebody asks for all views."""

    reads = tuple(sorted({*Board.reads, *JobBoard.reads}))

    def __init__(self) -> None:
        self.board, self.jobs = Board(), JobBoard()
        self.counters = self.board.counters
        self._viewed_ns = 0

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """As a stage."""
        self.board.take(m for m in messages if m.topic in Board.reads)
        self.jobs.take(m for m in messages if m.topic in JobBoard.reads)
        if now_ns - self._viewed_ns > _VIEW_NS:
            self._viewed_ns = now_ns
            self.view(now_ns)
        return []

    def view(self, now_ns: int) -> None:
        """All that is ever asked."""
        compact(self.board.view(now_ns))
        compact({"findings": self.board.findings(now_ns=now_ns), "jobs": self.jobs.view(now_ns)})
        for job in self.jobs.names()[:4]:
            explain(self.jobs.facts(job, now_ns))


class ArchiveSteps:
    """Rows for the archive's tables, as an insert builds them; not even its own net of `build_rows` may be needed."""

    reads = tuple(ARCHIVED)

    def __init__(self) -> None:
        self.counters = Counters("archive")
        self._waiting: dict[str, list[Message]] = {}

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """As a stage; rows are built at every boundary."""
        for message in messages:
            self._waiting.setdefault(message.topic, []).append(message)
        if not messages:
            waiting, self._waiting = self._waiting, {}
            for name, several in waiting.items():
                topic = ARCHIVED[name]
                build = bulk_rows if topic.form == "bulk" else event_rows
                made = build(topic, several, "fuzz")
                self.counters.add("rows", "", made.table.num_rows)
        return []


SIGNER: Final = Signer(bytes(range(1, 33)))
OPERATOR: Final = Signer(bytes(range(2, 34)))

MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "sync": SyncStage,
    "sync-edge": lambda: SyncEdgeStage(SyncConfig(), "0"),
    "sync-mesh": SyncMeshStage,
    "workload": WorkloadStage,
    "detect": DetectStage,
    "actuate": lambda: ActuateStage(
        ActuateConfig(mode="enforce", throttle_incast=True),
        Authority(SIGNER, KeyRing([OPERATOR.public]), 1),
    ),
    "plan": lambda: PlanStage(PlanConfig(learn_ns=NS_PER_S)),
    "board": BoardSteps,
    "archive": ArchiveSteps,
}


@dataclass(slots=True)
class Slowest:
    """Processor time of the longest steps of a stage."""

    message_s: float = 0.0
    total_s: float = 0.0
    steps: int = 0
    of: str = ""

    def take(self, took_s: float, topic: str) -> None:
        """Note one step."""
        self.total_s += took_s
        self.steps += 1
        if took_s > self.message_s:
            self.message_s, self.of = took_s, topic


@dataclass(slots=True)
class Chain:
    """Stages over one stream."""

    names: tuple[str, ...] = tuple(MAKERS)
    finds: Finds = field(default_factory=Finds)
    stages: dict[str, Steps] = field(default_factory=dict)
    times: dict[str, Slowest] = field(default_factory=dict)
    refused: Counters = field(default_factory=lambda: Counters("bus"))
    now_ns: int = NOW_NS
    outputs: list[tuple[int, str, Output]] | None = None
    """With their time and stage, where they are wanted."""
    _ticker: Ticker = field(default_factory=Ticker)
    _seq: dict[str, int] = field(default_factory=dict)
    _recent: deque[Wire] = field(default_factory=lambda: deque(maxlen=3))

    def __post_init__(self) -> None:
        self.stages = {name: MAKERS[name]() for name in self.names}
        self.times = {name: Slowest() for name in self.names}
        self._ticker.last_ns = self.now_ns

    def wire(self, one: Wire, at_ns: int) -> bool:
        """A message in wire form enters the bus at `at_ns`; False: it was refused there."""
        self._recent.append(one)
        try:
            decoded = codec.decode(one.topic, one.headers, one.value, one.key)
        except FormatError as error:
            self.refused.add("refused", error.reason)
            return False
        except Exception as error:  # the find
            self.finds.add("codec", error, (one,))
            return False
        self.message(one.topic, one.key, decoded.body, at_ns, decoded.boot_id, decoded.batch_seq)
        return True

    def message(self, topic: str, key: str, body: Any, at_ns: int, boot_id: str = "", batch_seq: int = -1) -> None:
        """A message that was decoded enters the bus at `at_ns`."""
        self.advance(at_ns)
        self._take([self._entered(topic, key, body, boot_id, batch_seq)])

    def advance(self, to_ns: int) -> None:
        """All stages are stepped at every boundary up to `to_ns`."""
        for boundary_ns in self._ticker.upto(to_ns):
            self.now_ns = max(self.now_ns, boundary_ns)
            caused: list[Message] = []
            for name in self.names:
                caused += self._step(name, [], "tick")
            self._take(caused)
        self.now_ns = max(self.now_ns, to_ns)

    def _take(self, messages: Iterable[Message]) -> None:
        waiting = deque(messages)
        taken = 0
        while waiting:
            message = waiting.popleft()
            taken += 1
            if taken > _MOST_CAUSED:
                self.finds.note("chain", f"more than {_MOST_CAUSED} messages came of one", tuple(self._recent))
                return
            for name in self.names:
                if message.topic in self.stages[name].reads:
                    waiting += self._step(name, [message], message.topic)

    def _step(self, name: str, messages: list[Message], what: str) -> list[Message]:
        began_s = time.process_time()
        try:
            outputs = self.stages[name].step(messages, self.now_ns)
        except Exception as error:
            self.finds.add(name, error, tuple(self._recent))
            self.stages[name] = MAKERS[name]()
            return []
        self.times[name].take(time.process_time() - began_s, what)
        return [made for output in outputs if (made := self._published(name, output)) is not None]

    def _published(self, name: str, output: Output) -> Message | None:
        """An output on the bus, as every other process gets it: encoded and decoded."""
        if self.outputs is not None:
            self.outputs.append((self.now_ns, name, output))
        try:
            headers, value = codec.encode(output, "boot", 0)
            body = codec.decode(output.topic, headers, value, output.key).body
        except Exception as error:
            self.finds.add(f"{name} output {output.topic}", error, tuple(self._recent), f"{output.body}"[:2000])
            return None
        return self._entered(output.topic, output.key, body, "boot", -1)

    def _entered(self, topic: str, key: str, body: Any, boot_id: str, batch_seq: int) -> Message:
        seq = self._seq[topic] = self._seq.get(topic, -1) + 1
        return Message(topic, key, body, self.now_ns, seq, boot_id, batch_seq)

    def finish(self) -> None:
        """The end: snapshots are taken and restored."""
        for name, stage in self.stages.items():
            if not hasattr(stage, "snapshot"):
                continue
            try:
                state = stage.snapshot()
                again = MAKERS[name]()
                again.restore(state)
                if again.snapshot() != state:
                    self.finds.note(name, "restore then snapshot gives other bytes")
            except Exception as error:
                self.finds.add(f"{name} snapshot", error)
