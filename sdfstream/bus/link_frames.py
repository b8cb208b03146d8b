"""The frames between an agent's process and a pipeline's: length-prefixed messages in wire form, acknowledged.

The publisher opens with `MAGIC`, then sends frames::

    uint32 head length · uint32 payload length · head · payload        (big endian)

The head is JSON ``[topic, key, [[header, value], …]]``, the payload the bytes the codec made. The server answers each
frame it has dealt with by a uint64: the number of frames dealt with on this connection; with `REFUSED` set, the last
of them was refused (too large, unreadable head) and the server hangs up, since the rest cannot be trusted.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from sdfstream.bus.cloudevents import parse_json
from sdfstream.errors import FormatError

MAGIC: Final = b"SDFLINK1"
LENGTHS: Final = struct.Struct(">II")
ACK: Final = struct.Struct(">Q")
REFUSED: Final = 1 << 63
MAX_HEAD_BYTES: Final = 64 << 10


class Head(NamedTuple):
    """What a frame's head says."""

    topic: str
    key: str
    headers: list[tuple[str, bytes]]


def frame(topic: str, key: str, headers: Iterable[tuple[str, bytes]], payload: bytes) -> bytes:
    """One frame."""
    fields = [topic, key, [[name, value.decode()] for name, value in headers]]
    head = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    return LENGTHS.pack(len(head), len(payload)) + head + payload


def parse_lengths(raw: bytes, max_payload_bytes: int) -> tuple[int, int]:
    """(head length, payload length) of the frame that `raw` opens.

    Raises
    ------
    FormatError
        ``link-oversize``: more than anyone may send; nothing of it is read.
    """
    head, payload = LENGTHS.unpack(raw)
    if head > MAX_HEAD_BYTES or payload > max_payload_bytes:
        raise FormatError("link-oversize", f"head {head}, payload {payload} bytes; at most {max_payload_bytes}")
    return head, payload


def parse_head(raw: bytes) -> Head:
    """The head of a frame.

    Raises
    ------
    FormatError
        ``link-head``.
    """
    try:
        topic, key, headers = parse_json(raw)
        if not isinstance(topic, str) or not isinstance(key, str):
            raise ValueError("topic and key are not strings")
        return Head(topic, key, [(_text(name), _text(value).encode()) for name, value in headers])
    except (FormatError, ValueError, TypeError) as error:
        raise FormatError("link-head", str(error)[:200]) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a header is not a pair of strings")
    return value
