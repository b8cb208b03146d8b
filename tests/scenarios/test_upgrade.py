"""Upgrade with state kept: what the version before saved is restored by today's code, which goes on to the end.

The snapshots are golden files that the version before wrote itself (`tests/golden/kept.py`), in the middle of the
shipped recording of real packets, of a controller that enforces, and of queue pairs' chunks. A run by today's code that
never stopped is what they are held against.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sdfstream import pipeline
from sdfstream.bus.journal import SNAPSHOT, Snapshot
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.bus.task import Work
from sdfstream.numeric import codec
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import CLOCK, COMMAND, FINDING, NIC, OUTCOME, QP_WINDOW
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime import layouts
from sdfstream.runtime.control_io import CommitPolicy, RunControl
from sdfstream.runtime.driver import StageMaker
from sdfstream.runtime.stage_io import StageLoop
from tests.golden import kept

RAISE = "see sdfstream/runtime/layouts.py: restore does without what is absent, or the stage's layout is raised"
TROUBLE = ("set-aside", "tick-raised", "finish-raised", "begun-anew", "output-dropped")
MOST_BYTES = 300_000


def snapshots(line: kept.Line) -> list[Snapshot]:
    """What the version before saved of the stages of `line`, as far as today's code says that it takes it up."""
    found = [Snapshot.unpack((kept.HERE / f"{stage.name}.snapshot").read_bytes()) for stage in line.stages]
    for maker, snapshot in zip(line.makers, found, strict=True):
        layouts.check(snapshot.maker, maker.identity, maker.formerly)
    return found


def said(messages: list[Message], topic: str) -> list[dict[str, Any]]:
    return [dict(m.body.data) for m in messages if m.topic == topic and isinstance(m.body, Event)]


def clocks(messages: list[Message]) -> dict[tuple[int, str], dict[str, Any]]:
    rows = [
        (m, row)
        for m in messages
        if m.topic == CLOCK.name and not isinstance(m.body, Event)
        for row in m.body.to_pylist()
    ]
    return {(m.bus_at_ns, row["clock"]): row for m, row in rows}


def gone_on(line: kept.Line, seconds: float) -> list[Message]:
    """Restore, and go on for so long behind the middle of the shipped recording."""
    line.restore(snapshots(line))
    topics = frozenset(t for stage in line.stages for t in stage.reads) - pipeline.WRITTEN
    start_ns, messages = kept.read_shipped(topics)
    middle_ns, end_ns = start_ns + kept.MIDDLE_NS, start_ns + kept.MIDDLE_NS + int(seconds * NS_PER_S)
    out = line.run([m for m in messages if middle_ns <= m.bus_at_ns < end_ns], end_ns)
    assert line.counted(*TROUBLE) == 0
    return out


@pytest.fixture(scope="module")
def never_stopped(shipped_replay: Path) -> list[Message]:
    """Outputs of today's sync, workload and detect over the whole recording."""
    return [m for m in open_recording(shipped_replay).messages() if m.topic in (CLOCK.name, FINDING.name, NIC.name)]


@pytest.fixture(scope="module")
def restored() -> list[Message]:
    """Outputs of all stages behind the middle, from the snapshots of the version before."""
    return gone_on(kept.whole(), 43.4)


def behind(messages: list[Message], like: list[Message]) -> list[Message]:
    return [m for m in messages if like[0].bus_at_ns <= m.bus_at_ns <= like[-1].bus_at_ns]


def test_the_golden_files_are_small() -> None:
    assert sum(path.stat().st_size for path in kept.HERE.iterdir()) < MOST_BYTES
    assert {s.name for s in pipeline.STAGES} <= {p.stem for p in kept.HERE.glob("*.snapshot")}


def test_no_clock_is_lost(restored: list[Message], never_stopped: list[Message]) -> None:
    ours, theirs = clocks(restored), clocks(behind(never_stopped, restored))
    assert len(theirs) > 1000
    assert ours.keys() >= theirs.keys()
    apart = [abs(ours[k]["offset_ns"] - row["offset_ns"]) for k, row in theirs.items()]
    print(f"{len(apart)} clock states: at most {max(apart):.1f} ns apart")
    for key, row in theirs.items():
        assert ours[key]["status"] == row["status"], (key, RAISE)
        assert abs(ours[key]["offset_ns"] - row["offset_ns"]) <= ours[key]["err_ns"] + row["err_ns"], (key, RAISE)


def test_no_finding_is_lost_or_told_twice(restored: list[Message], never_stopped: list[Message]) -> None:
    ours, theirs = said(restored, FINDING.name), said(behind(never_stopped, restored), FINDING.name)
    before = [f for f in said(never_stopped, FINDING.name) if f not in theirs]
    same = [f for f in ours if f in theirs]
    print(
        f"{len(theirs)} statements of a run that never stopped, {len(same)} the same of {len(ours)} after the upgrade"
    )
    opened = Counter(f["id"] for f in [*before, *ours] if f["status"] == "open")
    assert set(opened.values()) == {1}, RAISE
    assert {f["id"] for f in ours} <= opened.keys(), "what was open before the upgrade keeps its id"
    ends = [{(f["kind"], f["subject"]["id"]): f["status"] for f in of} for of in (ours, theirs)]
    assert ends[0] == ends[1], RAISE
    assert ("congestion", "l0--s1") in ends[0], "one was open when the version before stopped"


