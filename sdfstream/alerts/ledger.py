"""Which alerts are due to be pushed: new ones, those that go on, and those that have ended. Sans-IO.

Level-triggered: each look compares what is open with what was pushed, so that a push that failed is simply due again,
and a restart pushes everything anew. Alertmanager ends an alert by itself `AlertsConfig.expire_s` after its last push;
one that could not be resolved for so long is counted (``expired``) and forgotten.

=============  ===============================================================================
never pushed   due at once
goes on        due `AlertsConfig.repeat_s` after its last push
other labels   the former alert is resolved, and one with the new labels is due
resolved       due until it was delivered once, or has ended by itself
silenced       as resolved at that moment, and never pushed meanwhile; when the silence is over and the finding is
               open it is as one that was never pushed
=============  ===============================================================================

At most `MOST_FIRING` alerts go on at a time: one that does has its slot until it ends; of the others the most urgent
come first, and the rest is counted once each (``shed``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.alerts.alert import Alert, Labels, annotations_of, labels_of, url_of
from sdfstream.alerts.config import AlertsConfig
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

MOST_FIRING: Final = 2_000
MOST_ENDED: Final = 4_000
"""Resolved alerts that wait for delivery; beyond, the oldest is left to end by itself (``shed.resolved``)."""
MOST_AT_ONCE: Final = 200
"""Alerts of one push."""
_RANK: Final = {"urgent": 0, "warning": 1, "info": 2}
_NEVER: Final = -(1 << 62)

Finding = Mapping[str, Any]


@dataclass(slots=True)
class _Firing:
    labels: Labels
    finding: Finding
    pushed_at_ns: int = _NEVER


@dataclass(frozen=True, slots=True)
class _Ended:
    alert: Alert
    expires_at_ns: int


@dataclass(slots=True)
class AlertLedger:
    """Alerts that go on, and those that ended and are not yet delivered as such."""

    config: AlertsConfig
    cluster: str = ""
    counters: Counters = field(default_factory=lambda: Counters("alerts"))
    _firing: dict[str, _Firing] = field(default_factory=dict)
    """By finding id."""
    _ended: dict[Labels, _Ended] = field(default_factory=dict)
    _shed: set[str] = field(default_factory=set)
    """Open findings without a slot."""
    _silenced: set[str] = field(default_factory=set)
    """Open findings that nobody is told of now."""

    def look(self, opened: Sequence[Finding], resolved_at_ns: Callable[[str], int | None], now_ns: int) -> None:
        """Take what is open at `now_ns`, with its ``silence`` where it has one (`board.finding_notes`).

        `resolved_at_ns` knows when a finding that is not open was resolved.
        """
        now_open = {str(finding["id"]): finding for finding in opened if not finding.get("silence")}
        silenced = {str(finding["id"]) for finding in opened} - now_open.keys()
        self._count_silenced(silenced)
        for key in [key for key in self._firing if key not in now_open]:
            firing = self._firing.pop(key)
            if key not in silenced or firing.pushed_at_ns != _NEVER:
                self._end(firing, resolved_at_ns(key) or now_ns, now_ns)
        self._shed &= now_open.keys()
        for key, finding in sorted(now_open.items(), key=_most_urgent):
            known = self._firing.get(key)
            if known is not None and known.labels == labels_of(finding):
                known.finding = finding
            elif known is not None or len(self._firing) < MOST_FIRING:
                if known is not None:
                    self._end(known, now_ns, now_ns)
                self._begin(key, finding)
            elif key not in self._shed:
                self._shed.add(key)
                self.counters.add("shed", "open")
        self._expire(now_ns)

    def due(self, now_ns: int) -> list[Alert]:
        """Alerts to push now, at most `MOST_AT_ONCE`: resolved ones, then the others, the most urgent first."""
        ended = [one.alert for one in self._ended.values()][:MOST_AT_ONCE]
        repeat_ns = int(self.config.repeat_s * NS_PER_S)
        waiting = [f for f in self._firing.values() if now_ns - f.pushed_at_ns >= repeat_ns]
        waiting.sort(key=lambda f: (f.pushed_at_ns != _NEVER, _most_urgent(("", f.finding))))
        return ended + [self._alert(f, now_ns) for f in waiting[: MOST_AT_ONCE - len(ended)]]

    def delivered(self, alerts: Iterable[Alert], now_ns: int) -> None:
        """`alerts`, which were due, have arrived."""
        for alert in alerts:
            key = dict(alert.labels)["id"]
            if (waiting := self._ended.get(alert.labels)) is not None and waiting.alert == alert:
                del self._ended[alert.labels]
                self.counters.add("resolved")
            elif (firing := self._firing.get(key)) is not None and firing.labels == alert.labels:
                self.counters.add("repeated" if firing.pushed_at_ns != _NEVER else "opened")
                firing.pushed_at_ns = now_ns

    def _count_silenced(self, silenced: set[str]) -> None:
        """Each finding counts once for each time that it is silenced."""
        if new := len(silenced - self._silenced):
            self.counters.add("silenced", n=new)
        self._silenced = silenced

    def _begin(self, key: str, finding: Finding) -> None:
        labels = labels_of(finding)
        self._ended.pop(labels, None)  # it came back before it was delivered as resolved
        self._shed.discard(key)
        self._firing[key] = _Firing(labels, finding)

    def _end(self, firing: _Firing, ended_at_ns: int, now_ns: int) -> None:
        if firing.pushed_at_ns == _NEVER:
            self.counters.add("missed")  # over before it could be pushed once
            return
        finding = firing.finding
        alert = Alert(
            firing.labels,
            annotations_of(finding, self.config, self.cluster),
            _since_ns(finding, ended_at_ns),
            min(ended_at_ns, now_ns),
            url_of(finding, self.config),
        )
        self._ended[firing.labels] = _Ended(alert, firing.pushed_at_ns + int(self.config.expire_s * NS_PER_S))
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]
            self.counters.add("shed", "resolved")

    def _expire(self, now_ns: int) -> None:
        for labels in [labels for labels, one in self._ended.items() if one.expires_at_ns <= now_ns]:
            del self._ended[labels]
            self.counters.add("expired")

    def _alert(self, firing: _Firing, now_ns: int) -> Alert:
        finding = firing.finding
        annotations = annotations_of(finding, self.config, self.cluster)
        ends_at_ns = now_ns + int(self.config.expire_s * NS_PER_S)
        return Alert(firing.labels, annotations, _since_ns(finding, now_ns), ends_at_ns, url_of(finding, self.config))


def _since_ns(finding: Finding, latest_ns: int) -> int:
    since_ns = finding.get("since_at_ns")
    return min(since_ns, latest_ns) if isinstance(since_ns, int) else latest_ns


def _most_urgent(item: tuple[str, Finding]) -> tuple[int, int, str]:
    """Sorts the most urgent first, then the oldest."""
    key, finding = item
    since_ns = finding.get("since_at_ns")
    return _RANK.get(str(finding.get("severity")), 3), since_ns if isinstance(since_ns, int) else 0, key
