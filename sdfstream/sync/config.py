"""What a person may choose about sync; every default has a comment on what breaks when it is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from sdfstream.errors import ConfigError
from sdfstream.records.units import NS_PER_MS, NS_PER_S


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """Settings of `SyncStage`. Durations in ns, rates in ns per second (= ppb) where not said otherwise."""

    window_ns: int = 100 * NS_PER_MS
    """Length of a one-way-delay window, on reference time."""
    lateness_ns: int = 100 * NS_PER_MS
    """How long a window stays open after its end; too short: rows count in a later window than their own; too long:
    stale delays. Counted beyond the usual lag; 100 ms covers the follow-up at 16 probes/s and one flush."""
    max_late_ns: int = 5 * NS_PER_S
    """A row older than this is not shown as a present delay but counted (`owd-stale`)."""
    publish_err_ns: float = 1e6
    """Delays whose error bar is wider than this are withheld and counted (`owd-withheld`)."""
    wander_ppb: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0, 3.0, 10.0, 100.0)
    """Frequency random walks tried side by side, ppb per √s; each clock finds its own. 1: a good crystal in still air;
    100: a clock under an NTP daemon's hand."""
    phase_wander_ns: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 50.0, 250.0, 250.0)
    """Phase random walk of each of those models, ns per √s."""
    wander_prior: tuple[float, ...] = (1.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
    """How likely each of those models is before anything is known."""
    skew_limit_ppb: float = 50_000.0
    """Standard deviation of a new clock's skew before anything is known of it."""
    jitter_ns: float = 1.0
    """Least two-sided noise of a stamp; guards against trusting one lucky minimum to the last digit."""
    quiet_ns: float = 100.0
    """Two-sided noise up to this may be averaged over; above it only minima are trusted, since a mean books half of any
    one-way queue as clock error."""
    clean_sigmas: float = 4.0
    """A quiet session's block whose mean lies further above its level met a queue."""
    floor_drift_ns: float = 0.05
    """Random walk of a path's fixed delay, ns per √s."""
    floor_memory_ns: int = 120 * NS_PER_S
    """A floor that no packet touched for so long is learned anew (a reroute to a longer path); too short: a standing
    queue is booked as path length."""
    breach_sigmas: float = 6.0
    """A minimum this far below what the floor allows is no queue: clock step, or reroute to a shorter path."""
    breach_blocks: int = 4
    """So many breached blocks in a row make it true."""
    faulty_ns: float = 1000.0
    """A session whose mean residual is less than this is not called a disagreement, however precise it is."""
    err_sigmas: float = 4.5
    """Half-width of err_ns in standard deviations; floors' errors have longer tails than the normal law's."""
    holdover_after_ns: int = 2 * NS_PER_S
    """Without a sample for so long a clock is in holdover."""
    unsynced_err_ns: float = 1e6
    """A clock whose bound is wider than this is unsynced."""
    unknown_err_ns: float = 3.6e12
    """The bound published for a clock of which nothing is known (one hour)."""
    forget_ns: int = 600 * NS_PER_S
    """Sessions and clocks silent for so long are forgotten (and counted): memory stays bounded."""
    lag_ns: int = 3 * NS_PER_S
    """How far back smoothed rows lie, at least; they go out once a second, so at most one second more."""
    max_dead_rows: int = 256
    """Refused rows quoted per message in its dead letter; further ones are counted only."""
    max_ticks: int = 36_000
    """A jump of bus time over more ticks than this (one hour) is taken in one stride, and counted."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work, naming the key."""
        for name in ("window_ns", "forget_ns", "floor_memory_ns", "err_sigmas", "jitter_ns"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"sync.{name} must be greater than 0, not {getattr(self, name)}.")
        if self.lateness_ns < 0:
            raise ConfigError(f"sync.lateness_ns must not be negative, not {self.lateness_ns}.")
        models = (self.wander_ppb, self.phase_wander_ns, self.wander_prior)
        if not self.wander_ppb or len({len(m) for m in models}) > 1:
            names = "sync.wander_ppb, sync.phase_wander_ns and sync.wander_prior"
            raise ConfigError(f"{names} must be lists of one length, not empty.")
