"""Alertmanager's webhook, version 4, read into bounded values or refused. Pure.

What comes is what others alert on (switches, hosts, GPUs: evidence beside our findings), and our own findings, whose
arrival says which receiver told of them.

References
----------
Alertmanager's documentation, ``<webhook_config>``: ``"version": "4"``, ``receiver``, ``status``, ``alerts`` with
``status``, ``labels``, ``annotations``, ``startsAt``, ``endsAt``, ``fingerprint``.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.records.units import NS_PER_S

MOST_BYTES: Final = 1 << 20
MOST_ALERTS: Final = 500
MOST_LABELS: Final = 64
MOST_TEXT: Final = 2_000
"""Characters of a name, label or annotation."""
STATUSES: Final = ("firing", "resolved")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{1,32}")
_INSTANT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class ReceivedAlert:
    """One alert of a webhook."""

    fingerprint: str
    receiver: str
    """The route's receiver, by whose webhook it came."""
    status: str
    """One of `STATUSES`."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at_ns: int
    ends_at_ns: int | None
    """None: it goes on."""


def read(raw: bytes) -> list[ReceivedAlert]:
    """The alerts of one webhook.

    Raises
    ------
    FormatError
        It is none of version 4, or larger than what is read; the reason says which.
    """
    body = strict_json.loads(raw, most_bytes=MOST_BYTES, most_depth=8)
    if not isinstance(body, Mapping) or body.get("version") != "4":
        raise FormatError("version", 'a webhook of Alertmanager has version "4"')
    receiver, alerts = body.get("receiver"), body.get("alerts")
    if not isinstance(receiver, str) or len(receiver) > MOST_TEXT:
        raise FormatError("receiver", "receiver must be a name")
    if not isinstance(alerts, list) or len(alerts) > MOST_ALERTS:
        raise FormatError("alerts", f"alerts must be a list of at most {MOST_ALERTS} (max_alerts in the configuration)")
    return [_alert(alert, receiver) for alert in alerts]


def _alert(alert: Any, receiver: str) -> ReceivedAlert:
    if not isinstance(alert, Mapping):
        raise FormatError("alert", "an alert must be an object")
    fingerprint, status = alert.get("fingerprint"), alert.get("status")
    if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
        raise FormatError("fingerprint", "fingerprint must be hex digits")
    if status not in STATUSES:
        raise FormatError("status", f"status must be one of {', '.join(STATUSES)}")
    starts_at_ns = _instant(alert.get("startsAt"))
    ends_at_ns = _instant(alert.get("endsAt")) if status == "resolved" else None
    texts = _texts(alert.get("labels"), "labels"), _texts(alert.get("annotations"), "annotations")
    return ReceivedAlert(fingerprint, receiver, str(status), *texts, starts_at_ns, ends_at_ns)


def _texts(given: Any, name: str) -> dict[str, str]:
    if not isinstance(given, Mapping) or len(given) > MOST_LABELS:
        raise FormatError(name, f"{name} must be an object of at most {MOST_LABELS} texts")
    if not all(isinstance(text, str) and max(len(key), len(text)) <= MOST_TEXT for key, text in given.items()):
        raise FormatError(name, f"{name} must be texts of at most {MOST_TEXT} characters")
    return dict(given)


def _instant(text: Any) -> int:
    """An instant of RFC 3339, ns since the Unix epoch.

    >>> _instant("2027-01-15T08:00:00.123456789Z"), _instant("2027-01-15T10:00:00+02:00")
    (1800000000123456789, 1800000000000000000)
    """
    found = _INSTANT.fullmatch(text) if isinstance(text, str) and text.isascii() else None
    if found is None:
        raise FormatError("instant", "startsAt and endsAt must be instants of RFC 3339")
    try:
        seconds = datetime.datetime.fromisoformat(found[1] + found[3]).timestamp()
    except (ValueError, OverflowError):
        raise FormatError("instant", "startsAt and endsAt must be instants of RFC 3339") from None
    return max(0, int(seconds)) * NS_PER_S + int((found[2] or "").ljust(9, "0"))
