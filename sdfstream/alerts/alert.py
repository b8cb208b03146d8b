"""The alert that a finding is: labels that stay the same as long as it lives, and annotations for people. Pure.

Alertmanager tells alerts apart by their labels alone. Theirs are what never changes of a finding: its id, kind, class,
severity and subject; figures go to annotations. Where a finding's severity does change, it is another alert, and the
former one is resolved (`ledger`).

References
----------
Alertmanager's API v2, ``postableAlert``.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from sdfstream import visible
from sdfstream.alerts.config import AlertsConfig
from sdfstream.records.units import NS_PER_S

ALERTNAME: Final = "SdfFinding"
MOST_LABEL, MOST_ANNOTATION = 256, 2_000
"""Characters; a longer text is cut."""
_MOST_FACTS: Final = 8
_MOST_JOBS: Final = 10
_LATEST_NS: Final = 253_402_300_799 * NS_PER_S
"""The last second of the year 9999, the last that RFC 3339 can write."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert, as it is pushed."""

    labels: Labels
    annotations: Mapping[str, str]
    starts_at_ns: int
    ends_at_ns: int
    """In the future: it goes on, and ends by itself then unless it is pushed again. Past: it is resolved."""
    url: str = ""
    """Where the finding is shown."""

    def as_data(self) -> dict[str, Any]:
        """A ``postableAlert``."""
        starts_at_ns = min(self.starts_at_ns, self.ends_at_ns)  # the other order is refused
        return {
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "startsAt": rfc3339(starts_at_ns),
            "endsAt": rfc3339(self.ends_at_ns),
            **({"generatorURL": self.url} if self.url else {}),
        }


def labels_of(finding: Mapping[str, Any]) -> Labels:
    """What identifies the alert of a finding.

    >>> labels_of({"id": "f1", "kind": "nic-down", "class": "link", "severity": "urgent",
    ...            "subject": {"type": "nic", "id": "h0/r1"}})[-1]
    ('subject', 'nic h0/r1')
    """
    subject = finding.get("subject")
    named = f"{subject.get('type')} {subject.get('id')}" if isinstance(subject, Mapping) else ""
    return (
        ("alertname", ALERTNAME),
        *((name, _text(finding.get(name), MOST_LABEL)) for name in ("id", "kind", "class", "severity")),
        ("subject", _text(named, MOST_LABEL)),
    )


def annotations_of(finding: Mapping[str, Any], config: AlertsConfig, cluster: str) -> dict[str, str]:
    """What people read: one line, the facts, what to do, and where."""
    jobs = [str(job) for job in finding.get("jobs") or ()]
    said = {
        "summary": summary_of(finding),
        "description": _description(finding),
        "remedy": str(finding.get("remedy") or ""),
        "runbook_url": _runbook(finding, config),
        "jobs": ", ".join(jobs[:_MOST_JOBS])
        + (f" and {len(jobs) - _MOST_JOBS} more" if len(jobs) > _MOST_JOBS else ""),
        "cluster": cluster,
    }
    return {name: _text(text, MOST_ANNOTATION) for name, text in said.items() if text}


def summary_of(finding: Mapping[str, Any]) -> str:
    """One line.

    >>> flap = {"severity": "urgent", "kind": "link-flap", "subject": {"type": "link", "id": "l0--s1"},
    ...         "detail": "link has flapped more than 8 times within the past hour"}
    >>> summary_of(flap)
    'Urgent | Cluster: link has flapped more than 8 times within the past hour'
    >>> summary_of({"severity": "warning", "kind": "loss", "subject": {"type": "link", "id": "l0->s1"}, "cause": "x"})
    'Warning | link l0->s1: loss (x)'
    """
    head = str(finding.get("severity") or "unknown").capitalize()
    detail = str(finding.get("detail") or "")
    if finding.get("kind") == "link-flap" and detail:
        return f"{head} | Cluster: {detail}"
    subject = dict(labels_of(finding))["subject"]
    return f"{head} | {subject}: {finding.get('kind')} ({finding.get('cause', 'unknown')})"


def url_of(finding: Mapping[str, Any], config: AlertsConfig) -> str:
    """The page's address of a finding; empty where nobody said where the page is."""
    if not config.page_url:
        return ""
    return f"{config.page_url.rstrip('/')}/#/finding/{quote(str(finding.get('id')), safe='')}"


def rfc3339(at_ns: int) -> str:
    """An instant, ns since the Unix epoch.

    >>> rfc3339(1_800_000_000_123_456_789)
    '2027-01-15T08:00:00.123456789Z'
    """
    seconds, rest = divmod(min(max(at_ns, 0), _LATEST_NS), NS_PER_S)
    return f"{datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _description(finding: Mapping[str, Any]) -> str:
    subject = dict(labels_of(finding))["subject"]
    facts = [f for f in finding.get("evidence") or () if isinstance(f, Mapping)]
    lines = [subject, str(finding.get("detail") or ""), *(_fact(fact) for fact in facts[:_MOST_FACTS])]
    if (suspects := _suspects(finding.get("suspects") or ())) and len(suspects) > 1:
        lines.append(f"suspects {', '.join(suspects)}")
    return visible.lines(line for line in lines if line)


def _fact(fact: Mapping[str, Any]) -> str:
    normal = f" (normally {fact['baseline']})" if fact.get("baseline") is not None else ""
    where = f" at {fact['where']}" if fact.get("where") else ""
    unit = str(fact.get("unit") or "")
    return f"{fact.get('what')} {fact.get('value')}{f' {unit}' if unit not in ('', '1') else ''}{normal}{where}"


def _suspects(listed: Sequence[Any]) -> list[str]:
    known = [s for s in listed if isinstance(s, Mapping) and isinstance(s.get("probability"), int | float)]
    return [f"{s.get('id')} ({100 * s['probability']:.0f} %)" for s in known[:_MOST_FACTS]]


def _runbook(finding: Mapping[str, Any], config: AlertsConfig) -> str:
    page = str(finding.get("runbook") or "")
    base = config.runbooks_url
    return f"{base.rstrip('/')}/{page.removeprefix('docs/')}" if base and page.startswith("docs/") else page


def _text(value: Any, most: int) -> str:
    text = visible.text("" if value is None else str(value))
    return text if len(text) <= most else f"{text[: most - 1]}…"
