"""A recording played again: what moves, what stays, and who is said to have spoken."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from sdfstream import demo, pipeline
from sdfstream.bus.recording.playback import Pace, Pass, TimeLine, agents_topics
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.cli import main
from sdfstream.errors import BusError, FormatError
from sdfstream.records import instants
from sdfstream.records.columns import instants as instants_in
from sdfstream.records.message import Event, Output
from sdfstream.records.shapes import SHAPES
from sdfstream.records.switches import is_switch
from sdfstream.records.topics import JOB, LIVENESS, PORT, PROBE, QP, TOPICS, TOPOLOGY
from sdfstream.runtime.player_io import Player
from sdfstream.stats import Counters
from tests.fixtures.archive import EPOCH_NS, bulk, message

SHIPPED = Path(demo.__file__).parent / "shipped_recording"
SPOKEN = agents_topics(pipeline.WRITTEN)


def test_agents_speak_on_these_topics() -> None:
    assert set(SPOKEN) == {PROBE.name, PORT.name, QP.name, LIVENESS.name, TOPOLOGY.name, JOB.name}


@pytest.mark.parametrize("topic", [t.name for t in TOPICS.values() if t.form == "bulk"])
def test_every_column_named_like_an_instant_is_declared_as_one(topic: str) -> None:
    columns = TOPICS[topic].columns
    assert columns is not None
    named = {n for n in columns.names if re.fullmatch(r"t[1-4]_ns|(.*_)?at_ns|origin_ns", n)}
    assert set(instants.columns_of(topic)) == named - {"place_at_ns"}  # that one counts from an origin, not the epoch


@pytest.mark.parametrize("topic", [t for t in SPOKEN if t in SHAPES])
def test_every_property_named_like_an_instant_is_declared_as_one(topic: str) -> None:
    for type_, shape in SHAPES[topic].items():
        assert sorted(_found(instants._tree_of(topic, type_))) == sorted(_named(shape)), type_


def _named(shape: dict[str, Any]) -> Iterator[str]:
    for name, fragment in shape.get("properties", {}).items():
        if re.search(r"(^|_)at_ns$", name):
            yield name
        yield from _named(fragment)
    if "items" in shape:
        yield from _named(shape["items"])


def _found(tree: Any) -> Iterator[str]:
    for name, inside in tree.items() if isinstance(tree, dict) else ():
        if inside is True:
            yield name
        yield from _found(inside)


@how(deadline=None)
@given(seed=st.integers(0, 1000), speed=st.sampled_from([1.0, 2.0, 0.5, 37.0]), to_s=st.integers(1, 2_000_000_000))
@pytest.mark.parametrize("topic", [PROBE, PORT, QP])
def test_rows_keep_their_delays_and_their_nulls(topic: Any, seed: int, speed: float, to_s: int) -> None:
    rows = bulk(topic, 20, np.random.default_rng(seed))
    line = TimeLine(EPOCH_NS, to_s * 10**9, speed)
    moved = instants.moved_rows(topic.name, rows, line.column)
    moved.validate(full=True)
    assert moved.schema.equals(rows.schema)
    first, *others = instants.columns_of(topic.name)
    before, after = instants_in(rows, first), instants_in(moved, first)
    assert after.tolist() == [line.at(t) for t in before.tolist()]
    for name in others:
        assert moved.column(name).is_null().equals(rows.column(name).is_null())
        here = np.asarray(rows.column(name).is_valid())
        was = (instants_in(rows, name) - before)[here]
        assert ((instants_in(moved, name) - after)[here] == was).all()
    for name in set(rows.schema.names) - set(instants.columns_of(topic.name)):
        assert moved.column(name).equals(rows.column(name))


def test_an_event_moves_and_is_said_by_a_new_run() -> None:
    data = {"boot_id": "b1", "seen_at_ns": EPOCH_NS, "changes": [{"since_at_ns": EPOCH_NS - 5, "missed": 7}]}
    event = Event(LIVENESS.name, "h00", "b1-12", EPOCH_NS + 1, data)
    said = message(LIVENESS, event, 12, boot_id="b1", batch_seq=12)
    line = TimeLine(EPOCH_NS, 50, 1.0)
    outputs = [Pass(name, line).output(said) for name in ("p/0", "p/1")]
    for output in outputs:
        assert isinstance(output.body, Event)
        assert output.batch_seq == 0
        assert output.body.data["boot_id"] == output.boot_id != "b1"
        assert output.body.id == f"{output.boot_id}-12"
        assert (output.body.time_ns, output.body.data["seen_at_ns"]) == (51, 50)
        assert output.body.data["changes"] == [{"since_at_ns": 45, "missed": 7}]
    assert outputs[0].boot_id != outputs[1].boot_id
    assert data["seen_at_ns"] == EPOCH_NS  # the recording's own is not touched


@how(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(
    st.sampled_from(["boot_id", "seen_at_ns", "changes", "since_at_ns", "nics", "x"]), s)))  # fmt: skip
def test_no_data_of_an_event_is_stumbled_over(data: Any) -> None:
    event = Event(LIVENESS.name, "h00", "e", 0, data if isinstance(data, dict) else {"changes": data})
    for topic in (LIVENESS, TOPOLOGY, JOB):
        Pass("p", TimeLine(0, 1)).output(message(topic, event))


def test_messages_are_numbered_afresh_per_topic_and_key() -> None:
    said = [
        message(PORT, bulk(PORT, 1, np.random.default_rng(0)), seq, key=key, batch_seq=40 + seq)
        for seq, key in enumerate(["h00", "h01", "h00"])
    ]
    now = Pass("p", TimeLine(0, 0))
    assert [now.output(m).batch_seq for m in said] == [0, 0, 1]


def test_after_a_stop_the_pace_is_bounded() -> None:
    pace = Pace(TimeLine(0, 1000).at, catch_up=4.0)
    assert pace.due(0) == 1000
    pace.went(0, 9000)  # the bus was away for 8000
    assert pace.due(400) == 9100
    pace.went(400, 9100)
    assert pace.due(800) == 9200
    pace.went(800, 9200)
    assert pace.due(11_000) == 12_000  # level again


class Taker:
    """Takes what is published; fails now and then when told to."""

    def __init__(self, fails: Sequence[Exception] = ()) -> None:
        self.counters = Counters("taker")
        self.fails = list(fails)
        self.got: list[Output] = []
        self.asked: list[Output] = []

    async def publish(self, outputs: Sequence[Output]) -> None:
        self.asked += outputs
        if self.fails:
            raise self.fails.pop(0)
        self.got += outputs

    async def close(self) -> None:
        pass


async def test_the_whole_of_a_recording_is_played_at_its_pace() -> None:
    recording, taker = open_recording(SHIPPED), Taker()
    lines: list[TimeLine] = []
    topics = [t for t in SPOKEN if t in recording.topics]
    player = Player(recording, topics, taker, "run", speed=1000.0)
    await asyncio.wait_for(player.play(asyncio.Event(), loop=False, on_pass=lambda _, line: lines.append(line)), 30.0)
    assert len(taker.got) == sum(1 for _ in recording.messages(topics)) == player.counters.total("messages")
    assert player.counters.get("passes") == len(lines) == 1
    assert {o.topic for o in taker.got} == {PROBE.name, PORT.name, LIVENESS.name, TOPOLOGY.name}


async def test_a_bus_that_fails_gets_the_same_again_and_what_it_refuses_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sdfstream.runtime.player_io._RETRY_S", 0.01)
    recording = open_recording(SHIPPED)
    taker = Taker([BusError("away"), FormatError("oversize"), FormatError("oversize")])
    player = Player(recording, [TOPOLOGY.name], taker, "run", speed=1000.0)
    await asyncio.wait_for(player.play(asyncio.Event(), loop=False, on_pass=lambda *_: None), 30.0)
    every = sum(1 for _ in recording.messages([TOPOLOGY.name]))
    assert player.counters.get("again") == 1
    assert player.counters.total("refused") + len(taker.got) == every
    assert player.counters.total("refused") == 1
    tried = [(o.boot_id, o.key, o.batch_seq) for o in taker.asked]
    assert tried.count(tried[0]) >= 2
    assert len({(o.key, o.batch_seq) for o in taker.got}) == len(taker.got)


async def test_it_stops_in_the_middle_of_waiting() -> None:
    stop, taker = asyncio.Event(), Taker()
    player = Player(open_recording(SHIPPED), [PROBE.name], taker, "run")
    playing = asyncio.create_task(player.play(stop, loop=True, on_pass=lambda *_: None))
    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.wait_for(playing, 2.0)
    assert player.counters.get("passes") == 0


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["play"], "play needs --bus"),
        (["play", "--bus", "kafka://127.0.0.1:1", "--speed", "0"], "--speed"),
        (["play", "--bus", "kafka://127.0.0.1:1"], "looking for a broker"),
        (["play", "nowhere", "--bus", "link:x"], "no such folder"),
    ],
)
def test_what_cannot_be_played_is_said(args: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    assert why in capsys.readouterr().err


def test_only_what_agents_said_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recording.json").write_text('{"version": 1, "start_at_ns": 0, "end_at_ns": 1}')
    assert main(["play", str(tmp_path), "--bus", "link:x"]) == 2
    assert "nothing that agents said" in capsys.readouterr().err


def test_a_run_that_speaks_for_switches_still_does_so_when_it_is_played() -> None:
    event = Event(LIVENESS.name, "l0", "gnmi-b1-1", EPOCH_NS, {})
    boots = [
        Pass("p", TimeLine(0, 1)).output(message(LIVENESS, event, 1, boot_id=b)).boot_id for b in ("gnmi-b1", "b1")
    ]
    assert [is_switch(boot) for boot in boots] == [True, False]
    assert boots[0] != "gnmi-b1"
