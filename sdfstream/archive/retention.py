"""Retention: how long rows stay in the archive. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from sdfstream.archive import tables
from sdfstream.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Retention:
    """How long rows stay, by the archive's own time; none: for good. They go by whole partitions, thus later.

    Events stay for good: findings, health of NICs, topology, jobs, commands, outcomes, overrides.
    """

    raw_hours: float | None = 1.0
    """Probe exchanges (``raw_probe``) and delays by window (``derived_owd``)."""
    clock_hours: float | None = 6.0
    """Clock estimates (``state_clock``); their minutes stay as long as those of paths."""
    job_hours: float | None = 24.0
    """Chunks of queue pairs (``raw_qp``), their windows (``derived_qp``), queues of links (``derived_hop``)."""
    port_hours: float | None = 24.0
    """Counters of ports, agents' liveness, rejects."""
    second_days: float | None = 7.0
    """Paths by second (``owd_1s``)."""
    minute_days: float | None = 90.0
    """Paths and clocks by minute (``owd_1m``, ``clock_1m``)."""
    hour_days: float | None = 730.0
    """Paths by hour, with sketches (``owd_1h``)."""
    kept_days: float | None = 30.0
    """Raw rows around findings (``raw_probe_kept``, ``derived_owd_kept``)."""
    around_minutes: float = 5.0
    """Raw rows are copied from this long before a finding began until this long after it was published, and around its
    end."""
    kept_paths: int = 200
    """Path ids copied for one finding, those with most loss and delay first; the rest is counted."""
    every_s: float = 30.0
    """Period at which minutes are finished and rows around findings are copied."""

    def __post_init__(self) -> None:
        """Refuse settings by which rows would expire before their roll-up or copy."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not 0 < value < 1e7:
                raise ConfigError(f"retention.{each.name} must be above 0, or null to keep rows for good; not {value}")
        if self.raw_hours is not None and self.raw_hours * 60 < 2 * self.around_minutes + 10:
            raise ConfigError(
                f"retention.raw_hours is {self.raw_hours}: rows would go before those around findings"
                f" (around_minutes {self.around_minutes}) are copied and minutes are finished; at least"
                f" {(2 * self.around_minutes + 10) / 60:.2g}"
            )
        if self.second_days is not None and self.second_days * 24 < 2:
            raise ConfigError("retention.second_days must be at least 0.1: hours are made from seconds")


@dataclass(frozen=True, slots=True)
class Aging:
    """A table whose rows expire, the column of their age, and the setting that says when."""

    table: str
    column: str
    setting: str


AGING: Final = (
    *(Aging(table, "bus_at", "raw_hours") for table in ("raw_probe", "derived_owd")),
    Aging("state_clock", "bus_at", "clock_hours"),
    *(Aging(table, "bus_at", "job_hours") for table in ("raw_qp", "derived_qp", "derived_hop")),
    *(Aging(table, "bus_at", "port_hours") for table in ("raw_port", "raw_liveness", tables.REJECT_TABLE)),
    Aging("owd_1s", "at", "second_days"),
    *(Aging(table, "minute", "minute_days") for table in ("owd_1m", "clock_1m")),
    Aging("owd_1h", "hour", "hour_days"),
    *(Aging(table, "bus_at", "kept_days") for table in ("raw_probe_kept", "derived_owd_kept")),
)


def seconds(aging: Aging, retention: Retention | None) -> int:
    """How long a table keeps its rows, s; 0: for good.

    >>> seconds(Aging("raw_probe", "bus_at", "raw_hours"), Retention())
    3600
    """
    length: float | None = None if retention is None else getattr(retention, aging.setting)
    if length is None:
        return 0
    return max(1, round(length * (3600 if aging.setting.endswith("_hours") else 86400)))
