"""Targets: what comes over a bus or a link, and what is stored beside it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from sdfstream.archive.intent import Intent
from sdfstream.bus import codec
from sdfstream.bus.dead_letters import SUFFIX, dead_letter
from sdfstream.bus.journal import Journal, Snapshot
from sdfstream.bus.kafka.notes import Mark, NoteReader, NoteRecord, records
from sdfstream.bus.kafka.times import entered_at_ns
from sdfstream.bus.link import downlink, frames
from sdfstream.bus.recording import format as recording
from sdfstream.errors import FormatError
from sdfstream.numeric import codec as numeric
from sdfstream.records.message import Message
from sdfstream.records.topics import FINDING, PROBE, TOPICS
from tests.fuzz import mutate
from tests.fuzz.batches import Batches
from tests.fuzz.chain import MAKERS
from tests.fuzz.target import Inputs, Target, altered_json, damaged_bytes
from tests.fuzz.traffic import Traffic, Wire
from tests.fuzz.values import EVERYBODY, NOW_NS, Draw

RESTORE = (FormatError, LookupError, ValueError, TypeError, ArithmeticError, AttributeError)
"""What a stage may raise at a snapshot that is none: its loop begins with an empty state then (`runtime.stage_io`)."""

_TASK = "stage/detect/0"


def targets() -> Iterator[Target]:
    """All of them."""
    for topic in TOPICS:
        yield Target(f"bus {topic}", _messages(topic), lambda: _decode)
    yield Target("bus dead letters", _dead, lambda: _decode)
    yield from _link()
    yield from _stored()
    for name, make in MAKERS.items():
        if hasattr(make(), "restore"):
            yield Target(f"snapshot {name}", _snapshots(make), _restorer(make), RESTORE, lasts=1)


def _messages(topic: str) -> Inputs:
    return lambda draw: iter(Traffic(draw, (topic,), damaged=0.8))


def _decode(one: Wire) -> None:
    try:
        decoded = codec.decode(one.topic, one.headers, one.value, one.key)
    except FormatError as error:
        if one.topic in TOPICS:
            _bury(one, error)
        raise
    entered_at_ns(decoded.bus_at_ns, NOW_NS // 10**6, True, 0)


def _bury(one: Wire, why: FormatError) -> None:
    """Whatever is refused must fit into a dead letter."""
    try:
        dead = dead_letter(one.topic, one.key, one.headers, one.value, why, NOW_NS)
        codec.decode(dead.topic, *codec.encode(dead, "b", 1, bus_at_ns=NOW_NS), dead.key)
    except FormatError as error:
        raise AssertionError(f"no dead letter of {why}: {error}") from error


def _dead(draw: Draw) -> Iterator[Wire]:
    for one in Traffic(draw):
        headers = tuple(
            (name, mutate.damaged(draw.rng, raw) if draw.chance(0.3) and raw else raw) for name, raw in one.headers
        )
        more = (("reason", draw.text().encode()), ("detail", draw.text().encode())) if draw.chance(0.7) else ()
        yield one._replace(topic=one.topic + SUFFIX if one.topic in TOPICS else one.topic, headers=headers + more)


def _link() -> Iterator[Target]:
    head = ["sdf.raw.probe.v1", "h00", [["schema", "sdf.raw.probe.v1"], ["batch_seq", "7"]]]
    yield Target("link head", altered_json(head), lambda: lambda raw: _nothing(frames.parse_head(raw)))
    request = {"topics": ["sdf.state.mesh.v1"], "keys": ["h00"], "bus": "b", "after": {"sdf.state.mesh.v1": [4, 5]}}
    yield Target("link request", altered_json(request), lambda: lambda raw: _nothing(frames.parse_request(raw)))
    welcome = {"bus": "b", "at": {"sdf.state.mesh.v1": [1]}, "lost": {"sdf.state.mesh.v1": 3}}
    answers = altered_json(welcome, {"refused": "full"})
    yield Target("link welcome", answers, lambda: lambda raw: _nothing(frames.parse_welcome(raw)))
    yield Target("link downward frame", _frames, lambda: lambda given: _nothing(downlink.unpacked(*given)))
    lengths = damaged_bytes(frames.LENGTHS.pack(100, 1000))
    yield Target("link lengths", lengths, lambda: _lengths)


def _lengths(raw: bytes) -> None:
    frames.parse_lengths(raw[:8].ljust(8, b"\xff"), 1 << 20)
    frames.parse_length(raw[:4].ljust(4, b"\xff"))


def _frames(draw: Draw) -> Iterator[tuple[bytes, bytes]]:
    for one in Traffic(draw, damaged=0.5):
        headers = [[name, value.decode("latin-1")] for name, value in one.headers]
        head: Any = [one.topic, one.key, headers, NOW_NS, 5]
        if draw.chance(0.4):
            head = mutate.altered(draw, head)
        yield mutate.dumped(head), one.value


def _stored() -> Iterator[Target]:
    draw = Draw(random.Random(1), EVERYBODY)
    snapshot = Snapshot("detect", 1, 2, b"{}" * 50).pack()
    yield Target("snapshot note", damaged_bytes(snapshot), lambda: lambda raw: _nothing(Snapshot.unpack(raw)))
    entries = altered_json([{"sdf.raw.probe.v1/0": 5}, 7, {"a/1": 2}])
    yield Target("journal entry", entries, lambda: lambda raw: _nothing(Journal().resume({"entry/000000": raw})))
    yield Target("kafka notes", _notes, lambda: _read_notes)
    intent = {"v": 1, "topic": PROBE.name, "token": "t", "rows": 5, "spans": {"0": [0, 5, [2, 3]]}, "at": NOW_NS}
    yield Target("archive intent", altered_json(intent), lambda: lambda raw: _nothing(Intent.from_bytes(raw)))
    state = numeric.dump({"a": [1, 2.5, None], "b": {"c": Batches(draw).one(PROBE, 3).column("path").to_numpy()}})
    yield Target("state of a stage", damaged_bytes(state), lambda: lambda raw: _nothing(numeric.load(raw)))
    lines = (recording.line(Message(FINDING.name, "f", _finding(draw), NOW_NS, 3, "b", 4)),)
    parse = damaged_bytes(*lines)
    yield Target("recording line", parse, lambda: lambda raw: _nothing(recording.parse_line(FINDING, raw)))


def _finding(draw: Draw) -> Any:
    from tests.fuzz.events import event

    return event(Draw(random.Random(2), EVERYBODY, fresh=False), FINDING.name)


def _notes(draw: Draw) -> Iterator[list[NoteRecord]]:
    positions = {("sdf.raw.probe.v1", 0): 5, ("sdf.state.job.v1", 1): 7}
    mark = Mark(positions, [["k", 3]], positions)
    sound = records(_TASK, positions, {"snapshot": b"x" * 50}, mark, 1) + records(_TASK, positions, {}, None, 2)
    while True:
        given = []
        for one in draw.rng.choices(sound, k=draw.rng.randrange(1, 8)):
            if draw.chance(0.2):
                one = one._replace(key=mutate.damaged(draw.rng, one.key.encode()).decode(errors="replace"))
            if draw.chance(0.2):
                one = one._replace(headers=[(name, mutate.damaged(draw.rng, raw)[:40]) for name, raw in one.headers])
            if draw.chance(0.5) and one.value:
                one = one._replace(value=mutate.damaged(draw.rng, one.value))
            given.append(one)
        yield sound if draw.chance(0.02) else given


def _read_notes(given: list[NoteRecord]) -> None:
    reader = NoteReader(_TASK)
    for offset, one in enumerate(given):
        reader.feed(offset, one.key.encode(), one.headers, one.value)
    reader.mark()
    reader.checkpoint()


def _snapshots(make: Callable[[], Any]) -> Inputs:
    def inputs(draw: Draw) -> Iterator[bytes]:
        stage = make()
        traffic = Traffic(draw, stage.reads, damaged=0.0)
        taken = 0
        while taken < 40:
            one = traffic.one()
            try:
                body = codec.decode(one.topic, one.headers, one.value).body
            except FormatError:
                continue
            taken += 1
            stage.step([Message(one.topic, "h00", body, NOW_NS + taken * 10**8, taken)], NOW_NS + taken * 10**8)
        state = stage.snapshot()
        yield from damaged_bytes(state, _empty_state(make))(draw)

    return inputs


def _empty_state(make: Callable[[], Any]) -> bytes:
    """The snapshot of a stage that has seen nothing."""
    state: bytes = make().snapshot()
    return state


def _restorer(make: Callable[[], Any]) -> Callable[[], Callable[[bytes], None]]:
    def fresh() -> Callable[[bytes], None]:
        stage = make()
        return lambda raw: _nothing(stage.restore(raw))

    return fresh


def _nothing(value: object) -> None:
    """What came out does not matter."""
