"""Where an answer comes from, and as of when, in a line for people."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from sdfstream import visible
from sdfstream.board.humanize import duration
from sdfstream.board.lateness import OLD_NS


def line_of(source: Mapping[str, Any], now_ns: int) -> str:
    """A line about an archive's answer; nothing of a running pipeline's.

    >>> at_ns = 1_800_000_000_000_000_000
    >>> said = {"kind": "archive", "archive": "d/archive", "as_of_ns": at_ns, "newest_ns": at_ns, "ends_at_ns": at_ns}
    >>> line_of(said, at_ns + 65 * 10**9)
    'as of 2027-01-15 08:00:00 UTC, 1 min 5 s ago, from the archive d/archive: its last moment'
    >>> line_of({"kind": "pipeline"}, at_ns)
    ''
    """
    if source.get("kind") != "archive":
        return ""
    at_ns, newest_ns = int(source["as_of_ns"]), source.get("newest_ns")
    line = f"as of {utc(at_ns)}, {duration(now_ns - at_ns)} ago, from the archive {source['archive']}"
    if at_ns == source["ends_at_ns"]:
        line += ": its last moment"
    elif newest_ns is None:
        line += ", which has nothing up to then"
    elif at_ns - newest_ns > OLD_NS:
        line += f"; the newest it has up to then is of {utc(newest_ns)}: nothing is known since"
    return visible.line(line)


def utc(at_ns: int) -> str:
    """Date and time of day.

    >>> utc(1_800_000_000_999_999_999)
    '2027-01-15 08:00:00 UTC'
    """
    return f"{datetime.datetime.fromtimestamp(at_ns // 1_000_000_000, tz=datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
