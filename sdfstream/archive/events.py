"""Events → one Arrow table: the columns that queries filter by, and the whole payload as JSON.

Pure. A typed column whose field is absent or of another type is null (the payload has the original); an event
without a field that the table's order needs, or whose payload is not JSON, comes back as a reject.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from sdfstream.archive import tables
from sdfstream.archive.rows import Reject, TableRows, bus_columns
from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, FINDING, JOB, LIVENESS, MESH, NIC, OUTCOME, OVERRIDE, TOPOLOGY, Topic

INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Pick:
    """One typed column and its path in the payload."""

    column: str
    path: str
    """Keys joined by dots."""
    kind: pa.DataType
    read: Callable[[Any], Any]
    """The value for the column, or None when the payload's value is of another type."""
    required: bool = False


def text(value: Any) -> str | None:
    """A string that UTF-8 can carry."""
    if not isinstance(value, str):
        return None
    return value if value.isascii() or _encodes(value) else None


def instant(value: Any) -> int | None:
    """Nanoseconds since the epoch, as int64."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT64_MAX else None


def whole(value: Any) -> int | None:
    """A signed integer of at most 64 bits."""
    return value if type(value) is int and abs(value) <= INT64_MAX else None


def small(bits: int) -> Callable[[Any], int | None]:
    """A reader of unsigned integers of at most `bits` bits."""
    return lambda value: value if type(value) is int and 0 <= value < 1 << bits else None


def number(value: Any) -> float | None:
    """A finite number or infinity; JSON has no others."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def truth(value: Any) -> bool | None:
    """A JSON boolean."""
    return value if isinstance(value, bool) else None


def count(value: Any) -> int | None:
    """Number of elements of a list."""
    return len(value) if isinstance(value, list | tuple) else None


def texts(value: Any) -> list[str]:
    """The strings of a list; anything else is left out."""
    return [v for v in value if text(v) is not None] if isinstance(value, list | tuple) else []


def hops(value: Any) -> list[str | None]:
    """Addresses in order, None where no router answered."""
    return [text(v) for v in value] if isinstance(value, list | tuple) else []


_names = pa.utf8()
_texts = pa.list_(pa.utf8())


def _at(name: str) -> Pick:
    return Pick(name, f"{name}_ns", pa.int64(), instant)


def _named(name: str) -> Pick:
    return Pick(name, name, _names, text, required=True)


def _say(column: str, path: str = "") -> Pick:
    return Pick(column, path or column, _names, text)


_TARGET: Final = (_say("target_type", "target.type"), _say("target_id", "target.id"))
_REASON: Final = Pick("reason", "reason", _texts, texts)

