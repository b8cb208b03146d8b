"""The public contract as files: ``schemas/`` is this module's output, and a test keeps the two equal.

``python -m sdfstream.records.publish DIR`` writes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sdfstream.records.finding import CAUSES, FINDING_KINDS
from sdfstream.records.shapes import SHAPES
from sdfstream.records.topics import NAME, TOPICS, Topic

_GENERATED: Final = "Generated from `sdfstream/records` by `make schemas`; do not edit."
_ENVELOPE: Final = "the CloudEvents 1.0 envelope, structured mode, JSON"


def files() -> dict[str, str]:
    """{name below ``schemas/``: text} of the whole contract."""
    made = {"topics.md": _topics(), "findings.md": _findings(), "recordings.md": _recordings()}
    for topic in TOPICS.values():
        if topic.columns is not None:
            made[f"arrow/{topic.name}.md"] = _columns(topic, topic.columns)
        else:
            made[f"{topic.name}.schema.json"] = _schema(topic)
    return made


_FORMS: Final = """\
**bulk**: every message is one Arrow IPC stream with exactly one record batch. Names are `dictionary<int32, utf8>`,
whole in every message: no delta dictionaries, no string_view. Columns, types and units: `arrow/<topic>.md`.

**event**: every message is one CloudEvents 1.0 object in structured mode, JSON, UTF-8. `<topic>.schema.json` describes
the whole message, `data` in its place; `time` has nine digits of a second; `subject` is the message's key.

Reading: take an absent nullable column as null, ignore a column or field you do not know. A field is never removed or
re-used; a change is a new field, or a new version of the topic (`.v2`).
"""
_ON_KAFKA: Final = """\
## On Kafka

Topics have these names, behind `kafka.prefix` if one is set. `sdf.raw.*`, `sdf.derived.owd.v1`, `sdf.derived.edge.v1`
and `sdf.derived.qp.v1` have `kafka.partitions` partitions (one unless set), all others one; a key's partition is that
of Kafka's own clients (murmur2). Order holds within a partition, so within a key; across them go by `bus_at_ns`.

Stages write in transactions: read with `isolation.level=read_committed` (librdkafka's default, not that of the Java
client or aiokafka), or what was never committed is seen too. Transactions leave numbers out of a partition's offsets.

Use a consumer group of your own, named `reader-…`: that is what the access rules let the role `reader` have
([docs/kafka.md](../docs/kafka.md)), and a group of a stage's name would take that stage's messages away from it. A
compacted topic, read from its beginning, gives the newest message of every key and perhaps older ones before it.
"""
_BOUNDS: Final = """\
## Bounds

What `<topic>.schema.json` bounds is refused beyond, and so is, where it states nothing: an instant outside 0 to 2^62
ns (1970 to 2116), another whole number beyond ±2^62, a number that is not finite or beyond ±1e30, an id or name that
cannot be printed or is longer than 4096 characters, a list or object of more than 65,536 items; in fields that the
schema does not know: whole numbers beyond 64 bits, numbers that are not finite, control characters but tab, LF, CR,
more than 16 levels. A name stands once in an object. A value that is not on a schema's list may come with a later
version: it is passed on, if it is a printable name.
"""


def _topics() -> str:
    rows = [
        (
            f"[`{t.name}`]({f'arrow/{t.name}.md' if t.columns is not None else f'{t.name}.schema.json'})",
            t.form,
            t.key,
            "yes" if t.compacted else "",
            t.doc,
        )
        for t in TOPICS.values()
    ]
    return f"""# Topics

{_GENERATED}

{_table(("topic", "form", "key", "compacted", "what it says"), rows)}

{_FORMS}
## Headers

{_table(("header", "value", "meaning"), _HEADERS)}

Within one topic, key and `boot_id` a gap in `batch_seq` is a loss and a number that comes again a repeat: delivery is
at least once. A number more than 1,048,576 away from the last one is taken as new, and followed once the next comes
after it.

