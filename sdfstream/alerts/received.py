"""Alerts that an Alertmanager told of, the newest of each. Sans-IO, bounded; gone with the process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sdfstream.alerts.alert import ALERTNAME
from sdfstream.alerts.webhook import ReceivedAlert
from sdfstream.stats import Counters

MOST_RECEIVED: Final = 1_000
"""Beyond, the one that was told of longest ago is forgotten."""


@dataclass(slots=True)
class ReceivedAlerts:
    """By receiver and fingerprint."""

    counters: Counters = field(default_factory=lambda: Counters("received"))
    _known: dict[tuple[str, str], tuple[ReceivedAlert, int]] = field(default_factory=dict)

    def take(self, alerts: Iterable[ReceivedAlert], now_ns: int) -> None:
        """Take the alerts of a webhook that came at `now_ns`."""
        for alert in alerts:
            key = alert.receiver, alert.fingerprint
            self._known.pop(key, None)
            self._known[key] = alert, now_ns
            self.counters.add("alerts", alert.status)
            if len(self._known) > MOST_RECEIVED:
                del self._known[next(iter(self._known))]
                self.counters.add("shed")

    def items(self) -> list[dict[str, Any]]:
        """All that are known, as plain data."""
        return [
            asdict(alert)
            | {
                "id": f"{alert.receiver} {alert.fingerprint}",
                "finding": alert.labels.get("id") if alert.labels.get("alertname") == ALERTNAME else None,
                "received_at_ns": at_ns,
            }
            for alert, at_ns in self._known.values()
        ]
