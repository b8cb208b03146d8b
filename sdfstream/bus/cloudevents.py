"""The JSON of the rare topics: CloudEvents 1.0, structured mode, in one canonical form.

Canonical: keys sorted, no white space, UTF-8, nine digits of a second, so that the same event is the same bytes.
Reading takes any CloudEvents 1.0 JSON whose attributes are the ones we use and whose `data` is an object; unknown
attributes are ignored (CloudEvents 1.0, section 3.1).

References
----------
CloudEvents 1.0.2 core specification and JSON event format; RFC 3339 (time); RFC 8259 (JSON: no NaN).
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.records import bounds
from sdfstream.records.message import Event
from sdfstream.records.units import NS_PER_S

CONTENT_TYPE: Final = "application/cloudevents+json; charset=UTF-8"

_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})0*)?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))", re.ASCII
)


def encode_event(event: Event, subject: str = "") -> bytes:
    """The canonical bytes of `event`; `subject` is the message's key.

    Raises
    ------
    ValueError, TypeError
        `data` is not plain JSON (a NaN, a numpy scalar): our own mistake.
    """
    return canonical(as_object(event, subject))


def as_object(event: Event, subject: str = "") -> dict[str, Any]:
    """The CloudEvents object of `event`."""
    envelope = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "time": format_time(event.time_ns),
        "datacontenttype": "application/json",
        "data": event.data,
    }
    return envelope | {"subject": subject} if subject else envelope


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no white space, UTF-8."""
    return _ENCODER.encode(value).encode()


def decode_event(raw: bytes, topic: str = "") -> Event:
    """The event of `topic` that `raw` spells; of no topic: its data have any shape.

    Raises
    ------
    FormatError
        ``json``, ``cloudevent`` (not a CloudEvents 1.0 object with what we need), ``time``, ``name``, or ``shape`` (its
        data are not what the topic's schema says, see `records.bounds`).
    """
    return from_object(strict_json.parse(raw), topic)


def from_object(value: Any, topic: str = "", *, whole: bool = True) -> Event:
    """An event from a parsed CloudEvents object; errors as `decode_event`, `whole` as `bounds.check_data`."""
    if not isinstance(value, dict):
        raise FormatError("cloudevent", f"a JSON {type(value).__name__}, not an object")
    if value.get("specversion") != "1.0":
        raise FormatError("cloudevent", f"specversion {value.get('specversion')!r}, not '1.0'")
    for name in ("id", "source", "type", "time"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise FormatError("cloudevent", f"attribute {name} is not a string that says something")
        bounds.check_name(name, value[name])
    if not isinstance(value.get("data"), dict):
        raise FormatError("cloudevent", "data is not an object")
    time_ns = parse_time(value["time"])
    bounds.check_instant(time_ns)
    bounds.check_data(topic, value["type"], value["data"], whole=whole)
    return Event(type=value["type"], source=value["source"], id=value["id"], time_ns=time_ns, data=value["data"])


def format_time(at_ns: int) -> str:
    """RFC 3339 in UTC with nine digits of a second.

    >>> format_time(1_000_000_001)
    '1970-01-01T00:00:01.000000001Z'
    """
    seconds, ns = divmod(at_ns, NS_PER_S)
    days, second = divmod(seconds, 86_400)
    day = date.fromordinal(_EPOCH_DAY + days)
    return f"{day.isoformat()}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{ns:09}Z"


def parse_time(text: str) -> int:
    """Nanoseconds since the Unix epoch of an RFC 3339 instant with up to nine digits of a second.

    Raises
    ------
    FormatError
        ``time``: another form, a day that does not exist, a leap second (Unix time has none), finer than 1 ns.
    """
    match = _TIME.fullmatch(text)
    if not match:
        raise FormatError("time", text[:64])
    *whole, fraction, sign, hours, minutes = match.groups()
    try:
        at = datetime(*map(int, whole), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError as error:
        raise FormatError("time", f"{text[:64]}: {error}") from error
    ahead_s = (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1) if sign else 0
    seconds = (at.toordinal() - _EPOCH_DAY) * 86_400 + at.hour * 3600 + at.minute * 60 + at.second - ahead_s
    return seconds * NS_PER_S + int((fraction or "").ljust(9, "0"))
