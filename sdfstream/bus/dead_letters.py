"""Dead letters: a message that could not be read, whole, with the reason, in ``<topic>.dlq``.

Inside sdfstream a dead letter is an `Event` whose data holds the reason, the headers and the bytes in base64 (so
recordings and the archive hold it like any event). On Kafka its value is the original bytes, unchanged, beside the
original headers; the reason stands in the headers ``dlq_reason`` and ``dlq_detail``. `pack` and `unpack` join the two.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from sdfstream.bus import cloudevents
from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Output
from sdfstream.records.schema import LATEST_NS

SUFFIX: Final = ".dlq"
FORM: Final = "dlq_form"
"""Header of a dead letter whose value is a stage's event about the message; absent: the value is the message."""
MAX_DETAIL: Final = 500
"""Most characters of the detail, which may quote the input."""

Headers = list[tuple[str, bytes]]


def is_dead(topic: str) -> bool:
    """Whether `topic` holds dead letters."""
    return topic.endswith(SUFFIX)


def dead_letter(
    topic: str, key: str, headers: Iterable[tuple[str, bytes]], value: bytes, error: FormatError, at_ns: int
) -> Output:
    """The dead letter of a message of `topic` that failed with `error`, met at `at_ns`."""
    dead = topic + SUFFIX
    data = {
        "reason": error.reason,
        "detail": error.detail[:MAX_DETAIL],
        "headers": [[name, _text(raw)] for name, raw in headers],
        "value": _text(value),
    }
    # the id depends on the bytes alone, so that a dead letter made twice is recognised as one
    event = Event(
        type=dead, source="bus", id=hashlib.blake2b(value, digest_size=12).hexdigest(), time_ns=at_ns, data=data
    )
    return Output(dead, key, event)


def pack(event: Event) -> tuple[Headers, bytes]:
    """Kafka form of a dead letter: the original headers with the reason, and the original bytes.

    A stage that refuses rows of a readable message names the message and quotes the rows: its dead letter is written as
    it is, with the reasons in the headers.

    Raises
    ------
    FormatError
        ``dead-letter``: `event` was made neither by `dead_letter` nor by a stage.
    """
    if "headers" not in event.data and {"topic", "bus_seq"} <= event.data.keys():
        reason = str(event.data.get("reason") or ",".join(event.data.get("reasons", ())) or "refused")
        given = [("content-type", cloudevents.CONTENT_TYPE.encode()), (FORM, b"event"), ("dlq_reason", reason.encode())]
        return [*given, ("dlq_time_ns", b"%d" % event.time_ns)], cloudevents.encode_event(event)
    try:
        headers = [(str(name), _bytes(raw)) for name, raw in event.data["headers"]]
        value = _bytes(event.data["value"])
        why = [("dlq_reason", event.data["reason"].encode()), ("dlq_detail", event.data["detail"].encode())]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError("dead-letter", f"{type(error).__name__}: {error}") from error
    return [*headers, *why, ("dlq_time_ns", b"%d" % event.time_ns)], value


def unpack(topic: str, headers: Iterable[tuple[str, bytes]], value: bytes) -> Event:
    """The event of a dead letter in Kafka form; a foreign one without our headers has reason ``unknown``."""
    ours = {"dlq_reason": b"unknown", "dlq_detail": b"", "dlq_time_ns": b"0"}
    others: Headers = []
    headers = list(headers)
    if (FORM, b"event") in headers:
        with suppress(FormatError):
            event = cloudevents.decode_event(value)
            if event.type == topic and "headers" not in event.data and {"topic", "bus_seq"} <= event.data.keys():
                return event
    for name, raw in headers:
        if name in ours:
            ours[name] = raw
        else:
            others.append((name, raw))
    why = FormatError(ours["dlq_reason"].decode(errors="replace"), ours["dlq_detail"].decode(errors="replace"))
    at = ours["dlq_time_ns"]
    at_ns = int(at) if at.isdigit() and len(at) <= 19 else 0
    dead = dead_letter(topic.removesuffix(SUFFIX), "", others, value, why, min(at_ns, LATEST_NS))
    assert isinstance(dead.body, Event)
    return dead.body


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
