"""Settings of the workload stage."""

from __future__ import annotations

from dataclasses import dataclass

from sdfstream.errors import ConfigError
from sdfstream.records.units import NS_PER_MS, NS_PER_S


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """Settings of `WorkloadStage`, durations in ns."""

    window_ns: int = 100 * NS_PER_MS
    """Length of a window, on reference time."""
    lateness_ns: int = 150 * NS_PER_MS
    """Allowed lateness of a window, at least: one flush of the sending process, and a margin. Where chunks are
    reported later than that, windows stay open as long as the latest chunk of the last 2 s took."""
    max_hold_ns: int = NS_PER_S
    """Allowed lateness, at most; too long: stale figures when one host is slow; too short: its chunks count in a
    later window than their own (`late`)."""
    max_late_ns: int = 5 * NS_PER_S
    """A chunk acknowledged longer ago than this is backlog: it is counted (`stale`), not shown as present."""
    max_err_ns: float = 1e6
    """Delays whose error bar is wider than this are withheld and counted (`owd-withheld`)."""
    clock_fresh_ns: int = 3 * NS_PER_S
    """A clock state older than this, in bus time, is not used."""
    max_waiting: int = 50
    """Waiting windows published before a slow chunk's own, at most; the rest is counted (`windows-cut`)."""
    max_pairs: int = 65_536
    """Queue pairs known at a time; chunks of further ones are refused and counted."""
    max_chunks: int = 1_000_000
    """Chunks in open windows; beyond it the oldest windows close early. 90 bytes each."""
    forget_ns: int = 600 * NS_PER_S
    """A queue pair without a chunk for so long is forgotten."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work, naming the key."""
        for name in ("window_ns", "max_late_ns", "clock_fresh_ns", "max_pairs", "max_chunks", "forget_ns"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"workload.{name} must be greater than 0, not {getattr(self, name)}.")
        for name in ("lateness_ns", "max_hold_ns", "max_waiting", "max_err_ns"):
            if getattr(self, name) < 0:
                raise ConfigError(f"workload.{name} must not be negative, not {getattr(self, name)}.")
