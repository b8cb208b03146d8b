"""The frames between an agent's process and a pipeline's: length-prefixed messages in wire form, acknowledged.

**Version 1**, outputs only. The publisher opens with `MAGIC`, then sends frames::

    uint32 head length · uint32 payload length · head · payload        (big endian)

The head is JSON ``[topic, key, [[header, value], …]]``, the payload the bytes the codec made. The server answers each
frame it has dealt with by a uint64: the number of frames dealt with on this connection; with `REFUSED` set, the last
of them was refused (too large, unreadable head) and the server hangs up, since the rest cannot be trusted.

**Version 2**, outputs up and messages down. The client opens with `MAGIC_V2` and its request::

    "SDFLINK2" · uint32 length ·
    JSON {"topics": [...], "keys": [...] or null, "bus": id, "after": {topic: [bus_seq, ...]}}

and the server answers with its welcome, or with the reason of a refusal, after which it hangs up::

    uint32 length · JSON {"bus": id, "at": {topic: [bus_seq, ...]}, "lost": {topic: n}}     or     {"refused": reason}

From there on the client sends frames as in version 1 (it need not wait for the welcome). What the server sends are
uint64 words: acknowledgements as in version 1, and `DOWN`, which one frame follows, a message of a requested topic
under a requested key; its head is ``[topic, key, [[header, value], …], bus_at_ns, bus_seq]``. Within a topic (on Kafka:
within a partition, the bits of bus_seq from 48 up) messages come in order of bus_seq.

``bus`` names the server's run; without one, or with another's, messages begin behind ``at`` of the welcome, which is
now. With the server's own, they begin behind the bus_seqs in ``after`` (of a partition that is not named there:
with the first that the server read) as far as the server still holds them; ``lost`` says how many it does not (at
most: some of them may have had other keys). A server of version 1 hangs up on `MAGIC_V2`; a server of version 2
serves clients of version 1 as ever.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sdfstream import strict_json
from sdfstream.errors import FormatError

MAGIC: Final = b"SDFLINK1"
LENGTHS: Final = struct.Struct(">II")
ACK: Final = struct.Struct(">Q")
REFUSED: Final = 1 << 63
MAX_HEAD_BYTES: Final = 64 << 10

MAGIC_V2: Final = b"SDFLINK2"
LENGTH: Final = struct.Struct(">I")
DOWN: Final = 1 << 62
MAX_REQUEST_BYTES: Final = 1 << 20
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Head(NamedTuple):
    """The head of a frame."""

    topic: str
    key: str
    headers: list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """The topics and keys that a client subscribes to, and the positions it goes on behind."""

    topics: tuple[str, ...]
    keys: frozenset[str] | None = None
    """Only messages under these keys; None: all."""
    bus: str = ""
    """Id of the server's run in which `after` counts; empty: none yet."""
    after: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Topic → the last bus_seq read of each of its partitions."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's answer to a request."""

    bus: str
    at: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Topic → the last bus_seq that the server read of each of its partitions."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Topic → messages behind `SubscribeRequest.after` that the server does not hold any more."""
    refused: str = ""
    """Reason of a refusal; empty: none."""


def frame(topic: str, key: str, headers: Iterable[tuple[str, bytes]], payload: bytes) -> bytes:
    """One frame."""
    # as `_json` of [topic, key, [[name, value], …]], which would set up an encoder for lists each time
    pairs = ",".join([f"[{_ENCODE(name)},{_ENCODE(value.decode())}]" for name, value in headers])
    head = f"[{_ENCODE(topic)},{_ENCODE(key)},[{pairs}]]".encode()
    return b"".join((LENGTHS.pack(len(head), len(payload)), head, payload))


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
        topic, key, headers = strict_json.loads(raw)
        if not isinstance(topic, str) or not isinstance(key, str):
            raise ValueError("topic and key are not strings")
        return Head(topic, key, [(_text(name), _text(value).encode()) for name, value in headers])
    except (FormatError, ValueError, TypeError) as error:
        raise FormatError("link-head", str(error)[:200]) from error


def opening(request: SubscribeRequest) -> bytes:
    """The opening of a client of version 2."""
    fields = {
        "topics": list(request.topics),
        "keys": None if request.keys is None else sorted(request.keys),
        "bus": request.bus,
        "after": request.after,
    }
    return MAGIC_V2 + _counted(fields)


def welcome(answer: Welcome) -> bytes:
    """The server's answer to a request."""
    fields = {"bus": answer.bus, "at": answer.at, "lost": answer.lost}
    return _counted({"refused": answer.refused} if answer.refused else fields)


def down(topic: str, key: str, headers: Iterable[tuple[str, bytes]], payload: bytes, at_ns: int, seq: int) -> bytes:
    """The word `DOWN` and the frame of a message."""
    head = _json([topic, key, [[name, value.decode()] for name, value in headers], at_ns, seq])
    return ACK.pack(DOWN) + LENGTHS.pack(len(head), len(payload)) + head + payload


def parse_length(raw: bytes) -> int:
    """Length of the request or welcome that `raw` opens; FormatError ``link-oversize``."""
    (length,) = LENGTH.unpack(raw)
    if length > MAX_REQUEST_BYTES:
        raise FormatError("link-oversize", f"a wish or welcome of {length} bytes; at most {MAX_REQUEST_BYTES}")
    return int(length)


def parse_request(raw: bytes) -> SubscribeRequest:
    """The request of a client.

    Raises
    ------
    FormatError
        ``link-wish``.
    """
    try:
        given = _object(strict_json.loads(raw))
        topics = tuple(_text(topic) for topic in _list(given["topics"]))
        keys = None if given["keys"] is None else frozenset(_text(key) for key in _list(given["keys"]))
        return SubscribeRequest(topics, keys, _text(given["bus"]), _seqs(given["after"]))
    except (FormatError, ValueError, KeyError) as error:
        raise FormatError("link-wish", str(error)[:200]) from error


def parse_welcome(raw: bytes) -> Welcome:
    """The answer of the server; FormatError ``link-welcome``."""
    try:
        given = _object(strict_json.loads(raw))
        if "refused" in given:
            return Welcome("", refused=_text(given["refused"]) or "no reason")
        lost = {topic: _whole(n) for topic, n in _object(given["lost"]).items()}
        return Welcome(_text(given["bus"]), _seqs(given["at"]), lost)
    except (FormatError, ValueError, KeyError) as error:
        raise FormatError("link-welcome", str(error)[:200]) from error


def parse_down_head(raw: bytes) -> tuple[Head, int, int]:
    """(head, bus_at_ns, bus_seq) of a frame from the server; FormatError ``link-head``."""
    try:
        topic, key, headers, at_ns, seq = _list(strict_json.loads(raw))
        named = [(_text(name), _text(value).encode()) for name, value in headers]
        return Head(_text(topic), _text(key), named), _whole(at_ns), _whole(seq)
    except (FormatError, ValueError, TypeError) as error:
        raise FormatError("link-head", str(error)[:200]) from error


def _counted(value: Any) -> bytes:
    raw = _json(value)
    return LENGTH.pack(len(raw)) + raw


def _json(value: Any) -> bytes:
    return _ENCODE(value).encode()


def _seqs(value: Any) -> dict[str, tuple[int, ...]]:
    return {topic: tuple(_whole(seq) for seq in _list(seqs)) for topic, seqs in _object(value).items()}


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError("not a whole number of 64 bits")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text was expected")
    return value
