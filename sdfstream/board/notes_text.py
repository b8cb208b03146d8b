"""Silences and labels as people read them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from sdfstream.board.humanize import listed
from sdfstream.records.silences import FALSE_ALARM

Data = Mapping[str, Any]


def of_finding(finding: Data, now_ns: int) -> str:
    """What operators said of a finding; empty where none did.

    >>> said = {"by": "anna", "until_ns": 1_800_000_000_000_000_000, "reason": "firmware", "maintenance": False}
    >>> of_finding({"silence": said, "label": {"cause": "false-alarm", "by": "ben", "note": ""}}, 0)
    'silenced until 2027-01-15 08:00 UTC by anna: firmware; labelled a false alarm by ben'
    """
    silence, label = finding.get("silence"), finding.get("label")
    return "; ".join([*([silence_words(silence, now_ns)] if silence else []), *([label_words(label)] if label else [])])


def silence_words(silence: Data, now_ns: int) -> str:
    """Until when, by whom and why a finding is silenced."""
    what = "silenced for maintenance" if silence.get("maintenance") else "silenced"
    reason = f": {silence['reason']}" if silence.get("reason") else ""
    return f"{what} until {minute(int(silence['until_ns']), now_ns)} by {silence['by']}{reason}"


def label_words(label: Data) -> str:
    """What a finding turned out to be, and who says so."""
    what = "a false alarm" if label["cause"] == FALSE_ALARM else label["cause"]
    note = f": {label['note']}" if label.get("note") else ""
    return f"labelled {what} by {label['by']}{note}"


def line_of(silence: Data, now_ns: int) -> str:
    """One silence of a list: id, state, subject, kinds, times, by whom, why."""
    about = "everything" if silence["type"] == "all" else f"{silence['type']} {silence['subject']}"
    kinds = f" ({listed(silence['kinds'], 4)} only)" if silence["kinds"] else ""
    when = f"until {minute(int(silence['until_ns']), now_ns)}"
    if silence["state"] == "planned":
        when = f"from {minute(int(silence['from_at_ns']), now_ns)} {when}"
    elif silence["state"] == "lifted":
        when = f"by {silence['lifted_by']} at {minute(int(silence['lifted_at_ns']), now_ns)}"
    reason = f": {silence['reason']}" if silence["reason"] else ""
    maintenance = ", maintenance" if silence["maintenance"] else ""
    return f"{silence['id']}  {silence['state']:<8}  {about}{kinds}{maintenance}, {when}; by {silence['by']}{reason}"


def silenced_count(findings: Sequence[Data]) -> int:
    """How many of the findings are silenced."""
    return sum(bool(finding.get("silence")) for finding in findings)


def minute(at_ns: int, now_ns: int) -> str:
    """An instant to the minute, with its date where that is not today's.

    >>> day_ns = 86_400 * 10**9
    >>> minute(day_ns + 14 * 3600 * 10**9, day_ns), minute(3 * day_ns, day_ns)
    ('14:00 UTC', '1970-01-04 00:00 UTC')
    """
    at, now = (datetime.datetime.fromtimestamp(ns // 10**9, tz=datetime.UTC) for ns in (at_ns, now_ns))
    return f"{at:%H:%M} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M} UTC"
