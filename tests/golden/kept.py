"""Snapshots of all stages as the version before wrote them, for today's code to go on from.

They are written by that version's own code, from a checkout of it beside this one::

    git worktree add ../before COMMIT
    PYTHONPATH=../before python tests/golden/kept.py tests/golden/snapshots

which runs the stages over three recordings up to their middle: the shipped one (`SHIPPED`, all stages), a controller
that enforces (`steered.tar.xz`), chunks of queue pairs (`chunks.tar.xz`). The last two are written too, so that both
versions read the same bytes::

    tests/golden/snapshots/
      <stage>.snapshot             at `MIDDLE_NS` of the shipped recording
      steered.snapshot, .tar.xz    the controller in enforce mode, after `STEERED_NS`; its input
      chunks.snapshot, .tar.xz     workload, after `CHUNKS_NS`; its input
      version.json                 what wrote them

It uses of the program only what has been there since 0.2.0.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import sdfstream
from sdfstream import pipeline
from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.stage import ActuateStage, Authority
from sdfstream.bus import journal
from sdfstream.bus.journal import Snapshot
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.plan.config import PlanConfig
from sdfstream.records.message import Message
from sdfstream.records.signature import KeyRing
from sdfstream.records.slices import in_calls
from sdfstream.records.topics import ESTIMATE
from sdfstream.runtime.aside import AsideStage
from sdfstream.runtime.driver import Stage, StageMaker
from sdfstream.runtime.replay import Chain
from sdfstream.settings import Settings
from sdfstream.workload.config import WorkloadConfig
from sdfstream.workload.stage import WorkloadStage

HERE = Path(__file__).parent / "snapshots"
SHIPPED = Path(__file__).parents[2] / "sdfstream" / "demo" / "shipped_recording"
MIDDLE_NS = 43_500_000_000
"""Bus time since the beginning of the shipped recording: a link is congested, another has flapped."""
STEERED_NS = 12_000_000_000
"""Failovers are armed by lease, one was let go, a hold is in force; more follows."""
CHUNKS_NS = 1_500_000_000


@dataclass
class Line:
    """Some stages in a row; what the second half of sync says, the first half gets with its next call, as on a bus."""

    makers: Sequence[StageMaker]
    stages: list[AsideStage] = field(default_factory=list)
    said: list[Message] = field(default_factory=list)
    at_ns: int = 0

    def __post_init__(self) -> None:
        self.stages = [AsideStage(maker.make("0")) for maker in self.makers]
        self._chain = Chain(self.stages)

    def start(self, at_ns: int) -> None:
        """Begin bus time."""
        self._chain.start(at_ns)
        self.at_ns = at_ns

    def run(self, messages: Iterable[Message], until_ns: int) -> list[Message]:
        """Take what came on the bus before `until_ns`, and go on to it; what the stages say."""
        out: list[Message] = []
        for call in in_calls(messages):
            given, self.said = [*self.said, *call], []
            out += self._heard(self._chain.take(given))
        out += self._heard(self._chain.advance(until_ns))
        if self.said:
            out += self._chain.take(self.said)
            self.said = []
        self.at_ns = until_ns
        return out

    def _heard(self, outputs: Iterable[Message]) -> list[Message]:
        found = list(outputs)
        self.said += [m for m in found if m.topic == ESTIMATE.name]
        return found

    def snapshots(self) -> list[Snapshot]:
        """Of each stage, as its process keeps it."""
        tick_ns = self._chain.ticker.last_ns
        return [
            Snapshot(maker.identity, tick_ns, self.at_ns, stage.snapshot())
            for maker, stage in zip(self.makers, self.stages, strict=True)
        ]

    def restore(self, snapshots: Iterable[Snapshot]) -> None:
        """Go on from `snapshots`, one for each stage."""
        for stage, snapshot in zip(self.stages, snapshots, strict=True):
            stage.restore(snapshot.state)
            self.start(snapshot.now_ns)

    def counted(self, *names: str) -> int:
        """How often any stage counted one of `names`."""
        return sum(stage.counters.total(name) for stage in self.stages for name in names)


def of_kind(kind: type[Stage], config: Any, make: Any) -> StageMaker:
    """A maker of one stage."""
    return StageMaker(kind.name, kind.reads, kind.writes, make, identity=f"{kind.name} {config}")


def whole() -> Line:
    """All stages but those of split sync, at their defaults, with the mesh planned."""
    return Line(pipeline.makers(Settings(plan=PlanConfig(mesh="auto"))))


def split() -> Line:
    """Sync split in two."""
    return Line(pipeline.split_sync(Settings()))


def steered() -> Line:
    """A controller that enforces."""
    from tests.fixtures.plant import CONTROLLER, EPOCH, OPERATOR

    config = ActuateConfig(mode="enforce")
    authority = Authority(CONTROLLER, KeyRing([OPERATOR.public]), EPOCH)
    return Line([of_kind(ActuateStage, "enforce", lambda _: ActuateStage(config, authority))])


def chunks() -> Line:
    """Workload."""
    return Line([of_kind(WorkloadStage, "chunks", lambda _: WorkloadStage(WorkloadConfig()))])


def read_shipped(topics: frozenset[str]) -> tuple[int, list[Message]]:
    """Beginning of the shipped recording, and its messages of `topics`."""
    recording = open_recording(SHIPPED)
    return recording.start_at_ns, [m for m in recording.messages() if m.topic in topics]


def read_packed(name: str, folder: Path = HERE) -> list[Message]:
    """Messages of a packed recording."""
    with tempfile.TemporaryDirectory() as out, tarfile.open(folder / f"{name}.tar.xz") as tar:
        tar.extractall(out, filter="data")
        return list(open_recording(Path(out)).messages())


def before(messages: Iterable[Message], until_ns: int) -> list[Message]:
    """What came on the bus before `until_ns`."""
    return [m for m in messages if m.bus_at_ns < until_ns]


def _pack(name: str, messages: list[Message], folder: Path) -> None:
    start_ns = messages[0].bus_at_ns
    with tempfile.TemporaryDirectory() as out:
        writer = RecordingWriter(Path(out), cluster="golden", start_at_ns=start_ns)
        writer.write(messages)
        writer.finish(messages[-1].bus_at_ns)
        with tarfile.open(folder / f"{name}.tar.xz", "w:xz", preset=9) as tar:
            for path in sorted(Path(out).iterdir()):
                info, content = tarfile.TarInfo(path.name), path.read_bytes()
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def _write(folder: Path) -> None:
    from tests.fixtures.qp_world import busy as chunked
    from tests.property.test_actuate_stage import busy

    folder.mkdir(parents=True, exist_ok=True)
    journal._ZSTD = pa.Codec("zstd", compression_level=19)  # read alike, and a third smaller
    for line in (whole(), split()):
        topics = frozenset(t for stage in line.stages for t in stage.reads) - pipeline.WRITTEN
        start_ns, messages = read_shipped(topics)
        line.start(start_ns)
        line.run(before(messages, start_ns + MIDDLE_NS), start_ns + MIDDLE_NS)
        for stage, snapshot in zip(line.stages, line.snapshots(), strict=True):
            (folder / f"{stage.name}.snapshot").write_bytes(snapshot.pack())
    for name, line, messages, after_ns in (
        ("steered", steered(), busy().messages, STEERED_NS),
        ("chunks", chunks(), chunked(1, seconds=2.5).messages(2.5), CHUNKS_NS),
    ):
        messages = [m for m in messages if m.topic in line.stages[0].reads]
        _pack(name, messages, folder)
        start_ns = messages[0].bus_at_ns
        line.start(start_ns)
        line.run(before(messages, start_ns + after_ns), start_ns + after_ns)
        (folder / f"{name}.snapshot").write_bytes(line.snapshots()[0].pack())
    said = {"version": sdfstream.__version__}
    (folder / "version.json").write_text(json.dumps(said) + "\n")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
