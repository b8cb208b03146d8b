"""What a person may choose about sync; every default has a comment on what breaks when it is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from sdfstream.errors import ConfigError
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.sync import reference, utc


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """Settings of `SyncStage`. Durations in ns, rates in ns per second (= ppb) where not said otherwise."""

    reference: str = ""
    """What offsets are relative to: one clock id, several with commas (the first that lives), ``mean``; empty: the
    smallest clock id of the largest component. See `sync/reference`."""
    utc_clocks: tuple[str, ...] = ()
    """Clocks (hosts) that something else keeps at UTC. With any, clock ``utc`` is published: see `sync/utc`. Best three
    or more, so that one may be wrong; a clock that is not kept at UTC must not stand here."""
    utc_err_ns: float = 1e6
    """How far each of them may be off UTC at most. 1 ms holds for hosts that follow a time server of their own site by
    NTP (tens to hundreds of µs is usual); over the open Internet say 20 ms, with PTP less. Too small: the bound of
    ``utc`` is a lie; too large: it is merely wide."""
    window_ns: int = 100 * NS_PER_MS
    """Length of a one-way-delay window, on reference time."""
    lateness_ns: int = 100 * NS_PER_MS
    """How long a window stays open after its end, at most: it closes as soon as the rows that usually come have come
    (`bustime.Spread`). Too short: rows count in a later window than their own; too long: slow agents make delays stale.
    Counted beyond the lag of the newest row; 100 ms covers agents that gather for so long."""
    max_late_ns: int = 5 * NS_PER_S
    """A row older than this is not shown as a present delay but counted (`owd-stale`)."""
    publish_err_ns: float = 1e6
    """Delays whose error bar is wider than this are withheld and counted (`owd-withheld`)."""
    wander_ppb: float = 1.3
    """Random walk of a clock's frequency before anything is known of it, ppb per √s; each clock finds its own.
    1: a good crystal in still air; 100: a clock under an NTP daemon's hand."""
    wander_spread: float = 1.2
    """How unsure that is, in e-foldings (one standard deviation)."""
    least_wander_ppb: float = 0.5
    """No clock is taken to be steadier; too small: a long quiet hour makes the estimate slow to follow a change."""
    phase_wander_ns: float = 0.3
    """Random walk of a clock's phase, ns per √s."""
    skew_limit_ppb: float = 50_000.0
    """Standard deviation of a new clock's skew before anything is known of it."""
    jitter_ns: float = 3.0
    """Two-sided noise of stamps, so much of it as no packet is to be trusted beyond, until a session shows its own
    (`stamp_noise`). Less: on paths that hardly ever queue a stamp's noise is taken for the clock's; more: such paths
    measure less sharply than they could."""
    quiet_ns: float = 100.0
    """Two-sided noise up to this may be averaged over; above it only minima are trusted, since a mean books half of any
    one-way queue as clock error."""
    clean_sigmas: float = 4.0
    """A quiet session's block whose mean lies further above its moments met a queue."""
    floor_drift_ns: float = 0.05
    """Random walk of a path's fixed delay, ns per √s."""
    floor_memory_ns: int = 120 * NS_PER_S
    """How long the floor behind `excess_p50_ns` is remembered; too short: a standing queue is booked as path length."""
    floor_lost_ns: int = 5 * NS_PER_S
    """A path near whose base delay no packet came in either direction for so long, at least, has become longer."""
    floor_lost_blocks: int = 50
    """… and at least so many blocks."""
    doubt_sigmas: float = 4.0
    """A packet this much too fast makes the estimate doubt itself."""
    breach_sigmas: float = 6.0
    """A packet this much too fast, and by `breach_scales` times what queues usually leave, is no queue: a clock step, a
    shorter path, or a stamp gone wrong."""
    breach_scales: float = 3.0
    breach_blocks: int = 4
    """So many breached blocks in a row make it true."""
    faulty_ns: float = 1000.0
    """A session whose mean residual is less than this is not called a disagreement, however precise it is."""
    err_sigmas: float = 3.3
    """Half-width of err_ns in standard deviations."""
    least_bound_factor: float = 0.8
    """Least factor on a clock's variance in its bound, however well its predictions did."""
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
    max_ticks: int = 300
    """A jump of bus time over more ticks than this (30 s) is taken in one stride, and counted."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work, naming the key."""
        for name in (
            "window_ns",
            "forget_ns",
            "floor_memory_ns",
            "floor_lost_ns",
            "err_sigmas",
            "jitter_ns",
            "wander_ppb",
            "wander_spread",
            "least_wander_ppb",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"sync.{name} must be greater than 0, not {getattr(self, name)}.")
        reference.check(self.reference)
        utc.check(self.utc_clocks)
        if not 0.0 < self.utc_err_ns <= self.unknown_err_ns:
            raise ConfigError(f"sync.utc_err_ns must lie between 0 and an hour, not {self.utc_err_ns}.")
        if self.lateness_ns < 0:
            raise ConfigError(f"sync.lateness_ns must not be negative, not {self.lateness_ns}.")