{_ON_KAFKA}
## Dead letters

A message that cannot be read is copied to `<topic>.dlq`: value, key and headers as they were, and beside them

{_table(("header", "value"), _DEAD_HEADERS)}

A message of which only some rows were refused (`null-rows`) is there too, whole; its other rows went
on.

{_BOUNDS}
## Reasons

{_table(("reason", "meaning"), REASONS)}
"""


_HEADERS: Final = (
    (
        "`schema`",
        "UTF-8",
        "the topic's name, which ends in its version; `.` and a minor number may follow (it counts what was added); "
        "another one is refused",
    ),
    (
        "`content-type`",
        "UTF-8",
        "`application/vnd.apache.arrow.stream` or `application/cloudevents+json; charset=UTF-8`",
    ),
    ("`boot_id`", "UTF-8", "the producer's run"),
    ("`batch_seq`", "decimal", "the producer's message number in this topic, key and run, from 0"),
    (
        "`bus_at_ns`",
        "decimal",
        "on Kafka: when it was published, ns since the Unix epoch",
    ),
)
_DEAD_HEADERS: Final = (
    ("`dlq_reason`", "one of the reasons below"),
    ("`dlq_detail`", "what exactly was met; may quote the message"),
    ("`dlq_form`", "`event`: the value is a stage's event about the message (`topic`, `bus_seq`, why); else absent"),
    ("`dlq_time_ns`", "decimal, ns since the Unix epoch: when it was met"),
)
REASONS: Final = (
    ("`topic-unknown`", "no topic of this name and version"),
    ("`step-raised`", "a stage's code raised at the message; the value says which exception, and where"),
    ("`output`", "a stage made of the message what no bus takes"),
    (
        "`key-banned`",
        "the stage raised at five messages of this key within a minute; for a minute it is not given more",
    ),
    ("`take-raised`", "a reader that publishes nothing (the recorder) raised at the message"),
    ("`schema-missing`", "no header `schema`"),
    ("`schema-version`", "header `schema` names another topic or version"),
    ("`header`", "a header is not what its name promises"),
    ("`key`", "the key cannot be printed, or is longer than 1024 characters"),
    ("`unwritable`", "an event that no JSON can say: NaN, half a surrogate pair; dropped by its producer"),
    ("`form`", "an event on a bulk topic, or the reverse"),
    ("`oversize`", "larger than `max_message_bytes`"),
    ("`arrow-corrupt`", "not a valid Arrow IPC stream"),
    ("`arrow-batches`", "no record batch, or more than one"),
    ("`arrow-trailing`", "bytes behind the stream"),
    ("`column-missing`", "a column that may not be null is absent"),
    ("`column-type`", "a column has another type"),
    ("`arrow-size`", "more rows, or more bytes once it is decompressed, than a message may hold"),
    ("`column-twice`", "two columns of one name"),
    ("`null`, `null-rows`", "every row, or some rows, have a null, or what is out of bounds, where no null may be"),
    (
        "`json`",
        "not JSON in UTF-8, a name twice in an object, or a value out of bounds in a field that no schema knows",
    ),
    ("`cloudevent`", "not a CloudEvents 1.0 object with id, source, type, time and an object as data"),
    ("`foreign-host`", "rows or an event of a host that is not the producer's (`bus/producers.py`)"),
    ("`topic-not-agents`", "at the agents' link: a topic that no agent writes"),
    ("`time`", "`time` is not RFC 3339, finer than a nanosecond, or out of bounds"),
    ("`name`", "an id cannot be printed or is too long, or a column has more than 131,072 names"),
    ("`shape`", "`data` is not what the topic's schema says; the detail names the field"),
)
"""Why a message is refused; what the codec may say, in words."""


def _findings() -> str:
    kinds = [(f"`{kind}`", cls, meaning) for kind, (cls, meaning) in FINDING_KINDS.items()]
    causes = [(f"`{cause}`", meaning) for cause, meaning in CAUSES.items()]
    return f"""# Findings