PICKS: Final[dict[str, tuple[Pick, ...]]] = {
    LIVENESS.name: (
        Pick("host", "host", _names, text, required=True),
        _at("seen_at"),
        Pick("complete", "complete", pa.bool_(), truth),
        Pick("changes", "changes", pa.uint32(), count),
    ),
    NIC.name: (
        Pick("nic", "nic", _names, text, required=True),
        Pick("direction", "direction", _names, text, required=True),
        Pick("state", "state", _names, text, required=True),
        _at("since_at"),
        _at("seen_at"),
        Pick("why", "why", _names, text),
    ),
    TOPOLOGY.name: (
        *(Pick(n, n, _names, text) for n in ("src", "dst", "transport")),
        Pick("path", "path", pa.uint32(), small(32)),
        Pick("dscp", "dscp", pa.uint8(), small(8)),
        Pick("dir", "dir", _names, text),
        Pick("protocol", "protocol", _names, text),
        Pick("source_port", "source_port", pa.uint16(), small(16)),
        Pick("destination_port", "destination_port", pa.uint16(), small(16)),
        Pick("hops", "hops", _texts, hops),
        Pick("complete", "complete", pa.bool_(), truth),
        _at("traced_at"),
    ),
    MESH.name: (
        _named("host"),
        _say("version"),
        Pick("epoch", "epoch", pa.int64(), whole),
        _at("drawn_at"),
        Pick("sessions", "sessions", pa.uint32(), count),
        *(Pick(n, n, pa.float64(), number) for n in ("budget_pps", "send_pps", "answer_pps")),
    ),
    FINDING.name: (
        *(Pick(n, n, _names, text, required=True) for n in ("id", "kind", "status")),
        *(Pick(n, n, _names, text) for n in ("class", "severity", "plane")),
        *(_at(n) for n in ("since_at", "seen_at", "resolved_at")),
        Pick("subject_type", "subject.type", _names, text),
        Pick("subject_id", "subject.id", _names, text),
        Pick("cause", "cause", _names, text),
        Pick("confidence", "confidence", pa.float64(), number),
        Pick("remedy", "remedy", _names, text),
        Pick("jobs", "jobs", _texts, texts),
    ),
    JOB.name: (
        *(_named(n) for n in ("job", "host", "state")),
        _say("name"),
        *(_at(n) for n in ("since_at", "seen_at")),
        _say("source"),
        *(Pick(n, n, pa.uint32(), count) for n in ("ranks", "qps", "receives")),
        _say("control"),
    ),
    COMMAND.name: (
        _named("id"),
        Pick("epoch", "epoch", pa.int64(), whole),
        *(_at(n) for n in ("issued_at", "expires_at")),
        *(_say(n) for n in ("mode", "action")),
        *_TARGET,
        _say("target_host", "target.host"),
        _say("job", "target.job"),
        _REASON,
        _say("key_id"),
    ),
    OUTCOME.name: (
        *(_named(n) for n in ("command", "state")),
        *(_say(n) for n in ("why", "host")),
        _at("at"),
        _say("action"),
        *_TARGET,
        _say("job", "target.job"),
        _at("applied_at"),
        _REASON,
    ),
    OVERRIDE.name: (
        *(_named(n) for n in ("id", "what", "operator")),
        *(_at(n) for n in ("issued_at", "expires_at")),
        _say("command"),
        *_TARGET,
        _say("key_id"),
    ),
}
"""The typed columns of every event topic; those of the migrations, in their order."""


def event_rows(topic: Topic, messages: Sequence[Message], bus_id: str) -> TableRows:
    """One row per event of `messages`, all of the event topic `topic`."""
    picks = PICKS[topic.name]
    accepted: list[tuple[Message, Event, str, list[Any]]] = []
    rejects: list[Reject] = []
    for message in messages:
        try:
            event, payload, values = _read(message, picks)
        except FormatError as error:
            rejects.append(Reject(message, error.reason, error.detail, 1, _body(message)))
            continue
        accepted.append((message, event, payload, values))
    columns: dict[str, Any] = {pick.column: _column([k[3][i] for k in accepted], pick) for i, pick in enumerate(picks)}
    events = [k[1] for k in accepted]
    for name in ("id", "type", "source"):
        columns[f"event_{name}"] = pa.array([getattr(e, name) for e in events], pa.utf8())
    columns["event_time"] = pa.array([e.time_ns for e in events], pa.int64()).cast(tables.INSTANT)
    columns["data"] = pa.array([k[2] for k in accepted], pa.utf8())
    columns |= bus_columns([k[0] for k in accepted], [1] * len(accepted), bus_id)
    return TableRows(pa.table(columns), tuple(rejects))


def _read(message: Message, picks: Sequence[Pick]) -> tuple[Event, str, list[Any]]:
    event = message.body
    if not isinstance(event, Event):
        raise FormatError("form", "rows on an event topic")
    if instant(event.time_ns) is None or any(text(t) is None for t in (event.id, event.type, event.source)):
        raise FormatError("envelope", f"{event.type} {event.id}")
    payload = _json(event.data)
    values = [pick.read(_follow(event.data, pick.path)) for pick in picks]
    for pick, value in zip(picks, values, strict=True):
        if pick.required and value is None:
            raise FormatError("field-missing", pick.path)
    return event, payload, values


def _follow(data: Any, path: str) -> Any:
    for key in path.split("."):
        if not isinstance(data, Mapping):
            return None
        data = data.get(key)
    return data


def _column(values: list[Any], pick: Pick) -> pa.Array:
    array = pa.array(values, pick.kind)
    return array.cast(tables.INSTANT) if pick.read is instant else array


def _json(data: Any) -> str:
    try:
        payload = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError("not-json", str(error)[:200]) from error
    return payload if _encodes(payload) else json.dumps(data, separators=(",", ":"))


def _body(message: Message) -> bytes:
    return repr(message.body).encode("utf-8", "backslashreplace")


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