def test_split_sync_goes_on(never_stopped: list[Message]) -> None:
    """Against sync in one process, which says the same within both bounds."""
    out = gone_on(kept.split(), 10.0)
    ours, theirs = clocks(out), clocks(behind(never_stopped, out))
    assert {clock for _, clock in ours} == {clock for _, clock in theirs}
    assert all(row["status"] == "synced" for row in ours.values())
    for (at_ns, clock), row in ours.items():
        near = min((abs(at - at_ns), at) for at, name in theirs if name == clock)[1]
        assert abs(row["offset_ns"] - theirs[near, clock]["offset_ns"]) <= row["err_ns"] + theirs[near, clock]["err_ns"]


@pytest.mark.parametrize(("name", "after_ns"), [("steered", kept.STEERED_NS), ("chunks", kept.CHUNKS_NS)])
def test_a_controller_that_enforces_and_windows_of_queue_pairs_go_on(name: str, after_ns: int) -> None:
    messages = kept.read_packed(name)
    middle_ns, end_ns = messages[0].bus_at_ns + after_ns, messages[-1].bus_at_ns + NS_PER_S
    rest = [m for m in messages if m.bus_at_ns >= middle_ns]
    line, plain = getattr(kept, name)(), getattr(kept, name)()
    line.restore([Snapshot.unpack((kept.HERE / f"{name}.snapshot").read_bytes())])
    ours = line.run(rest, end_ns)
    plain.start(messages[0].bus_at_ns)
    plain.run(kept.before(messages, middle_ns), middle_ns)
    theirs = plain.run(rest, end_ns)
    assert line.counted(*TROUBLE) == 0
    assert told(ours) == told(theirs), RAISE
    assert told(ours)


def told(messages: list[Message]) -> list[Any]:
    """What matters of commands, outcomes and windows."""
    commands = [(d["id"], d["action"], d["target"]) for d in said(messages, COMMAND.name)]
    outcomes = [(d["action"], d["state"], d["command"]) for d in said(messages, OUTCOME.name)]
    rows = [
        row
        for m in messages
        if m.topic == QP_WINDOW.name and not isinstance(m.body, Event)
        for row in m.body.to_pylist()
    ]
    windows = [(r["at_ns"], r["qp"], r["n"], r["bytes"], r["packets"]) for r in rows]
    return [*commands, *outcomes, *windows]


def sync_maker() -> StageMaker:
    return kept.whole().makers[0]


def saved() -> Snapshot:
    return Snapshot.unpack((kept.HERE / "sync.snapshot").read_bytes())


def later_codec(state: bytes) -> bytes:
    return state.replace(b'{"version":%d' % codec.VERSION, b'{"version":%d' % (codec.VERSION + 1))


def of_later_layout() -> bytes:
    name, layout, settings = sync_maker().identity.split()
    return replace(saved(), maker=f"{name} {layout}1 {settings}").pack()


FUTURE = {
    "snapshot-layout: it is of sync layout=11 ": of_later_layout,
    "snapshot-version: b'sdf-snapshot-3'": lambda: saved().pack().replace(b"sdf-snapshot-2", b"sdf-snapshot-3"),
    "snapshot-version: 4 instead of 3": lambda: replace(saved(), state=later_codec(saved().state)).pack(),
    "snapshot: ": lambda: saved().pack()[:-1],
}


async def resumed(note: bytes) -> tuple[StageLoop, RunControl]:
    """Sync's loop over a task whose last commit left `note`."""
    bus, work, maker = MemoryBus(lambda: 1, boot_id="bus"), Work("sync", sync_maker().reads), sync_maker()
    task = await bus.task(work)
    await task.commit(notes={SNAPSHOT: note}, mark=True)
    control = RunControl()
    loop = StageLoop(maker, await bus.task(work), lambda: 1, control, CommitPolicy())
    await loop.resume()
    return loop, control


async def test_the_loop_goes_on_from_what_the_version_before_saved() -> None:
    loop, control = await resumed((kept.HERE / "sync.snapshot").read_bytes())
    assert control.counters.total("begun-anew") == 0
    assert loop.driver.now_ns == saved().now_ns
    again = kept.whole()
    again.stages[0].restore(saved().state)
    assert loop.stage.snapshot() == again.stages[0].snapshot()


@pytest.mark.parametrize("reason", FUTURE)
async def test_a_state_of_a_later_release_is_refused_in_words_and_the_stage_begins_with_an_empty_one(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        loop, control = await asyncio.wait_for(resumed(FUTURE[reason]()), 30)
    assert control.counters.get("begun-anew", "sync") == 1
    assert f"sync begins with an empty state: {reason}" in caplog.text
    assert loop.stage.snapshot() == kept.Line([sync_maker()]).stages[0].snapshot()
    loop.driver.advance(saved().now_ns)
