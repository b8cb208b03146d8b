"""Frozen versions of the public contract: what programs of each version wrote, for programs of all versions to read.

``python -m tests.golden.frozen`` freezes today's schema under the next number. It is to be done whenever a topic's
columns or an event's fields change (a test says so), and a frozen version is never written again::

    tests/golden/versions/<n>/
      schema.json              every topic's columns, or the shapes of its events, without their words
      messages/<topic>.jsonl   messages as they are on the wire: key, headers, value in base64
      recording/               the same messages as a recording
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sdfstream.bus import codec
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.shapes import SHAPES
from sdfstream.records.topics import ANOMALY, ARCHIVED, EDGE, ESTIMATE, FINDING, TOPICS, TOPOLOGY
from tests.fixtures.archive import EPOCH_NS, FINDING_DATA, bulk, event, message, one_of_each
from tests.fixtures.shapes import sample

HERE = Path(__file__).parent / "versions"
ROWS = 7
FORMER_NAMES = {"sdf.derived.belief.v1": ESTIMATE.name}
"""Topics that only sync itself reads, renamed since they were frozen: their messages are read under today's name."""


class Wire(NamedTuple):
    """A message as it is on the wire."""

    topic: str
    key: str
    headers: list[tuple[str, bytes]]
    value: bytes


def versions() -> list[int]:
    """The numbers of all frozen versions."""
    return sorted(int(p.name) for p in HERE.iterdir() if p.name.isdigit())


def messages_today() -> list[Message]:
    """Of every topic and every type of event at least one message; the same on every call."""
    rng = np.random.default_rng(7)
    found = [m for m in one_of_each(rng, ROWS) if m.topic not in (TOPOLOGY.name, FINDING.name)]
    found += [message(topic, bulk(topic, ROWS, rng)) for topic in (EDGE, ESTIMATE)]
    for name, kinds in SHAPES.items():
        for kind, shape in kinds.items():
            if name in (TOPOLOGY.name, ANOMALY.name, FINDING.name):
                data = sample(shape) | (FINDING_DATA if name == FINDING.name else {})
                found.append(event(TOPICS[name], data, type_=kind, key=kind))
    numbers: dict[tuple[str, str], int] = {}
    out = []
    for i, m in enumerate(sorted(found, key=lambda m: m.topic)):
        number = numbers[m.topic, m.key] = numbers.get((m.topic, m.key), -1) + 1
        out.append(Message(m.topic, m.key, m.body, EPOCH_NS + i * 1000, number, "boot-1", number))
    return out


def schema_today() -> dict[str, Any]:
    """Every topic's columns (name, type, may be null, unit), or the shapes of its events; no words, no bounds."""
    told: dict[str, Any] = {}
    for topic in TOPICS.values():
        if topic.columns is None:
            told[topic.name] = {"types": _without_words(SHAPES[topic.name])}
        else:
            told[topic.name] = {
                "columns": [
                    [f.name, str(f.type), f.nullable, (f.metadata or {}).get(b"unit", b"").decode()]
                    for f in topic.columns
                ]
            }
    return told


def _without_words(shape: Any) -> Any:
    if isinstance(shape, dict):
        return {
            name: _without_words(part)
            for name, part in shape.items()
            if not (name in ("description", "$comment") and isinstance(part, str))
            and not (name in ("minimum", "maximum", "maxLength") and isinstance(part, int))
        }
    return [_without_words(part) for part in shape] if isinstance(shape, list | tuple) else shape


def wire_today() -> list[Wire]:
    """`messages_today` on the wire."""
    out = []
    for m in messages_today():
        output = Output(m.topic, m.key, m.body, m.boot_id, m.batch_seq)
        headers, value = codec.encode(output, "", -1, bus_at_ns=m.bus_at_ns)
        out.append(Wire(m.topic, m.key, headers, value))
    return out


def schema_of(version: int) -> dict[str, Any]:
    """The schema of a frozen version."""
    frozen: dict[str, Any] = json.loads((HERE / str(version) / "schema.json").read_text())
    return {FORMER_NAMES.get(name, name): _without_words(columns) for name, columns in frozen.items()}


def wire_of(version: int) -> Iterator[Wire]:
    """The messages of a frozen version."""
    for path in sorted((HERE / str(version) / "messages").glob("*.jsonl")):
        topic = FORMER_NAMES.get(path.stem, path.stem)
        for line in path.read_text().splitlines():
            told = json.loads(line)
            headers = [(name, value.replace(path.stem, topic).encode()) for name, value in told["headers"]]
            yield Wire(topic, told["key"], headers, base64.b64decode(told["value"]))


def snapshot(folder: Path) -> None:
    """Write today's schema, messages and recording into `folder`, which must not be there yet."""
    (folder / "messages").mkdir(parents=True)
    told = json.dumps(schema_today(), indent=1, sort_keys=True)
    (folder / "schema.json").write_text(told + "\n")
    for wire in wire_today():
        headers = [[name, value.decode()] for name, value in wire.headers]
        line = {"key": wire.key, "headers": headers, "value": base64.b64encode(wire.value).decode()}
        with (folder / "messages" / f"{wire.topic}.jsonl").open("a") as file:
            file.write(json.dumps(line, sort_keys=True) + "\n")
    writer = RecordingWriter(folder / "recording")
    writer.write(sorted((m for m in messages_today() if m.topic in ARCHIVED), key=lambda m: m.bus_at_ns))
    writer.finish()


def is_event(wire: Wire) -> bool:
    """Whether its topic carries events."""
    return TOPICS[wire.topic].columns is None


def events_equal(body: Event, value: bytes) -> bool:
    """Whether `body` is what the JSON of `value` says."""
    told = json.loads(value)
    return (body.type, body.source, body.id, body.data) == (told["type"], told["source"], told["id"], told["data"])


if __name__ == "__main__":
    known = versions() if HERE.is_dir() else []
    if known and schema_of(known[-1]) == schema_today():
        sys.exit(f"the schema is that of version {known[-1]}; there is nothing to freeze")
    following = HERE / str((known or [0])[-1] + 1)
    snapshot(following)
    print(following)
