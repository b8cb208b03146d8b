"""Dead letters of Kafka records, cut to what the brokers take.

A record that was compressed by its producer, or whose headers fill the room around a message, is larger than any that
is written here. A dead letter refused for its size would end every reader of the topic, again and again.
"""

from __future__ import annotations

from sdfstream.bus import codec, dead_letters
from sdfstream.bus.kafka.config import SLACK_BYTES
from sdfstream.errors import FormatError
from sdfstream.records.message import MOST_KEY, Output

_HEADER_BYTES = 12
"""At most what a header takes beside its name and value."""


def dead_letter(
    limit: int, topic: str, key: str, headers: codec.Headers, value: bytes, why: FormatError, at_ns: int
) -> Output:
    """`dead_letters.dead_letter` with at most `limit` bytes of the value; what is left out stands in its detail."""
    left_out = []
    if len(value) > limit:
        left_out.append(f"{len(value) - limit} of {len(value)} bytes")
        value = value[:limit]
    if sum(len(name.encode()) + len(raw) + _HEADER_BYTES for name, raw in headers) > SLACK_BYTES:
        left_out.append(f"{len(headers)} headers")
        headers = []
    if len(key) > MOST_KEY:
        left_out.append(f"{len(key) - MOST_KEY} characters of the key")
        key = key[:MOST_KEY]
    if left_out:
        why = FormatError(why.reason, f"(left out: {', '.join(left_out)}) {why.detail}")
    return dead_letters.dead_letter(topic, key, headers, value, why, at_ns)