{_GENERATED}

## Kinds

{_table(("kind", "class", "meaning"), kinds)}

## Causes

{_table(("cause", "meaning"), causes)}
"""


PREFIX: Final = (
    ("`bus_at_ns`", "int64", "", "ns since epoch", "entered the bus"),
    ("`bus_seq`", "uint64", "", "", "message number in the topic"),
    ("`bus_key`", "dictionary<int32, utf8>", "yes", "", "the message's key"),
    ("`boot_id`", "dictionary<int32, utf8>", "yes", "", "the producer's run"),
    ("`batch_seq`", "int64", "yes", "", "the producer's message number"),
)
"""The columns before a bulk topic's own in a recording (a test holds them against `bus.recording.format`)."""


def _recordings() -> str:
    return f"""# Recordings

{_GENERATED}

A recording is a folder: `recording.json` and one file per topic. Whoever writes one has it replayed by
`sdfstream replay`; only raw topics need to be there.

`recording.json`: `version` (1), `cluster`, `start_at_ns`, `end_at_ns`. Where it is absent or has no times, they are
taken from the messages.

## Bulk topics: `<topic>.arrows`

One Arrow IPC stream, any number of record batches of any size, whole dictionaries that may replace one another:

{_table(("column", "type", "may be null or absent", "unit", "meaning"), PREFIX)}

and then the topic's columns (`arrow/<topic>.md`). Columns may stand in any order, names may be plain utf8, columns of
your own are ignored. Rows of one message share `bus_seq` (and the rest of these five); they stand together, also
across record batches. Messages rise by (`bus_at_ns`, `bus_seq`): rows that go back behind an earlier record batch are
refused (`order`).

## Event topics: `<topic>.jsonl`

One object per line: `bus_at_ns`, `bus_seq`, `key`, `headers` (`schema`, `boot_id`, `batch_seq`; all may be absent) and
`value`, the CloudEvents object. In the same order.

## What cannot be read

A torn last line or record batch, a bad line, a row with a null where none may be, a file of a topic or version that
is not known: each is refused with its reason, listed in `rejects.jsonl` and counted; the rest is read.
"""


def _columns(topic: Topic, columns: pa.Schema) -> str:
    rows = []
    for field in columns:
        about = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        kind = "dictionary<int32, utf8>" if field.type == NAME else str(field.type)
        rows.append((f"`{field.name}`", kind, "yes" if field.nullable else "", about["unit"], about["doc"]))
    return f"""# {topic.name}

{_GENERATED}

{topic.doc} Key: {topic.key}.

{_table(("column", "type", "may be null", "unit", "meaning"), rows)}
"""


def _schema(topic: Topic) -> str:
    shapes = SHAPES[topic.name]
    shape: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": topic.name,
        "description": f"{topic.doc} Key: {topic.key}. {_ENVELOPE[0].upper()}{_ENVELOPE[1:]}.",
        "$comment": _GENERATED,
        "type": "object",
        "required": ["specversion", "id", "source", "type", "time", "data"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "minLength": 1, "description": "unique per source; a repeat carries the same id"},
            "source": {"type": "string", "minLength": 1, "description": "an agent's host or a stage's name"},
            "type": {"enum": sorted(shapes)},
            "subject": {"type": "string", "description": "the message's key"},
            "time": {"type": "string", "format": "date-time", "description": "when it was said"},
            "datacontenttype": {"const": "application/json"},
            "data": {"type": "object"},
        },
        "allOf": [
            {
                "if": {"properties": {"type": {"const": kind}}},
                "then": {"properties": {"data": {"$ref": f"#/$defs/{kind}"}}},
            }
            for kind in sorted(shapes)
        ],
        "$defs": {kind: shapes[kind] for kind in sorted(shapes)},
    }
    return json.dumps(shape, indent=2, ensure_ascii=False) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main(directory: Path) -> None:
    """Write the files into `directory`; what stands there beside them is left alone."""
    for name, text in files().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
