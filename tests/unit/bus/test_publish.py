"""``schemas/`` is what the vocabulary says, and what we say on the bus is what ``schemas/`` promises."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from sdfstream.bus import cloudevents
from sdfstream.bus.recording import format as recording
from sdfstream.records import publish
from sdfstream.records.fabric import SILENT_TYPE
from sdfstream.records.finding import CAUSES, FINDING_KINDS, Evidence, Finding, Subject
from sdfstream.records.message import Event
from sdfstream.records.topics import FINDING, LIVENESS, NAME, NIC, TOPICS, TOPOLOGY

SCHEMAS = Path(__file__).resolve().parents[3] / "schemas"

LIVENESS_DATA = {
    "host": "h00",
    "boot_id": "b",
    "seen_at_ns": 1,
    "complete": False,
    "changes": [
        {
            "observer": "h00/r0",
            "role": "sender",
            "src": "h00/r0",
            "dst": "h01/r0",
            "transport": "udp",
            "path": 50_000,
            "dscp": 46,
            "state": "silent",
            "since_at_ns": 1,
            "interval_ns": 62_500_000,
            "missed": 16,
        }
    ],
}
NIC_DATA = {"nic": "h00/r0", "direction": "tx", "state": "unknown", "since_at_ns": 1, "seen_at_ns": 2, "why": "absent"}
DECLARED_DATA = {
    "nodes": [{"id": "l0", "kind": "leaf"}, {"id": "s1", "kind": "spine"}],
    "links": [
        {
            "id": "l0--s1",
            "a": {"node": "l0", "port": "u1", "address": "172.16.0.2"},
            "b": {"node": "s1", "port": "d0", "address": "172.16.0.3"},
            "speed_mbps": 1000,
        }
    ],
    "nics": [
        {"id": "h00/r0", "host": "h00", "address": "10.0.0.2", "link": "h00/r0--l0", "rail": 0, "plane": "backend"}
    ],
}
PATH_DATA = {
    "src": "h00/r0",
    "dst": "h04/r0",
    "transport": "udp",
    "path": 50_001,
    "dscp": 0,
    "dir": "fwd",
    "hops": ["10.0.0.1", None],
    "complete": False,
    "traced_at_ns": 5,
}


def some_finding(kind: str = "link-down") -> dict[str, Any]:
    finding = Finding(
        id="f1",
        kind=kind,
        severity="urgent",
        status="open",
        subject=Subject("link", "l0--s1"),
        since_at_ns=1,
        seen_at_ns=2,
        cause="link-failure",
        confidence=0.9,
        evidence=(Evidence("silent paths", 4.0, "1", "l0--s1", 0.0), Evidence("loss", 1.0, "frac", "l0--s1")),
        remedy="Check the cable.",
        suspects=(("l0--s1", 0.9), ("l0--s0", 0.1)),
    )
    return finding.as_data()


def checker(topic: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{topic}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def said(kind: str, data: dict[str, Any]) -> Any:
    return json.loads(cloudevents.encode_event(Event(kind, "h00", "1", 5, data), "key"))


def test_the_committed_files_are_what_the_vocabulary_says() -> None:
    made = publish.files()
    there = {str(p.relative_to(SCHEMAS)) for p in SCHEMAS.rglob("*") if p.is_file()}
    foreign = {name for name in there if name.startswith("clickhouse/")}
    assert there - foreign == made.keys(), "run `make schemas`"
    for name, text in made.items():
        assert (SCHEMAS / name).read_text() == text, f"{name}: run `make schemas`"


def test_every_topic_is_published_with_every_column_and_unit() -> None:
    made = publish.files()
    for topic in TOPICS.values():
        assert f"`{topic.name}`" in made["topics.md"]
        for field in topic.columns or ():
            row = next(r for r in made[f"arrow/{topic.name}.md"].splitlines() if r.startswith(f"| `{field.name}` |"))
            assert field.metadata[b"doc"].decode().replace("|", "\\|") in row
            assert not field.name.endswith("_ns") or "ns" in field.metadata[b"unit"].decode(), field.name


def test_writing_leaves_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "clickhouse").mkdir()
    (tmp_path / "clickhouse" / "x.sql").write_text("x")
    publish.main(tmp_path)
    assert (tmp_path / "topics.md").read_text() == publish.files()["topics.md"]
    assert (tmp_path / "clickhouse" / "x.sql").exists()


@pytest.mark.parametrize(
    ("topic", "kind", "data"),
    [
        (FINDING.name, FINDING.name, some_finding()),
        (LIVENESS.name, LIVENESS.name, LIVENESS_DATA),
        (NIC.name, NIC.name, NIC_DATA),
        (TOPOLOGY.name, "sdf.state.topology.declared.v1", DECLARED_DATA),
        (TOPOLOGY.name, "sdf.state.topology.path.v1", PATH_DATA),
        (TOPOLOGY.name, SILENT_TYPE, {name: value for name, value in PATH_DATA.items() if name != "complete"}),
    ],
)
def test_what_we_say_fits_and_what_lacks_a_field_does_not(topic: str, kind: str, data: dict[str, Any]) -> None:
    check = checker(topic)
    check.validate(said(kind, data))
    check.validate(said(kind, data | {"added_later": 1}))
    for name in data:
        lacking = {key: value for key, value in data.items() if key != name}
        assert not check.is_valid(said(kind, lacking)), name
        assert not check.is_valid(said(kind, data | {name: {"of": "another type"}})), name
    assert not check.is_valid(said("sdf.event.other.v1", data))


def test_every_kind_and_cause_is_published() -> None:
    check = checker(FINDING.name)
    for kind in FINDING_KINDS:
        check.validate(said(FINDING.name, some_finding(kind)))
    for cause in CAUSES:
        check.validate(said(FINDING.name, some_finding() | {"cause": cause}))
    assert not check.is_valid(said(FINDING.name, some_finding() | {"kind": "gremlins"}))


def test_the_columns_of_a_recording_are_what_the_bus_writes() -> None:
    kind = {"int64": pa.int64(), "uint64": pa.uint64(), "dictionary<int32, utf8>": NAME}
    described = [(n.strip("`"), kind[t], null == "yes", unit, doc) for n, t, null, unit, doc in publish.PREFIX]
    there = [
        (f.name, f.type, f.nullable, f.metadata[b"unit"].decode(), f.metadata[b"doc"].decode())
        for f in recording.PREFIX
    ]
    assert described == there


def test_every_reason_the_codec_gives_is_explained() -> None:
    bus = Path(publish.__file__).parents[1] / "bus"
    given = set()
    for name in ("codec", "conform", "cloudevents"):
        given |= set(re.findall(r'FormatError\("([a-z-]+)"', (bus / f"{name}.py").read_text()))
    explained = " ".join(reason for reason, _ in publish.REASONS)
    assert given
    assert not [reason for reason in given if f"`{reason}`" not in explained]
